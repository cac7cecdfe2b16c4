"""Both suites on Milvus Lite, and on a server where one is given; what is Milvus's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_index_graph_rag.errors import GraphRAGValueError, StoreError
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.stores import milvus_connection
from llama_index_graph_rag.stores.base import Batch, Limits
from llama_index_graph_rag.stores.milvus import MilvusGraphStore
from llama_index_graph_rag.testing.graph_index_store import GraphIndexStoreSuite
from llama_index_graph_rag.testing.graph_reader import GraphReaderSuite
from llama_index_graph_rag.testing.toy_graphs import TOY_GRAPHS
from llama_index_graph_rag.testing.toy_rows import (
    DIMENSION,
    EULER,
    MODEL,
    PROBE,
    batch,
    empty,
    passage_row,
    toy_batch,
    vectors,
)

URL = os.environ.get("GRAPH_RAG_MILVUS_URL", "")
on_a_server = pytest.mark.skipif(
    not URL, reason="needs GRAPH_RAG_MILVUS_URL, see tests/servers/README.md"
)

IVF = {"index_type": "IVF_FLAT", "params": {"nlist": 1}}  # as exact as FLAT


def created(uri, **options) -> MilvusGraphStore:
    store = MilvusGraphStore(uri, **options)
    store.create(DIMENSION, embedding_model=MODEL, probe=PROBE)
    return store


def apart(store) -> MilvusGraphStore:
    """Have a store behave as one of another process, which hears of nothing."""
    store.connection.shared = {}
    return store


class Index(GraphIndexStoreSuite):
    @pytest.fixture(scope="class")
    def opened(self, place):
        store = created(**place)
        yield store
        store.close()

    @pytest.fixture
    def store(self, opened):
        empty(opened)
        return opened

    @pytest.fixture
    def reopen(self, place, store):
        return lambda: MilvusGraphStore(**place)


class Reader(GraphReaderSuite):
    @pytest.fixture(scope="class")
    def readers(self, place):
        def load(numbered):
            number, toy = numbered
            store = created(**place, collection_prefix=f"toy{number}")
            store.upsert(toy_batch(toy))
            return store

        # Creating collections on a server is mostly waiting.
        with ThreadPoolExecutor(10) as pool:
            stores = dict(zip(TOY_GRAPHS, pool.map(load, enumerate(TOY_GRAPHS))))
        yield stores
        for store in stores.values():
            store.close()

    @pytest.fixture
    def load_graph(self, readers):
        return readers.__getitem__


class Lite:
    @pytest.fixture(scope="class")
    def place(self, tmp_path_factory):
        return {"uri": tmp_path_factory.mktemp("lite") / "index.db"}


@on_a_server
class Server:
    @pytest.fixture(scope="class")
    def place(self, tmp_path_factory):
        return {"uri": URL, "cache_dir": tmp_path_factory.mktemp("cache")}


class TestIndexOnLite(Lite, Index):
    pass


class TestIndexOnLiteThatSearches(Index):
    """With an index of Milvus's, no copy of the vectors is searched."""

    @pytest.fixture(scope="class")
    def place(self, tmp_path_factory):
        return {"uri": tmp_path_factory.mktemp("lite") / "index.db", "index_config": IVF}

    @pytest.fixture
    def reopen(self, place, store):
        return lambda: apart(MilvusGraphStore(**place))


class TestReaderOnLite(Lite, Reader):
    pass


class TestIndexOnServer(Server, Index):
    def test_scans_go_page_by_page(self, store, monkeypatch):
        monkeypatch.setattr(milvus_connection, "SCAN_PAGE", 3)
        ids = ["'", '"', "\\", "\n", "欧拉", "é", "z", "\x01", "a b", "🧮"]
        store.upsert(batch(*(passage_row(id, n=n % 2) for n, id in enumerate(ids))))
        found = [key.id for page in store.scan_passages() for key in page]
        assert sorted(found) == sorted(ids)
        odd = MetadataFilters(filters=[MetadataFilter(key="n", value=1)])
        assert store.permitted(odd) == set(ids[1::2])

    def test_what_another_process_vacuumed_is_written_again(self, store, second):
        store.upsert(batch(passage_row("p1", EULER)))
        second.refresh()
        second.delete_passages(["p1"])
        second.vacuum()
        written = batch(passage_row("p2", EULER))
        missing = store.missing(
            entities=[row.id for row in written.entities],
            relations=[row.id for row in written.relations],
        )
        assert [len(part) for part in missing] == [2, 1]
        store.upsert(written)
        second.refresh()
        assert second.stats()["relations"] == 1
        assert second.stats()["dangling_references"] == 0


class TestReaderOnServer(Server, Reader):
    pass


# --- Milvus Lite --------------------------------------------------------------------------------


@pytest.fixture
def lite(tmp_path):
    store = created(tmp_path / "index.db")
    yield store
    store.close()


@pytest.fixture
def searching(tmp_path):
    """Lite with an index of Milvus's, which is searched instead of a copy of the vectors."""
    store = created(tmp_path / "searching.db", index_config=IVF)
    yield store
    store.close()


CHILD = """
import os, sys
from pathlib import Path
from llama_index_graph_rag.stores.milvus import MilvusGraphStore
from llama_index_graph_rag.testing.toy_rows import batch, passage_row, vectors

folder = Path(sys.argv[1])
try:
    MilvusGraphStore(folder / "open.db")
except Exception as error:
    print(type(error).__name__, error)
store = MilvusGraphStore(folder / "closed.db")
print(repr(store.search(relations=vectors("Euler 知道"), passages=vectors("p2"))))
print(store.stats())
store.close()
store = MilvusGraphStore(folder / "torn.db")
write, passages = store.connection.write, store.collections.passages

def dying(collection, rows):
    write(collection, rows)
    if collection == passages:
        sys.stdout.flush()
        os._exit(9)

store.connection.write = dying
store.upsert(batch(passage_row("p2", ("A", "knows", "B"))))
"""


@pytest.fixture(scope="module")
def child(tmp_path_factory):
    """What another process finds and leaves; it is one, since the imports take seconds."""
    folder = tmp_path_factory.mktemp("processes")
    stores = [created(folder / f"{name}.db") for name in ("open", "closed", "torn")]
    for store in stores:
        store.upsert(batch(passage_row("p1", EULER, ("Euler", "知道", "欧拉")), passage_row("p2")))
    searched = stores[1].search(relations=vectors("Euler 知道"), passages=vectors("p2"))
    expected = [repr(searched), str(stores[1].stats())]
    for store in stores[1:]:
        store.close()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 9, done.stderr
    yield folder, done.stdout.splitlines(), expected
    stores[0].close()


def test_a_second_process_is_told_what_to_do(child):
    said = child[1][0]
    assert said.startswith("StoreError")
    assert "close the other one" in said
    assert "http://" in said


def test_a_new_process_answers_alike(child):
    _, lines, expected = child
    assert lines[1:] == expected


def test_after_a_crash_in_the_middle_of_a_write_nothing_kept_is_believed(child):
    store = MilvusGraphStore(child[0] / "torn.db")
    # The passage was written, the sequence number after it was not.
    assert store.get_passages(["p2"])[0].mentions[0].triplet == ("A", "knows", "B")
    assert store.stats() == store._scanned().stats()
    assert store.stats()["relations"] == 3
    store.close()


def test_a_str_and_a_path_open_the_same_index(tmp_path):
    path = tmp_path / "new" / "folder" / "index.db"
    store = created(path)
    store.upsert(batch(passage_row("p1", EULER)))
    store.close()
    store = MilvusGraphStore(str(path))
    assert store.stats()["passages"] == 1
    store.close()


@pytest.mark.parametrize("uri", ["index", "index.sqlite", ""])
def test_a_uri_that_is_neither_is_an_error(uri):
    with pytest.raises(GraphRAGValueError, match=r"\.db"):
        MilvusGraphStore(uri)


@pytest.mark.parametrize("options", [{"collection_prefix": "a-b"}, {"metric": "L2"}])
def test_bad_options_are_named(tmp_path, options):
    with pytest.raises(GraphRAGValueError, match=next(iter(options))):
        MilvusGraphStore(tmp_path / "index.db", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "IP"}, "metric 'IP' was asked for.*made with 'COSINE'"),
        ({"index_config": {"index_type": "HNSW", "params": {"M": 8}}}, "index type 'HNSW'.*'FLAT'"),
    ],
)
def test_an_index_is_not_opened_as_another_kind(lite, tmp_path, options, message):
    with pytest.raises(GraphRAGValueError, match=message):
        MilvusGraphStore(tmp_path / "index.db", **options)
    MilvusGraphStore(
        tmp_path / "index.db", metric="COSINE", index_config={"index_type": "FLAT"}
    ).close()


def test_similarities_are_cosines_with_either_metric(lite, tmp_path):
    other = created(tmp_path / "ip.db", metric="IP")
    rows = batch(passage_row("p1", EULER), passage_row("p2", text="Johann Bernoulli"))
    long = [replace(row, embedding=[5 * value for value in row.embedding]) for row in rows.passages]
    asked = vectors("Euler Bernoulli")
    found = []
    for store in (lite, other):
        store.upsert(replace(rows, passages=long))
        hits = store.search(entities=3 * asked, passages=3 * asked)
        found.append([(h.ids, h.similarities) for h in (*hits.entities, *hits.passages)])
    for (ids, cosines), (others, products) in zip(*found):
        assert ids == others
        assert products == pytest.approx(cosines, abs=1e-5)
    other.close()
    other = MilvusGraphStore(tmp_path / "ip.db")
    assert other.about.metric == "IP"
    other.close()


@pytest.mark.parametrize("dimension", [0, 40_000])
def test_a_dimension_that_milvus_cannot_hold(tmp_path, dimension):
    store = MilvusGraphStore(tmp_path / "index.db")
    with pytest.raises(GraphRAGValueError, match=f"{dimension} dimensions"):
        store.create(dimension)
    assert not store.exists
    store.close()


def test_before_it_is_created(tmp_path):
    store = MilvusGraphStore(tmp_path / "index.db")
    assert (store.exists, store.dimension, store.refresh()) == (False, 0, False)
    assert store.search(passages=vectors("a")).passages[0].ids == ()
    assert store.vacuum() == {"entities": 0, "relations": 0}
    assert store.missing(entities=["a"]) == ({"a"}, set())
    store.delete_passages(["a"])
    store.delete_documents(["a"])
    store.flush()
    with pytest.raises(StoreError, match="holds no index"):
        store.upsert(batch(passage_row("p1")))
    store.close()


def test_closed_it_says_so(lite):
    lite.upsert(batch(passage_row("p1", EULER)))
    lite.close()
    lite.close()
    for use in (
        lambda: lite.upsert(batch(passage_row("p2"))),
        lambda: lite.get_passages(["p1"]),
        lambda: lite.search(passages=vectors("a")),
        lambda: lite.delete_passages(["p1"]),
        lite.refresh,
    ):
        with pytest.raises(StoreError, match="closed; open the index anew"):
            use()


def test_one_store_of_a_file_outlives_another(lite, tmp_path):
    lite.upsert(batch(passage_row("p1", EULER)))
    MilvusGraphStore(tmp_path / "index.db").close()
    assert len(lite.get_passages(["p1"])) == 1


def test_two_stores_of_a_file_write_from_two_threads(lite, tmp_path):
    second = MilvusGraphStore(tmp_path / "index.db")

    def write(store, name):
        for n in range(5):
            store.upsert(batch(passage_row(f"{name}{n}", EULER, (name, "wrote", str(n)))))
            store.delete_passages([f"{name}{n - 1}"])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (lite, second), ("a", "b")))
    lite.refresh()
    second.refresh()
    assert lite.stats() == second.stats() == lite._scanned().stats()
    assert lite.stats()["relations"] == 3
    second.close()


def test_a_write_that_fails_half_way_is_read_again(lite, tmp_path, monkeypatch):
    lite.upsert(batch(passage_row("p1", EULER)))
    write = lite.connection.write

    def failing(collection, rows):
        if collection == lite.collections.passages:
            raise StoreError("the disk is full")
        write(collection, rows)

    monkeypatch.setattr(lite.connection, "write", failing)
    written = batch(passage_row("p2", ("A", "knows", "B")))
    with pytest.raises(StoreError, match="full"):
        lite.upsert(written)
    monkeypatch.undo()
    lite.flush()  # keeps nothing of what is not known
    assert lite.stats()["orphan_entities"] == 0
    assert lite._meta.kept_snapshot() is None
    lite.upsert(written)
    lite.delete_passages(["p1"])
    assert lite.stats() == lite._scanned().stats()
    assert lite.stats()["relations"] == 1


def test_a_refresh_that_fails_is_done_again(lite, tmp_path, monkeypatch):
    second = apart(MilvusGraphStore(tmp_path / "index.db"))
    second.upsert(batch(passage_row("p1", EULER)))
    with monkeypatch.context() as patch:
        patch.setattr(lite, "scan_relations", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lite.refresh()
    lite.flush()
    assert lite._meta.kept_snapshot() is None or lite._meta.kept_snapshot().n_relations == 1
    assert lite.refresh()
    assert lite.stats()["relations"] == 1
    second.close()


def test_an_interrupted_opening_lets_go_of_the_file(lite, tmp_path, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    lite.close()
    uri = lite.connection.uri
    with monkeypatch.context() as patch:
        patch.setattr(MilvusGraphStore, "_open", interrupted)
        with pytest.raises(KeyboardInterrupt):
            MilvusGraphStore(uri)
    assert not milvus_connection._lite_users[uri]


def test_passages_without_a_document_are_those_of_no_document(lite, monkeypatch):
    lite.upsert(batch(passage_row("p1"), passage_row("p2", EULER)))
    monkeypatch.setattr(lite.connection, "is_lite", False)  # a server is asked
    lite.delete_documents(["None", ""])
    monkeypatch.undo()
    assert len(lite.get_passages(["p1", "p2"])) == 2


def test_filters_are_remembered_with_one_snapshot(lite):
    def year(value):
        return MetadataFilters(filters=[MetadataFilter(key="year", value=value)])

    for n in range(3):
        lite.upsert(batch(passage_row(f"p{n}", year=n)))
        assert lite.permitted(year(n)) == {f"p{n}"}
    of, known = lite._permitted
    assert of is lite.snapshot()
    assert len(known) == 1
    assert lite.permitted(year(2)) is lite.permitted(year(2))


def test_kept_matrices_open_without_a_scan_and_damaged_ones_are_read_again(lite, tmp_path, caplog):
    lite.upsert(batch(passage_row("p1", EULER)))
    lite.close()
    path = tmp_path / "index.db"
    scanned = MilvusGraphStore._scanned
    MilvusGraphStore._scanned = lambda self: pytest.fail("scanned")
    try:
        MilvusGraphStore(path).close()
    finally:
        MilvusGraphStore._scanned = scanned
    (kept,) = (tmp_path / "index.db.matrices").rglob("*.npz")
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 255
    kept.write_bytes(bytes(content))
    store = MilvusGraphStore(path)
    assert store.stats()["relations"] == 1
    assert len(store.match_entities(["Euler"])[0]) == 1
    store.close()


def test_small_writes_to_a_large_index_do_not_keep_all_of_it_anew(lite, tmp_path, monkeypatch):
    monkeypatch.setattr("llama_index_graph_rag.stores.milvus_writing.MAX_UNFLUSHED", 100)
    kept = []
    save = GraphSnapshot.save
    monkeypatch.setattr(
        GraphSnapshot, "save", lambda self, *a, **o: (kept.append(1), save(self, *a, **o))
    )
    lite.upsert(batch(*(passage_row(f"p{n}") for n in range(100))))
    lite.flush()
    assert len(kept) == 1
    for n in range(4):
        lite.upsert(batch(passage_row(f"q{n}")))
        lite.flush()
    assert len(kept) == 1
    # A process that opens it after this one was killed does not believe what is kept.
    other = MilvusGraphStore(tmp_path / "index.db")
    assert other.stats()["passages"] == 104
    other.close()
    kept.clear()
    lite.upsert(batch(*(passage_row(f"r{n}") for n in range(100))))
    lite.flush()
    lite.upsert(batch(passage_row("s")))
    lite.close()
    assert len(kept) == 2
    monkeypatch.setattr(MilvusGraphStore, "_scanned", lambda self: pytest.fail("scanned"))
    MilvusGraphStore(tmp_path / "index.db").close()


def test_who_asks_does_not_wait_for_who_writes(lite):
    with ThreadPoolExecutor(1) as pool, lite._lock:
        assert pool.submit(lite.refresh, wait=False).result(timeout=30) is False


def test_who_asks_does_not_read_all_again_and_again(lite, tmp_path, monkeypatch):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr("llama_index_graph_rag.stores.milvus.time.monotonic", lambda: next(clock))
    second = apart(MilvusGraphStore(tmp_path / "index.db"))
    outcomes = []
    for n in range(6):
        second.upsert(batch(passage_row(f"p{n}")))
        outcomes.append(lite.refresh(wait=False))
    # A scan takes 10 of this clock's seconds, of which each look takes 10 too.
    assert outcomes == [True, False, False, False, True, False]
    assert lite.refresh()
    assert lite.stats()["passages"] == 6
    second.close()


def test_matrices_of_an_index_that_was_replaced_are_not_believed(lite, tmp_path):
    lite.upsert(batch(passage_row("p1", EULER)))
    lite.close()
    other = MilvusGraphStore(tmp_path / "other.db", cache_dir=tmp_path / "index.db.matrices")
    other.create(DIMENSION)
    other.upsert(batch(passage_row("q1")))
    assert other._meta.kept_snapshot() is None
    other.close()


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    store = created(tmp_path / "index.db", cache_dir=tmp_path / "file")
    store.upsert(batch(passage_row("p1")))
    store.close()
    assert "could not be kept" in caplog.text


@pytest.mark.parametrize("kind", ["entities", "passages", "meta"])
def test_collections_of_another_origin_are_left_alone(tmp_path, kind):
    store = MilvusGraphStore(tmp_path / "index.db", collection_prefix="mine")
    client = store.connection.client
    client.create_collection(f"mine_{kind}", dimension=DIMENSION)
    client.insert(f"mine_{kind}", [{"id": 1, "vector": [0.5] * DIMENSION}])
    with pytest.raises(StoreError, match="collection"):
        store.create(DIMENSION)
    assert client.get_collection_stats(f"mine_{kind}")["row_count"] == 1
    store.close()


def test_a_creation_that_was_broken_off_goes_on(tmp_path, monkeypatch):
    store = MilvusGraphStore(tmp_path / "index.db")
    with monkeypatch.context() as patch:
        patch.setattr(milvus_connection.layout, "create_index", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.create(DIMENSION)
    store.create(DIMENSION)
    store.upsert(batch(passage_row("p1", EULER)))
    assert store.search(passages=vectors("Euler")).passages[0].ids == ("p1",)
    store.close()


def test_another_schema_version_is_said(lite, tmp_path):
    lite._meta.write_about(replace(lite.about, version=99))
    with pytest.raises(StoreError, match="schema version 99"):
        MilvusGraphStore(tmp_path / "index.db")


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (passage_row("p1", text="é" * 33_000), "66,000 bytes"),
        (passage_row("p" * 66_000), "passage id"),
        (passage_row("", text="a"), "empty id"),
        (passage_row("p1", note="x" * 40_000), "over Milvus's limit of 65,536"),
        (passage_row("p1", text="a\ud800"), "surrogate"),
        (passage_row("p\ud800"), "surrogate"),
        (passage_row("p1", note=["\ud800"]), "surrogate"),
        (passage_row("p1", **{"$meta": 1}), r"\$meta"),
        (passage_row("p1", number=2**70), "64 bits"),
        (passage_row("p1", document="None"), "another id"),
        (passage_row("p1", number=np.int64(1)), "'p1' cannot be stored.*int64"),
        (passage_row("p1", *(("A", f"knows {n}", "B") for n in range(3_000))), "3,000 triplets"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "",
)
def test_what_milvus_cannot_hold_is_said_before_anything_is_written(lite, row, message):
    with pytest.raises(GraphRAGValueError, match=message):
        lite.check(row)
    with pytest.raises(GraphRAGValueError, match=message):
        lite.upsert(
            batch(passage_row("good", EULER), replace(row, relation_ids=(), mentions=row.mentions))
        )
    assert lite.stats()["passages"] == 0
    assert not list(lite.scan_entities())


def test_a_passage_without_direction_is_kept(lite):
    lite.upsert(Batch(passages=[replace(passage_row("p1"), embedding=[0.0] * DIMENSION)]))
    assert [p.node.node_id for p in lite.get_passages(["p1"])] == ["p1"]
    (hits,) = lite.search(passages=vectors("a")).passages
    assert all(np.isfinite(hits.similarities))


def test_more_hits_than_milvus_gives_are_an_error(lite):
    lite.upsert(batch(passage_row("p1")))
    with pytest.raises(GraphRAGValueError, match="16,384"):
        lite.search(passages=vectors("a"), limits=Limits(passages=20_000))


def test_no_passage_is_lost_where_more_are_permitted_than_one_filter_names(searching, monkeypatch):
    lite = searching
    monkeypatch.setattr("llama_index_graph_rag.stores.milvus_reading.MAX_PERMITTED", 2)
    lite.upsert(batch(*(passage_row(id, text=f"text {id}", tags=[id]) for id in "abcdefg")))
    some = MetadataFilters(filters=[MetadataFilter(key="tags", value=list("bdfg"), operator="any")])
    asked = vectors("text g", "text b")
    found = lite.search(passages=asked, filters=some, limits=Limits(passages=3)).passages
    assert [hits.ids[0] for hits in found] == ["g", "b"]
    everything = lite.search(passages=asked, limits=Limits(passages=7)).passages
    for hits, whole in zip(found, everything):
        assert list(hits.ids) == [id for id in whole.ids if id in "bdfg"][:3]
    nothing = MetadataFilters(filters=[MetadataFilter(key="tags", value=["z"], operator="any")])
    assert [hits.ids for hits in lite.search(passages=asked, filters=nothing).passages] == [(), ()]


# --- plain vector RAG ---------------------------------------------------------------------------


async def test_plain_vector_retrieval_over_the_same_passages(lite):
    model = MockEmbedding(DIMENSION)
    row = passage_row("p1", EULER, year=1707)
    lite.upsert(batch(row, passage_row("p2", year=1700)))
    plain = VectorStoreIndex.from_vector_store(lite.passage_vector_store(), embed_model=model)
    only = MetadataFilters(filters=[MetadataFilter(key="year", value=1707)])
    retriever = plain.as_retriever(similarity_top_k=5, filters=only)
    for (found,) in (retriever.retrieve("Euler"), await retriever.aretrieve("Euler")):
        assert found.node.node_id == "p1"
        assert found.node.hash == row.node.hash
        assert found.node.metadata == {"year": 1707}
        assert isinstance(found.node, TextNode)


# --- secrets ------------------------------------------------------------------------------------


def test_no_secret_is_told():
    token, password = "root:very-secret", "hidden-too"
    uri = f"http://admin:{password}@127.0.0.1:1"
    with pytest.raises(StoreError) as raised:
        MilvusGraphStore(uri, token=token, timeout=0.2)
    told = f"{raised.value} {raised.value.__cause__} {raised.value!r}"
    assert "secret" not in told
    assert password not in told
    assert "127.0.0.1:1" in told


def test_no_secret_is_in_a_repr(lite):
    lite.connection.token = "token-of-mine"
    assert "token-of-mine" not in f"{lite!r} {lite.connection!r}"


# --- the copy of the vectors -------------------------------------------------------------------


def test_another_store_of_the_file_sees_what_was_written_without_reading_it(lite, tmp_path):
    second = MilvusGraphStore(tmp_path / "index.db")
    scanned = MilvusGraphStore._scanned
    MilvusGraphStore._scanned = lambda self: pytest.fail("scanned")
    try:
        lite.upsert(batch(passage_row("p1", EULER)))
        assert second.search(passages=vectors("p1")).passages[0].ids == ("p1",)
        second.upsert(batch(passage_row("p2", EULER)))
        second.delete_passages(["p1"])
        assert lite.search(passages=vectors("p1")).passages[0].ids == ("p2",)
        assert not lite.refresh()
        third = MilvusGraphStore(tmp_path / "index.db")
        assert third.stats() == lite.stats()
        third.close()
    finally:
        MilvusGraphStore._scanned = scanned
    second.close()


def test_a_write_of_another_store_that_failed_is_read(lite, tmp_path, monkeypatch):
    second = MilvusGraphStore(tmp_path / "index.db")
    lite.upsert(batch(passage_row("p1", EULER)))
    write, passages = second.connection.write, second.collections.passages

    def failing(collection, rows):
        write(collection, rows)
        if collection == passages:
            raise StoreError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(second.connection, "write", failing)
        with pytest.raises(StoreError, match="cut off"):
            second.upsert(batch(passage_row("p2", EULER)))
    assert lite.search(passages=vectors("p2")).passages[0].ids == ("p1",)
    assert lite.refresh()
    for store in (lite, second):
        assert store.search(passages=vectors("p2")).passages[0].ids == ("p1", "p2")
    second.close()


def kinds_of(vectors):
    return {"entities": vectors, "relations": vectors, "passages": vectors}


def test_the_copy_finds_what_milvus_finds(lite):
    rows = [passage_row(f"p{n}", (f"A{n}", "knows", f"B{n % 7}"), text=f"t {n}") for n in range(40)]
    for start in range(0, 40, 9):
        lite.upsert(batch(*rows[start : start + 9]))
    lite.upsert(batch(passage_row("p3", ("A3", "left", "B1"), text="other words")))
    lite.upsert(batch(passage_row("p40", text="t 1"), passage_row("p41", text="t 2")))
    lite.delete_passages(["p5", "p6"])
    lite.delete_passages(["p40"])
    assert lite.snapshot().passages.n_alive < lite.snapshot().n_passages  # dead rows among them
    asked = vectors("t 1", "A3 left B1", "B2")
    limits = Limits(8, 8, 8)
    copied = lite.search(**kinds_of(asked), limits=limits)
    for kind in ("entities", "relations", "passages"):
        for one, other in zip(
            getattr(copied, kind), lite._search_milvus(kind, asked, 40, None), strict=True
        ):
            assert len(one.ids) == 8
            near = dict(zip(other.ids, other.similarities))
            assert [near[id] for id in one.ids] == pytest.approx(one.similarities, abs=1e-5)
            assert one.similarities == pytest.approx(other.similarities[:8], abs=1e-5)
    ids = {
        "entities": copied.entities[0].ids,
        "relations": copied.relations[0].ids,
        "passages": ["p3", "no"],
    }
    for kind, of_kind in ids.items():
        stored, found = lite._stored_vectors(kind, of_kind), lite._vectors(kind, of_kind)
        assert stored.keys() == found.keys()
        assert all((stored[id] == found[id]).all() for id in stored)


@pytest.mark.parametrize(
    "lost", ["nothing", "the matrices", "a chunk", "half a chunk", "a row", "precision"]
)
def test_a_reopened_index_has_the_copy_again(lite, tmp_path, lost):
    for n in range(30):
        triplet = (f"A{n}", "knows", f"B{n % 7}")
        lite.upsert(batch(passage_row(f"p{n}", triplet, text=f"t {n}")))
    lite.delete_passages(["p7"])
    asked = vectors("t 1", "A3 left B1", "B2")
    before = lite.search(**kinds_of(asked))
    lite.close()
    files = sorted((tmp_path / "index.db.matrices").rglob("*.npy"))
    assert files
    if lost == "the matrices":
        next((tmp_path / "index.db.matrices").rglob("*.npz")).unlink()
    elif lost == "a chunk":
        files[0].unlink()
    elif lost == "half a chunk":
        files[0].write_bytes(files[0].read_bytes()[:-8])
    elif lost == "a row":
        np.save(files[0], np.load(files[0])[:-1])
    elif lost == "precision":
        np.save(files[0], np.load(files[0]).astype(np.float16))
    store = MilvusGraphStore(tmp_path / "index.db")
    assert store.search(**kinds_of(asked)) == before
    store.upsert(batch(passage_row("new", text="t 1")))
    assert store.search(passages=vectors("t 1")).passages[0].ids[:2] == ("new", "p1")
    store.close()
    left = {file.name for file in (tmp_path / "index.db.matrices").rglob("*.npy")}
    assert len(left) <= 3 * 6  # a logarithm of their number, none that is not needed
    store = MilvusGraphStore(tmp_path / "index.db")
    assert store.search(passages=vectors("t 1")).passages[0].ids[:2] == ("new", "p1")
    store.close()


def test_equal_passages_come_in_one_order_however_they_came(tmp_path):
    rows = [passage_row(f"p{n}", text="the same words") for n in range(60)]
    asked, found = vectors("the same"), []
    for name, size in (("one.db", 60), ("steps.db", 7), ("single.db", 1)):
        store = created(tmp_path / name)
        for start in range(0, 60, size):
            store.upsert(batch(*rows[start : start + size]))
        found.append(store.search(passages=asked, limits=Limits(passages=5)))
        store.close()
    assert found[0] == found[1] == found[2]
    assert found[0].passages[0].ids == ("p0", "p1", "p10", "p11", "p12")


# --- what Milvus Lite does otherwise, and what dies half way --------------------------------------


@pytest.mark.parametrize("index_config", [None, IVF], ids=["copy", "Milvus"])
def test_metadata_that_a_passage_has_no_more_is_not_filtered_by(tmp_path, index_config):
    store = created(tmp_path / "index.db", index_config=index_config)
    store.upsert(batch(passage_row("p", tag="secret", year=1), passage_row("o", tag="open")))
    store.upsert(batch(passage_row("p", text="other", year=2)))
    store.upsert(batch(passage_row("p", text="another", pages=3)))
    for key, operator, value, expected in (
        ("tag", "==", "secret", set()),
        ("tag", "!=", "secret", {"p", "o"}),
        ("tag", "in", ["secret", "open"], {"o"}),
        ("year", ">", 0, set()),
        ("pages", "==", 3, {"p"}),
    ):
        item = MetadataFilter(key=key, operator=operator, value=value)
        filters = MetadataFilters(filters=[item])
        assert store.permitted(filters) == expected, (key, operator)
        found = store.search(passages=vectors("p"), filters=filters).passages[0]
        assert set(found.ids) == expected
    assert store.get_passages(["p"])[0].node.metadata == {"pages": 3}
    plain = store.passage_vector_store()
    assert {node.node_id for node in plain.get_nodes(filters=filters)} == {"p"}
    store.close()


DIES_IN_A_FLUSH = """
import os, sys
from llama_index_graph_rag.stores import milvus_writing
from llama_index_graph_rag.stores.milvus import MilvusGraphStore
from llama_index_graph_rag.testing.toy_rows import DIMENSION, batch, passage_row

store = MilvusGraphStore(sys.argv[1])
store.create(DIMENSION)
rows = [passage_row(f"p{n}", (f"A{n}", "is", f"B{n}")) for n in range(10)]
store.upsert(batch(*rows))
store.delete_passages(["p3", "p4"])
store.upsert(batch(*rows))
real = os.remove

def remove(path):
    real(path)
    if "wal_data" in os.path.basename(str(path)) and "passages" in str(path):
        os._exit(9)

os.remove = remove
milvus_writing.MAX_UNFLUSHED = 1
store.flush()
"""


def test_a_kill_within_a_flush_loses_no_passage(tmp_path):
    uri = tmp_path / "index.db"
    done = subprocess.run([sys.executable, "-c", DIES_IN_A_FLUSH, str(uri)])
    assert done.returncode == 9
    ids = [f"p{n}" for n in range(10)]
    store = MilvusGraphStore(uri)
    assert store.stats()["passages"] == 10
    assert [passage.node.node_id for passage in store.get_passages(ids)] == ids
    store.delete_passages(["p3"])
    store.close()
    store = MilvusGraphStore(uri)
    assert store.stats()["passages"] == 9
    assert [passage.node.node_id for passage in store.get_passages(["p3", "p4"])] == ["p4"]
    store.close()


def test_a_graph_is_kept_only_of_what_milvus_lite_has_sealed(lite):
    lite.upsert(batch(passage_row("p1", EULER)))
    lite.flush()
    assert lite._meta.kept_snapshot() is None
    lite.close()
    assert lite._meta.kept_snapshot() is not None


def test_a_copy_of_an_index_does_not_believe_its_twin(tmp_path):
    cache = tmp_path / "cache"
    store = created(tmp_path / "a.db", cache_dir=cache)
    store.upsert(batch(passage_row("p")))
    store.close()
    shutil.copytree(tmp_path / "a.db", tmp_path / "b.db")
    for name in "ab":
        store = MilvusGraphStore(tmp_path / f"{name}.db", cache_dir=cache)
        store.upsert(batch(passage_row(f"only in {name}")))
        store.close()
    store = MilvusGraphStore(tmp_path / "a.db", cache_dir=cache)
    assert store.snapshot().passage_rows(["only in a"]).tolist() != [-1]
    assert store.snapshot().passage_rows(["only in b"]).tolist() == [-1]
    store.close()


def test_a_restored_backup_is_read_though_as_many_writes_were_made(lite, tmp_path):
    uri, matrices = tmp_path / "index.db", tmp_path / "index.db.matrices"
    lite.upsert(batch(passage_row("p")))
    lite.close()
    shutil.copytree(uri, tmp_path / "backup")
    store = MilvusGraphStore(uri)
    store.upsert(batch(passage_row("q")))
    store.close()
    shutil.rmtree(uri)
    shutil.copytree(tmp_path / "backup", uri)
    hidden = tmp_path / "hidden"
    matrices.rename(hidden)
    matrices.write_text("in the way: nothing can be kept")
    store = MilvusGraphStore(uri)
    store.upsert(batch(passage_row("r")))
    store.close()
    matrices.unlink()
    hidden.rename(matrices)
    store = MilvusGraphStore(uri)
    assert (store.snapshot().passage_rows(["p", "q", "r"]) >= 0).tolist() == [True, False, True]
    store.close()


def test_what_a_full_refresh_found_is_kept(lite, tmp_path):
    lite.upsert(batch(passage_row("p"), passage_row("q")))
    lite.close()
    store = MilvusGraphStore(tmp_path / "index.db")
    store.connection.delete(store.collections.passages, ["q"])
    store.refresh(full=True)
    store.close()
    store = MilvusGraphStore(tmp_path / "index.db")
    assert store.stats()["passages"] == 1
    store.close()


def test_a_store_opened_before_the_index_hears_of_it(tmp_path):
    early = MilvusGraphStore(tmp_path / "index.db")
    store = created(tmp_path / "index.db")
    store.upsert(batch(passage_row("p", EULER)))
    assert early.stats() == store.stats()
    assert early.search(passages=vectors("p")).passages[0].ids == ("p",)
    store.upsert(batch(passage_row("q", EULER)))
    assert early.snapshot().n_passages == 2
    early.close()
    store.close()


def test_a_full_disk_is_not_filled_further(lite, tmp_path, monkeypatch):
    lite.upsert(batch(passage_row("p", EULER)))

    def full(*_, **__):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        lite.close()
    assert not [file for file in (tmp_path / "index.db.matrices").rglob("*") if file.is_file()]
    store = MilvusGraphStore(tmp_path / "index.db")
    assert store.stats()["passages"] == 1
    store.close()


def test_a_cache_that_may_not_be_looked_at_costs_time_only(lite, tmp_path, caplog):
    lite.upsert(batch(passage_row("p")))
    lite.close()
    for odd in ("x" * 5_000, "a\0b"):
        store = MilvusGraphStore(tmp_path / "index.db", cache_dir=odd)
        assert store.stats()["passages"] == 1
        store.close()
    assert "could not be kept" in caplog.text


def test_what_json_cannot_hold_is_found_within_tuples(lite):
    for value in (2**70, ({"$meta": 1},), [({"a": -(2**64)},)]):
        with pytest.raises(GraphRAGValueError, match="its metadata holds"):
            lite.check(passage_row("p", odd=(value,)))


def test_lengths_do_not_matter_to_inner_products(tmp_path):
    store = created(tmp_path / "index.db", metric="IP")
    rows = [passage_row(f"p{n}") for n in range(3)]
    rows[0] = replace(rows[0], embedding=[1e20] * DIMENSION)
    rows[1] = replace(rows[1], embedding=[-1e-30] * DIMENSION)
    store.upsert(batch(*rows))
    asked = np.full((1, DIMENSION), 1e20, dtype=np.float32)
    found = store.search(passages=asked).passages[0]
    assert found.ids == ("p0", "p2", "p1")
    assert found.similarities[0] == pytest.approx(1)
    assert found.similarities[2] == pytest.approx(-1)
    store.close()
