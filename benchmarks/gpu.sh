#!/bin/sh
# Absolute figures on a graphics card: encoding, fine-tuning, contrastive alignment and CSLS, with the card's name.
#   benchmarks/gpu.sh            one line, and nothing else, where there is no card
cd "$(dirname "$0")/.." || exit 1
exec "${PYTHON:-python3}" -m benchmarks.gpu "$@"
