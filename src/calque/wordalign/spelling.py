"""How alike two words of different languages are spelt: names, numbers and loan words align by it.

The measure is the longest common subsequence ratio (Melamed 1995, "Automatic evaluation and uniform filter cascades
for inducing N-best translation lexicons"), of the words without accents and in Latin letters.
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported; checkers cannot see them.

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calque.wordalign.bitext import Pairs, loop

_CYRILLIC = "а:a б:b в:v г:g д:d е:e ё:e ж:zh з:z и:i й:i к:k л:l м:m н:n о:o п:p р:r с:s т:t у:u ф:f х:h ц:ts ч:ch "
_CYRILLIC += "ш:sh щ:sht ъ: ы:y ь: э:e ю:yu я:ya є:e і:i ї:i ґ:g ђ:d ј:j љ:l њ:n ћ:c џ:dz ѓ:g ќ:k ѕ:z "
_GREEK = "α:a β:v γ:g δ:d ε:e ζ:z η:i θ:th ι:i κ:k λ:l μ:m ν:n ξ:x ο:o π:p ρ:r σ:s ς:s τ:t υ:y φ:f χ:h ψ:ps ω:o"
_ROMAN = str.maketrans({letter[0]: letter[2:] for letter in (_CYRILLIC + _GREEK).split(" ")})
_U = np.uint64
BITS = 64
LONGEST = 255  # letters; longer words count as if they had so many

CodePoints = tuple[np.ndarray, np.ndarray]


def code_points(forms: pa.Array) -> CodePoints:
    """Return words as code points without accents, Cyrillic and Greek in Latin letters, lower case.

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
    """Return the words of both, one after the other."""
    return np.concatenate([first[0], second[0]]), np.concatenate([first[1], first[1][-1] + second[1][1:]])


def ratios() -> np.ndarray:
    """Return the similarity from 0 to 1 for every number that `shared` gives, float32: there are few, and many pairs of types."""
    subsequence, longer = np.divmod(np.arange(65 << 8), 1 << 8)
    return (subsequence / np.maximum(longer, 1)).astype(np.float32)


def shared(pairs: Pairs, source: CodePoints, target: CodePoints) -> np.ndarray:
    """Return 256 times the longest common subsequence of every pair of types, plus the length of the longer word (255 at most).

    Args:
        pairs: which types meet.
        source, target: the spelling of every type, as `code_points` gives it. Letters behind the 64th of a source word are
            not compared.

    Returns:
        uint16 `[n_pairs]`.
    """
    (left, left_offsets), (right, right_offsets) = source, target
    points = np.concatenate([left, right])
    met = np.zeros(int(points.max(initial=0)) + 1, dtype=bool)
    met[points] = True
    letters = (np.cumsum(met, dtype=np.int32) - 1)[points]
    places = letters[: len(left)], left_offsets, letters[len(left) :], right_offsets
    return common(*places, int(met.sum()), pairs.starts, pairs.target)


@loop
def common(left, left_offsets, right, right_offsets, n_letters, starts, target):
    """Return `shared` by the bit-parallel longest common subsequence (Hyyrö 2004): a column of the table in one machine word."""
    masks, out = np.zeros(n_letters, np.uint64), np.zeros(len(target), np.uint16)
    for s in range(len(starts) - 1):
        low, length = left_offsets[s], left_offsets[s + 1] - left_offsets[s]
        bits = min(length, BITS)
        for k in range(bits):
            masks[left[low + k]] |= _U(1) << _U(k)
        inside = ~_U(0) if bits == BITS else (_U(1) << _U(bits)) - _U(1)
        for p in range(starts[s], starts[s + 1]):
            first, last = right_offsets[target[p]], right_offsets[target[p] + 1]
            column = ~_U(0)
            for k in range(first, last):
                both = column & masks[right[k]]
                column = (column + both) | (column - both)
            rest = ~column & inside
            n = 0
            while rest != _U(0):
                rest &= rest - _U(1)
                n += 1
            out[p] = (n << 8) | min(max(length, last - first), LONGEST)
        for k in range(bits):
            masks[left[low + k]] = _U(0)
    return out
