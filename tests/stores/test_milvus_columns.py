"""Columns say what pymilvus would make of the same rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymilvus.client.prepare import Prepare

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.stores import milvus_columns, milvus_layout
from llama_index_graph_rag.stores.base import EntityRow
from llama_index_graph_rag.stores.milvus import MilvusGraphStore
from llama_index_graph_rag.stores.milvus_columns import Columns
from llama_index_graph_rag.testing.graph_index_store import DIMENSION, batch, passage_row

ODD = ["", "Euler", "é\u0301 \U0001f98a", "\x00\x7f\u2028", 'a "quote" \\', "x" * 300]
TRIPLET = ("Euler 欧拉", "was born in", "Basel \U0001f98a")


def columns(n: int, dimension: int = 3) -> Columns:
    ids = [f"{i} {ODD[i % len(ODD)]}" for i in range(n)]
    vectors = np.arange(n * dimension, dtype=np.float32).reshape(n, dimension) / 7
    return Columns({"id": ids, "text": [ODD[-i % len(ODD)] for i in range(n)]}, vectors)


@pytest.fixture
def store(tmp_path):
    store = MilvusGraphStore(tmp_path / "index.db")
    store.create(DIMENSION)
    yield store
    store.close()


def as_pymilvus_packs(store: MilvusGraphStore, collection: str, columns: Columns):
    about = store.connection.client.describe_collection(collection)
    return Prepare.row_upsert_param(
        collection,
        columns.rows(),
        "",
        about["fields"],
        enable_dynamic=about["enable_dynamic_field"],
    )


@pytest.mark.parametrize("n", [1, 7])
def test_the_message_is_that_of_pymilvus(store, n):
    name = store.collections.entities
    given = columns(n, DIMENSION)
    assert given.message(name) == as_pymilvus_packs(store, name, given)


def test_the_message_with_dynamic_fields_is_that_of_pymilvus(store):
    name = store.collections.passages
    rows = [
        passage_row("p1", TRIPLET, text="", tags=["a", "é"], nested={"year": 1707, "at": None}),
        passage_row("p2", text="\U0001f98a", ratio=0.1, big=2**53 + 1, document="book"),
        passage_row("p3", none=float("nan"), far=[float("-inf")]),
        passage_row("p4", embedding=[1], doc_id="mine"),
    ]
    rows[3].node.metadata |= {"id": "my own", "text": "hers"}
    given = milvus_layout.passage_columns(rows, DIMENSION)
    assert given.message(name) == as_pymilvus_packs(store, name, given)
    assert given.rows()[0]["mentions"][0]["s"] == "Euler 欧拉"
    assert given.rows()[2]["none"] is None


@given(st.integers(0, 9), st.integers(1, 5), st.integers(1, 4))
def test_floats_are_packed_bit_by_bit(n, dimension, scale):
    matrix = np.random.default_rng(n).standard_normal((n, dimension * 10**scale // 10))
    packed = milvus_columns._float_array(matrix.astype(np.float32))
    assert list(packed.data) == matrix.astype(np.float32).ravel().tolist()


@pytest.mark.parametrize(("rows", "size"), [(3, 2**20), (100, 3_000), (2, 1)])
def test_requests_are_cut_at_rows_and_bytes(monkeypatch, rows, size):
    monkeypatch.setattr(milvus_columns, "MAX_ROWS", rows)
    monkeypatch.setattr(milvus_columns, "MAX_REQUEST_BYTES", size)
    given = columns(20)
    requests = list(given.requests())
    assert [id for request in requests for id in request.ids] == given.ids
    assert np.array_equal(np.concatenate([request.vectors for request in requests]), given.vectors)
    for request in requests:
        cost = sum(4 * len(text) for column in request.texts.values() for text in column)
        assert len(request) <= rows
        assert len(request) == 1 or cost + request.vectors.nbytes <= size
    assert not list(given[:0].requests())


def test_only_some_rows():
    given = replace(columns(4), dynamic=["{}", "[]", "1", "2"])
    some = given.only(np.array([True, False, True, False]))
    assert some.ids == [given.ids[0], given.ids[2]]
    assert some.dynamic == ["{}", "1"]
    assert np.array_equal(some.vectors, given.vectors[[0, 2]])
    assert given.only(np.ones(4, np.bool_)) is given


def test_a_pymilvus_without_its_private_parts_takes_rows(store, monkeypatch):
    monkeypatch.setattr(store.connection, "client", OnlyPublic(store.connection.client))
    store.upsert(batch(passage_row("p1", TRIPLET, year=1707)))
    assert store.get_passages(["p1"])[0].node.metadata == {"year": 1707}
    assert store.connection.client.upserts


class OnlyPublic:
    def __init__(self, client) -> None:
        self._client, self.upserts = client, 0

    def upsert(self, *args):
        self.upserts += 1
        return self._client.upsert(*args)

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._client, name)


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        ([1.0], r"'Basel' has shape \(1,\)"),
        ([], r"'Basel' has shape \(0,\)"),
        ([[1.0, 2.0]], r"'Basel' has shape \(1, 2\)"),
        ([1.0, float("nan")], "'Basel' holds a NaN"),
        ([1.0, float("-inf")], "'Basel' holds a NaN or an infinity"),
    ],
)
def test_the_faulty_embedding_is_named(embedding, message):
    rows = [EntityRow("0" * 32, "Euler", [0.0, 1.0]), EntityRow("1" * 32, "Basel", embedding)]
    for part in (rows, rows[1:]):
        with pytest.raises(GraphRAGValueError, match=message):
            milvus_layout.entity_columns(part, 2)
