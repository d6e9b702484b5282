"""What follows a matrix product in a transformer layer, there and back, in one pass over memory instead of three or more.

PyTorch adds the bias, drops, adds the residual and normalizes each in a pass of its own; in a small model these passes, not
the products, are what is left to save. On the processor only. Products come in float32 or bfloat16 (as uint16, see
`calque.nn.scalars`), and go on in the same; what is added up along the layers is float32.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from calque.nn.scalars import FAST, coin, fast_exp, number, put

_HALF, _ONE, _ZERO = np.float32(0.5), np.float32(1.0), np.float32(0.0)
_ROOT_HALF = np.float32(0.7071067811865476)
_DENSITY = np.float32(0.3989422804014327)  # 1 / √(2π)


@njit(fastmath=FAST, nogil=True, error_model="numpy")
def _below(y):
    """Φ(y) of the normal distribution, (1 + erf(y / √2)) / 2; erf is the rational approximation that Eigen and XLA use,
    within 4 units in the last place of float32."""
    z = min(max(y * _ROOT_HALF, np.float32(-4.0)), np.float32(4.0))
    square = z * z
    top = np.float32(-2.72614225801306e-10)
    top = top * square + np.float32(2.77068142495902e-08)
    top = top * square + np.float32(-2.10102402082508e-06)
    top = top * square + np.float32(-5.69250639462346e-05)
    top = top * square + np.float32(-7.34990630326855e-04)
    top = top * square + np.float32(-2.95459980854025e-03)
    top = top * square + np.float32(-1.60960333262415e-02)
    bottom = np.float32(-1.45660718464996e-05)
    bottom = bottom * square + np.float32(-2.13374055278905e-04)
    bottom = bottom * square + np.float32(-1.68282697438203e-03)
    bottom = bottom * square + np.float32(-7.37332916720468e-03)
    bottom = bottom * square + np.float32(-1.42647390514189e-02)
    return _HALF * (_ONE + z * top / bottom)


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def bias_gelu(x, bias):
    """`gelu(x + bias)` in place, exact form: y · Φ(y).

    Args:
        x: `[rows, dim]`.
        bias: float32 `[dim]`.
    """
    for i in range(x.shape[0]):
        row = x[i]
        for c in range(x.shape[1]):
            y = number(row[c]) + bias[c]
            put(row, c, y * _below(y))


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def bias_gelu_sloped(x, bias, slope):
    """The same, and in `slope`, `[rows, dim]` of the type of `x`, its derivative Φ(y) + y · φ(y)."""
    for i in range(x.shape[0]):
        row, steep = x[i], slope[i]
        for c in range(x.shape[1]):
            y = number(row[c]) + bias[c]
            share = _below(y)
            put(row, c, y * share)
            put(steep, c, share + y * _DENSITY * fast_exp(-_HALF * y * y))


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def slope_back(gradient, slope, of_bias):
    """`gradient * slope` in place, and its sum over the rows is added to `of_bias`, float32 `[dim]`."""
    for i in range(gradient.shape[0]):
        row, steep = gradient[i], slope[i]
        for c in range(gradient.shape[1]):
            value = number(row[c]) * number(steep[c])
            put(row, c, value)
            of_bias[c] += value


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def add_rows(x, total):
    """Add the sum over the rows of `x`, `[rows, dim]`, to `total`, float32 `[dim]`."""
    for i in range(x.shape[0]):
        row = x[i]
        for c in range(x.shape[1]):
            total[c] += number(row[c])


@njit(fastmath=FAST, nogil=True, error_model="numpy")
def _dropped(row, place, threshold, key, factor):
    for c in range(len(row)):
        row[c] = row[c] * factor if coin(place + c, key) >= threshold else _ZERO


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def bias_residual_norm(x, bias, residual, weight, shift, eps, out, lower, normed, scales, threshold, key, factor):
    """`layer_norm(dropout(x + bias) + residual) * weight + shift`.

    Args:
        x: `[rows, dim]`.
        bias, weight, shift: float32 `[dim]`.
        residual: float32 `[rows, dim]`.
        eps: float32, added to the variance.
        out: float32 `[rows, dim]`, is filled; may be `x`.
        lower: the same for the next product, in its type; `[0, dim]` if that is `out`.
        normed, scales: float32 `[rows, dim]` and `[rows]`, are filled for the way back with the rows before weight and shift,
            and what they were multiplied by; `[0, dim]` and `[0]` if there is none.
        threshold, key, factor: of dropout, see `calque.nn.ragged_attention.attend`.
    """
    n = np.float32(x.shape[1])
    total = np.empty(x.shape[1], np.float32)
    for i in range(x.shape[0]):
        row, given, added = x[i], out[i], residual[i]
        for c in range(x.shape[1]):
            total[c] = number(row[c]) + bias[c]
        if threshold > 0:
            _dropped(total, i * x.shape[1], threshold, key, factor)
        mean = _ZERO
        for c in range(x.shape[1]):
            y = total[c] + added[c]
            total[c] = y
            mean += y
        mean /= n
        variance = _ZERO
        for c in range(x.shape[1]):
            centred = total[c] - mean
            variance += centred * centred
        scale = _ONE / np.sqrt(variance / n + eps)
        for c in range(x.shape[1]):
            y = (total[c] - mean) * scale
            total[c] = y
            given[c] = y * weight[c] + shift[c]
        if len(scales):
            kept = normed[i]
            for c in range(x.shape[1]):
                kept[c] = total[c]
            scales[i] = scale
        if len(lower):
            low = lower[i]
            for c in range(x.shape[1]):
                put(low, c, given[c])


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def norm_back(
    gradient, more, normed, scales, weight, of_weight, of_shift, of_bias, out, product, threshold, key, factor
):
    """The gradient of `bias_residual_norm` in the residual and in `x`.

    With g the gradient times the weight and x̂ the normalized row it is (g − mean(g) − x̂ · mean(g ∘ x̂)) · scale.

    Args:
        gradient: float32 `[rows, dim]`.
        more: what is to be added to it, of a product's type; `[0, dim]` for nothing.
        normed, scales, weight: as they were.
        of_weight, of_shift, of_bias: float32 `[dim]`, to which their gradients are added.
        out: float32 `[rows, dim]`, is filled, in the residual.
        product: the same in `x`, in its type; `[0, dim]` if that is `out`.
        threshold, key, factor: as they were.
    """
    n = np.float32(normed.shape[1])
    total = np.empty(normed.shape[1], np.float32)
    for i in range(normed.shape[0]):
        row, unit, given = gradient[i], normed[i], out[i]
        for c in range(normed.shape[1]):
            total[c] = row[c]
        if len(more):
            added = more[i]
            for c in range(normed.shape[1]):
                total[c] += number(added[c])
        mean, along = _ZERO, _ZERO
        for c in range(normed.shape[1]):
            g = total[c]
            of_weight[c] += g * unit[c]
            of_shift[c] += g
            g *= weight[c]
            total[c] = g
            mean += g
            along += g * unit[c]
        mean /= n
        along /= n
        for c in range(normed.shape[1]):
            total[c] = (total[c] - mean - unit[c] * along) * scales[i]
            given[c] = total[c]
        if threshold > 0:
            _dropped(total, i * normed.shape[1], threshold, key, factor)
        for c in range(normed.shape[1]):
            of_bias[c] += total[c]
        if len(product):
            low = product[i]
            for c in range(normed.shape[1]):
                put(low, c, total[c])


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def scatter(rows, places, out):
    """`out[places[i]] += rows[i]`, where several rows may go to one place; both of one type."""
    for i in range(len(places)):
        row, given = rows[i], out[places[i]]
        for c in range(rows.shape[1]):
            put(given, c, number(given[c]) + number(row[c]))
