"""Every retriever that walks a graph, on every store that can be walked."""

from __future__ import annotations

import itertools
import re

import pytest
from llama_index.core import MockEmbedding
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import EntityNode, Relation
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import TextNode

from llama_index_graph_rag.retrievers.connection import ConnectionRetriever
from llama_index_graph_rag.retrievers.knowledge_graph import KnowledgeGraphRetriever
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
from llama_index_graph_rag.triplets import Mention, Triplet

TRIPLETS = [
    Triplet("Leonhard Euler", "was a student of", "Johann Bernoulli"),
    Triplet("Gabriel Cramer", "edited the works of", "Johann Bernoulli"),
    Triplet("Johann Bernoulli", "was born in", "Basel"),
    Triplet("Daniel Bernoulli", "worked in", "Saint Petersburg"),
]
NAMES = ["Leonhard Euler", "Gabriel Cramer"]
QUESTION = "What links Leonhard Euler and Gabriel Cramer?"
PATH = (
    "Leonhard Euler -[was a student of]-> Johann Bernoulli <-[edited the works of]- Gabriel Cramer"
)


def nodes():
    return [TextNode(id_=f"p{n}", text=f"{t.text}.") for n, t in enumerate(TRIPLETS)]


@pytest.fixture
def milvus(request):
    from llama_index_graph_rag.index import GraphRAGIndex

    folder = request.getfixturevalue("tmp_path")
    index = GraphRAGIndex.from_triplets(
        nodes(),
        [[triplet] for triplet in TRIPLETS],
        uri=str(folder / "matrix.db"),
        embed_model=MockEmbedding(8),
    )
    yield index.store
    index.close()


@pytest.fixture
def elasticsearch(request):
    store = request.getfixturevalue("elasticsearch_store")
    store.add(nodes(), [[Mention(triplet)] for triplet in TRIPLETS])
    return store


@pytest.fixture
def hugegraph(request):
    url = request.getfixturevalue("hugegraph_url")
    from llama_index_graph_rag.stores.hugegraph import HugeGraphStore

    store = HugeGraphStore(url)
    store.add_triplets(TRIPLETS)
    return store


@pytest.fixture
def property_graph():
    from llama_index_graph_rag.stores.property_graph import PropertyGraphReader

    store = SimplePropertyGraphStore()
    store.upsert_nodes([EntityNode(name=name) for t in TRIPLETS for name in (t[0], t[2])])
    store.upsert_relations([Relation(label=p, source_id=s, target_id=o) for s, p, o in TRIPLETS])
    return PropertyGraphReader(store)


@pytest.fixture(params=["milvus", "elasticsearch", "hugegraph", "property_graph"])
def store(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["connection", "knowledge_graph"])
def retriever(request, store):
    if request.param == "connection":
        return ConnectionRetriever(store, entity_extractor=lambda _: NAMES, mode="paths")
    return KnowledgeGraphRetriever(store, keyword_extractor=lambda _: NAMES)


def _bare(text):
    """A knowledge sequence without properties, which only some stores have."""
    return re.sub(r"\{[^{}]*\}", "", text)


async def test_the_path_is_found_and_written_the_same(retriever):
    for found in (retriever.retrieve(QUESTION), await retriever.aretrieve(QUESTION)):
        assert PATH in _bare(found[0].text)
        scores = [node.score for node in found]
        assert all(type(score) is float and 0 < score <= 1 for score in scores)
        assert all(a > b for a, b in itertools.pairwise(scores))


async def test_a_query_engine_answers_from_it(retriever):
    llm = ScriptedLLM({"Johann Bernoulli": "Through Johann Bernoulli.", "": "No idea."})
    engine = RetrieverQueryEngine.from_args(retriever, llm=llm)
    assert str(engine.query(QUESTION)) == "Through Johann Bernoulli."
    assert str(await engine.aquery(QUESTION)) == "Through Johann Bernoulli."


async def test_the_trace_tells_what_was_matched(retriever):
    _, trace = retriever.retrieve_with_trace(QUESTION)
    assert trace.question == QUESTION
    _, again = await retriever.aretrieve_with_trace(QUESTION)
    assert type(again) is type(trace)


def test_names_that_no_store_knows_give_nothing(store):
    def unknown(question):
        return ["Zaphod", "Ford Prefect"]

    for retriever in (
        ConnectionRetriever(store, entity_extractor=unknown),
        KnowledgeGraphRetriever(store, keyword_extractor=unknown),
    ):
        found, trace = retriever.retrieve_with_trace(QUESTION)
        assert found == []
        assert trace.fallbacks


def test_knowledge_sequences_as_paths(store):
    engine = KnowledgeGraphRetriever(store, keyword_extractor=lambda _: NAMES, as_paths=True)
    assert _bare(engine.retrieve(QUESTION)[0].text) == PATH
