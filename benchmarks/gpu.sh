#!/usr/bin/env bash
# Measure speed and memory of contrastive alignment at the sizes of published encoders, on a GPU or on CPUs:
#   benchmarks/gpu.sh [cuda|cpu] [ENCODER LAYER]
# ENCODER is a decoder such as google/gemma-3-270m; without ENCODER, only encoders with random weights are measured.
set -euo pipefail
cd "$(dirname "$0")/.."
device=${1:-cuda}
measure() {
    for which in loop calque; do python -m benchmarks.contrastive --device "$device" --lora 8 --only "$which" "$@"; done
}
measure --layers 6 --dim 384 --pairs 1000
measure --layers 12 --dim 768 --pairs 1000
if [ $# -ge 3 ]; then measure --encoder "$2" --layer "$3" --pairs 1000; fi
