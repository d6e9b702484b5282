"""What compiled loops and their callers agree on."""

from __future__ import annotations

import numpy as np

F = np.float32
LANES = 8  # rows are padded to full vectors
IBM1, HMM = 0, 1
COUNT, LINK, SAMPLE = 0, 1, 2
FERTILITIES = 12  # higher fertilities share a count
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
