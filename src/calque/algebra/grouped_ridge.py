"""Linear regression whose coefficients stand in groups, of which each has a variance that the data decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_WEIGHT = 0.3  # of the prior of a variance, in observations
_UPDATES = 500
_CHANGE = 1e-4  # of a variance in one update, below which nothing is said to change any more


@dataclass(frozen=True, eq=False)
class GroupedRidge:
    """The posterior of y = a + Z w + e + m, given variances.

    The level a has a flat prior; a coefficient of group g is drawn from N(0, τ_g²); e ~ N(0, σ²) is what the columns do not
    explain; m is the error with which each y was measured, whose variance is known. So the mean of w is that of ridge
    regression, with a penalty for each group (Bishop 2006, §3.3; Gelman & Hill 2007, ch. 12).

    Attributes:
        mean: float64 `[1 + n_columns]`, of a and w.
        covariance: float64 `[1 + n_columns, 1 + n_columns]`.
        noise: σ².
        variances: τ² by group.
    """

    mean: np.ndarray
    covariance: np.ndarray
    noise: float
    variances: Mapping[str, float]

    def predict(self, row: np.ndarray, unknown: Mapping[str, float]) -> tuple[float, float]:
        """What a new y would be without error of measurement: mean and variance, σ² + zᵀVz and that of what is not in Z.

        Args:
            row: float64 `[n_columns]`.
            unknown: the square, by group, of what the new y has in columns that Z has not, such as 1 for a level that was
                never seen: its coefficient may be anything that the group's prior allows.
        """
        z = np.concatenate([[1.0], row])
        of_unknown = sum(self.variances[group] * square for group, square in unknown.items())
        return float(z @ self.mean), float(self.noise + z @ self.covariance @ z + of_unknown)


def posterior(
    z: np.ndarray,
    y: np.ndarray,
    errors: np.ndarray,
    groups: Sequence[str],
    variances: Mapping[str, float],
    noise: float,
) -> GroupedRidge:
    """The posterior for variances that are known: V = (ZᵀWZ + D)⁻¹, w = V ZᵀW y, where W has 1 / (σ² + s²) and D 1 / τ².

    Args:
        z: float64 `[n, n_columns]`.
        y: float64 `[n]`.
        errors: float64 `[n]`, the standard error of each y.
        groups: of each column.
        variances: τ² by group.
        noise: σ².
    """
    full = np.concatenate([np.ones((len(z), 1)), z], axis=1)
    weighted = full / (noise + np.square(errors))[:, None]
    precisions = np.array([0.0, *(1 / variances[group] for group in groups)])
    covariance = np.linalg.inv(full.T @ weighted + np.diag(precisions))
    covariance = (covariance + covariance.T) / 2
    return GroupedRidge(covariance @ (weighted.T @ y), covariance, noise, dict(variances))


def grouped_ridge(z: np.ndarray, y: np.ndarray, errors: np.ndarray, groups: Sequence[str]) -> GroupedRidge:
    """The posterior, with the variances under which y is most probable, by the fixed point of MacKay (1992, §4.3): τ² = Σ w² / γ,
    where γ = Σ (1 − V / τ²) is how many coefficients of the group the data decide. σ² by expectation–maximisation, since of
    what is left over a part is error of measurement.

    Groups of few columns say little of their own variance, and where a group has one column alone nothing: a likelihood
    without a prior would call it 0 and be too sure of a level that was never seen. So each variance has a part of one
    observation more, as if all groups and the noise had shared the variance of y evenly among them. [choice]

    Args:
        z, y, errors, groups: see `posterior`.
    """
    names = list(dict.fromkeys(groups))
    columns = {name: np.array([group == name for group in groups]) for name in names}
    share = max(float(np.var(y)), 1e-12) / (len(names) + 1)
    prior = {name: share / max(float(np.square(z[:, own]).sum(axis=1).mean()), 1e-12) for name, own in columns.items()}
    measured, variances, noise = np.square(errors), dict(prior), share
    full = np.concatenate([np.ones((len(z), 1)), z], axis=1)
    found = posterior(z, y, errors, groups, variances, noise)
    for _ in range(_UPDATES):
        squares, spread = np.square(found.mean[1:]), np.diag(found.covariance)[1:]
        new = {}
        for name, own in columns.items():
            decided = max(float(own.sum() - spread[own].sum() / variances[name]), 0.0)
            new[name] = (float(squares[own].sum()) + _WEIGHT * prior[name]) / (decided + _WEIGHT)
        left = np.square(y - full @ found.mean) + np.einsum("ij,jk,ik->i", full, found.covariance, full, optimize=True)
        part = noise / (noise + measured)
        of_noise = (float((part**2 * left + part * measured).sum()) + _WEIGHT * share) / (len(y) + _WEIGHT)
        before = np.array([noise, *variances.values()])
        variances, noise = new, of_noise
        found = posterior(z, y, errors, groups, variances, noise)
        if np.abs(np.array([noise, *variances.values()]) / before - 1).max() < _CHANGE:
            break
    return found
