"""Matrix products in compiled loops, to be called from compiled loops: a whole layer runs without Python in between.

Python's lock is handed over at each operation that a thread asks of PyTorch. Where operations are small, two threads spend a
third of their time with that. The products of a small transformer are as quick here as in a library: one tile of the result
stays in registers while all its terms are added up, and nothing is copied (the microkernel of Van Zee and van de Geijn 2015,
"BLIS", section 3, without its packing, which pays for large matrices only).
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic


@cache
def _features() -> dict[str, bool]:
    return dict(llvmlite.binding.get_host_cpu_features())


@cache
def is_quick() -> bool:
    """Whether this processor has what the loops below are written for; a fixed rule, no clock."""
    return platform.machine() in ("x86_64", "AMD64") and _features().get("fma", False)


_LANES = 16 if _features().get("avx512f") else 8  # numbers in a register
_VECTORS = 2  # registers side by side in a tile
_ROWS = 8 if _LANES == 16 else 6  # of a tile: with the registers above as many as a processor can keep busy
_COLUMNS = _LANES * _VECTORS
_DEPTH = 256  # terms at a time, so that what a tile reads stays in the first cache


def _typed(typingctx, a, a_at, a_row, a_step, b, b_at, b_row, depth, c, c_at, c_row, add):
    """`c[r, j] = Σ_k a[r, k] b[k, j]` of `_ROWS` rows and `_COLUMNS` columns, or `+=` where `add` says so.

    Each matrix is an array and where it begins there; a has two strides, one from row to row and one from term to term.
    """
    where = types.intp
    signature = types.void(a, where, where, where, b, where, where, where, c, where, where, types.boolean)

    def generate(context, builder, signature, arguments):
        number, vector, index = ir.FloatType(), ir.VectorType(ir.FloatType(), _LANES), ir.IntType(64)
        nothing, first = ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), _LANES), None)

        def data(place):
            return context.make_array(signature.args[place])(context, builder, arguments[place]).data

        def at(base, offset, of: Any = number):
            place = builder.gep(base, [offset])
            return place if of is number else builder.bitcast(place, of.as_pointer())

        _, a_at, a_row, a_step, _, b_at, b_row, depth, _, c_at, c_row, add = arguments
        rows = [at(data(0), builder.add(a_at, builder.mul(a_row, index(r)))) for r in range(_ROWS)]
        b_first, c_first = at(data(4), b_at), at(data(8), c_at)
        before = builder.block
        loop, after = builder.append_basic_block("terms"), builder.append_basic_block("sums")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(index)
        k.add_incoming(index(0), before)
        sums = [builder.phi(vector) for _ in range(_ROWS * _VECTORS)]
        for total in sums:
            total.add_incoming(ir.Constant(vector, None), before)
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{_LANES}f32"
        )
        b_k, step = at(b_first, builder.mul(k, b_row)), builder.mul(k, a_step)
        columns = [builder.load(at(b_k, index(v * _LANES), vector), align=4) for v in range(_VECTORS)]
        grown = []
        for r in range(_ROWS):
            one = builder.insert_element(nothing, builder.load(at(rows[r], step), align=4), ir.IntType(32)(0))
            wide = builder.shuffle_vector(one, nothing, first)
            for v in range(_VECTORS):
                grown.append(builder.call(multiply_add, [wide, columns[v], sums[r * _VECTORS + v]]))
        following = builder.add(k, index(1))
        k.add_incoming(following, loop)
        for total, more in zip(sums, grown, strict=True):
            total.add_incoming(more, loop)
        builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
        builder.position_at_end(after)
        places = [
            at(c_first, builder.add(builder.mul(c_row, index(r)), index(v * _LANES)), vector)
            for r in range(_ROWS)
            for v in range(_VECTORS)
        ]
        with builder.if_else(add) as (more, new):
            with more:
                for place, total in zip(places, grown, strict=True):
                    builder.store(builder.fadd(builder.load(place, align=4), total), place, align=4)
            with new:
                for place, total in zip(places, grown, strict=True):
                    builder.store(total, place, align=4)
        return context.get_dummy_value()

    return signature, generate


_tile: Any = intrinsic(_typed)


@njit(nogil=True, error_model="numpy")
def _at_edge(a, a_at, a_row, a_step, b, b_at, b_row, depth, c, c_at, c_row, add, rows, columns, above, room):
    """`_tile` where the matrices end within it.

    Args:
        rows, columns: of the tile that are there.
        above: whether the rows above it are there as well; then the tile is moved up, else its rows are filled up.
        room: float32 of `_DEPTH * (_ROWS + _COLUMNS) + _ROWS * _COLUMNS`.
    """
    of_b, of_c, skipped = _DEPTH * _ROWS, _DEPTH * (_ROWS + _COLUMNS), _ROWS - rows if above else 0
    if columns < _COLUMNS:
        for k in range(depth):
            for j in range(_COLUMNS):
                room[of_b + k * _COLUMNS + j] = b[b_at + k * b_row + j] if j < columns else np.float32(0.0)
        b, b_at, b_row = room, of_b, _COLUMNS
    if not above:
        for k in range(depth):
            for r in range(_ROWS):
                room[k * _ROWS + r] = a[a_at + r * a_row + k * a_step] if r < rows else np.float32(0.0)
        a, a_at, a_row, a_step = room, 0, 1, _ROWS
    _tile(a, a_at - skipped * a_row, a_row, a_step, b, b_at, b_row, depth, room, of_c, _COLUMNS, False)
    for r in range(rows):
        for j in range(columns):
            value, place = room[of_c + (skipped + r) * _COLUMNS + j], c_at + r * c_row + j
            c[place] = c[place] + value if add else value


@njit(nogil=True, error_model="numpy")
def _product(a, a_row, a_step, b, c, m, depth, n, add):
    room = np.empty(_DEPTH * (_ROWS + _COLUMNS) + _ROWS * _COLUMNS, np.float32)
    for k in range(0, depth, _DEPTH):
        terms, more = min(_DEPTH, depth - k), add or k > 0
        for j in range(0, n, _COLUMNS):
            columns, b_at = min(_COLUMNS, n - j), k * n + j
            for i in range(0, m, _ROWS):
                rows, a_at, c_at = min(_ROWS, m - i), i * a_row + k * a_step, i * n + j
                if rows == _ROWS and columns == _COLUMNS:
                    _tile(a, a_at, a_row, a_step, b, b_at, n, terms, c, c_at, n, more)
                else:
                    above = rows == _ROWS or i > 0
                    _at_edge(
                        a, a_at, a_row, a_step, b, b_at, n, terms, c, c_at, n, more, rows, columns, above, room
                    )  # fmt: skip


@njit(nogil=True, error_model="numpy")
def product(a, b, c, add):
    """`c = a @ b`, or `c += a @ b` where `add` says so.

    Args:
        a, b, c: float32 `[m, k]`, `[k, n]` with k ≥ 1, and `[m, n]`, row after row without gaps.
    """
    (m, depth), n = a.shape, b.shape[1]
    _product(a.reshape(-1), depth, 1, b.reshape(-1), c.reshape(-1), m, depth, n, add)


@njit(nogil=True, error_model="numpy")
def product_of_columns(a, b, c, add):
    """`c = a.T @ b`, or `c += a.T @ b`; a is `[k, m]`, else as `product`."""
    (depth, m), n = a.shape, b.shape[1]
    _product(a.reshape(-1), 1, m, b.reshape(-1), c.reshape(-1), m, depth, n, add)


@njit(nogil=True, error_model="numpy")
def turned(x):
    """`x.T` without gaps, for x `[m, n]`; by blocks, so that each line of memory is read and written once."""
    m, n = x.shape
    out = np.empty((n, m), np.float32)
    for i in range(0, m, 16):
        for j in range(0, n, 16):
            for r in range(i, min(i + 16, m)):
                for k in range(j, min(j + 16, n)):
                    out[k, r] = x[r, k]
    return out
