"""Documents in, for years: built, broken off, resumed, changed, emptied, deleted."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter

import pytest
from fact_corpus import (
    CountingEmbedding,
    Paragraphs,
    contents,
    document,
    documents,
    facts,
    paragraph,
    read,
    reader,
)
from llama_index.core import Document
from llama_index.core.extractors import BaseExtractor
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import KG_NODES_KEY, KG_RELATIONS_KEY, EntityNode, Relation
from llama_index.core.indices.property_graph import PropertyGraphIndex
from llama_index.core.schema import NodeRelationship, TextNode, TransformComponent

from llama_index_graph_rag import GraphRAGIndex
from llama_index_graph_rag.aliases import ALIAS_PREDICATE
from llama_index_graph_rag.documents import COMMIT_PASSAGES
from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError, StoreError
from llama_index_graph_rag.extractors.base import Extraction, TripletExtractor
from llama_index_graph_rag.testing.openai_server import Failure, OpenAIServer
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
from llama_index_graph_rag.triplets import Triplet


class Stop(BaseException):
    """The end of a run that nothing catches, as KeyboardInterrupt."""


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "index.db")


@pytest.fixture
def build(uri):
    """Build an index, or bring it up to date; those still open are closed in the end."""
    opened = []

    def build(given, llm=None, *, at=None, **options):
        options.setdefault("triplet_extractor", reader(llm))
        options.setdefault("embed_model", CountingEmbedding())
        options.setdefault("transformations", [Paragraphs()])
        opened.append(GraphRAGIndex.from_documents(given, uri=at or uri, **options))
        return opened[-1]

    yield build
    for index in opened:
        index.close()


def asked(llm, paragraphs) -> Counter:
    """How often the LLM was asked about each of these paragraphs."""
    return Counter(
        number
        for call in llm.calls
        for number in paragraphs
        if f"Paragraph {number}." in call.prompt
    )


def test_what_is_built(build):
    index = build(documents(3, 4))
    assert index.stats() == {
        "passages": 12,
        "entities": 12 + 8,
        "relations": 12 + 7,
        "orphan_entities": 0,
        "orphan_relations": 0,
        "dangling_references": 0,
    }
    assert index.report.usage.calls == index.report.written == 12
    assert {name: len(info.node_ids) for name, info in index.ref_doc_info.items()} == {
        "d0": 4,
        "d1": 4,
        "d2": 4,
    }
    [found] = index.as_retriever(similarity_top_k=1).retrieve(paragraph(5))
    assert found.text == paragraph(5)
    assert found.node.ref_doc_id == "d1"
    before = found.node.relationships[NodeRelationship.PREVIOUS].node_id
    [stored] = index.store.get_passages([before])
    assert stored.node.text == paragraph(4)


async def test_async_builds_the_same(build, uri, tmp_path):
    index = await GraphRAGIndex.afrom_documents(
        documents(3, 4),
        uri=tmp_path / "other.db",
        triplet_extractor=reader(),
        embed_model=CountingEmbedding(),
        transformations=[Paragraphs()],
    )
    try:
        assert contents(index) == contents(await asyncio.to_thread(build, documents(3, 4)))
        assert await index.arefresh_ref_docs(documents(3, 4)) == [False] * 3
        await index.ainsert(document("d9", [90]))
        await index.aupdate_ref_doc(document("d9", [91, 92]))
        assert index.stats()["passages"] == 14
        await index.adelete_ref_doc("d9")
        assert index.stats()["passages"] == 12
        assert (await index.aestimate([document("d9", [90])])).llm_calls == 1
        assert await index.arepair() == {"entities": 0, "relations": 0}
        assert await index.avacuum() == {"entities": 0, "relations": 0}
        assert await index.arefresh() is False
    finally:
        index.close()


def test_a_second_run_costs_nothing(build):
    build(documents(3, 4)).close()
    llm, model = ScriptedLLM(read), CountingEmbedding()
    index = build(documents(3, 4), llm, embed_model=model)
    assert llm.calls == []
    assert len(model.texts) == 1  # the text by which the model is recognised
    assert index.report.unchanged == 12
    assert index.report.written == 0


@pytest.mark.parametrize("after", [0, 40, 69])
def test_a_run_broken_off_is_completed(build, tmp_path, after):
    corpus = documents(7, 10)
    llm = ScriptedLLM(lambda prompt: stop() if len(llm.calls) > after else read(prompt))

    def stop():
        raise Stop

    with pytest.raises(Stop):
        build(corpus, triplet_extractor=reader(llm, num_workers=1))
    first = asked(llm, range(70))
    again = ScriptedLLM(read)
    # Milvus Lite files are shared within a process, so that one left open is no obstacle.
    index = build(corpus, again)
    repeated = first & asked(again, range(70))
    assert repeated.total() <= COMMIT_PASSAGES + 4
    assert index.report.unchanged == 70 - len(again.calls)
    assert contents(index) == contents(build(corpus, at=str(tmp_path / "whole.db")))


def test_no_hash_is_recorded_before_a_document_is_whole(build):
    corpus = [document("d", range(80))]
    llm = ScriptedLLM(lambda prompt: stop() if len(llm.calls) > 50 else read(prompt))

    def stop():
        raise Stop

    with pytest.raises(Stop):
        build(corpus, triplet_extractor=reader(llm, num_workers=1))
    index = build([])
    assert index.stats()["passages"] == COMMIT_PASSAGES
    assert index.store.snapshot().document_hash("d") == ""
    assert index.refresh_ref_docs(corpus) == [True]
    assert index.store.snapshot().document_hash("d") == corpus[0].hash
    assert index.refresh_ref_docs(corpus) == [False]


@pytest.mark.parametrize("step", range(8))
def test_an_update_broken_off_at_any_write_is_completed(build, uri, step, monkeypatch):
    """Even back to the former content, whose hash must not still be there."""
    old, new = document("d", [1, 2, 3, 4]), document("d", [1, 3, 5, 6])
    build([old]).close()
    index = build([])
    left = [step]

    def counted(function):
        def wrapper(*args, **kwargs):
            if left[0] == 0:
                raise StoreError("gone")
            left[0] -= 1
            return function(*args, **kwargs)

        return wrapper

    with monkeypatch.context() as patch:
        for name in ("upsert", "delete_passages"):
            patch.setattr(index.store, name, counted(getattr(index.store, name)))
        try:
            index.refresh_ref_docs([new])
        except StoreError:
            assert index.store.snapshot().document_hash("d") != new.hash
        else:
            assert step >= 4
    for wanted in (old, new):
        llm = ScriptedLLM(read)
        again = build([wanted], llm)
        texts = {
            passage.node.text
            for page in again.store.scan_passages()
            for passage in again.store.get_passages([key.id for key in page])
        }
        assert texts == set(wanted.text.split("\n\n"))
        assert again.store.snapshot().document_hash("d") == wanted.hash
        assert not asked(llm, [1, 3])


def test_a_changed_document_costs_what_changed(build):
    build([document("d", range(10)), document("e", range(20, 24))]).close()
    llm, model = ScriptedLLM(read), CountingEmbedding()
    index = build([], llm, embed_model=model)
    # One paragraph in front, one changed, one gone.
    changed = document("d", [50, 0, 1, 2, 51, 4, 5, 6, 7, 8])
    assert index.refresh_ref_docs([changed, document("e", range(20, 24))]) == [True, False]
    assert asked(llm, range(60)) == {50: 1, 51: 1}
    assert index.report.deleted == 2
    embedded = [text for text in model.texts if text.startswith("Paragraph")]
    assert sorted(embedded) == [paragraph(50), paragraph(51)]
    assert index.stats()["orphan_relations"] == 0
    order = {
        passage.node.text: passage.node
        for page in index.store.scan_passages()
        for passage in index.store.get_passages([key.id for key in page])
    }
    after = order[paragraph(50)].relationships[NodeRelationship.NEXT].node_id
    assert order[paragraph(0)].node_id == after
    start = order[paragraph(0)].start_char_idx
    assert changed.text[start:].startswith(paragraph(0))


def test_new_metadata_that_no_llm_sees_costs_no_llm(build):
    def dated(day):
        made = document("d", range(5), modified=day)
        made.excluded_llm_metadata_keys = made.excluded_embed_metadata_keys = ["modified"]
        return made

    build([dated("Monday")]).close()
    llm, model = ScriptedLLM(read), CountingEmbedding()
    index = build([dated("Tuesday")], llm, embed_model=model)
    assert llm.calls == []
    assert len(model.texts) == 1
    assert index.report.reused == 5
    [found] = index.as_retriever(similarity_top_k=1).retrieve(paragraph(3))
    assert found.node.metadata == {"modified": "Tuesday"}
    assert found.relations
    shown = document("d", range(5), modified="Wednesday")
    assert index.refresh_ref_docs([shown]) == [True]
    assert len(llm.calls) == 5  # now the LLM reads it too


def test_a_passage_with_nothing_to_say_is_found_and_not_read_again(build):
    silent = Document(text="Nothing is stated about zebras here.", id_="silent")
    build([silent, document("d", [1])]).close()
    llm = ScriptedLLM(read)
    index = build([silent, document("d", [1])], llm)
    assert llm.calls == []
    texts = [node.text for node in index.as_retriever().retrieve("zebras")]
    assert silent.text in texts


def test_documents_emptied_deleted_renamed_and_given_twice(build):
    empty, blank = Document(text="", id_="empty"), Document(text="  \n\n ", id_="blank")
    d = document("d", range(3))
    index = build([empty, d, blank, document("d", range(3))])
    assert index.stats()["passages"] == 3
    assert index.report.empty == 3
    assert index.refresh_ref_docs([empty, blank, d]) == [False] * 3
    assert index.refresh_ref_docs([Document(text=" ", id_="d")]) == [True]
    assert index.stats()["passages"] == index.stats()["entities"] == 0
    assert index.refresh_ref_docs([Document(text=" ", id_="d")]) == [False]
    renamed = document("renamed", range(3))
    assert index.refresh_ref_docs([renamed, d]) == [True, True]
    assert index.stats()["passages"] == 6  # one text in two documents
    index.delete_ref_doc("d")
    assert index.stats() == index.stats() | {"passages": 3, "relations": 6, "orphan_relations": 0}
    index.delete_ref_doc("d")
    assert index.refresh_ref_docs([renamed]) == [False]
    twice = Document(text="\n\n".join([paragraph(1)] * 3), id_="thrice")
    index.insert(twice)
    assert index.stats()["passages"] == 6


def test_one_id_for_two_documents_is_refused(build):
    with pytest.raises(GraphRAGValueError, match="'d' is given twice with different content"):
        build([document("d", [1]), document("d", [2])])
    with pytest.raises(GraphRAGTypeError, match="documents hold a str"):
        build(["text"])
    with pytest.raises(GraphRAGValueError, match="num_workers=0"):
        build([], num_workers=0)
    with pytest.raises(GraphRAGTypeError, match="triplet_extractor is a str"):
        build([], triplet_extractor="spacy")
    with pytest.raises(GraphRAGTypeError, match="entity_resolver is a dict"):
        build([], entity_resolver={})


def test_random_ids_are_warned_of(build, caplog):
    with caplog.at_level(logging.WARNING, "llama_index_graph_rag"):
        build([Document(text="A text."), document("d", [1])])
    assert "1 documents have random ids" in caplog.text


def test_failures_are_listed_stored_and_read_again(build):
    llm = ScriptedLLM(
        lambda prompt: RuntimeError("no luck") if "Paragraph 2." in prompt else read(prompt)
    )
    index = build([document("d", range(4)), document("e", [9])], llm)
    [failure] = index.report.failures
    assert "no luck" in failure.reason
    [found] = index.as_retriever(similarity_top_k=1).retrieve(paragraph(2))
    assert found.node.node_id == failure.node_id
    assert index.store.snapshot().document_hash("d") == ""
    index.close()
    again = ScriptedLLM(read)
    index = build([], again)
    assert index.refresh_ref_docs([document("d", range(4)), document("e", [9])]) == [True, False]
    assert asked(again, range(10)) == {2: 1}
    assert index.report.failures == []
    assert index.stats()["relations"] == 5 + 4  # paragraphs 2 and 9 share one
    assert index.refresh_ref_docs([document("d", range(4))]) == [False]


def test_a_bad_server_is_survived_and_a_second_run_completes(tmp_path):
    """Of the calls 10% fail, 10% give garbage, 20% are put off; no passage is lost."""
    calls: Counter[str] = Counter()
    hostile = [True]

    def reply(body):
        text = json.dumps(body["messages"])
        number = text.split("Paragraph ")[-1].split(".")[0]
        calls[number] += 1
        kind = (int(number) * 7 + calls[number]) % 10 if hostile[0] else 9
        if kind == 0:
            return Failure(400)
        if kind == 1:
            return "I would rather not { say [ anything"
        if kind in (2, 3):
            return Failure(429, {"Retry-After": "0.001"})
        return json.dumps(
            {
                "triplets": [
                    dict(zip(("subject", "predicate", "object"), fact)) for fact in facts(text)
                ]
            }
        )

    corpus = documents(3, 10)
    whole = GraphRAGIndex.from_documents(
        corpus,
        uri=tmp_path / "whole.db",
        triplet_extractor=reader(),
        embed_model=CountingEmbedding(),
        transformations=[Paragraphs()],
    )
    expected = contents(whole)
    whole.close()
    with OpenAIServer(reply) as server:
        options = {
            "uri": tmp_path / "index.db",
            "triplet_extractor": reader(server.llm(), attempts=2),
            "embed_model": CountingEmbedding(),
            "transformations": [Paragraphs()],
        }
        index = GraphRAGIndex.from_documents(corpus, **options)
        failed = {failure.node_id: failure.reason for failure in index.report.failures}
        assert 0 < len(failed) < 15
        assert index.stats()["passages"] == 30
        assert index.report.usage.calls == sum(calls.values())
        assert index.report.usage.prompt_tokens > 0
        index.close()
        hostile[0] = False
        calls.clear()
        index = GraphRAGIndex.from_documents(corpus, **options)
        assert index.report.failures == []
        assert sum(calls.values()) == len(calls) == len(failed)
        assert contents(index) == expected
        index.close()


def test_what_is_in_flight_is_bounded(build, monkeypatch):
    """Documents are split as they are needed, and only `num_workers` calls run at once."""
    import threading

    split, running, most, ahead = [0], [0], [0], [0]
    lock = threading.Lock()

    class Counted(Paragraphs):
        def _parse_nodes(self, nodes, **kwargs):
            made = super()._parse_nodes(nodes, **kwargs)
            split[0] += len(made)
            return made

    def slow(prompt):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            ahead[0] = max(ahead[0], split[0] - len(llm.calls))
        answer = read(prompt)
        with lock:
            running[0] -= 1
        return answer

    llm = ScriptedLLM(slow)
    monkeypatch.setattr("llama_index_graph_rag.documents.WAVE_PASSAGES", 32)
    build(documents(40, 10), transformations=[Counted()], triplet_extractor=reader(llm))
    assert split[0] == 400
    assert most[0] <= 4
    assert ahead[0] <= 32 * 4 + 10


def test_embedding_calls_run_side_by_side(uri):
    import threading

    barrier = threading.Barrier(3)

    class Meeting(CountingEmbedding):
        def _get_text_embeddings(self, texts):
            if len(texts) > 1:
                barrier.wait(timeout=10)  # three calls have to be there at once
            return [self._get_text_embedding(text) for text in texts]

    nodes = [TextNode(text=f"Text {i}", id_=str(i)) for i in range(6)]
    index = GraphRAGIndex.from_triplets(
        nodes, [[]] * 6, uri=uri, embed_model=Meeting(embed_batch_size=2), num_workers=3
    )
    assert index.stats()["passages"] == 6
    index.close()


def test_estimate_and_the_real_figures(build):
    corpus = documents(2, 4)
    index = build(corpus[:1])
    estimate = index.estimate(corpus, price_per_million_input=1.0)
    assert estimate.chunks == estimate.llm_calls == 4
    assert estimate.money > 0
    assert index.stats()["passages"] == 4  # nothing was written
    index.refresh_ref_docs(corpus)
    assert index.report.usage.calls == 4
    assert index.estimate(corpus).llm_calls == 0


def test_estimate_without_an_llm(build):
    class Rules(TripletExtractor):
        def extract(self, nodes):
            return (Extraction(node, (Triplet(*facts(node.text)[0]),)) for node in nodes)

    index = build([], triplet_extractor=Rules())
    corpus = documents(2, 4)
    estimate = index.estimate(corpus, price_per_million_input=1.0, price_per_million_embedding=1.0)
    assert (estimate.chunks, estimate.llm_calls, estimate.prompt_tokens) == (8, 0, 0)
    assert 0 < estimate.money < 0.01
    index.refresh_ref_docs(corpus)
    assert index.report.usage.calls == 0
    assert index.stats()["relations"] == 8


def test_an_extractor_that_breaks_its_contract(build):
    class Lazy(TripletExtractor):
        def extract(self, nodes):
            return (Extraction(node) for node in list(nodes)[1:])

    class Twice(TripletExtractor):
        def extract(self, nodes):
            return (Extraction(node) for node in [*nodes, *nodes])

    index = build([document("d", range(3))], triplet_extractor=Lazy())
    assert [failure.reason for failure in index.report.failures] == [
        "Lazy passed over this passage"
    ]
    with pytest.raises(GraphRAGTypeError, match="must yield each passage once"):
        build([document("e", range(3))], triplet_extractor=Twice())


def test_refresh_without_documents_takes_in_other_writers(build, caplog):
    index = build([document("d", [1])])
    other = GraphRAGIndex.from_existing(
        index.store.connection.uri, embed_model=CountingEmbedding(), triplet_extractor=reader()
    )
    other.insert(document("e", [2]))
    other.close()
    assert index.refresh() is True
    assert index.refresh() is False
    assert index.stats()["passages"] == 2
    with caplog.at_level(logging.WARNING, "llama_index_graph_rag"):
        assert index.refresh([document("d", [1])]) == [False]
    assert "deprecated" in caplog.text


# --- nodes and other extractors -----------------------------------------------------------------


def test_nodes_without_an_extractor_are_marked_and_read_later(uri):
    nodes = [TextNode(text=paragraph(i), id_=f"n{i}") for i in range(3)]
    index = GraphRAGIndex.from_triplets([], [], uri=uri, embed_model=CountingEmbedding())
    index.insert_nodes(nodes)
    assert [failure.node_id for failure in index.report.failures] == ["n0", "n1", "n2"]
    assert index.stats()["relations"] == 0
    index.insert_nodes([nodes[0]])
    assert index.report.unchanged == 0
    index.close()
    llm = ScriptedLLM(read)
    index = GraphRAGIndex.from_existing(
        uri, embed_model=CountingEmbedding(), triplet_extractor=reader(llm)
    )
    index.insert_nodes([*nodes, nodes[0]])
    assert len(llm.calls) == 3
    assert index.stats()["relations"] == 6
    index.insert_nodes(nodes)
    assert len(llm.calls) == 3
    with pytest.raises(GraphRAGValueError, match="'n0' is given twice"):
        index.insert_nodes([nodes[0], TextNode(text="other", id_="n0")])
    index.close()


class Foreign(TransformComponent):
    """Leaves triplets as LlamaIndex's extractors do; fails on one passage."""

    def __call__(self, nodes, **kwargs):
        for node in nodes:
            if "Paragraph 1." in node.text:
                raise ValueError("cannot read this")
            found = facts(node.text)
            node.metadata[KG_NODES_KEY] = [
                EntityNode(name=name) for s, _, o in found for name in (s, o)
            ]
            node.metadata[KG_RELATIONS_KEY] = [
                Relation(label=p, source_id=s, target_id=o) for s, p, o in found
            ]
        return nodes


@pytest.mark.parametrize("as_async", [False, True])
async def test_extractors_of_llamaindex_are_taken(uri, as_async):
    options = {
        "uri": uri,
        "triplet_extractor": Foreign(),
        "embed_model": CountingEmbedding(),
        "transformations": [Paragraphs()],
    }
    corpus = [document("d", range(4))]
    if as_async:
        index = await GraphRAGIndex.afrom_documents(corpus, **options)
    else:
        index = await asyncio.to_thread(GraphRAGIndex.from_documents, corpus, **options)
    [failure] = index.report.failures
    assert "cannot read this" in failure.reason
    assert index.stats()["relations"] == 6
    [found] = index.as_retriever(similarity_top_k=1).retrieve(paragraph(2))
    assert KG_NODES_KEY not in found.node.metadata
    index.close()


def test_an_extractor_among_the_transformations_is_enough(build):
    llm = ScriptedLLM(read)
    index = build([document("d", range(4))], llm, transformations=[Paragraphs(), reader()])
    assert llm.calls == []
    assert index.stats()["relations"] == 8
    assert index.refresh_ref_docs([document("d", range(4))]) == [False]


class Title(BaseExtractor):
    async def aextract(self, nodes):
        return [{"title": "A title"} for _ in nodes]


async def test_async_transformations(uri):
    index = await GraphRAGIndex.afrom_documents(
        [document("d", range(2))],
        uri=uri,
        triplet_extractor=reader(),
        embed_model=CountingEmbedding(),
        transformations=[Paragraphs(), Title()],
    )
    [found] = await index.as_retriever(similarity_top_k=1).aretrieve(paragraph(1))
    assert found.node.metadata == {"title": "A title"}
    index.close()


def test_ids_of_ones_own_are_kept(build):
    own = Paragraphs(id_func=lambda i, doc: f"{doc.node_id}:{i}")
    index = build([document("d", range(2))], transformations=[own])
    assert sorted(index.ref_doc_info["d"].node_ids) == ["d:0", "d:1"]


def test_a_passage_id_that_two_documents_share_is_refused(build):
    shared = Paragraphs(id_func=lambda i, doc: f"chunk {i}")
    with pytest.raises(GraphRAGValueError, match="'chunk 0' of document 'd1' is that of a passage"):
        build(documents(2, 1), transformations=[shared])
    index = build(documents(1, 1), transformations=[shared])
    with pytest.raises(GraphRAGValueError, match="'chunk 0' of document 'd1' is that of a passage"):
        index.insert(documents(2, 1)[1])
    assert index.refresh_ref_docs(documents(1, 1)) == [False]


def test_from_a_property_graph_index(uri):
    nodes = [TextNode(text=paragraph(i), id_=f"n{i}") for i in (0, 2, 3)]
    store = SimplePropertyGraphStore()
    pg_index = PropertyGraphIndex(
        nodes=nodes,
        kg_extractors=[Foreign()],
        property_graph_store=store,
        embed_kg_nodes=False,
        use_async=False,
        llm=ScriptedLLM(read),
        embed_model=CountingEmbedding(),
    )
    store.upsert_nodes([EntityNode(name="X"), EntityNode(name="Y")])
    store.upsert_relations([Relation(label="knows", source_id="X", target_id="Y")])
    for source in (pg_index, store):
        index = GraphRAGIndex.from_property_graph_index(
            source, uri=uri, embed_model=CountingEmbedding()
        )
        assert index.stats()["passages"] == 3
        assert index.stats()["relations"] == 6
        [invalid] = index.report.invalid
        assert invalid.triplet == ("X", "knows", "Y")
        index.close()
    with pytest.raises(GraphRAGTypeError, match="neither a PropertyGraphIndex"):
        GraphRAGIndex.from_property_graph_index(3, uri=uri)


# --- entities that are one ----------------------------------------------------------------------


def one(names):
    return {name: "E1" for name in names if name == "E101"}


def test_entities_are_merged_when_asked_and_their_aliases_recorded(build):
    corpus = [document("d", [1, 2])]  # E101 joins E1. E1 leaves E2. / E102 joins E2. E2 leaves E3.
    index = build(corpus, entity_resolver=one)
    assert index.report.aliases == {"E101": "E1"}
    stated = {
        mention.triplet
        for page in index.store.scan_passages()
        for passage in index.store.get_passages([key.id for key in page])
        for mention in passage.mentions
    }
    assert ("E1", "joins", "E1") in stated
    assert ("E101", ALIAS_PREDICATE, "E1") in stated
    assert ("E101", "joins", "E1") not in stated
    assert index.refresh_ref_docs(corpus) == [False]
    before = contents(index)
    assert index.repair() == {"entities": 0, "relations": 0}
    # New metadata: the same passages again, with what is recorded.
    dated = document("d", [1, 2], modified="today")
    dated.excluded_llm_metadata_keys = dated.excluded_embed_metadata_keys = ["modified"]
    assert index.refresh_ref_docs([dated]) == [True]
    assert index.report.reused == 2
    assert contents(index)["relations"] == before["relations"]


def test_a_resolver_applies_to_triplets_given(uri):
    def index(**options):
        return GraphRAGIndex.from_triplets(
            [TextNode(text="E101 joins E1.", id_="p"), TextNode(text="E5 joins E6", id_="q")],
            [[("E101", "joins", "E2"), ("E1", "joins", "E2")], [("E5", "joins", "E6")]],
            uri=uri,
            embed_model=CountingEmbedding(),
            **options,
        )

    first = index()
    assert first.stats()["relations"] == 3
    first.close()
    second = index(entity_resolver=one)
    assert second.report.written == 1
    assert second.stats()["relations"] == 3  # E1 joins E2, the alias, E5 joins E6
    assert second.report.aliases == {"E101": "E1"}
    second.close()
