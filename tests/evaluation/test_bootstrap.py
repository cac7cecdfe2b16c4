"""Bootstrap intervals."""

from __future__ import annotations

import numpy as np
import pytest

from llama_index_graph_rag.evaluation import bootstrap_intervals


def test_against_resampling_one_by_one() -> None:
    values = np.random.default_rng(1).random((40, 2))
    draws = np.random.default_rng(2).integers(0, 40, (4000, 40))
    for column, (mean, low, high) in enumerate(bootstrap_intervals(values)):
        naive = [values[rows, column].mean() for rows in draws]
        assert mean == pytest.approx(values[:, column].mean())
        assert (low, high) == pytest.approx(tuple(np.quantile(naive, [0.025, 0.975])), abs=0.01)


def test_seeded_and_independent_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).random((30, 3))
    intervals = bootstrap_intervals(values, resamples=500)
    assert intervals == bootstrap_intervals(values, resamples=500)
    assert intervals != bootstrap_intervals(values, resamples=500, seed=1)
    monkeypatch.setattr("llama_index_graph_rag.evaluation.bootstrap._CELLS", 31)
    assert np.allclose(intervals, bootstrap_intervals(values, resamples=500))


def test_coverage_is_close_to_the_nominal() -> None:
    generator = np.random.default_rng(3)
    samples = generator.random((100, 300)) < 0.6
    intervals = bootstrap_intervals(samples.astype(float), resamples=2000)
    covered = sum(low <= 0.6 <= high for _, low, high in intervals)
    assert 0.91 < covered / 300 < 0.98


def test_one_question_and_constant_values() -> None:
    assert bootstrap_intervals(np.array([[50.0, 0.0]])) == [(50, 50, 50), (0, 0, 0)]
    assert bootstrap_intervals(np.ones((7, 1))) == [pytest.approx((1, 1, 1))]
