"""Vectors of one language into the space of another, learnt from sentences of which nobody knows which words match.

After "Language-independent cross-lingual contextual representations" (CLCR, submitted to ICLR 2020), §3.1. Where the paper
says token, a row here is a word.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from calque.errors import SettingError, check_number
from calque.nn.matched import MatchedSentences, attention

Score = Literal["distance", "dot"]


class Transform(nn.Module):
    """T(r) = A·r + a + C·relu(B·r + b), row by row (CLCR, Eq. 1); the biases a and b are ours, the paper says "Linear".

    It begins as 0, with B alone random. Attention to its rows is then even, so the first updates fit the mean of the
    translation's vectors, which is a question with one answer, and attention sharpens with what has been learnt.

    Args:
        dim: of the rows that come in.
        out: of the rows that go out; None for the same.
        hidden: rows of B; None for `dim`, 0 for A·r + a alone ("linear regression" in Table 1).

    Attributes:
        settings: what makes a module of the same shape, `Transform(**settings)`.

    Example:
        >>> Transform(8, 6)(torch.randn(3, 8)).shape
        torch.Size([3, 6])
    """

    def __init__(self, dim: int, out: int | None = None, hidden: int | None = None):
        super().__init__()
        out, hidden = dim if out is None else out, dim if hidden is None else hidden
        check_number("dim", dim, least=1, whole=True)
        check_number("out", out, least=1, whole=True)
        check_number("hidden", hidden, least=0, whole=True)
        self.settings: dict[str, Any] = {"dim": dim, "out": out, "hidden": hidden}
        self.linear = nn.Linear(dim, out)
        self.inner = nn.Linear(dim, hidden) if hidden else None
        self.outer = nn.Linear(hidden, out, bias=False) if hidden else None
        for weights in (self.linear.weight, self.linear.bias, None if self.outer is None else self.outer.weight):
            if weights is not None:
                nn.init.zeros_(weights)

    def forward(self, rows: Tensor) -> Tensor:
        """`[n, dim]` to `[n, out]`.

        Raises:
            SettingError: rows of another size.
        """
        if rows.ndim != 2 or rows.shape[1] != self.settings["dim"]:
            raise SettingError(f"vectors of shape {tuple(rows.shape)}, expected [words, {self.settings['dim']}]")
        moved = self.linear(rows)
        if self.inner is None or self.outer is None:
            return moved
        return torch.addmm(moved, torch.relu(self.inner(rows)), self.outer.weight.T)

    @torch.no_grad()
    def between(self, source: tuple[Tensor, float], target: tuple[Tensor, float]) -> Transform:
        """The same map where both spaces were shifted and scaled while it was learnt: m_t + s_t · T((r − m_s) / s_s).

        Args:
            source, target: mean `[dim]` and scale of the rows that come in, and of those that are to go out.
        """
        (m_s, s_s), (m_t, s_t) = (
            (mean.to(self.linear.weight.device, torch.float64), scale) for mean, scale in (source, target)
        )
        other = Transform(**self.settings).to(self.linear.weight)
        a = self.linear.weight.double() / s_s
        other.linear.weight.copy_(a * s_t)
        other.linear.bias.copy_((self.linear.bias.double() - a @ m_s) * s_t + m_t)
        if self.inner is not None and self.outer is not None and other.inner is not None and other.outer is not None:
            b = self.inner.weight.double() / s_s
            other.inner.weight.copy_(b)
            other.inner.bias.copy_(self.inner.bias.double() - b @ m_s)
            other.outer.weight.copy_(self.outer.weight.double() * s_t)
        return other


def attention_distance(
    keys: Tensor, queries: Tensor, sentences: MatchedSentences, *, temperature: float = 1.0, score: Score = "distance"
) -> Tensor:
    """How far each word is from what it finds among the words of the other sentence (CLCR, Eqs. 2 and 3).

        p_j = softmax(a_j / τ),    D_j = ‖Σ_i p_ji k_i − q_j‖² / d

    with a_ji = q_j · k_i / √d ("dot"), the usual attention; or with a_ji = −‖q_j − k_i‖² / (2√d) ("distance"), which is
    the same but for −‖k_i‖² / (2√d): what is sharpened is then the nearest key. The largest product belongs to a long key
    as well as to a near one, so that with "dot" the words whose vectors are short find others than their translations as τ
    falls. The paper only says "attention".

    The distance D(T(r¹) ‖ r²) of two sentences is the mean over the words of the second, with keys T(r¹) and queries r².

    Args:
        keys: `[n_keys, d]`, T of the words of one side.
        queries: `[n_queries, d]`, the words of the other.
        sentences: where the sentence pairs lie in both.
        temperature: τ.
        score: a.

    Returns:
        D, `[n_queries]`, differentiable in keys and queries.

    Raises:
        SettingError: sizes that do not fit, or no such score.
    """
    if score not in ("distance", "dot"):
        raise SettingError(f"score is distance or dot, got {score!r}")
    check_number("temperature", temperature, above=0)
    with torch.autocast(queries.device.type, enabled=False):
        scale = 1 / (queries.shape[1] ** 0.5 * temperature)
        found = attention(keys, queries, sentences, scale=scale, nearest=score == "distance")
        return (found - queries).square().mean(1)
