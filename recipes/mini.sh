#!/usr/bin/env bash
# Train the bundled encoder `mini` from plain text. MONO has {en,de,es,fr,zh,bg,tr,ru}.txt.gz with one sentence a line, under licences that allow
# the weights to be distributed. Training takes two and a half hours on two cores; the same command resumes a stopped run and skips
# finished stages.
# The first stage has blocks of one or two sentences and a high learning rate, which shortens the plateau of small models (dev/LOG.md). The second
# stage has longer blocks and most of the updates.
set -euo pipefail
case ${1:-} in -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit;; esac
MONO=${1:?folder with the text} OUT=${2:?folder for the encoder}
texts=()
for lang in en de es fr zh bg tr ru; do texts+=("$lang=$MONO/$lang.txt.gz"); done
FIRST=$OUT.first
if [ ! -e "$FIRST/model.safetensors" ]; then
  calque pretrain "${texts[@]}" --out "$FIRST" --layers 6 --dim 128 --heads 4 --vocabulary 16000 --length 48 --batch 96 \
    --updates 8000 --learning-rate 0.002 --alpha 0.5 --half --seed 0
fi
if [ -e "$OUT/model.safetensors" ]; then exit; fi
calque pretrain "${texts[@]}" --out "$OUT" --start "$FIRST" --length 96 --batch 48 --updates 13000 --learning-rate 0.0015 \
  --alpha 0.5 --half --seed 1
