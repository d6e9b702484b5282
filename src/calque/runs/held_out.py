"""Text that a language model is not trained on, but measured by."""

from __future__ import annotations

import numpy as np

from calque.errors import SettingError
from calque.text import Sentences


def hold_out(text: Sentences, n: int) -> tuple[Sentences, Sentences]:
    """A text without some of its sentences, drawn evenly from it, and these.

    Of these, those that stand in the rest of the text word for word are left out, and those without words.

    Raises:
        SettingError: more than half the text; or none of them is new.
    """
    if not 0 < 2 * n <= len(text):
        raise SettingError(f"cannot hold out {n} of {len(text)} sentences in {text.lang}: at most half")
    chosen = np.arange(n) * len(text) // n
    rest = text.take(np.setdiff1d(np.arange(len(text)), chosen))
    known = {sentence.words for sentence in rest}
    new = [k for k in chosen.tolist() if text[k].words and text[k].words not in known]
    if not new:
        raise SettingError(f"every held-out sentence in {text.lang} also occurs in the training text: hold out more")
    return rest, text.take(np.array(new, dtype=np.int64))
