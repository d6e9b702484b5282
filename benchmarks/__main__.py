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
    "zipf": "write artificial parallel text of any length with known links, and score links",
}

if __name__ == "__main__":
    if not sys.argv[1:]:
        print("".join(f"{name:17} {about}\n" for name, about in (PARTS | WITH_FILES).items()), end="")
    chosen = list(PARTS) if sys.argv[1:] == ["all"] else sys.argv[1:]
    if unknown := set(chosen) - set(PARTS):
        sys.exit(f"NAME must be one of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    failed = [part for part in chosen if subprocess.run([sys.executable, "-m", f"benchmarks.{part}"]).returncode]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
