"""ElasticsearchStore against an engine with the API of Elasticsearch 8.15 (noida-db 0.2.3)."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
import urllib.request

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError, StoreError
from llama_index_graph_rag.identity import entity_id
from llama_index_graph_rag.stores.base import Batch, EntityRow, Evidence, PassageRow, RelationRow
from llama_index_graph_rag.stores.elasticsearch import ElasticsearchStore
from llama_index_graph_rag.stores.milvus import MilvusGraphStore
from llama_index_graph_rag.testing.graph_reader import GraphReaderSuite
from llama_index_graph_rag.triplets import Mention, Triplet


@pytest.fixture
def store(elasticsearch_store):
    return elasticsearch_store


def node(id_, text="", *, doc="", embedding=None):
    relationships = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=doc)} if doc else {}
    return TextNode(id_=id_, text=text or id_, relationships=relationships, embedding=embedding)


def ids(*names):
    return [entity_id(name) for name in names]


def around(store, name, **options):
    found = store.neighbors(ids(name), **options)[entity_id(name)]
    return [(one.entity.name, one.count) for one in found]


class TestGraphReader(GraphReaderSuite):
    @pytest.fixture
    def load_graph(self, store):
        def load(toy):
            store.add(
                [node(passage.id, passage.text) for passage in toy.passages],
                [passage.mentions for passage in toy.passages],
            )
            return store

        return load


class TestWalking:
    def test_neighbors_in_both_directions_best_linked_first_then_by_name(self, store):
        store.add(
            [node("1"), node("2")],
            [
                [("A", "r", "D"), ("C", "r", "A"), ("A", "r", "B"), ("A", "s", "B")],
                [("A", "loves", "A"), ("A", "r", "D"), ("a", "R", "d.")],
            ],
        )
        assert around(store, "A") == [("B", 2), ("C", 1), ("D", 1)]
        assert around(store, "B") == [("A", 2)]
        assert around(store, "A", limit_per_entity=1) == [("B", 2)]

    def test_unknown_ids_are_left_out_and_a_self_loop_has_no_neighbor(self, store):
        store.add([node("1")], [[("A", "is", "A")]])
        assert store.neighbors([*ids("A", "nobody"), "x"]) == {entity_id("A"): []}
        assert store.neighbors([]) == {}

    def test_a_hub_starves_no_other(self, store):
        hub = [("hub", "has", f"leaf {i:03}") for i in range(300)]
        store.add([node("1")], [[*hub, ("small", "r", "only")]])
        found = store.neighbors(ids("hub", "small"))
        assert len(found[entity_id("hub")]) == 100
        assert [one.entity.name for one in found[entity_id("hub")]][:2] == ["leaf 000", "leaf 001"]
        assert [one.entity.name for one in found[entity_id("small")]] == ["only"]
        assert len(store.neighbors(ids("hub"), limit_per_entity=1_000)[entity_id("hub")]) == 300

    def test_links_from_left_to_right_whatever_the_direction(self, store):
        store.add(
            [node("1")],
            [[("A", "r", "B"), ("B", "s", "A"), ("C", "r", "A"), ("B", "r", "C"), ("A", "r", "A")]],
        )
        a, b, c = ids("A", "B", "C")
        found = store.links([a], [b, c, a])
        assert [(one.left_id, one.right_id, one.count) for one in found] == [(a, b, 2), (a, c, 1)]
        assert [one.count for one in store.links([b, c], [a], limit=1)] == [2]
        assert store.links([], [a]) == []
        assert store.links([a], ids("nobody")) == []

    def test_facts_carry_direction_count_and_sentences(self, store):
        text = "Euler was a student of Johann. He lived in Basel."
        triplet = Triplet("Euler", "was a student of", "Johann")
        store.add(
            [node("1", text), node("2"), node("3")],
            [
                [Mention(triplet, 0, 30), ("Johann", "taught", "Euler")],
                [triplet],
                [("Euler", "met", "Johann"), ("Euler", "knew", "Basel")],
            ],
        )
        left, right = ids("Johann", "Euler")
        found = store.facts([(left, right), (right, left)])
        assert found[:3] == found[3:]
        assert [(f.subject.name, f.predicate, f.object.name, f.count) for f in found[:3]] == [
            ("Euler", "was a student of", "Johann", 2),
            ("Euler", "met", "Johann", 1),
            ("Johann", "taught", "Euler", 1),
        ]
        assert [(one.passage_id, one.sentence) for one in found[0].evidence] == [
            ("1", "Euler was a student of Johann."),
            ("2", ""),
        ]
        assert [f.predicate for f in store.facts([(left, right)], per_pair=1)] == [
            "was a student of"
        ]
        assert store.facts([(left, left)]) == []

    def test_facts_nearest_to_the_question_first_and_no_pair_starves(self, store):
        near = [Triplet("A", f"near {i}", "B") for i in range(30)]
        far = Triplet("A", "far", "C")
        same = Triplet("A", "common", "B")
        vectors = {one.id: [1.0, i / 100] for i, one in enumerate(near)}
        vectors |= {far.id: [0.0, 1.0], same.id: [1.0, 10.0]}
        store.add([node("1"), node("2"), node("3")], [[*near, far, same], [same], [same]], vectors)
        a, b, c = ids("A", "B", "C")
        found = store.facts([(c, a), (a, b)], per_pair=3, query_embedding=[1.0, 0.0])
        assert [fact.predicate for fact in found] == ["far", "near 0", "near 1", "near 2"]
        assert found[1].similarity == pytest.approx(1.0, abs=1e-5)
        assert found[0].similarity == pytest.approx(0.0, abs=1e-5)
        assert [f.predicate for f in store.facts([(a, b)], per_pair=2)] == ["common", "near 0"]
        # All relations of the pair are there when there is room, those that the kNN left out last.
        every = store.facts([(a, b)], per_pair=31, query_embedding=[1.0, 0.0])
        assert len(every) == 31
        assert every[-1].count == 3

    def test_without_vectors_facts_are_ordered_by_count_and_it_is_said(self, store, caplog):
        store.add([node("1")], [[("A", "r", "B")]])
        with caplog.at_level(logging.WARNING, "llama_index_graph_rag"):
            found = store.facts([tuple(ids("A", "B"))], query_embedding=[1.0])
        assert [fact.similarity for fact in found] == [None]
        assert "holds no vectors" in caplog.text

    def test_match_by_name_spelled_in_any_way_or_by_id(self, store):
        store.add([node("1")], [[("Leonhard Euler", "r", "李白")]])
        store.add([node("2")], [[("leonhard EULER", "s", "李白")]])
        euler = entity_id("leonhard euler")
        names = ["Leonhard  Euler.", "nobody", euler, "李白", ""]
        found = [[one.name for one in refs] for refs in store.match_entities(names)]
        assert found == [["Leonhard Euler"], [], ["Leonhard Euler"], ["李白"], []]
        assert store.match_entities([euler], by="name") == [[]]
        assert store.match_entities([]) == []
        with pytest.raises(GraphRAGValueError, match="by='age'"):
            store.match_entities(["x"], by="age")

    def test_schema_counts_predicates(self, store):
        store.add([node("1")], [[("A", "r", "B"), ("A", "r", "C"), ("A", "a", "C")]])
        assert "- r (2)\n- a (1)" in store.schema()

    async def test_async_gives_the_same(self, store):
        await store.aadd([node("1", "word")], [[("A", "r", "B"), ("B", "r", "C")]])
        a, b, c = ids("A", "B", "C")
        assert await store.aneighbors([a, b]) == store.neighbors([a, b])
        assert await store.alinks([a], [b, c]) == store.links([a], [b, c])
        assert await store.afacts([(a, b)]) == store.facts([(a, b)])
        assert await store.amatch_entities(["a"]) == store.match_entities(["a"])
        assert await store.aschema() == store.schema()
        assert await store.astats() == store.stats()
        assert await store.aget_passages(["1"]) == store.get_passages(["1"])
        assert await store.adelete_passages(["1"]) == 1
        assert store.stats() == {"passages": 0, "statements": 0, "pairs": 0}

    def test_async_in_one_loop_after_another(self, store):
        store.add([node("1")], [[("A", "r", "B")]])
        for _ in range(2):
            assert len(asyncio.run(store.aneighbors(ids("A")))) == 1


class TestSearches:
    def test_each_call_is_one_search(self, store):
        store.add([node("1")], [[(f"e{i}", "r", f"e{i + 1}") for i in range(200)]], {})
        names = [f"e{i}" for i in range(200)]
        for expected, call in [
            (1, lambda: store.match_entities(names)),
            (1, lambda: store.neighbors(ids(*names))),
            (1, lambda: store.links(ids(*names), ids(*names))),
            (1, lambda: store.facts([tuple(ids(f"e{i}", f"e{i + 1}")) for i in range(200)])),
            (2, lambda: store.neighbors(ids(*names, "e200"))),
        ]:
            with store.count_calls() as calls:
                call()
            assert calls["elasticsearch.search"] == expected

    async def test_tasks_and_threads_count_into_their_own_block(self, store):
        store.add([node("1")], [[("A", "r", "B")]])

        async def one(times):
            with store.count_calls() as calls:
                for _ in range(times):
                    await store.aneighbors(ids("A"))
                    await asyncio.to_thread(store.neighbors, ids("A"))
            return calls["elasticsearch.search"]

        with store.count_calls() as every:
            assert await asyncio.gather(one(1), one(3)) == [2, 6]
        assert every["elasticsearch.search"] == 8


class TestWriting:
    TRIPLETS = (("A", "r", "B"), ("A", "s", "B"), ("B", "r", "C"))

    def test_repeating_counts_nothing_twice(self, store):
        for _ in range(3):
            store.add([node("1"), node("2")], [self.TRIPLETS, self.TRIPLETS[:1]])
        assert store.stats() == {"passages": 2, "statements": 4, "pairs": 2}
        assert around(store, "A") == [("B", 2)]

    def test_a_passage_written_again_replaces_what_it_stated(self, store):
        store.add([node("1"), node("2")], [self.TRIPLETS, self.TRIPLETS[:1]])
        store.add([node("1", "new")], [[("B", "r", "D")]])
        assert around(store, "B") == [("A", 1), ("D", 1)]
        assert store.get_passages(["1"])[0].text == "new"
        assert store.stats() == {"passages": 2, "statements": 2, "pairs": 2}

    def test_deleting_lets_go_what_only_the_deleted_stated(self, store):
        store.add(
            [node("1", doc="d"), node("2", doc="d"), node("3", doc="e")],
            [self.TRIPLETS, [("B", "r", "D")], self.TRIPLETS[:1]],
        )
        assert store.delete_documents(["d", "none"]) == 2
        assert store.delete_documents(["d"]) == 0
        assert around(store, "B") == [("A", 1)]
        assert store.match_entities(["C", "D"]) == [[], []]
        assert store.delete_passages(["3", "nothing"]) == 1
        assert store.stats() == {"passages": 0, "statements": 0, "pairs": 0}

    @pytest.mark.parametrize("failing", range(12))
    @pytest.mark.parametrize("action", ["add", "replace", "delete"])
    def test_a_retry_after_any_interruption_gives_right_counts(
        self, store, monkeypatch, action, failing
    ):
        if action != "add":
            store.add([node("1"), node("2")], [self.TRIPLETS, self.TRIPLETS[:1]])
        act = {
            "add": lambda: store.add([node("1")], [self.TRIPLETS]),
            "replace": lambda: store.add([node("1")], [[("A", "r", "B"), ("D", "r", "B")]]),
            "delete": lambda: store.delete_passages(["1"]),
        }[action]
        perform, made = store._connection.perform_sync, itertools.count()

        def interrupted(method, arguments):
            if next(made) == failing:
                raise StoreError("interrupted")
            return perform(method, arguments)

        monkeypatch.setattr(store._connection, "perform_sync", interrupted)
        try:
            act()
        except StoreError:
            act()
        monkeypatch.undo()
        assert {
            "add": [("A", 2), ("C", 1)],
            "replace": [("A", 1), ("D", 1)],
            "delete": [("A", 1)],
        }[action] == around(store, "B")
        assert store.stats()["passages"] == {"add": 1, "replace": 2, "delete": 1}[action]

    def test_writers_at_one_time_count_each_other(self, store):
        store.add([node("first")], [[("A", "r", "B")]])
        others = [
            threading.Thread(
                target=lambda i=i: [
                    store.add([node(f"{i}.{j}")], [[("A", f"{i}.{j}", "B")]]) for j in range(5)
                ]
            )
            for i in range(4)
        ]
        deleting = threading.Thread(target=lambda: store.delete_passages(["first"]))
        for thread in [*others, deleting]:
            thread.start()
        for thread in [*others, deleting]:
            thread.join()
        assert around(store, "A") == [("B", 20)]

    def test_a_count_that_another_writer_made_stale_is_not_written(
        self, store, elasticsearch_url, monkeypatch
    ):
        prefix = store.indices.documents.removesuffix("_documents")
        perform, interrupted = store._connection.perform_sync, []

        def meanwhile(method, arguments):
            answer = perform(method, arguments)
            if method == "search" and not interrupted:
                interrupted.append(True)
                with ElasticsearchStore(elasticsearch_url, index_prefix=prefix) as other:
                    other.add([node("2")], [[("A", "s", "B")]])
            return answer

        # The first search of a new graph is the one that counts.
        monkeypatch.setattr(store._connection, "perform_sync", meanwhile)
        store.add([node("1")], [[("A", "r", "B")]])
        assert interrupted
        assert around(store, "A") == [("B", 2)]

    def test_in_batches_with_a_progress_bar(self, store, capsys):
        nodes = [node(str(i)) for i in range(7)]
        triplets = [[("hub", "r", f"e{i}"), ("hub", f"s{i}", "e")] for i in range(7)]
        assert store.add(nodes, triplets, batch_size=3, show_progress=True) == []
        assert "Writing passages" in capsys.readouterr().err
        assert around(store, "hub")[:2] == [("e", 7), ("e0", 1)]

    def test_triplets_from_metadata_and_what_is_left_out(self, store):
        read = node("1")
        read.metadata = {"graph_rag_triplets": [["A", "r", "B"]], "year": 1727}
        store.add([read])
        assert around(store, "A") == [("B", 1)]
        assert store.get_passages(["1"])[0].metadata == {"year": 1727}
        left_out = store.add([node("2")], [[("A", "", "B")]])
        assert [one.reason for one in left_out] == ["the predicate is empty"]

    @pytest.mark.parametrize("id_", ["quote'\"", "back\\slash", "line\nbreak", "字" * 300, "a b"])
    def test_ids_of_any_kind(self, store, id_):
        store.add([node(id_, "text", doc=id_)], [[(id_, "r", "B")]])
        assert store.get_passages(["none", id_])[0].node_id == id_
        assert store.delete_documents([id_]) == 1

    @pytest.mark.parametrize(
        ("arguments", "error", "match"),
        [
            (([node("1")], [[], []]), GraphRAGValueError, "1 nodes but 2 lists"),
            (([node("1"), node("1")], [[], []]), GraphRAGValueError, "two nodes have the id"),
            ((["text"], [[]]), GraphRAGTypeError, "give LlamaIndex nodes"),
            (([node("1")], [["abc"]]), GraphRAGTypeError, "three strings"),
            (([node("x" * 40_000)], [[]]), GraphRAGValueError, "40,000 bytes"),
            (([node("1")], [[("A", "b", "c" * 70_000)]]), GraphRAGValueError, "70,000 bytes"),
            (([node("1")], [[]], {"r": [0.0]}), GraphRAGValueError, "zero or not finite"),
            (([node("1")], [[]], {"r": [1.0, float("nan")]}), GraphRAGValueError, "not finite"),
            (([node("1")], [[]], {"r": [1.0], "s": [1.0, 2.0]}), GraphRAGValueError, "2 dimen"),
        ],
    )
    def test_bad_input_is_refused_before_anything_is_written(self, store, arguments, error, match):
        with pytest.raises(error, match=match):
            store.add(*arguments)
        with pytest.raises(StoreError, match="does not hold this graph yet"):
            store.stats()

    def test_metadata_that_is_no_json_is_refused(self, store):
        odd = node("1")
        odd.metadata = {"odd": object()}
        with pytest.raises(GraphRAGTypeError, match="cannot be written as JSON"):
            store.add([odd], [[]])

    def test_another_dimension_is_refused_on_writing_and_asking(self, store):
        triplet = Triplet("A", "r", "B")
        store.add([node("1")], [[triplet]], {triplet.id: [1.0, 0.0]})
        with pytest.raises(GraphRAGValueError, match="3 dimensions do not fit"):
            store.add([node("2")], [[triplet]], {triplet.id: [1.0, 0.0, 0.0]})
        with pytest.raises(GraphRAGValueError, match="the relations have 2"):
            store.facts([tuple(ids("A", "B"))], query_embedding=[1.0])

    def test_an_index_of_another_kind_is_left_alone(self, store, elasticsearch_url):
        _request(f"{elasticsearch_url}/{store.indices.documents}", {"mappings": {"properties": {}}})
        with pytest.raises(StoreError, match="choose another index_prefix"):
            store.add([node("1")], [[]])

    def test_an_index_emptied_in_between(self, store):
        store.add([node("1")], [[("A", "r", "B")]])
        store.delete_passages(["1"])
        a, b = ids("A", "B")
        assert store.neighbors([a]) == {}
        assert store.links([a], [b]) == store.facts([(a, b)]) == []
        assert store.match_entities(["A"]) == [[]]


def _request(url, body, method="PUT"):
    data = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(url, data=data, method=method, headers=headers), timeout=5
    ) as response:
        return json.load(response)


class TestDocuments:
    def test_by_words_and_by_vector(self, store):
        class Fixed:
            def get_agg_embedding_from_queries(self, queries):
                return [0.0, 1.0]

        store.add(
            [
                node("1", "Euler studied rivers", embedding=[1.0, 0.0]),
                node("2", "Bernoulli studied fluids and rivers", embedding=[0.0, 1.0]),
            ],
            [[], []],
        )
        by_words = store.as_retriever().retrieve("euler")
        assert [one.node_id for one in by_words] == ["1"]
        by_vector = store.as_retriever(mode="vector", embed_model=Fixed()).retrieve("x")
        assert [one.node_id for one in by_vector] == ["2", "1"]
        assert [one.score for one in by_vector] == pytest.approx([1.0, 0.0], abs=1e-5)

    async def test_async_and_the_node_as_it_was(self, store):
        given = TextNode(id_="1", text="water flows", metadata={"page": 3})
        store.add([given], [[]])
        (found,) = await store.as_retriever().aretrieve("water")
        assert found.node.hash == given.hash

    def test_bad_arguments(self, store):
        with pytest.raises(GraphRAGValueError, match="mode='bm25'"):
            store.as_retriever(mode="bm25")
        with pytest.raises(GraphRAGValueError, match="similarity_top_k=0"):
            store.as_retriever(similarity_top_k=0)


class TestFromIndex:
    def test_graph_sentences_vectors_and_spelling_come_over(
        self, store, elasticsearch_url, tmp_path
    ):
        given = Triplet("leonhard Euler", "lived in", "Basel")
        first = EntityRow(given.subject_id, "Leonhard Euler", [1.0, 0.0])
        text = "He was here. leonhard Euler lived in Basel."
        passage = TextNode(id_="p", text=text, metadata={"page": 3})
        mention = Mention(given, 13, len(text))
        with_vector = RelationRow(
            given.id, given.subject_id, given.object_id, *given, embedding=[0.0, 1.0]
        )
        index = MilvusGraphStore(tmp_path / "index.db")
        index.create(2)
        try:
            index.upsert(
                Batch(
                    [first, EntityRow(given.object_id, "Basel", [0.0, 1.0])],
                    [with_vector],
                    [PassageRow(passage, [1.0, 0.0], (given.id,), (mention,), "hash")],
                )
            )
            prefix = store.indices.documents.removesuffix("_documents")
            loaded = ElasticsearchStore.from_index(
                index, elasticsearch_url, index_prefix=prefix, vector_index="flat"
            )
        finally:
            index.close()
        (fact,) = loaded.facts([(given.object_id, given.subject_id)], query_embedding=[0.0, 2.0])
        loaded.close()
        assert fact.subject.name == "Leonhard Euler"
        assert fact.evidence == (Evidence("p", "leonhard Euler lived in Basel."),)
        assert fact.similarity == pytest.approx(1.0, abs=1e-5)
        assert store.get_passages(["p"])[0].metadata == {"page": 3}

    def test_something_else_is_refused(self):
        with pytest.raises(GraphRAGTypeError, match="give a GraphRAGIndex"):
            ElasticsearchStore.from_index("index")


class TestHostileInput:
    HALF = "half \ud800 pair"

    async def test_lone_surrogates_are_asked_for_like_any_text(self, store):
        store.add([node("1", f"text {self.HALF}")], [[(self.HALF, "r", "B")]])
        (found,), (), (other,) = store.match_entities([self.HALF, "\ud800", "B"])
        assert found.name == "half \ufffd pair"
        assert store.neighbors([found.id, "\ud800"])[found.id][0].entity == other
        assert store.links([found.id, "\ud800"], [other.id, "\ud800"])
        assert store.facts([("\ud800", "\udfff"), (found.id, other.id)])
        assert [one.node_id for one in store.get_passages(["\ud800", "1"])] == ["1"]
        assert store.search_documents(self.HALF)
        assert await store.amatch_entities(["\ud800"]) == [[]]
        assert store.delete_passages(["\ud800"]) == store.delete_documents(["\ud800"]) == 0

    def test_an_id_that_no_request_can_carry_is_refused_before_anything_is_written(self, store):
        for bad in (node("\ud800"), node("2", doc="\ud800")):
            with pytest.raises(GraphRAGValueError, match="lone surrogate"):
                store.add([node("1"), bad], [[("A", "r", "B")], []])
        with pytest.raises(StoreError, match="does not hold this graph"):
            store.stats()

    async def test_an_empty_document_id_deletes_nothing(self, store):
        store.add([node("1"), node("2", doc="d")], [[("A", "r", "B")], [("A", "r", "C")]])
        assert store.delete_documents([""]) == await store.adelete_documents(["", ""]) == 0
        assert store.delete_passages([""]) == 0
        assert store.delete_documents(["", "d"]) == 1
        assert store.stats()["passages"] == 1

    def test_a_string_is_no_list_of_ids(self, store):
        store.add([node("1"), node("11", doc="1")], [[("A", "r", "B")], []])
        for delete in (store.delete_passages, store.delete_documents):
            with pytest.raises(GraphRAGTypeError, match="list of strings"):
                delete("11")
        assert store.stats()["passages"] == 2

    @pytest.mark.parametrize("vector", [[], [0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
    def test_a_vector_without_direction_is_refused(self, store, vector):
        store.add([node("1", embedding=[1.0, 0.0])], [[]])
        with pytest.raises(GraphRAGValueError, match="zero or not finite"):
            store.search_documents(vector)
