#!/usr/bin/env bash
# The encoder that comes with calque, from plain text. MONO holds {en,de,es,fr,zh,bg,tr,ru}.txt.gz, one sentence a line, whose licences
# let weights trained on them be given away. Two hours and a half on two cores; a stopped run continues when it is started again.
# First blocks of a sentence or two at a high rate: that is what lets so small a model leave the plateau early (dev/LOG.md). Then blocks
# of a few sentences, and most of the updates.
set -euo pipefail
MONO=${1:?folder with the text} OUT=${2:?folder for the encoder}
texts=()
for lang in en de es fr zh bg tr ru; do texts+=("$lang=$MONO/$lang.txt.gz"); done
FIRST=$OUT.first
if [ ! -e "$FIRST/model.safetensors" ]; then
  calque pretrain "${texts[@]}" --out "$FIRST" --layers 6 --dim 128 --heads 4 --vocabulary 16000 --length 48 --batch 96 \
    --updates 8000 --learning-rate 0.002 --alpha 0.5 --half --seed 0
fi
calque pretrain "${texts[@]}" --out "$OUT" --start "$FIRST" --length 96 --batch 48 --updates 13000 --learning-rate 0.0015 \
  --alpha 0.5 --half --seed 1
