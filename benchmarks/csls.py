"""CSLS in both directions against one float32 matrix product of the same size, in turns within one run."""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import csls_neighbours


def vectors(n: int, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two sides like an encoder's: off-centre, of decaying spectrum, some pairs near and some far apart."""
    rng = np.random.default_rng(seed)
    spectrum = (np.arange(dim) + 1.0) ** -0.5
    offset = 0.5 * rng.standard_normal(dim) * spectrum
    source = rng.standard_normal((n, dim)) * spectrum
    noise = rng.uniform(0.2, 2.0, (n, 1)) * rng.standard_normal((n, dim)) * spectrum
    return unit_rows(source + offset), unit_rows(source + noise + offset)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=20_000, help="vectors a side")
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("highest")
    source, target = vectors(options.n, options.dim, options.seed)
    x, y = torch.from_numpy(source), torch.from_numpy(target)
    product = torch.empty(options.n, options.n)
    torch.mm(x, y.T, out=product)  # its pages and both thread pools exist before anything is timed
    found = csls_neighbours(source[:2000], target[:2000])
    seconds: dict[str, list[tuple[float, float]]] = {"product": [], "csls": []}
    for _ in range(options.rounds):
        start = time.perf_counter(), time.process_time()
        torch.mm(x, y.T, out=product)
        middle = time.perf_counter(), time.process_time()
        found = csls_neighbours(source, target)
        end = time.perf_counter(), time.process_time()
        seconds["product"].append((middle[0] - start[0], middle[1] - start[1]))
        seconds["csls"].append((end[0] - middle[0], end[1] - middle[1]))
    (product_wall, product_cpu), (csls_wall, csls_cpu) = (
        [statistics.median(times) for times in zip(*seconds[name], strict=True)] for name in ("product", "csls")
    )
    accuracy = float(np.mean(found.targets[:, 0] == np.arange(options.n)))
    print(
        f"CSLS {options.n:,} x {options.n:,} x {options.dim}, both directions, {options.threads} threads: "
        f"{csls_wall / product_wall:.2f} times one float32 product (at most 1.5 asked), "
        f"{csls_cpu / product_cpu:.2f} times its processor time; medians of {options.rounds} turns "
        f"({csls_wall:.2f} s, {product_wall:.2f} s); {found.searched:.2%} of the matrix looked at twice, "
        f"accuracy {accuracy:.3f}"
    )


if __name__ == "__main__":
    main()
