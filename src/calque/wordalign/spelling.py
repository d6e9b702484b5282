"""How alike two words of different languages are spelt: names, numbers and loan words align by it.

The measure is the longest common subsequence ratio (Melamed 1995, "Automatic evaluation and uniform filter cascades
for inducing N-best translation lexicons"), of the words without accents and in Latin letters.
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported; checkers cannot see them.

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calque.wordalign.bitext import Pairs
from calque.wordalign.compiled import Compiled
from calque.wordalign.parallel import run

_CYRILLIC = "а:a б:b в:v г:g д:d е:e ё:e ж:zh з:z и:i й:i к:k л:l м:m н:n о:o п:p р:r с:s т:t у:u ф:f х:h ц:ts ч:ch "
_CYRILLIC += "ш:sh щ:sht ъ: ы:y ь: э:e ю:yu я:ya є:e і:i ї:i ґ:g ђ:d ј:j љ:l њ:n ћ:c џ:dz ѓ:g ќ:k ѕ:z "
_GREEK = "α:a β:v γ:g δ:d ε:e ζ:z η:i θ:th ι:i κ:k λ:l μ:m ν:n ξ:x ο:o π:p ρ:r σ:s ς:s τ:t υ:y φ:f χ:h ψ:ps ω:o"
_ROMAN = str.maketrans({letter[0]: letter[2:] for letter in (_CYRILLIC + _GREEK).split(" ")})
common = Compiled("calque.wordalign.loops.spelling:common")


CodePoints = tuple[np.ndarray, np.ndarray]


def code_points(forms: pa.Array) -> CodePoints:
    """Words as code points without accents, Cyrillic and Greek in Latin letters, lower case.

    Returns:
        code points, uint32, all words in a row; offsets of the words in them, int64 `[n + 1]`.
    """
    bare = pc.replace_substring_regex(pc.utf8_lower(pc.utf8_normalize(forms, form="NFKD")), r"[\p{M}\n]+", "")
    text = "".join(word + "\n" for word in bare.to_pylist())
    if not text.isascii():
        text = text.translate(_ROMAN)
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    ends = np.flatnonzero(points == 10)
    offsets = np.zeros(len(forms) + 1, dtype=np.int64)
    offsets[1:] = ends - np.arange(len(ends))
    return points[points != 10], offsets


def joined(first: CodePoints, second: CodePoints) -> CodePoints:
    """The words of both, one after the other."""
    return np.concatenate([first[0], second[0]]), np.concatenate([first[1], first[1][-1] + second[1][1:]])


def ratios() -> np.ndarray:
    """Similarity from 0 to 1 for every number that `shared` gives, float32: there are few, and many pairs of types."""
    subsequence, longer = np.divmod(np.arange(65 << 8), 1 << 8)
    return (subsequence / np.maximum(longer, 1)).astype(np.float32)


def shared(pairs: Pairs, source: CodePoints, target: CodePoints, threads: int = 1) -> np.ndarray:
    """Longest common subsequence of every pair of types, and the length of the longer word (255 at most); uint16 `[n_pairs]`, 256
    times the one plus the other.

    Args:
        pairs: which types meet.
        source, target: the spelling of every type, as `code_points` gives it. Letters behind the 64th of a source word are
            not compared.
        threads: it does not depend on them.
    """
    (left, left_offsets), (right, right_offsets) = source, target
    points = np.concatenate([left, right])
    met = np.zeros(int(points.max(initial=0)) + 1, dtype=bool)
    met[points] = True
    alphabet, letters = np.flatnonzero(met), (np.cumsum(met, dtype=np.int32) - 1)[points]
    out = np.zeros(len(pairs), dtype=np.uint16)
    places = letters[: len(left)].copy(), left_offsets, letters[len(left) :].copy(), right_offsets
    parts = 1 if threads == 1 else 4 * threads
    cuts = np.searchsorted(pairs.starts, np.linspace(0, len(pairs), parts + 1)[1:-1]).tolist()
    tasks = [
        partial(common, *each, *places, pairs.starts, pairs.target, np.zeros(len(alphabet), dtype=np.uint64), out)
        for each in pairwise([0, *cuts, len(pairs.starts) - 1])
    ]
    run(tasks, threads)
    return out
