"""What a question costs, counted at MilvusClient, the embedding model and the LLM."""

from __future__ import annotations

import math
import zlib
from collections import Counter

import pytest
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_index_graph_rag import (
    GraphRAGIndex,
    LLMEntityExtractor,
    LLMRelationRerank,
    RelationRetriever,
    RelationsToPassages,
)
from llama_index_graph_rag.demo import load_demo
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

QUESTION = "What contribution did the son of Euler's teacher make?"
COUNTS: Counter[str] = Counter()


class Words(BaseEmbedding):
    """Counts of words, hashed; each request is counted, a batch as one."""

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embeddings([query])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        COUNTS["embedding"] += 1
        return [self._vector(text) for text in texts]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._get_text_embeddings(texts)

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * 128
        for word in text.casefold().split() or [""]:
            vector[zlib.crc32(word.encode()) % 128] += 1.0
        length = math.hypot(*vector)
        return [value / length for value in vector]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    demo = load_demo()
    index = GraphRAGIndex.from_triplets(
        demo.nodes,
        demo.triplets,
        uri=tmp_path_factory.mktemp("budget") / "demo.db",
        embed_model=Words(embed_batch_size=1000),
        index_config={"index_type": "HNSW", "params": {"M": 16, "efConstruction": 200}},
    )
    count_calls(index)
    yield index
    index.close()


def count_calls(index: GraphRAGIndex) -> None:
    client = index.store.connection.client
    for name in ("search", "query", "get", "hybrid_search", "upsert", "insert", "delete"):
        setattr(client, name, counted(name, getattr(client, name)))


@pytest.fixture
def index_with_copy(tmp_path):
    """An index that searches a copy of the vectors, as Milvus Lite does by default."""
    demo, uri = load_demo(), tmp_path / "demo.db"
    index = GraphRAGIndex.from_triplets(demo.nodes, demo.triplets, uri=uri, embed_model=Words())
    count_calls(index)
    yield index
    index.close()


def counted(name, real):
    def counting(*args, **kwargs):
        COUNTS[name] += 1
        return real(*args, **kwargs)

    return counting


def answer(prompt: str) -> str:
    """Answer as a relation rerank and as an entity extraction."""
    return '{"relations": [1, 2], "entities": ["Leonhard Euler"]}'


class Costs:
    """Runs a question and returns what was counted, which the trace must tell too."""

    def __init__(self, asynchronous: bool) -> None:
        self.asynchronous = asynchronous
        self.of_filters = 0

    async def of(self, retriever, *llms: ScriptedLLM) -> dict[str, int]:
        COUNTS.clear()
        before = sum(len(llm.calls) for llm in llms)
        if self.asynchronous:
            nodes, trace = await retriever.aretrieve_with_trace(QUESTION)
        else:
            nodes, trace = retriever.retrieve_with_trace(QUESTION)
        assert nodes
        seen = Counter(COUNTS)
        seen["llm"] = sum(len(llm.calls) for llm in llms) - before
        told = trace.calls
        assert told["store.search"] == seen["search"]
        assert told["embedding"] == seen["embedding"]
        assert told["llm"] == seen["llm"]
        assert told["store.get"] == seen["query"] - self.of_filters
        return {name: count for name, count in seen.items() if count}


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def costs(request) -> Costs:
    return Costs(request.param)


# The default ranking looks a second time: a batched search and a get of vectors, which is one
# query of entities and one of relations.
SECOND_LOOK = {"search": 1, "query": 2}


def plus(*parts: dict[str, int]) -> dict[str, int]:
    return dict(sum(map(Counter, parts), Counter()))


PLAIN = {"search": 2, "query": 1, "embedding": 1}


@pytest.mark.parametrize("ranking", ["pagerank", "dense"])
async def test_no_llm(index, costs, ranking) -> None:
    assert await costs.of(index.as_retriever(ranking=ranking)) == PLAIN


async def test_the_default_ranking(index, costs) -> None:
    assert await costs.of(index.as_retriever()) == plus(PLAIN, SECOND_LOOK)


async def test_entities_that_the_graph_does_not_know(index, costs) -> None:
    retriever = index.as_retriever(
        entity_extractor=lambda _: ["the great geometer", "his pupil"], ranking="pagerank"
    )
    assert await costs.of(retriever) == plus(PLAIN, {"search": 1, "embedding": 1})


@pytest.mark.parametrize("top_k", [1, 5, 20])
async def test_relation_rerank(index, costs, top_k) -> None:
    llm = ScriptedLLM(answer)
    retriever = index.as_retriever(llm=llm, ranking="pagerank", similarity_top_k=top_k)
    # Choosing what is shown looks at the vectors of the best passages' relations: one query.
    assert await costs.of(retriever, llm) == plus(PLAIN, {"llm": 1, "query": 1})


async def test_relation_rerank_of_the_expansion(index, costs) -> None:
    llm = ScriptedLLM(answer)
    retriever = index.as_retriever(llm=llm, ranking="pagerank", candidates="expansion")
    assert await costs.of(retriever, llm) == plus(PLAIN, {"llm": 1})


async def test_all_defaults_with_an_llm(index, costs) -> None:
    llm = ScriptedLLM(answer)
    expected = plus(PLAIN, SECOND_LOOK, {"llm": 1, "query": 1})
    assert expected == {"search": 3, "query": 4, "embedding": 1, "llm": 1}
    assert await costs.of(index.as_retriever(llm=llm), llm) == expected


async def test_llm_entity_extractor(index, costs) -> None:
    llm = ScriptedLLM(answer)
    retriever = index.as_retriever(
        relation_reranker=LLMRelationRerank(llm=llm),
        entity_extractor=LLMEntityExtractor(llm),
        ranking="pagerank",
        candidates="expansion",
    )
    assert await costs.of(retriever, llm) == plus(PLAIN, {"llm": 2})


@pytest.mark.parametrize("operator", ["!=", "text_match_insensitive"])
async def test_filters(index, costs, operator) -> None:
    # Another value each time: a filter is remembered.
    value = "leonhard" if costs.asynchronous else "bernoulli"
    title = MetadataFilter(key="title", value=value, operator=operator)
    retriever = index.as_retriever(filters=MetadataFilters(filters=[title]), ranking="pagerank")
    # The first time the permitted passages are asked for; on a server in pages of 4,096.
    costs.of_filters = 1
    assert await costs.of(retriever) == plus(PLAIN, {"query": 1})
    costs.of_filters = 0
    assert await costs.of(retriever) == PLAIN


def test_with_a_copy_of_the_vectors_milvus_gives_texts_and_passages(index_with_copy) -> None:
    titles = MetadataFilter(key="title", value="", operator="!=")
    for options in (
        {},
        {"ranking": "pagerank"},
        {"llm": ScriptedLLM(answer)},
        {"filters": MetadataFilters(filters=[titles])},
    ):
        retriever = index_with_copy.as_retriever(**options)
        retriever.retrieve(QUESTION)  # the filter is remembered
        COUNTS.clear()
        assert retriever.retrieve(QUESTION)
        assert COUNTS == {"query": 2, "embedding": 1}


async def test_postprocessors_ask_nothing_of_milvus(index, costs) -> None:
    llm = ScriptedLLM(answer)
    relations = RelationRetriever(index.store, embed_model=index._embed_model)
    nodes = relations.retrieve(QUESTION)
    COUNTS.clear()
    chosen = LLMRelationRerank(llm=llm).postprocess_nodes(nodes, query_str=QUESTION)
    assert RelationsToPassages(index.store).postprocess_nodes(chosen)
    assert not COUNTS
    assert len(llm.calls) == 1


async def test_an_empty_question_costs_nothing(index) -> None:
    llm = ScriptedLLM(answer)
    COUNTS.clear()
    for asked in ("", " \n"):
        assert index.as_retriever(llm=llm).retrieve(asked) == []
        assert await index.as_retriever(llm=llm).aretrieve(asked) == []
    assert not COUNTS
    assert llm.calls == []
