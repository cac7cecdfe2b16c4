"""The compliance suite of GraphIndexStore: subclass it to test a store of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters, VectorStoreQuery

from llama_index_graph_rag.errors import GraphRAGError, MissingExtraError, StoreError
from llama_index_graph_rag.identity import entity_id
from llama_index_graph_rag.stores.base import (
    Batch,
    GraphIndexStore,
    Limits,
    PassageRow,
    StaleBatchError,
)
from llama_index_graph_rag.testing.toy_rows import (
    BASEL,
    DANIEL,
    DIMENSION,
    EULER,
    MODEL,
    PROBE,
    batch,
    passage_row,
    vector,
    vectors,
)
from llama_index_graph_rag.triplets import Triplet

try:
    import pytest
except ImportError as error:
    raise MissingExtraError("pytest", "test") from error

ODD_IDS = (
    "a'b",
    'a"b',
    "a\\b",
    "a\nb",
    "\x00\x01",
    "x" * 5_000,
    "%s",
    "{x}",
    "é🧮",
    '"] or id != ["',
)


class GraphIndexStoreSuite:
    """Tests that hold for every GraphIndexStore.

    Give two fixtures. `store`: an open store whose index was created by ``create(DIMENSION,
    embedding_model=MODEL, probe=PROBE)`` and holds nothing; it may be one that earlier tests used,
    after `empty`. `reopen`: a function that opens the same data once more, as another process
    would. Collect the subclass with pytest (and pytest-asyncio).

    Examples
    --------
    ::

        class TestMyStore(GraphIndexStoreSuite):
            @pytest.fixture
            def store(self, tmp_path):
                store = MyStore(tmp_path)
                store.create(DIMENSION, embedding_model=MODEL, probe=PROBE)
                yield store
                store.close()

            @pytest.fixture
            def reopen(self, tmp_path, store):
                return lambda: MyStore(tmp_path)
    """

    @pytest.fixture
    def store(self) -> GraphIndexStore:
        """Return a store that holds nothing."""
        raise NotImplementedError("override the fixture store")

    @pytest.fixture
    def reopen(self, store: GraphIndexStore) -> Callable[[], GraphIndexStore]:
        """Return a function that opens the store's data once more."""
        raise NotImplementedError("override the fixture reopen")

    @pytest.fixture
    def second(self, reopen: Callable[[], GraphIndexStore]) -> Iterator[GraphIndexStore]:
        """Open the store once more, and close that again."""
        second = reopen()
        yield second
        second.close()

    # --- the index itself ---

    def test_create_again_is_for_the_same_model_only(self, store: GraphIndexStore) -> None:
        """The model is known by its dimension and its embedding of a fixed text."""
        assert store.dimension == DIMENSION
        store.create(DIMENSION, embedding_model="the same by another name", probe=PROBE)
        with pytest.raises(StoreError, match=MODEL):
            store.create(DIMENSION + 1, embedding_model="longer", probe=(*PROBE, 1.0))
        with pytest.raises(StoreError, match=MODEL):
            store.create(DIMENSION, embedding_model="other", probe=PROBE[::-1])

    def test_an_empty_index_answers(self, store: GraphIndexStore) -> None:
        """Nothing is no error."""
        everything = vectors("a", "b")
        found = store.search(entities=everything, relations=everything, passages=everything)
        for hits in (found.entities, found.relations, found.passages):
            assert [hit.ids for hit in hits] == [(), ()]
        assert store.get_passages(["a"]) == []
        assert store.stats()["passages"] == 0
        store.upsert(Batch())
        store.delete_passages([])
        store.delete_documents([])

    # --- writing and reading back ---

    def test_a_passage_comes_back_as_it_was(self, store: GraphIndexStore) -> None:
        """Text, metadata, relationships, hash, relations and mentions; scores of none are kept."""
        row = passage_row(
            "p1", EULER, BASEL, document="d1", year=1707, tags=["a", "b"], title='say "hi"', ok=True
        )
        row.node.excluded_embed_metadata_keys = ["year"]
        store.upsert(batch(row))
        (stored,) = store.get_passages(["p1"])
        assert stored.node.hash == row.node.hash
        assert stored.node.to_dict() == row.node.to_dict()
        assert stored.relation_ids == row.relation_ids
        assert stored.mentions == row.mentions

    def test_passages_come_in_the_order_asked(self, store: GraphIndexStore) -> None:
        """Missing ids are left out, repeated ones come once."""
        store.upsert(batch(*(passage_row(id) for id in "bca")))
        found = store.get_passages(["c", "no", "a", "b", "c"])
        assert [passage.node.node_id for passage in found] == ["c", "a", "b"]
        assert store.get_passages([]) == []

    def test_ids_may_hold_anything(self, store: GraphIndexStore) -> None:
        """Quotes, backslashes, newlines, control characters, thousands of characters."""
        store.upsert(batch(*(passage_row(id, document=id) for id in ODD_IDS)))
        for id in ODD_IDS:
            assert [p.node.node_id for p in store.get_passages([id])] == [id]
        assert {k.id for page in store.scan_passages() for k in page} == set(ODD_IDS)
        store.delete_passages(ODD_IDS[:3])
        store.delete_documents(ODD_IDS[3:6])
        left = [p.node.node_id for p in store.get_passages(ODD_IDS)]
        assert left == list(ODD_IDS[6:])

    def test_many_passages(self, store: GraphIndexStore) -> None:
        """More than one request or page holds."""
        ids = [f"p{n:04d}" for n in range(1_100)]
        store.upsert(batch(*(passage_row(id, text="the same text") for id in ids)))
        store.flush()
        assert [p.node.node_id for p in store.get_passages(ids[::-1])] == ids[::-1]
        assert sorted(k.id for page in store.scan_passages() for k in page) == ids
        limits = Limits(passages=1_050)
        (hits,) = store.search(passages=vectors("the same text"), limits=limits).passages
        assert len(hits.ids) == 1_050
        store.delete_passages(ids)
        assert store.stats()["passages"] == 0

    def test_missing_are_those_not_stored(self, store: GraphIndexStore) -> None:
        """What is asked for and not there."""
        written = batch(passage_row("p1", EULER))
        entities = [row.id for row in written.entities]
        relations = [row.id for row in written.relations]
        nothing = store.missing(entities=entities, relations=relations)
        assert nothing == (set(entities), set(relations))
        store.upsert(written)
        other = entity_id("nobody")
        found = store.missing(entities=[*entities, other], relations=relations)
        assert found == ({other}, set())

    def test_the_first_spelling_stays(self, store: GraphIndexStore) -> None:
        """A later spelling is another mention, never another name."""
        store.upsert(batch(passage_row("p1", EULER)))
        store.upsert(batch(passage_row("p2", ("EULER", "Was a student of", "johann bernoulli"))))
        assert sorted(k.text for page in store.scan_entities() for k in page) == [
            "Euler",
            "Johann Bernoulli",
        ]
        (hits,) = store.search(relations=vectors(" ".join(EULER))).relations
        assert hits.texts == (" ".join(EULER),)
        assert store.get_passages(["p2"])[0].mentions[0].triplet.subject == "EULER"
        assert sorted(store.snapshot().entity_names) == ["Euler", "Johann Bernoulli"]

    def test_writing_again_changes_nothing(self, store: GraphIndexStore) -> None:
        """Every write can be repeated."""
        written = batch(passage_row("p1", EULER, BASEL), passage_row("p2", EULER))
        store.upsert(written)
        before = store.stats()
        store.upsert(written)
        assert store.stats() == before
        assert len([k for page in store.scan_passages() for k in page]) == 2

    def test_a_replaced_passage_states_only_what_is_new(self, store: GraphIndexStore) -> None:
        """Relations of its former content go, unless others state them."""
        store.upsert(batch(passage_row("p1", EULER, BASEL), passage_row("p2", EULER)))
        store.upsert(batch(passage_row("p1", DANIEL)))
        assert store.stats()["relations"] == 2
        store.vacuum()
        assert _orphans(store) == 0
        assert _relations(store) == {Triplet(*EULER).id, Triplet(*DANIEL).id}

    @pytest.mark.parametrize("lacking", ["entities", "relations"])
    def test_a_batch_that_lacks_something_writes_nothing(
        self, store: GraphIndexStore, lacking: str
    ) -> None:
        """Nothing dangles: what is stated must be here or come along."""
        whole = batch(passage_row("p1", EULER))
        part = (
            replace(whole, entities=()) if lacking == "entities" else replace(whole, relations=())
        )
        with pytest.raises(StaleBatchError):
            store.upsert(part)
        assert _all_ids(store) == ([], [], [])

    @pytest.mark.parametrize("bad", [[1.0], [float("nan")] * DIMENSION, []])
    def test_a_bad_embedding_writes_nothing(
        self, store: GraphIndexStore, bad: Sequence[float]
    ) -> None:
        """Another dimension and NaN are errors of ours, before anything is written."""
        good = batch(passage_row("p1", EULER))
        row = passage_row("p2")
        bad_row = PassageRow(row.node, bad, (), (), "")
        with pytest.raises(GraphRAGError, match="p2"):
            store.upsert(Batch(good.entities, good.relations, [*good.passages, bad_row]))
        assert _all_ids(store) == ([], [], [])

    # --- deleting ---

    def test_a_deleted_passage_takes_what_it_alone_states(self, store: GraphIndexStore) -> None:
        """What others state stays; vacuum leaves no orphan; unknown ids are no error."""
        store.upsert(batch(passage_row("p1", EULER, BASEL), passage_row("p2", EULER)))
        store.delete_passages(["p1", "no"])
        assert store.get_passages(["p1"]) == []
        assert store.stats()["relations"] == 1
        assert store.search(passages=vectors("Euler")).passages[0].ids == ("p2",)
        store.vacuum()
        assert _orphans(store) == 0
        assert _relations(store) == {Triplet(*EULER).id}
        assert len(_all_ids(store)[0]) == 2

    def test_inserting_after_deleting(self, store: GraphIndexStore) -> None:
        """As if it had not been there."""
        written = batch(passage_row("p1", EULER))
        store.upsert(written)
        store.delete_passages(["p1"])
        store.vacuum()
        store.upsert(written)
        assert store.stats()["relations"] == 1
        assert _orphans(store) == 0
        assert len(store.get_passages(["p1"])) == 1
        assert store.search(relations=vectors("Euler")).relations[0].ids == (Triplet(*EULER).id,)

    def test_deleting_documents(self, store: GraphIndexStore) -> None:
        """All passages of a document go, no others; "" is no document."""
        store.upsert(
            batch(
                passage_row("p1", EULER, document="d1"),
                passage_row("p2", BASEL, document="d1"),
                passage_row("p3", EULER, document="d2"),
                passage_row("p4", DANIEL),
            )
        )
        store.delete_documents(["", "None", "no"])
        assert store.stats()["passages"] == 4
        store.delete_documents(["d1"])
        assert [p.node.node_id for p in store.get_passages(["p1", "p2", "p3", "p4"])] == [
            "p3",
            "p4",
        ]
        assert store.stats()["relations"] == 2

    # --- searching ---

    def test_search_brings_the_nearest_of_each_kind(self, store: GraphIndexStore) -> None:
        """Per vector in the order given, best first, cut at the limit."""
        rows = [passage_row("p1", EULER), passage_row("p2", DANIEL), passage_row("p3", BASEL)]
        store.upsert(batch(*rows))
        asked = vectors(rows[1].node.text, rows[0].node.text)
        found = store.search(
            entities=vectors("Basel"), relations=asked, passages=asked, limits=Limits(1, 2, 3)
        )
        assert [hits.ids[0] for hits in found.passages] == ["p2", "p1"]
        assert [len(hits.ids) for hits in found.passages] == [3, 3]
        assert [len(hits.ids) for hits in found.relations] == [2, 2]
        assert [hits.texts[0] for hits in found.relations] == [" ".join(DANIEL), " ".join(EULER)]
        assert [hits.texts for hits in found.entities] == [("Basel",)]
        for hits in (*found.entities, *found.relations, *found.passages):
            assert list(hits.similarities) == sorted(hits.similarities, reverse=True)
            assert hits.similarities[0] == pytest.approx(1.0, abs=1e-4)
        assert store.search(passages=asked) == store.search(passages=asked)
        assert store.search(relations=asked).passages == ()

    def test_ties_go_by_id(self, store: GraphIndexStore) -> None:
        """Equal similarities come in the order of ids."""
        store.upsert(batch(*(passage_row(id, text="the same") for id in ("c", "a", "b"))))
        (hits,) = store.search(passages=vectors("the same")).passages
        assert hits.ids == ("a", "b", "c")

    def test_a_query_of_another_model_is_an_error(self, store: GraphIndexStore) -> None:
        """Its length tells."""
        store.upsert(batch(passage_row("p1")))
        with pytest.raises(GraphRAGError, match="dimension"):
            store.search(passages=np.ones((1, DIMENSION + 1), dtype=np.float32))
        with pytest.raises(GraphRAGError, match="NaN"):
            store.search(passages=np.full((1, DIMENSION), np.nan, dtype=np.float32))

    @pytest.mark.parametrize(
        ("operator", "value", "passing"),
        [
            ("==", 1707, {"p1"}),
            (">", 1706, {"p1"}),
            ("in", [1700, 1707], {"p1", "p2"}),
            ("!=", 1707, {"p2", "p3"}),
            ("is_empty", None, {"p3"}),
        ],
    )
    def test_filters(
        self, store: GraphIndexStore, operator: str, value: object, passing: set[str]
    ) -> None:
        """Permitted passages are those that a search with the filter finds."""
        store.upsert(
            batch(passage_row("p1", year=1707), passage_row("p2", year=1700), passage_row("p3"))
        )
        item = MetadataFilter.from_dict({"key": "year", "operator": operator, "value": value})
        filters = MetadataFilters(filters=[item])
        assert store.permitted(filters) == passing
        (hits,) = store.search(passages=vectors("p1"), filters=filters).passages
        assert set(hits.ids) == passing

    def test_vectors_come_back(self, store: GraphIndexStore) -> None:
        """By id, without the missing ones."""
        store.upsert(batch(passage_row("p1", EULER)))
        euler, relation = entity_id("Euler"), Triplet(*EULER).id
        entities, relations = store.get_vectors(
            entities=[euler, entity_id("nobody")], relations=[relation]
        )
        assert list(entities) == [euler]
        np.testing.assert_allclose(entities[euler], vector("Euler"), atol=1e-6)
        np.testing.assert_allclose(relations[relation], vector(" ".join(EULER)), atol=1e-6)
        passages = store.passage_vectors(["no", "p1"])
        assert list(passages) == ["p1"]
        np.testing.assert_allclose(passages["p1"], vector(" ".join(EULER)), atol=1e-6)

    def test_the_plain_vector_store_shows_the_same_passages(self, store: GraphIndexStore) -> None:
        """LlamaIndex's own store over them gives back the same nodes."""
        row = passage_row("p1", EULER, year=1707, document="d1")
        store.upsert(batch(row, passage_row("p2", DANIEL)))
        store.flush()
        query = VectorStoreQuery(query_embedding=list(row.embedding), similarity_top_k=1)
        found = store.passage_vector_store().query(query)
        assert found.nodes is not None
        assert found.nodes[0].node_id == "p1"
        assert found.nodes[0].hash == row.node.hash

    # --- the graph ---

    def test_scans_and_snapshot_agree(self, store: GraphIndexStore) -> None:
        """A snapshot is what a scan would give."""
        store.upsert(batch(passage_row("p1", EULER, DANIEL), passage_row("p2", BASEL)))
        graph = store.snapshot()
        entities, relations, passages = _all_ids(store)
        assert (graph.entity_rows(entities) >= 0).all()
        assert (graph.relation_rows(relations) >= 0).all()
        assert (graph.passage_rows(passages) >= 0).all()
        stats = store.stats()
        assert (stats["entities"], stats["relations"], stats["passages"]) == (4, 3, 2)
        keys = {key.id: key for page in store.scan_passages() for key in page}
        assert keys["p1"].relation_ids == (Triplet(*EULER).id, Triplet(*DANIEL).id)
        assert keys["p1"].content_hash == graph.content_hash("p1") == "content of p1"

    def test_a_snapshot_does_not_change(self, store: GraphIndexStore) -> None:
        """A reader keeps the graph that it began with."""
        store.upsert(batch(passage_row("p1", EULER)))
        before = store.snapshot()
        store.delete_passages(["p1"])
        store.upsert(batch(passage_row("p2", BASEL)))
        assert before.stats()["relations"] == 1
        assert before.content_hash("p1") is not None
        assert store.snapshot().content_hash("p1") is None

    def test_what_another_wrote_is_seen_after_a_refresh(
        self, store: GraphIndexStore, second: GraphIndexStore
    ) -> None:
        """Refresh says whether anything changed."""
        assert not second.refresh()
        store.upsert(batch(passage_row("p1", EULER)))
        assert second.refresh()
        assert not second.refresh()
        assert second.stats() == store.stats()
        second.delete_passages(["p1"])
        assert store.refresh()
        assert store.stats()["passages"] == 0

    def test_two_stores_may_write_in_turn(
        self, store: GraphIndexStore, second: GraphIndexStore
    ) -> None:
        """Each builds on what the other has written, without having refreshed."""
        store.upsert(batch(passage_row("p1", EULER)))
        whole = batch(passage_row("p2", EULER, DANIEL), passage_row("p3", EULER, document="d"))
        entities = {row.id: row for row in whole.entities}
        relations = {row.id: row for row in whole.relations}
        missing = second.missing(entities=list(entities), relations=list(relations))
        second.upsert(
            Batch(
                [row for id, row in entities.items() if id in missing[0]],
                [row for id, row in relations.items() if id in missing[1]],
                whole.passages,
            )
        )
        store.delete_passages(["p1", "p2"])
        store.delete_documents(["d"])
        second.upsert(batch(passage_row("p4", EULER)))
        for each in (store, second):
            each.refresh()
            assert each.stats() == store.stats() | {"passages": 1, "dangling_references": 0}
        store.vacuum()
        assert _relations(store) == {Triplet(*EULER).id}

    def test_reopened_it_answers_alike(
        self, store: GraphIndexStore, reopen: Callable[[], GraphIndexStore]
    ) -> None:
        """Nothing depends on the object that wrote."""
        store.upsert(batch(passage_row("p1", EULER, DANIEL), passage_row("p2", BASEL, EULER)))
        store.delete_passages(["p1"])
        store.flush()
        second = reopen()
        try:
            asked = vectors("Euler", "Basel")
            assert second.dimension == DIMENSION
            assert second.stats() == store.stats()
            assert second.get_passages(["p2"]) == store.get_passages(["p2"])
            assert second.search(entities=asked, relations=asked, passages=asked) == store.search(
                entities=asked, relations=asked, passages=asked
            )
        finally:
            second.close()

    # --- at once ---

    def test_two_threads_write_while_others_read(self, store: GraphIndexStore) -> None:
        """Readers see whole batches; nothing is lost, nothing is left over."""

        def write(name: str) -> None:
            for n in range(3):
                store.upsert(batch(passage_row(f"{name}{n}", EULER, (name, "wrote", f"{n}"))))
                store.delete_passages([f"{name}{n - 1}"])

        def read() -> int:
            for _ in range(10):
                graph = store.snapshot()
                ids = graph.passage_ids(np.flatnonzero(graph.incidence.passage_degree))
                assert all(len(p.relation_ids) == 2 for p in store.get_passages(ids))
                store.search(passages=vectors("Euler"), relations=vectors("Euler"))
            return 1

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(write, name) for name in ("left", "right")]
            readers = [pool.submit(read) for _ in range(2)]
            assert [writer.result() for writer in writers] == [None, None]
            assert [reader.result() for reader in readers] == [1, 1]
        stats = store.stats()
        assert (stats["passages"], stats["relations"]) == (2, 3)
        assert stats["dangling_references"] == 0

    async def test_async_twins_do_the_same(self, store: GraphIndexStore) -> None:
        """Each twin answers as its sync method."""
        await store.acreate(DIMENSION, embedding_model=MODEL, probe=PROBE)
        await store.aupsert(
            batch(passage_row("p1", EULER, year=1), passage_row("p2", document="d"))
        )
        asked = vectors("Euler")
        assert await store.asearch(passages=asked) == store.search(passages=asked)
        assert await store.aget_passages(["p1"]) == store.get_passages(["p1"])
        relation = Triplet(*EULER).id
        assert await store.amissing(relations=[relation]) == (set(), set())
        _, found = await store.aget_vectors(relations=[relation])
        assert list(found) == [relation]
        year = MetadataFilters(filters=[MetadataFilter(key="year", value=1)])
        assert await store.apermitted(year) == {"p1"}
        assert list(await store.apassage_vectors(["p1"])) == ["p1"]
        await store.adelete_passages(["p1"])
        await store.adelete_documents(["d"])
        await store.aflush()
        await store.avacuum()
        assert set(store.vacuum().values()) == {0}
        assert not await store.arefresh()
        assert await store.arefresh(full=True)
        assert store.stats()["passages"] == 0


def _all_ids(store: GraphIndexStore) -> tuple[list[str], list[str], list[str]]:
    return (
        [key.id for page in store.scan_entities() for key in page],
        [key.id for page in store.scan_relations() for key in page],
        [key.id for page in store.scan_passages() for key in page],
    )


def _relations(store: GraphIndexStore) -> set[str]:
    return set(_all_ids(store)[1])


def _orphans(store: GraphIndexStore) -> int:
    stats = store.stats()
    return stats["orphan_entities"] + stats["orphan_relations"]
