"""Bootstrap confidence intervals of means."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_CELLS = 2_000_000  # resamples x questions drawn at once


class Interval(NamedTuple):
    """A mean with the bounds of its confidence interval."""

    mean: float
    low: float
    high: float


def bootstrap_intervals(
    values: NDArray[np.float64],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> list[Interval]:
    """Return the mean of each column with its percentile bootstrap interval [1]_.

    For a paired comparison give the differences, question by question.

    Parameters
    ----------
    values
        One row a question, one column a metric, shape (n, m), n > 0.
    confidence
        Coverage of the intervals, default 0.95.
    resamples
        Resamples of the questions, default 10,000; the same ones for each column.
    seed
        Seed of the resampling: the same values give the same intervals.

    References
    ----------
    .. [1] B. Efron, R. Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13.

    Examples
    --------
    >>> mean, low, high = bootstrap_intervals(np.array([[0.0], [1.0]] * 50))[0]
    >>> mean, round(low, 1), round(high, 1)
    (0.5, 0.4, 0.6)
    """
    n, columns = values.shape
    generator = np.random.default_rng(seed)
    # A resample of n questions is a multinomial count of each: all columns in one product.
    means = np.empty((resamples, columns))
    step = max(1, _CELLS // n)
    for start in range(0, resamples, step):
        counts = generator.multinomial(n, np.full(n, 1 / n), size=min(step, resamples - start))
        means[start : start + step] = counts @ values / n
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return [
        Interval(float(mean), float(lower), float(upper))
        for mean, lower, upper in zip(values.mean(axis=0), low, high)
    ]
