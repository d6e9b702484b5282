"""Long short-term memory whose state is projected and clipped, over ragged sentences.

The words of a batch stand in time-major order (see `Ragged`): the first words of all sentences, then the second ones. So
each step is a block of rows, and what runs on is always its first rows. All products with the input are one product; step
by step there remain the products with the state, and what lies between them, compiled into one pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from calque.nn.cells import FAST, ONE, sigmoid, tanh

_NONE = float("inf")  # clips nothing


def projected_lstm(
    x: Tensor,
    sizes: Sequence[int],
    kernel: Tensor,
    bias: Tensor,
    projection: Tensor,
    *,
    cell_clip: float | None = None,
    state_clip: float | None = None,
    start: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One direction of one layer (Sak et al. 2014, "Long short-term memory based recurrent neural network architectures",
    without peepholes, as TensorFlow's `LSTMCell` has it).

        i, j, f, o = [x_t; h_{t−1}] K + b
        c_t = clip(σ(f + 1) · c_{t−1} + σ(i) · tanh(j)),    h_t = clip((σ(o) · tanh c_t) P)

    Float32 on the CPU is compiled and differentiable once; the rest goes step by step through PyTorch.

    Args:
        x: `[n_words, dim]`, in time-major order.
        sizes: how many sentences still run at each step.
        kernel: K, `[dim + size, 4 * cell]`.
        bias: `[4 * cell]`; that of the forget gate is meant to have 1 added to it.
        projection: P, `[cell, size]`.
        cell_clip, state_clip: largest size of a component of c and of h; None for any.
        start: h `[n_sentences, size]` and c `[n_sentences, cell]` before the first step; None for zeros. No gradient
            flows into them.

    Returns:
        h of all words `[n_words, size]` in time-major order, and h and c of each sentence after its last word.
    """
    clips = (cell_clip or _NONE, state_clip or _NONE)
    cell, size = projection.shape
    forget = torch.zeros_like(bias)
    forget[2 * cell : 3 * cell] = 1
    bias = bias + forget
    if start is None and sizes:
        start = x.new_zeros(sizes[0], size), x.new_zeros(sizes[0], cell)
    elif start is None:
        return x.new_zeros(0, size), (x.new_zeros(0, size), x.new_zeros(0, cell))
    start = start[0].detach(), start[1].detach()
    plain = all(part.device.type == "cpu" and part.dtype == torch.float32 for part in (x, kernel))
    if not plain or torch.is_autocast_enabled("cpu"):
        return _stepwise(x, sizes, kernel, bias, projection, clips, start)
    if torch.is_grad_enabled() and any(part.requires_grad for part in (x, kernel, bias, projection)):
        out, h, c = _Layer.apply(x, kernel, bias, projection, list(sizes), clips, *start)  # type: ignore[misc]
        return out, (h, c)
    return _forward(x, sizes, kernel, bias, projection, clips, start)


def _stepwise(x, sizes, kernel, bias, projection, clips, start) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """On any device, differentiated by autograd."""
    dim = x.shape[1]
    given = torch.addmm(bias, x, kernel[:dim])
    (h, c), states, ended, begin = start, [], [], 0
    for size in sizes:
        ended.append((h[size:], c[size:]))
        i, j, f, o = torch.addmm(given[begin : begin + size], h[:size], kernel[dim:]).chunk(4, dim=1)
        c = (f.sigmoid() * c[:size] + i.sigmoid() * j.tanh()).clamp(-clips[0], clips[0])
        h = ((o.sigmoid() * c.tanh()) @ projection).clamp(-clips[1], clips[1])
        states.append(h)
        begin += size
    ended.append((h, c))
    last_h, last_c = (torch.cat(part).detach() for part in zip(*reversed(ended), strict=True))
    return torch.cat(states), (last_h, last_c)


def _forward(x, sizes, kernel, bias, projection, clips, start) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Without a way back: only the states of the current step are kept."""
    dim, (cell, size) = x.shape[1], projection.shape
    gates = torch.addmm(bias, x, kernel[:dim])
    out, (h, c) = x.new_empty(len(x), size), (start[0].clone(), start[1].clone())
    new, squashed, answers = (x.new_empty(sizes[0], cell) for _ in range(3))
    begin = 0
    for running in sizes:
        block, now = gates[begin : begin + running], out[begin : begin + running]
        block.addmm_(h[:running], kernel[dim:])
        arrays = (block, c, new, squashed, answers)
        _step(np.float32(clips[0]), *(array.numpy() for array in arrays))
        new[running:] = c[running:]
        c, new = new, c
        torch.mm(answers[:running], projection, out=now)
        if clips[1] != _NONE:
            now.clamp_(-clips[1], clips[1])
        h[:running] = now
        begin += running
    return out, (h, c)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, kernel, bias, projection, sizes: list[int], clips, h, c):
        (n, dim), (cell, size) = x.shape, projection.shape
        gates = torch.addmm(bias, x, kernel[:dim])
        cells, squashed, answers = (x.new_empty(n, cell) for _ in range(3))
        out, last_h, last_c = x.new_empty(n, size), h.clone(), c.clone()
        old_h, old_c, begin = h, c, 0
        for running in sizes:
            end = begin + running
            now = slice(begin, end)
            gates[now].addmm_(old_h[:running], kernel[dim:])
            arrays = (gates[now], old_c, cells[now], squashed[now], answers[now])
            _step(np.float32(clips[0]), *(array.numpy() for array in arrays))
            torch.mm(answers[now], projection, out=out[now])
            if clips[1] != _NONE:
                out[now].clamp_(-clips[1], clips[1])
            old_h, old_c, begin = out[now], cells[now], end
            last_h[:running], last_c[:running] = old_h, old_c
        ctx.save_for_backward(x, kernel, projection, gates, cells, squashed, answers, out, h, c)
        ctx.sizes, ctx.clips = sizes, clips
        ctx.mark_non_differentiable(last_h, last_c)
        return out, last_h, last_c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any):  # type: ignore[override]
        x, kernel, projection, gates, cells, squashed, answers, out, h, c = ctx.saved_tensors
        sizes, clips, (n, dim), cell = ctx.sizes, ctx.clips, x.shape, projection.shape[0]
        to_out, to_gates, to_cell = grad_outputs[0].clone(), torch.empty_like(gates), x.new_zeros(sizes[0], cell)
        recurrent, back = kernel[dim:].t(), projection.t()
        end, after = n, 0
        for k in range(len(sizes) - 1, -1, -1):
            begin = end - sizes[k]
            now, old = slice(begin, end), cells[begin - sizes[k - 1] : begin] if k else c
            if after:
                to_out[begin : begin + after].addmm_(to_gates[end : end + after], recurrent)
            if clips[1] != _NONE:
                to_out[now].mul_(out[now].abs() < clips[1])
            to_answer = to_out[now] @ back
            arrays = (gates[now], cells[now], old, squashed[now], to_answer, to_cell, to_gates[now])
            _step_back(np.float32(clips[0]), *(array.numpy() for array in arrays))
            end, after = begin, sizes[k]
        before = torch.cat([h, *(out[a : a + size] for a, size in _blocks(sizes))])
        to_kernel = torch.empty_like(kernel)
        torch.mm(x.t(), to_gates, out=to_kernel[:dim])
        torch.mm(before.t(), to_gates, out=to_kernel[dim:])
        to_x = to_gates @ kernel[:dim].t() if ctx.needs_input_grad[0] else None
        return to_x, to_kernel, to_gates.sum(0), answers.t() @ to_out, None, None, None, None


def _blocks(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """For each step but the first: where the step before begins, and how many of its rows go on."""
    begins = np.cumsum([0, *sizes[:-1]])
    return list(zip(begins[:-1].tolist(), sizes[1:], strict=True))


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def _step(clip, gates, old, cells, squashed, answers):
    """One step of the sentences that still run.

    Args:
        clip: largest size of c.
        gates: `[n_running, 4 * cell]`, i, j, f, o before their functions, changed to their values.
        old: `[n_running or more, cell]`, c of the step before.
        cells, squashed, answers: `[n_running or more, cell]`, out: c, tanh c, o · tanh c. No two arrays may share
            memory: it would not be wrong, but several times as slow.
    """
    hidden = cells.shape[1]
    for r in range(gates.shape[0]):
        gate_i, gate_j = gates[r, :hidden], gates[r, hidden : 2 * hidden]
        gate_f, gate_o = gates[r, 2 * hidden : 3 * hidden], gates[r, 3 * hidden :]
        before, cell, flat, answer = old[r], cells[r], squashed[r], answers[r]
        for k in range(hidden):
            i = sigmoid(gate_i[k])
            j = tanh(gate_j[k])
            f = sigmoid(gate_f[k])
            o = sigmoid(gate_o[k])
            gate_i[k], gate_j[k], gate_f[k], gate_o[k] = i, j, f, o
            c = min(max(f * before[k] + i * j, -clip), clip)
            t = tanh(c)
            cell[k] = c
            flat[k] = t
            answer[k] = o * t


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def _step_back(clip, gates, cells, old, squashed, to_answer, to_cell, to_gates):
    """Gradients with respect to what goes into the gates at one step.

    Args:
        clip, gates, cells, old, squashed: as in `_step`.
        to_answer: `[n_running, cell]`, gradient of o · tanh c.
        to_cell: `[n_running or more, cell]`, that of c, changed to the one for the step before.
        to_gates: `[n_running, 4 * cell]`, out.
    """
    hidden = cells.shape[1]
    for r in range(gates.shape[0]):
        gate_i, gate_j = gates[r, :hidden], gates[r, hidden : 2 * hidden]
        gate_f, gate_o = gates[r, 2 * hidden : 3 * hidden], gates[r, 3 * hidden :]
        out_i, out_j = to_gates[r, :hidden], to_gates[r, hidden : 2 * hidden]
        out_f, out_o = to_gates[r, 2 * hidden : 3 * hidden], to_gates[r, 3 * hidden :]
        cell, before, flat, answer, carried = cells[r], old[r], squashed[r], to_answer[r], to_cell[r]
        for k in range(hidden):
            i, j, f, o, t = gate_i[k], gate_j[k], gate_f[k], gate_o[k], flat[k]
            c = carried[k] + answer[k] * o * (ONE - t * t)
            c = c if -clip < cell[k] < clip else c * np.float32(0)
            carried[k] = c * f
            out_i[k] = c * j * i * (ONE - i)
            out_j[k] = c * i * (ONE - j * j)
            out_f[k] = c * before[k] * f * (ONE - f)
            out_o[k] = answer[k] * t * o * (ONE - o)
