"""From passages with triplets to rows: checked first, embedded once, written in batches."""

from __future__ import annotations

from functools import reduce

import pytest
from llama_index.core.schema import (
    ImageNode,
    IndexNode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)

from llama_index_graph_rag import writing
from llama_index_graph_rag.errors import GraphRAGError, GraphRAGValueError
from llama_index_graph_rag.extractors.node_triplets import TRIPLETS_KEY
from llama_index_graph_rag.steps import adrive, drive
from llama_index_graph_rag.stores.base import StaleBatchError
from llama_index_graph_rag.stores.milvus import MilvusGraphStore
from llama_index_graph_rag.writing import PROBE_TEXT, Writer, WriteReport, prepare, prepare_all

EULER = ("Euler", "was a student of", "Johann Bernoulli")
DEEP = reduce(lambda inner, _: [inner], range(2_000), "metadata")


def node(id="p1", text="Euler was a student of Johann Bernoulli.", **metadata) -> TextNode:
    return TextNode(id_=id, text=text, metadata=metadata)


@pytest.fixture
def store(tmp_path):
    store = MilvusGraphStore(tmp_path / "index.db")
    yield store
    store.close()


@pytest.fixture
def write(store, embedding):
    """A function that writes (node, triplets) pairs and returns the report."""

    def run(*pairs, model=embedding) -> WriteReport:
        passages, invalid = prepare_all([n for n, _ in pairs], [t for _, t in pairs])
        report = WriteReport(invalid=invalid)
        drive(Writer(store, lambda: model).write(passages, report))
        return report

    return run


# --- preparing ----------------------------------------------------------------------------------


def test_the_node_that_is_given_stays_as_it_is():
    given = node(year=1707)
    given.embedding = [1.0]
    given.metadata[TRIPLETS_KEY] = [list(EULER)]
    before = given.to_dict()
    passage, _ = prepare(given, [EULER])
    assert given.to_dict() == before
    assert passage.node.metadata == {"year": 1707}
    assert passage.node.embedding is None
    assert passage.embedding == [1.0]
    assert passage.mentions[0].evidence(given.text) == given.text


def sibling(kind, id) -> TextNode:
    return TextNode(
        id_="p1", text=node().text, metadata={"year": 1}, relationships={kind: related(id)}
    )


def related(id) -> RelatedNodeInfo:
    return RelatedNodeInfo(node_id=id)


@pytest.mark.parametrize(
    "other",
    [
        node(text="Other."),
        node(year=1).model_copy(update={"excluded_embed_metadata_keys": ["year"]}),
        node(year=1).model_copy(update={"excluded_llm_metadata_keys": ["year"]}),
        node(year=1).model_copy(update={"text_template": "{content}"}),
        node(year=1).model_copy(update={"embedding": [0.5]}),
        sibling(NodeRelationship.NEXT, "p2"),
        node(year=1707),
        node(year="1"),
        node(year=True),
        TextNode(
            id_="p1",
            text="Euler was a student of Johann Bernoulli.",
            metadata={"year": 1},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="book")},
        ),
    ],
)
def test_whatever_is_stored_is_part_of_the_content(other):
    same = prepare(node(year=1), [EULER])[0].content_hash
    assert same == prepare(node(year=1), [EULER])[0].content_hash
    assert prepare(other, [EULER])[0].content_hash != same
    assert prepare(node(year=1), [])[0].content_hash != same


def test_lone_surrogates_are_replaced_and_said(caplog):
    passage, _ = prepare(
        node(text="a\ud800", title="b\udfff", deep={"k\ud800": ["c\ud800", 1]}),
        [("a\ud800", "b", "c")],
    )
    assert passage.node.text == "a\ufffd"
    assert passage.node.metadata == {"title": "b\ufffd", "deep": {"k\ufffd": ["c\ufffd", 1]}}
    assert passage.mentions[0].triplet.subject == "a\ufffd"
    assert caplog.text.count("lone surrogates") == 2


def test_a_node_of_another_kind_with_text_will_do():
    passage, _ = prepare(IndexNode(id_="p1", text="text", index_id="i"), [])
    assert (passage.node.node_id, passage.node.text) == ("p1", "text")
    assert prepare(ImageNode(id_="p2", text="caption"), [])[0].node.text == "caption"


def test_empty_triplets_are_left_out_and_named():
    passage, invalid = prepare(node(), [EULER, ("", "b", "c"), ("a", " . ", "c"), EULER])
    assert len(passage.relation_ids) == len(passage.mentions) == 1
    assert [item.reason for item in invalid] == ["the subject is empty", "the predicate is empty"]


@pytest.mark.parametrize(
    ("nodes", "triplets", "message"),
    [
        ([node()], [], "1 nodes but 0 lists"),
        ([node()], [[EULER], []], "1 nodes but 2 lists"),
        ([node()], ["abc"], "not a list"),
        ([node()], [None], "not a list"),
        ([node()], [[("a", "b")]], "three strings"),
        ([node()], [[("a", "b", "x" * 70_000)]], "over the limit of 8,192"),
        ([node(), node(text="other")], [[], []], "given twice"),
        ([None], [[]], "None is a NoneType, not a node"),
        (["text"], [[EULER]], "'text' is a str, not a node"),
        (
            [TextNode(text="a", text_template="{body}", metadata={"b": 1})],
            [[]],
            "cannot be written out .*'body'.* text_template",
        ),
        ([node(deep=DEEP)], [[]], "cannot be written out .*deeply"),
        ([node(mixed={1: "a", "1": "b"})], [[]], "cannot be written out .*plain data"),
    ],
)
def test_what_cannot_be_prepared_is_named(nodes, triplets, message):
    with pytest.raises(GraphRAGError, match=message):
        prepare_all(nodes, triplets)


def test_one_node_given_twice_is_one_passage():
    passages, _ = prepare_all([node(), node()], [[EULER], [EULER]])
    assert len(passages) == 1


# --- writing ------------------------------------------------------------------------------------


def test_each_text_is_embedded_once(write, embedding, store):
    other = ("Johann Bernoulli", "taught", "Euler")
    report = write((node(), [EULER]), (node("p2"), [EULER, other]), (node("p3", "Euler"), []))
    texts = embedding.texts
    assert texts[0] == PROBE_TEXT
    assert sorted(texts[1:]) == sorted(
        {"Euler", "Johann Bernoulli", " ".join(EULER), " ".join(other), node().text}
    )
    assert (report.written, report.unchanged, report.embedded) == (3, 0, 5)
    assert store.stats() | {"passages": 3, "entities": 2, "relations": 2} == store.stats()


def test_writing_again_embeds_nothing(write, embedding):
    write((node(), [EULER]), (node("p2"), []))
    embedding.texts.clear()
    report = write((node(), [EULER]), (node("p2"), []))
    assert (report.written, report.unchanged, report.embedded) == (0, 2, 0)
    assert embedding.texts == []


def test_only_what_changed_is_embedded(write, embedding):
    write((node(), [EULER]))
    embedding.texts.clear()
    report = write((node(), [EULER, ("Euler", "lived in", "Basel")]), (node("p2"), []))
    assert sorted(embedding.texts) == [
        "Basel",
        "Euler lived in Basel",
        "Euler was a student of Johann Bernoulli.",
    ]
    assert report.written == 2


def test_an_embedding_that_a_node_brings_is_taken(write, embedding, store):
    own = node()
    own.embedding = [0.5] * embedding.dimension
    write((own, []))
    assert embedding.texts == [PROBE_TEXT]


def test_one_of_another_length_is_named_before_anything_is_written(write, store):
    own = node("p2")
    own.embedding = [0.5, 0.5]
    with pytest.raises(GraphRAGValueError, match="'p2' brings an embedding of 2"):
        write((node(), [EULER]), (own, []))
    assert store.stats()["passages"] == 0


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([], "'p2' brings an embedding of 0"),
        ([float("nan")] * 32, "'p2' brings an embedding that holds a NaN"),
        ([0.5] * 31, "'p2' brings an embedding of 31"),
    ],
)
def test_a_bad_embedding_is_named_before_anything_is_created(write, store, vector, message):
    with pytest.raises(GraphRAGValueError, match=message):
        write((node(), [EULER]), (node("p2").model_copy(update={"embedding": vector}), []))
    assert not store.exists


@pytest.mark.parametrize(
    "wrong", [("Euler", "knows"), ("Euler", "knows", 1), ("a", "b" * 9_000, "c")]
)
def test_an_error_in_a_triplet_names_the_node(wrong):
    with pytest.raises(GraphRAGError, match=r"node 'p7': .*triplet"):
        prepare(node("p7"), [wrong])


def test_a_passage_that_cannot_be_stored_stops_all_before_the_first_call(write, store, embedding):
    many = [(f"A{n}", "knows", f"B{n}") for n in range(3_000)]
    with pytest.raises(GraphRAGValueError, match="3,000 triplets"):
        write((node(), [EULER]), (node("p2"), many))
    assert not store.exists
    assert embedding.texts == []


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_model_that_returns_another_number_of_vectors(write, make_embedding, store, count):
    class Wrong(make_embedding):
        def _get_text_embeddings(self, texts):
            return [self._get_text_embedding("x")] * count

    with pytest.raises(GraphRAGValueError, match=rf"{count} vectors for 4 texts"):
        write((node(), [EULER]), model=Wrong())
    assert store.stats()["passages"] == 0


@pytest.mark.parametrize(
    ("vector", "message"),
    [([float("nan")] * 32, "NaN"), ([1.0] * 31, "32"), ([], "no vector")],
)
def test_a_model_that_returns_bad_vectors(write, make_embedding, store, vector, message):
    class Bad(make_embedding):
        def _get_text_embeddings(self, texts):
            return [vector for _ in texts]

    with pytest.raises(GraphRAGValueError, match=message):
        write((node(), [EULER]), model=Bad())
    assert store.stats()["passages"] == 0
    assert not list(store.scan_entities())


def test_what_failed_in_the_middle_is_finished_by_writing_again(
    write, make_embedding, store, monkeypatch
):
    monkeypatch.setattr(writing, "WRITE_PASSAGES", 2)

    class Failing(make_embedding):
        def _get_text_embeddings(self, texts):
            if "third" in texts:
                raise ConnectionError("no answer")
            return super()._get_text_embeddings(texts)

    pairs = [
        (node(id, text), []) for id, text in zip("abcd", ("first", "second", "third", "fourth"))
    ]
    with pytest.raises(ConnectionError):
        write(*pairs, model=Failing())
    assert store.stats()["passages"] == 2
    report = write(*pairs)
    assert (report.written, report.unchanged) == (2, 2)


def test_what_another_deletes_while_it_is_embedded_is_written_after_all(
    write, make_embedding, store
):
    write((node(), [EULER]))

    class Slow(make_embedding):
        def _get_text_embeddings(self, texts):
            # Another thread's deletion, which vacuums, between `missing` and `upsert`.
            store.delete_passages(["p1"])
            return super()._get_text_embeddings(texts)

    report = write((node("p2", "another text"), [EULER]), model=Slow())
    assert report.written == 1
    assert store.stats() == store.stats() | {"passages": 1, "entities": 2, "relations": 1}
    assert store.stats()["dangling_references"] == 0


def test_one_that_never_comes_to_an_end_is_given_up(write, store, monkeypatch):
    def stale(_):
        raise StaleBatchError("always")

    write((node(), []))
    monkeypatch.setattr(store, "upsert", stale)
    with pytest.raises(StaleBatchError):
        write((node("p2"), [EULER]))


async def test_async_writes_the_same(store, make_embedding):
    model = make_embedding()
    passages, _ = prepare_all([node(), node("p2")], [[EULER], []])
    report = WriteReport()
    await adrive(Writer(store, lambda: model).write(passages, report))
    assert (report.written, report.embedded) == (2, 4)
    assert [p.node.node_id for p in store.get_passages(["p1", "p2"])] == ["p1", "p2"]
