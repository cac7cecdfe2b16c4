"""A process that builds an index is killed; the next one completes it."""

from __future__ import annotations

import multiprocessing

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.skipif(
    "forkserver" not in multiprocessing.get_all_start_methods(), reason="needs a fork server"
)
def test_killed_at_five_moments(tmp_path):
    kill = pytest.importorskip("benchmarks.kill", reason="needs the benchmarks folder")
    result = kill.run(60, 5, 1, tmp_path)
    assert result.kills == 5
    assert (result.different, result.repeated, result.orphans) == (0, 0, 0)
    assert result.builds >= 2
