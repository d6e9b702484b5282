"""A WordPiece vocabulary that is the same every time it is learnt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import BertWordPieceTokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_INSIDE = "##"


def train_wordpiece(
    lines: Iterable[str], *, size: int, letters: int | None = None, lower: bool = False
) -> BertWordPieceTokenizer:
    """A tokenizer like BERT's, with accents, Chinese characters apart.

    The trainer of `tokenizers` numbers letters inside words in the order of a hash table, another one each time, and decides
    by these numbers between merges of equal count (its issue 1794). Here all letters are numbered beforehand.

    Args:
        lines: text.
        size: subwords of the vocabulary, the special ones and the letters included.
        letters: how many different ones at most, the most frequent; None for all.
        lower: whether it puts all text in lower case first.
    """
    from tokenizers import BertWordPieceTokenizer

    def blank(*vocabulary) -> BertWordPieceTokenizer:
        return BertWordPieceTokenizer(*vocabulary, lowercase=lower, strip_accents=False)

    words = Counter(word for line in lines for word in line.split())
    trained = blank()
    counts, inside = Counter[str](), set[str]()
    for word, n in words.items():
        for part, _ in trained.pre_tokenizer.pre_tokenize_str(trained.normalizer.normalize_str(word)):
            inside.update(part[1:])
            for letter in part:
                counts[letter] += n
    alphabet = sorted(sorted(counts, key=lambda letter: (-counts[letter], letter))[:letters])
    # What is called special comes first and in this order. Only the true ones are special in what is given back.
    trained.train_from_iterator(
        (" ".join([word] * n) for word, n in words.items()),
        vocab_size=size, initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False,
        special_tokens=[*SPECIAL, *(_INSIDE + letter for letter in alphabet if letter in inside)],
    )  # fmt: skip
    return blank(trained.get_vocab())
