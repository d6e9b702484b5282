"""Compare the time of CSLS in both directions with that of a float32 matrix product of the same size, run alternately."""

from __future__ import annotations

import argparse

import numpy as np
import torch

from benchmarks.shared import anonymous_mib, timed
from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import csls_neighbours


def vectors(n: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors like those of an encoder, with a nonzero mean, a decaying spectrum, and both
    near and distant pairs.
    """
    rng = np.random.default_rng(0)
    spectrum = (np.arange(dim) + 1.0) ** -0.5
    offset = 0.5 * rng.standard_normal(dim) * spectrum
    source = rng.standard_normal((n, dim)) * spectrum
    noise = rng.uniform(0.2, 2.0, (n, 1)) * rng.standard_normal((n, dim)) * spectrum
    return unit_rows(source + offset), unit_rows(source + noise + offset)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000, help="number of vectors on each side")
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("highest")
    source, target = vectors(options.n, options.dim)
    x, y, product = (
        torch.from_numpy(source),
        torch.from_numpy(target),
        torch.empty(options.n, options.n),
    )
    # Allocate memory, start the thread pools and compile functions before anything is timed.
    torch.mm(x, y.T, out=product)
    csls_neighbours(source[:2000], target[:2000])
    before, ratios, nearest = anonymous_mib(), [], np.zeros(0)
    for _ in range(options.rounds):
        one = timed(lambda: torch.mm(x, y.T, out=product))
        found = []
        ratios.append(
            timed(lambda found=found: found.append(csls_neighbours(source, target))) / one
        )
        nearest = found[0].targets[:, 0]
    wall, processor = np.median(ratios, axis=0)
    print(
        f"CSLS {options.n:,} × {options.n:,} × {options.dim}, both directions, {options.threads} "
        f"threads: {wall:.2f} times one float32 product (goal: at most 1.3), {processor:.2f} times "
        f"its processor time; medians of {options.rounds} rounds; accuracy "
        f"{(nearest == np.arange(options.n)).mean():.3f}; {anonymous_mib() - before:,.0f} MiB more "
        "afterwards"
    )


if __name__ == "__main__":
    main()
