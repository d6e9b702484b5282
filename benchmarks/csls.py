"""CSLS in both directions against one float32 matrix product of the same size, in turns within one run.

With `--stored`, the vectors of the first side lie in a file of that type and are read as they are needed; the product they
are measured against is of float32 vectors in memory.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from calque.algebra.normalize import unit_rows
from calque.algebra.rows import UnitRows
from calque.algebra.similarity import csls_neighbours

_BLOCK = 20_000  # rows of the product that are held at once


def vectors(n: int, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two sides like an encoder's: off-centre, of decaying spectrum, some pairs near and some far apart."""
    rng = np.random.default_rng(seed)
    spectrum = (np.arange(dim) + 1.0) ** -0.5
    offset = 0.5 * rng.standard_normal(dim) * spectrum
    source = rng.standard_normal((n, dim)) * spectrum
    noise = rng.uniform(0.2, 2.0, (n, 1)) * rng.standard_normal((n, dim)) * spectrum
    return unit_rows(source + offset), unit_rows(source + noise + offset)


def stored(source: np.ndarray, n: int, dtype: str, path: Path, seed: int) -> np.ndarray:
    """A file of `n` vectors: those of a side, and then others like them, written block by block."""
    rng = np.random.default_rng(seed + 1)
    file = np.memmap(path, dtype=dtype, mode="w+", shape=(n, source.shape[1]))
    for start in range(0, n, len(source)):
        part = source[: n - start]
        noise = rng.standard_normal(part.shape, dtype=np.float32) * (part.std(axis=0) if start else np.float32(0))
        file[start : start + len(source)] = part + noise
    file.flush()
    return np.memmap(path, dtype=dtype, mode="r", shape=file.shape)


def anonymous() -> float:
    """Memory of this process that is no page of a file, in MiB; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")), 0.0)


def timed(work: Callable[[], object]) -> tuple[object, tuple[float, float]]:
    """A result, and seconds by the clock and of the processor."""
    start = time.perf_counter(), time.process_time()
    result = work()
    return result, (time.perf_counter() - start[0], time.process_time() - start[1])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=20_000, help="vectors of the second side, and of the first")
    parser.add_argument("--stored", choices=("float16", "float32"), help="of the first side, in a file")
    parser.add_argument("--long", type=int, help="vectors of the first side, with --stored (default: --n)")
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("highest")
    source, target = vectors(options.n, options.dim, options.seed)
    x, y = torch.from_numpy(source), torch.from_numpy(target)
    n = options.n if options.stored is None else options.long or options.n
    with tempfile.TemporaryDirectory() as folder:
        file = None
        if options.stored:
            file = stored(source, n, options.stored, Path(folder) / "vectors", options.seed)
        product = torch.empty(min(options.n, _BLOCK), options.n)

        def multiply() -> None:
            for start in range(0, n, len(product)):
                first = start % options.n
                part = x[first : first + min(len(product), n - start)]
                torch.mm(part, y.T, out=product[: len(part)])

        def search():
            return csls_neighbours(source if file is None else UnitRows(file), target)

        # Its pages, both thread pools and compiled loops exist before anything is timed.
        torch.mm(x[: len(product)], y.T, out=product)
        found = csls_neighbours(source[:2000], target[:2000])
        before, seconds = anonymous(), {"product": [], "csls": []}
        for _ in range(options.rounds):
            seconds["product"].append(timed(multiply)[1])
            found, taken = timed(search)
            seconds["csls"].append(taken)
        (product_wall, product_cpu), (csls_wall, csls_cpu) = (
            [statistics.median(times) for times in zip(*seconds[name], strict=True)] for name in ("product", "csls")
        )
    accuracy = float(np.mean(found.targets[: options.n, 0] == np.arange(min(n, options.n))))
    where = f", {options.stored} in a file of {file.nbytes / 2**20:,.0f} MiB" if file is not None else ""
    print(
        f"CSLS {n:,}{where} x {options.n:,} x {options.dim}, both directions, {options.threads} threads, "
        f"float32: {csls_wall / product_wall:.2f} times one float32 product (at most 1.25 asked), "
        f"{csls_cpu / product_cpu:.2f} times its processor time; medians of {options.rounds} turns "
        f"({csls_wall:.2f} s, {product_wall:.2f} s); {found.searched:.2%} of the matrix looked at twice, "
        f"accuracy {accuracy:.3f}; {anonymous() - before:,.0f} MiB more memory afterwards"
    )


if __name__ == "__main__":
    main()
