"""Compare the encoding speed of calque with that of a plain loop over batches in text order or sorted by length.

The plain loop pads batches with `transformers`. The output contains its largest difference from calque's vectors.

    python -m benchmarks.encode --encoder mini --text TEXT.tsv --threads 1
    python -m benchmarks.encode --layers 4 --dim 768 --pairs 200
"""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.shared import batches, both, compare, options_of, read, word_vectors


def padded(
    encoder, texts: list[tuple[str, ...]], size: int, *, by_length: bool
) -> list[np.ndarray]:
    """Return the word vectors `[words, dim]` of each text, computed by a plain loop over padded
    batches.
    """
    vectors: list[np.ndarray] = [np.zeros(0)] * len(texts)
    for numbers in batches(texts, size, by_length=by_length):
        with torch.no_grad():
            for k, found in zip(
                numbers,
                word_vectors(encoder, encoder.model, [texts[k] for k in numbers]),
                strict=True,
            ):
                zero = torch.zeros(encoder.dim)
                vectors[k] = torch.stack(
                    [found.get(word, zero) for word in range(len(texts[k]))]
                ).numpy()
    return vectors


def main(arguments: list[str] | None = None) -> None:
    options = options_of(__doc__, pairs=1000, batch=32).parse_args(arguments)
    encoder, corpus, _ = read(options)
    sentences = [sentence for pair in corpus for sentence in pair]
    texts = [sentence.words for sentence in sentences]
    vectors, plain = (
        encoder.encode(sentences[:256]),
        padded(encoder, texts[:256], 32, by_length=True),
    )
    covered = np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered
    whole = [
        k for k in range(len(plain)) if covered[vectors.offsets[k] : vectors.offsets[k + 1]].all()
    ]  # indices of the sentences that were not truncated
    apart = max(float(np.abs(plain[k] - vectors[k]).max()) for k in whole)
    title = (
        f"encoding {len(texts):,} sentences, {encoder.name}, {options.threads} threads (vectors "
        f"agree within {apart:.0e})"
    )
    compare(
        title,
        len(texts),
        lambda: encoder.encode(sentences),
        both(padded, encoder, texts, options.batch),
        options.rounds,
    )


if __name__ == "__main__":
    main()
