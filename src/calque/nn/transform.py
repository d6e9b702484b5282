"""Vectors of one language into the space of another, learnt from sentences of which nobody knows which words match.

After "Language-independent cross-lingual contextual representations" (CLCR, submitted to ICLR 2020), §3.1. Where the paper
says token, a row here is a word.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from calque.errors import SettingError, check_number
from calque.nn.matched import MatchedSentences, Side

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

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())


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
        D, `[n_queries]`, differentiable once in keys and queries. For the way back it keeps keys and queries as groups have
        them, `[n_queries, d]` once more, and a number for each query and key of a sentence pair.

    Raises:
        SettingError: sizes that do not fit, or no such score.
    """
    if score not in ("distance", "dot"):
        raise SettingError(f"score is distance or dot, got {score!r}")
    check_number("temperature", temperature, above=0)
    sentences.check(keys, queries)
    with torch.autocast(queries.device.type, enabled=False):
        return _Distance.apply(keys, queries, sentences, float(temperature), score)  # type: ignore[no-any-return]


class _Distance(torch.autograd.Function):
    """In closed form: autograd through the same groups takes half as long again."""

    @staticmethod
    def forward(ctx: Any, keys: Tensor, queries: Tensor, sentences: MatchedSentences, temperature: float, score: Score):
        ctx.sentences, ctx.nearest, ctx.scale = (
            sentences,
            score == "distance",
            1 / (queries.shape[1] ** 0.5 * temperature),
        )
        apart = torch.empty_like(queries)
        kept: list[Tensor] = []
        for of_keys, of_queries in sentences.groups:
            values, asking = of_keys.take(keys), of_queries.take(queries)
            shares = _attention(values, asking, of_keys, ctx.scale, ctx.nearest)
            apart.index_copy_(0, of_queries.rows, of_queries.real(torch.bmm(shares, values)))
            kept += [values, asking, shares]
        apart -= queries
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(apart, *kept)
        return apart.square().sum(1).div_(queries.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Any):  # type: ignore[override]
        apart, *kept = ctx.saved_tensors
        to_keys, to_queries = ctx.needs_input_grad[:2]
        error = apart * (above[0][:, None] * (2 / apart.shape[1]))  # in what was found
        d_keys = apart.new_empty(ctx.sentences.n_keys, apart.shape[1])
        d_queries = error.neg() if to_queries else None
        for number, (of_keys, of_queries) in enumerate(ctx.sentences.groups):
            values, asking, shares = kept[3 * number : 3 * number + 3]
            errors = of_queries.take(error, clear=True)
            scores = torch.bmm(errors, values.mT)  # of softmax: p_i (g_i − Σ_l p_l g_l)
            scores.sub_((scores * shares).sum(2, keepdim=True)).mul_(shares).mul_(ctx.scale)
            if to_keys:
                moved = torch.baddbmm(torch.bmm(shares.mT, errors), scores.mT, asking)
                if ctx.nearest:
                    moved.addcmul_(values, scores.sum(1)[:, :, None], value=-1)
                d_keys.index_copy_(0, of_keys.rows, of_keys.real(moved))
            if d_queries is not None:  # −‖q‖² is the same for all keys: softmax does not see it
                d_queries.index_add_(0, of_queries.rows, of_queries.real(torch.bmm(scores, values)))
        return d_keys if to_keys else None, d_queries, None, None, None


def _attention(keys: Tensor, queries: Tensor, of_keys: Side, scale: float, nearest: bool) -> Tensor:
    """softmax(scale · (q k [− ‖k‖² / 2])) over the keys of each sentence, `[sentences, queries, keys]`."""
    offset = keys.square().sum(2).mul_(-scale / 2)[:, None] if nearest else keys.new_zeros(1)
    scores = torch.baddbmm(offset, queries, keys.mT, alpha=scale)
    if of_keys.empty is not None:
        scores.masked_fill_(of_keys.empty[:, None], -torch.inf)
    return scores.softmax(2)
