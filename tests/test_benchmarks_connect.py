"""The synthetic graph, and the benchmark of connections on a small one."""

from __future__ import annotations

import json

import numpy as np

from benchmarks.connect import main
from benchmarks.synthetic_graph import synthetic_graph


def test_the_graph_is_seeded_and_has_the_degrees_asked_for():
    options = {"n_entities": 2_000, "n_relations": 16_000, "n_documents": 800, "largest_hub": 900}
    graph, again = synthetic_graph(**options), synthetic_graph(**options)
    assert np.array_equal(graph.subjects, again.subjects)
    assert np.array_equal(graph.objects, again.objects)
    assert not np.any(graph.subjects == graph.objects)
    degrees = graph.degrees()
    assert degrees.mean() == 16
    assert degrees.min() >= 1
    assert 700 < degrees.max() < 1_100
    assert graph.documents.max() == 799


def test_the_benchmark_writes_its_figures(tmp_path, capsys):
    out = tmp_path / "connect.json"
    sizes = ["--pairs", "20", "--entities", "500", "--relations", "2000", "--documents", "100"]
    main(["--json", str(out), *sizes])
    figures = json.loads(out.read_text())
    assert figures == json.loads(capsys.readouterr().out)
    assert figures["connected"] == sum(figures["lengths"].values()) <= 20
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]
    assert 2 <= figures["max_nodes"] <= 60_002
