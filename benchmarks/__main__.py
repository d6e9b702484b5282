"""`python -m benchmarks` lists the benchmarks; `python -m benchmarks NAME …` runs some of them, or `all`."""

from __future__ import annotations

import subprocess
import sys

PARTS = {
    "words": "calque words against fast_align, processor time",
    "encode": "encoding against padded loops of transformers",
    "contrastive": "contrastive alignment against padded loops",
    "csls": "CSLS in both directions against one matrix product",
    "memory": "memory of five commands as the text grows",
    "planted_rotation": "a planted rotation, found by dictionaries and without one",
}
WITH_FILES = {
    "planted": "planted senses, translations and key points: make, score",
    "zipf": "made-up parallel text with known links, of any length: write, link, score",
}

if __name__ == "__main__":
    if not sys.argv[1:]:
        print("".join(f"{name:17} {about}\n" for name, about in (PARTS | WITH_FILES).items()), end="")
    chosen = list(PARTS) if sys.argv[1:] == ["all"] else sys.argv[1:]
    if unknown := set(chosen) - set(PARTS):
        sys.exit(f"no benchmark {sorted(unknown)}, there are {', '.join(PARTS)}")
    failed = [part for part in chosen if subprocess.run([sys.executable, "-m", f"benchmarks.{part}"]).returncode]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
