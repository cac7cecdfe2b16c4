"""Exact search over vectors by row, against a naive one."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph import vectors as module
from llama_index_graph_rag.graph.adjacency import row_array
from llama_index_graph_rag.graph.snapshot import EntityKey, GraphSnapshot, PassageKey, RelationKey
from llama_index_graph_rag.graph.vectors import VectorTable
from llama_index_graph_rag.triplets import Triplet

DIMENSION = 3
numbers = st.integers(-2, 2).map(float)
arrays = st.lists(st.tuples(numbers, numbers, numbers), max_size=12)


def matrix(rows) -> np.ndarray:
    return np.array(rows, dtype=np.float32).reshape(-1, DIMENSION)


def cosine(a, b) -> float:
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / lengths) if lengths else 0.0


@settings(deadline=None)
@given(st.data())
def test_like_a_list_of_vectors(data) -> None:
    table, naive = VectorTable(DIMENSION), []
    for _ in range(data.draw(st.integers(0, 6))):
        added = data.draw(arrays)
        table, naive = table.appended(matrix(added)), naive + added
        if data.draw(st.booleans()):
            rows = data.draw(
                st.lists(st.sampled_from(range(len(naive))), unique=True) if naive else st.just([])
            )
            table, naive = table.reordered(row_array(rows)), [naive[row] for row in rows]
    assert len(table) == len(naive)
    assert table.take(np.arange(len(naive), dtype=np.int32)).tolist() == list(map(list, naive))
    assert table.n_places <= 2 * len(naive) + 12
    asked = data.draw(arrays)
    limit = data.draw(st.integers(1, 5))
    among = data.draw(st.none() | st.lists(st.booleans(), min_size=len(naive), max_size=len(naive)))
    mask = None if among is None else np.array(among, dtype=np.bool_)
    found = table.nearest(matrix(asked), limit, mask)
    assert len(found) == len(asked)
    for question, (rows, similarities) in zip(asked, found):
        may = [row for row in range(len(naive)) if mask is None or mask[row]]
        near = {row: cosine(naive[row], question) for row in may}
        assert len(rows) >= min(limit, len(may))
        best = sorted(near.values(), reverse=True)
        last = best[limit - 1] if len(best) >= limit else -2.0
        assert {row for row in may if near[row] > last + 1e-6} <= set(rows.tolist())
        assert set(rows.tolist()) <= {row for row in may if near[row] > last - 1e-6}
        assert similarities.tolist() == pytest.approx(
            [near[row] for row in rows.tolist()], abs=1e-6
        )


def test_many_questions_are_answered_in_parts(monkeypatch) -> None:
    table = VectorTable(DIMENSION).appended(matrix(np.eye(3)))
    whole = table.nearest(matrix(np.eye(3)), 1)
    monkeypatch.setattr(module, "_MOST_SCORES", 4)
    monkeypatch.setattr(module, "_BLOCK", 1)
    parts = table.nearest(matrix(np.eye(3)), 1)
    assert [rows.tolist() for rows, _ in parts] == [rows.tolist() for rows, _ in whole]
    assert [rows.tolist() for rows, _ in whole] == [[0], [1], [2]]


def test_very_long_and_very_short_vectors() -> None:
    table = VectorTable(DIMENSION).appended(matrix([[1e30, 0, 0], [0, 1e-30, 0], [0, 0, 0]]))
    (rows, similarities), *_ = table.nearest(matrix([[1e30, 0, 0]]), 3)
    assert dict(zip(rows.tolist(), similarities.tolist())) == {0: 1.0, 1: 0.0, 2: 0.0}
    (rows, similarities), *_ = table.nearest(matrix([[0, 1e-30, 0]]), 1)
    assert (rows.tolist(), similarities.tolist()) == ([1], [1.0])


@pytest.mark.parametrize("size", [301, 7, 1])
def test_equal_vectors_tie_wherever_they_are(size) -> None:
    random = np.random.default_rng(0)
    vector, question = random.standard_normal((2, 1, 384)).astype(np.float32)
    table = VectorTable(384)
    for start in range(0, 301, size):
        table = table.appended(np.repeat(vector, min(size, 301 - start), axis=0))
    ((rows, similarities),) = table.nearest(question, 5)
    assert (len(rows), len(set(similarities.tolist()))) == (301, 1)


def test_a_vector_beyond_single_precision_spoils_no_other() -> None:
    vectors = [[3e38, 3e38, 3e38], [1, 0, 0], [0, 1, 0], [1e-44, 1e-44, 0], [0, 0, 0]]
    table = VectorTable(DIMENSION).appended(matrix(vectors))
    for question in vectors[:4]:
        ((rows, similarities),) = table.nearest(matrix([question]), 1)
        assert [vectors[row] for row in rows.tolist()] == [question]
        assert similarities.tolist() == pytest.approx([1.0])


def test_few_chunks_hold_many_vectors() -> None:
    table = VectorTable(DIMENSION)
    for n in range(1000):
        table = table.appended(matrix([[n, 1, 0]]))
    assert len(table.chunks) <= 10
    assert table.take(row_array([999, 0])).tolist() == [[999, 1, 0], [0, 1, 0]]


AB = Triplet("A", "knows", "B")


def keys(vector):
    return {
        "entities": [
            EntityKey(AB.subject_id, "A", vector),
            EntityKey(AB.object_id, "B", vector),
        ],
        "relations": [RelationKey(AB.id, AB.subject_id, AB.object_id, vector)],
        "passages": [PassageKey("p", "d", (AB.id,), "", "", vector)],
    }


def test_a_graph_with_vectors_needs_one_of_each() -> None:
    empty = GraphSnapshot.empty(DIMENSION)
    for missing in (None, np.ones(DIMENSION + 1, dtype=np.float32)):
        with pytest.raises(GraphRAGValueError, match="without a vector of 3 dimensions"):
            empty.with_changes(**keys(missing))
    assert GraphSnapshot.empty().with_changes(**keys(None)).vectors is None
    graph = empty.with_changes(**keys(matrix([[1, 2, 3]])[0]))
    assert [len(table) for table in graph.vectors] == [2, 1, 1]


def test_vectors_are_saved_once_and_mapped(tmp_path) -> None:
    graph = GraphSnapshot.empty(DIMENSION).with_changes(**keys(matrix([[1, 2, 3]])[0]))
    graph.save(tmp_path)
    files = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.npy")}
    assert len(files) == 3
    graph = GraphSnapshot.load(tmp_path)
    assert isinstance(graph.vectors.relations.chunks[0].vectors, np.memmap)
    graph.with_changes(removed_passages=["p"]).save(tmp_path)
    left = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.npy")}
    assert len(left) == 2
    assert left.items() <= files.items()
    assert [len(table) for table in GraphSnapshot.load(tmp_path).vectors] == [2, 1, 0]


def test_what_was_being_written_when_a_process_died_goes(tmp_path) -> None:
    old, new = tmp_path / "vectors-x.npy1.part", tmp_path / "vectors-y.npy2.part"
    old.write_bytes(b"x")
    new.write_bytes(b"y")
    os.utime(old, (0, 0))
    GraphSnapshot.empty(DIMENSION).save(tmp_path)
    assert [file.name for file in tmp_path.glob("*.part")] == [new.name]
