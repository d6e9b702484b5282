#!/usr/bin/env bash
# Measure speed and memory of contrastive alignment at the sizes of published encoders, on a GPU or on CPUs:
#   benchmarks/gpu.sh [cuda|cpu] [ENCODER LAYER]
# ENCODER is a decoder such as google/gemma-3-270m; without ENCODER, only encoders with random weights are measured.
# Set SIZES (layers x dimensions) and PAIRS for other sizes: SIZES="2x128" PAIRS=50 benchmarks/gpu.sh cpu
set -euo pipefail
case ${1:-} in -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit;; esac
cd "$(dirname "$0")/.."
device=${1:-cuda} SIZES=${SIZES:-6x384 12x768} PAIRS=${PAIRS:-1000}
measure() {
    for which in loop calque; do
        python -m benchmarks.contrastive --device "$device" --lora 8 --pairs "$PAIRS" --only "$which" "$@"
    done
}
for size in $SIZES; do measure --layers "${size%x*}" --dim "${size#*x}"; done
if [ $# -ge 3 ]; then measure --encoder "$2" --layer "$3"; fi
