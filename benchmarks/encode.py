"""Word vectors per second: calque against a plain `transformers` loop, in one run.

The plain loop is what one writes first: batches of 32 sentences in the order of the text, padded, all hidden states,
and a Python loop over `word_ids()` for the last subword of each word. Both give the same vectors; that is checked.

    python -m benchmarks.encode --encoder FOLDER TEXT.tsv [TEXT.tsv …]

Columns 1 and 2 of each line are sentences. Without arguments: random words, and a random BERT of 6 layers × 128.
"""

from __future__ import annotations

import argparse
import gzip
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.stand_in import scaling

WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W_]+|[^\w\s]|_")


def read(paths: list[Path], limit: int, seed: int) -> list[list[str]]:
    """Sentences of both columns of the first `limit` lines of each file, shuffled."""
    sentences = []
    for path in paths:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            for _, line in zip(range(limit), file, strict=False):
                sentences += [WORD.findall(column) for column in line.split("\t")[:2]]
    np.random.default_rng(seed).shuffle(sentences)
    return [words for words in sentences if words]


def made_up(n: int, seed: int) -> list[list[str]]:
    """Random words in sentences as long as those of translated text (log-normal, median 15)."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(np.exp(rng.normal(2.7, 0.7, n)), 1, 100).astype(int)
    letters = np.array(list("etaoinshrdlu"))
    return [["".join(rng.choice(letters, rng.integers(1, 8))) for _ in range(length)] for length in lengths]


def random_bert(folder: Path, layers: int, dim: int) -> Path:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = "etaoinshrdlu"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *letters, *(f"##{a}{b}{c}" for a in letters for b in letters for c in letters)]
    pieces += [f"##{a}" for a in letters] + [f"##{a}{b}" for a in letters for b in letters]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=16_000, hidden_size=dim, num_hidden_layers=layers, num_attention_heads=dim // 64,
        intermediate_size=4 * dim, max_position_embeddings=256,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    BertTokenizerFast(tokenizer_object=tokenizer, model_max_length=256).save_pretrained(folder)
    return folder


def plain(encoder, sentences: list[list[str]]) -> list[np.ndarray]:
    """The loop that calque is compared with."""
    tokenizer, model, vectors = encoder.tokenizer, encoder.model, []
    for start in range(0, len(sentences), 32):
        part = sentences[start : start + 32]
        batch = tokenizer(part, is_split_into_words=True, padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            states = model(**batch, output_hidden_states=True).hidden_states[encoder.layer]
        for i, words in enumerate(part):
            last = {word: place for place, word in enumerate(batch.word_ids(i)) if word is not None}
            zero = torch.zeros(states.shape[-1])
            rows = [states[i, last[word]] if word in last else zero for word in range(len(words))]
            vectors.append(torch.stack(rows).numpy())
    return vectors


def seconds(function: Callable[[], object]) -> np.ndarray:
    """Time by the clock, and of the processor."""
    start = np.array([time.perf_counter(), time.process_time()])
    function()
    return np.array([time.perf_counter(), time.process_time()]) - start


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("texts", nargs="*", type=Path)
    parser.add_argument("--encoder", type=Path, help="default: a random BERT of 6 layers × 128")
    parser.add_argument("--limit", type=int, default=10_000, help="lines of each text")
    parser.add_argument("--layers", type=int, default=6, help="of the random BERT; 12 for the size of BERT-base")
    parser.add_argument("--dim", type=int, default=128, help="of the random BERT; 768 for the size of BERT-base")
    parser.add_argument("--precision", default="highest", help="of calque: highest, medium or bfloat16")
    parser.add_argument("--scaling", action="store_true", help="calque alone: --threads threads against one")
    parser.add_argument("--sentences", type=int, default=2048, help="sentences of one round, drawn from all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)

    from calque.encoders import load_encoder

    with tempfile.TemporaryDirectory() as folder:
        encoder = load_encoder(
            args.encoder or random_bert(Path(folder), args.layers, args.dim), precision=args.precision
        )
    sentences = read(args.texts, args.limit, args.seed) if args.texts else made_up(20_000, args.seed)
    if args.scaling:
        part = sentences[: args.sentences]
        return scaling(lambda: encoder.encode(part), args.threads, args.rounds)
    warm = sentences[: args.sentences // 4]
    difference = max(
        float(np.abs(a - b).max())
        for a, b, words in zip(plain(encoder, warm), encoder.encode(warm), warm, strict=True)
        if len(encoder.subwords.split([words]).ids) < (encoder.subwords.max_length or 10**9)
    )
    print(f"{encoder}, {len(sentences):,} sentences, {args.threads} threads; largest difference {difference:.1e}")
    slow, fast = [], []
    for turn in range(args.rounds):
        # a fresh part each time, so that no table of words helps more than it does in one long text
        part = [sentences[i % len(sentences)] for i in range(turn * args.sentences, (turn + 1) * args.sentences)]
        slow.append(seconds(lambda part=part: plain(encoder, part)))
        fast.append(seconds(lambda part=part: encoder.encode(part)))
    n, by_clock, by_processor = args.sentences, *np.array([a / b for a, b in zip(slow, fast, strict=True)]).T
    print(f"plain loop {n / np.median(slow, axis=0)[0]:8.0f} sentences/s")
    print(f"calque     {n / np.median(fast, axis=0)[0]:8.0f} sentences/s")
    print(f"ratio      {np.median(by_clock):8.2f} by the clock ({by_clock.min():.2f} to {by_clock.max():.2f}),")
    print(f"           {np.median(by_processor):8.2f} in processor time; medians of {args.rounds}")


if __name__ == "__main__":
    main()
