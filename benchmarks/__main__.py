"""`python -m benchmarks`: the speed ratios of docs/results.md, each measured in turns within one process."""

from __future__ import annotations

import subprocess
import sys

PARTS = (
    "words",
    "encode",
    "finetune",
    "contrastive",
    "csls",
    "tagging",
    "transform",
    "esim",
    "elmo",
    "bilm",
    "explore",
    "anchors",
    "self_learning",
    "recovery",
    "ordering",
)

if __name__ == "__main__":
    chosen = sys.argv[1:] or list(PARTS)
    unknown = set(chosen) - set(PARTS)
    if unknown:
        sys.exit(f"no benchmark {sorted(unknown)}, there are {', '.join(PARTS)}")
    failed = [part for part in chosen if subprocess.run([sys.executable, "-m", f"benchmarks.{part}"]).returncode]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
