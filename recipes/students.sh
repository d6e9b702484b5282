#!/usr/bin/env bash
# Distil students of an English sentence encoder on 20,000 en-de sentence pairs, and test them on image captions, which are not in the training text, and
# on text of the training domains.
#   bash recipes/students.sh TEACHER DATA OUT
# TEACHER is the folder of all-MiniLM-L6-v2. DATA has train.en-de.tsv.gz and dev.en-de.tsv with the columns source, target and origin. Finished steps are
# skipped; repeat the command to resume a stopped run.
set -euo pipefail
case ${1:-} in -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit;; esac
TEACHER=${1:?folder of the teacher} DATA=${2:?folder of the texts} OUT=${3:?folder for students and scores}
mkdir -p "$OUT/scores"
captions='$3 == "multi30k"'
[ -e "$OUT/train.tsv" ] || gzip -cd "$DATA/train.en-de.tsv.gz" | awk -F '\t' "!($captions)" > "$OUT/train.tsv"
awk -F '\t' "$captions" "$DATA/dev.en-de.tsv" > "$OUT/captions.tsv"
awk -F '\t' "!($captions)" "$DATA/dev.en-de.tsv" > "$OUT/in-domain.tsv"

measure() {  # ENCODER NAME
  for test in captions in-domain; do
    local scores=$OUT/scores/$2.$test.jsonl
    [ -e "$scores" ] || calque evaluate "$1" sentences --test "$OUT/$test.tsv" --langs en de --out "$scores"
  done
}

student() {  # NAME OPTIONS…
  local name=$1; shift
  [ -e "$OUT/$name" ] || calque distil "$OUT/train.tsv" --langs en de --teacher "$TEACHER" --limit 20000 --out "$OUT/$name" "$@"
  measure "$OUT/$name" "$name"
}

measure "$TEACHER" teacher
student default --student mini
student ranking --student mini --ranking 0.3 --negatives 2000
student static --student mini --static --ranking 1 --epochs 8
