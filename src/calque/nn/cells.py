"""A layer of long short-term memory over ragged sentences, for float32 on the CPU.

All products with the input are one matrix product, forwards and backwards; step by step there remain one product of the
sentences that still run with the recurrent weights, and what follows it, compiled into one pass over memory. The gradient
is written out: the weights' is again one product over all words, which autograd would take step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from calque.nn.ragged import Ragged

# Sums may be reordered, so that they run eight at a time. NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}
F32 = np.float32
HALF, ONE = F32(0.5), F32(1.0)


def lstm_layer(x: Tensor, weights: Sequence[Tensor], ragged: Ragged) -> Tensor:
    """What `torch.nn.LSTM` with one layer gives, without cells' states; differentiable once.

        i, f, o = σ(W x_t + U h_{t−1} + b),    g = tanh(W x_t + U h_{t−1} + b)      (each with its own W, U and b)
        c_t = f · c_{t−1} + i · g,    h_t = o · tanh c_t                             (Hochreiter & Schmidhuber 1997;
                                                                                      Gers et al. 2000)

    Args:
        x: float32 `[n_words, dim]`.
        weights: as `torch.nn.LSTM` has them: `[4 * hidden, dim]`, `[4 * hidden, hidden]` and two biases `[4 * hidden]`,
            gates in the order i, f, g, o; for the reading from the right four more.

    Returns:
        float32 `[n_words, hidden]`, or `[n_words, 2 * hidden]`.
    """
    return _Layer.apply(x, ragged, *weights)  # type: ignore[no-any-return]


class _Layer(torch.autograd.Function):
    # Arrays [directions, n_words, …] are in the order of the words, so that a direction's words are the rows of one
    # matrix; arrays [directions, n_running, …] belong to one step. From the left, the word before w is w − 1, from the
    # right w + 1.

    @staticmethod
    def forward(ctx: Any, x, ragged: Ragged, *weights):
        n, hidden, directions = len(x), weights[1].shape[1], len(weights) // 4
        gates = x.new_empty(directions, n, 4 * hidden)
        for d in range(directions):
            into, _, bias, second_bias = weights[4 * d : 4 * d + 4]
            torch.addmm(bias + second_bias, x, into.t(), out=gates[d])
        recurrent = torch.stack(weights[1::4])
        rows = np.stack((ragged.from_left, ragged.from_right)[:directions])
        widest = max(ragged.sizes, default=0)
        cells, squashed = x.new_empty(directions, n, hidden), x.new_empty(directions, n, hidden)
        out, state = x.new_empty(n, directions * hidden), x.new_empty(directions, widest, hidden)
        arrays = [array.numpy() for array in (gates, cells, squashed, state, out)]
        begin = 0
        for size in ragged.sizes:
            sent = torch.bmm(state[:, :size], recurrent.mT) if begin else x.new_zeros(directions, size, 4 * hidden)
            _step(rows, begin, begin + size, sent.numpy(), *arrays)
            begin += size
        ctx.save_for_backward(x, gates, cells, squashed, out, recurrent, *weights[::4])
        ctx.ragged, ctx.rows = ragged, rows
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any):  # type: ignore[override]
        x, gates, cells, squashed, out, recurrent, *into = ctx.saved_tensors
        ragged, rows = ctx.ragged, ctx.rows
        directions, n, hidden = cells.shape
        widest = max(ragged.sizes, default=0)
        to_gates, step_gates = torch.empty_like(gates), x.new_empty(directions, widest, 4 * hidden)
        to_cell, to_state = x.new_zeros(directions, widest, hidden), x.new_zeros(directions, widest, hidden)
        tensors = (gates, cells, squashed, grad_outputs[0].contiguous(), to_cell, to_state, to_gates, step_gates)
        arrays = [tensor.numpy() for tensor in tensors]
        end = n
        for k in range(len(ragged.sizes) - 1, -1, -1):
            if end < n:
                after = ragged.sizes[k + 1]
                to_state[:, :after] = torch.bmm(step_gates[:, :after], recurrent)
            begin = end - ragged.sizes[k]
            _step_back(rows, begin, end, *arrays)
            end = begin
        to_x, grads = None, []
        for d in range(directions):
            grad = to_gates[d]
            if ctx.needs_input_grad[0]:
                to_x = grad @ into[d] if to_x is None else to_x.addmm_(grad, into[d])
            before = out[:, d * hidden : (d + 1) * hidden].roll(-1 if d else 1, dims=0)
            before[torch.from_numpy(rows[d, :widest])] = 0
            bias = grad.sum(0)
            grads += [grad.t() @ x, grad.t() @ before, bias, bias.clone()]  # no two parameters share a gradient
        return to_x, None, *grads


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy", inline="always")
def tanh(x):
    """The quotient of polynomials that Eigen and XLA use, within 4 units in the last place of float32."""
    x = min(max(x, F32(-7.90531110763549805)), F32(7.90531110763549805))
    square = x * x
    top = F32(-2.76076847742355e-16)
    top = top * square + F32(2.00018790482477e-13)
    top = top * square + F32(-8.60467152213735e-11)
    top = top * square + F32(5.12229709037114e-08)
    top = top * square + F32(1.48572235717979e-05)
    top = top * square + F32(6.37261928875436e-04)
    top = top * square + F32(4.89352455891786e-03)
    bottom = F32(1.19825839466702e-06)
    bottom = bottom * square + F32(1.18534705686654e-04)
    bottom = bottom * square + F32(2.26843463243900e-03)
    bottom = bottom * square + F32(4.89352518554385e-03)
    return x * top / bottom


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy", inline="always")
def sigmoid(x):
    return HALF + HALF * tanh(HALF * x)


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def _step(rows, begin, end, sent, gates, cells, squashed, state, out):
    """One step of every sentence that still runs, in both directions.

    Args:
        rows: int64 `[directions, n_words]`, the word at each place of the time-major order.
        begin, end: the places of this step.
        sent: `[directions, n_running, 4 * hidden]`, U h of the step before.
        gates: `[directions, n_words, 4 * hidden]`; W x + b, changed to the gates' values.
        cells, squashed: `[directions, n_words, hidden]`, out: c and tanh c.
        state: `[directions, n_running or more, hidden]`, out: h.
        out: `[n_words, directions * hidden]`, out: h as well.
    """
    hidden = state.shape[2]
    nothing = np.zeros(hidden, np.float32)
    for d in range(rows.shape[0]):
        for r in range(end - begin):
            w = rows[d, begin + r]
            gate, add = gates[d, w], sent[d, r]
            gate_i, gate_f, gate_g, gate_o = gate[:hidden], gate[hidden:], gate[2 * hidden :], gate[3 * hidden :]
            add_i, add_f, add_g, add_o = add[:hidden], add[hidden:], add[2 * hidden :], add[3 * hidden :]
            old = cells[d, w + 1 if d else w - 1] if begin else nothing
            new, flat, h, answer = cells[d, w], squashed[d, w], state[d, r], out[w, d * hidden :]
            for k in range(hidden):
                i = sigmoid(gate_i[k] + add_i[k])
                f = sigmoid(gate_f[k] + add_f[k])
                g = tanh(gate_g[k] + add_g[k])
                o = sigmoid(gate_o[k] + add_o[k])
                gate_i[k], gate_f[k], gate_g[k], gate_o[k] = i, f, g, o
                c = f * old[k] + i * g
                t = tanh(c)
                new[k], flat[k], h[k], answer[k] = c, t, o * t, o * t


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def _step_back(rows, begin, end, gates, cells, squashed, to_out, to_cell, to_state, to_gates, step_gates):
    """Gradients with respect to what goes into the gates at one step.

    Args:
        rows, begin, end, gates, cells, squashed: as in `_step`.
        to_out: gradient of `out`.
        to_cell, to_state: `[directions, n_running or more, hidden]`, gradients of c and h that come from the step after;
            that of c is changed to the one for the step before.
        to_gates: `[directions, n_words, 4 * hidden]`, out; step_gates: `[directions, n_running or more, 4 * hidden]`,
            out, the same numbers in the order of the step.
    """
    hidden = to_cell.shape[2]
    nothing = np.zeros(hidden, np.float32)
    for d in range(rows.shape[0]):
        for r in range(end - begin):
            w = rows[d, begin + r]
            gate, word, step = gates[d, w], to_gates[d, w], step_gates[d, r]
            gate_i, gate_f, gate_g, gate_o = gate[:hidden], gate[hidden:], gate[2 * hidden :], gate[3 * hidden :]
            word_i, word_f, word_g, word_o = word[:hidden], word[hidden:], word[2 * hidden :], word[3 * hidden :]
            step_i, step_f, step_g, step_o = step[:hidden], step[hidden:], step[2 * hidden :], step[3 * hidden :]
            old = cells[d, w + 1 if d else w - 1] if begin else nothing
            flat, from_out, from_h, cell = squashed[d, w], to_out[w, d * hidden :], to_state[d, r], to_cell[d, r]
            for k in range(hidden):
                i, f, g, o, t = gate_i[k], gate_f[k], gate_g[k], gate_o[k], flat[k]
                h = from_h[k] + from_out[k]
                c = cell[k] + h * o * (ONE - t * t)
                cell[k] = c * f
                word_i[k] = step_i[k] = c * g * i * (ONE - i)
                word_f[k] = step_f[k] = c * old[k] * f * (ONE - f)
                word_g[k] = step_g[k] = c * i * (ONE - g * g)
                word_o[k] = step_o[k] = h * t * o * (ONE - o)
