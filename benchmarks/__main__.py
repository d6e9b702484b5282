"""List the benchmarks (`python -m benchmarks`), or run some or all of them (`python -m benchmarks NAME …`, or `all`)."""

from __future__ import annotations

import subprocess
import sys

PARTS = {
    "words": "processor time of calque words compared with that of fast_align",
    "encode": "encoding speed of calque compared with a loop over padded batches",
    "contrastive": "speed of contrastive alignment compared with a plain training loop",
    "csls": "time of CSLS in both directions compared with one matrix product",
    "memory": "peak memory of five commands as the text grows",
    "planted_rotation": "recovery of a planted rotation, with and without a dictionary",
}
WITH_FILES = {
    "planted": "create text with planted senses, translations or key points, and score models on it",
    "reading": "word retrieval and alignment error rate of every layer and pooling of encoders",
    "never_worse": "word and sentence retrieval before and after alignment with few sentence pairs",
    "aligners": "alignment error rates of the statistical aligners, and of eflomal if installed",
    "zipf": "write artificial parallel text of any length with known links, and score links",
}


def main(arguments: list[str]) -> str | int:
    """Run benchmarks, and return the exit status or an error message."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(__doc__)
        print(
            "".join(f"{name:17} {about}\n" for name, about in (PARTS | WITH_FILES).items()), end=""
        )
        print("\n`python -m benchmarks.NAME --help` lists the options of a benchmark.")
        return 0
    chosen = list(PARTS) if arguments == ["all"] else arguments
    if unknown := set(chosen) - set(PARTS):
        return f"NAME must be one of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}"
    failed = [
        part
        for part in chosen
        if subprocess.run([sys.executable, "-m", f"benchmarks.{part}"]).returncode
    ]
    return f"failed: {', '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
