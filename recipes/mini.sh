#!/usr/bin/env bash
# The encoder that comes with calque, from plain text. MONO holds {en,de,es,fr,zh,bg,tr,ru}.txt.gz, one sentence a line, whose licences
# let weights trained on them be given away. About three hours on two cores; a stopped run continues when it is started again.
set -euo pipefail
MONO=${1:?folder with the text} OUT=${2:?folder for the encoder}
texts=()
for lang in en de es fr zh bg tr ru; do texts+=("$lang=$MONO/$lang.txt.gz"); done
calque pretrain "${texts[@]}" --out "$OUT" --layers 6 --dim 128 --vocabulary 16000 --length 128 --batch 32 --updates 24000 \
  --learning-rate 0.0015 --alpha 0.5 --half --seed 0
