"""RetrieverQueryEngine around our retriever, in every response mode."""

from __future__ import annotations

import pytest
from choosing_llm import ANSWER, choosing_llm
from llama_index.core import Settings
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.evaluation import RelevancyEvaluator
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import (
    CitationQueryEngine,
    RetrieverQueryEngine,
    RetryQueryEngine,
)
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_index_graph_rag import GraphNodeWithScore, GraphRAGIndex, GraphRAGTypeError
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

SILENT = {ResponseMode.NO_TEXT, ResponseMode.CONTEXT_ONLY}
STREAMING = [
    ResponseMode.REFINE,
    ResponseMode.COMPACT,
    ResponseMode.SIMPLE_SUMMARIZE,
    ResponseMode.TREE_SUMMARIZE,
    ResponseMode.GENERATION,
]


def ids(response):
    return [node.node.node_id for node in response.source_nodes]


@pytest.mark.parametrize("mode", list(ResponseMode))
async def test_every_response_mode(retriever, question, mode, monkeypatch) -> None:
    # LlamaIndex makes a default LLM for some modes that do not use one.
    monkeypatch.setattr(Settings, "_llm", MockLLM())
    expected = [node.node_id for node in retriever.retrieve(question)]
    engine = RetrieverQueryEngine.from_args(retriever, llm=ScriptedLLM(ANSWER), response_mode=mode)
    for response in (engine.query(question), await engine.aquery(question)):
        assert ids(response) == expected
        assert all(isinstance(node, GraphNodeWithScore) for node in response.source_nodes)
        assert mode in SILENT or ANSWER in str(response)


@pytest.mark.parametrize("mode", STREAMING)
async def test_streaming(retriever, question, mode) -> None:
    engine = RetrieverQueryEngine.from_args(
        retriever, llm=ScriptedLLM(ANSWER), response_mode=mode, streaming=True
    )
    response = engine.query(question)
    assert isinstance(response, StreamingResponse)
    assert "".join(response.response_gen) == ANSWER
    response = await engine.aquery(question)
    assert isinstance(response, AsyncStreamingResponse)
    assert "".join([token async for token in response.response_gen]) == ANSWER
    assert len(ids(response)) == 4


NOTHING = MetadataFilters(filters=[MetadataFilter(key="family", value="Cassini")])


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("asked", ["Who taught Euler?", "", " \n"])
async def test_nothing_found_is_the_empty_response(index, asked, streaming) -> None:
    llm = ScriptedLLM(ANSWER)
    options = {"filters": NOTHING} if asked.strip() else {}
    engine = index.as_query_engine(llm, streaming=streaming, **options)
    assert str(engine.query(asked)) == "Empty Response"
    response = await engine.aquery(asked)
    text = str(response) if not streaming else "".join([t async for t in response.response_gen])
    assert text == "Empty Response"
    assert response.source_nodes == []
    assert llm.calls == []


async def test_an_index_without_passages(tmp_path, embed_model) -> None:
    index = GraphRAGIndex.from_triplets([], [], uri=tmp_path / "e.db", embed_model=embed_model)
    engine = index.as_query_engine(ScriptedLLM([]))
    assert str(engine.query("Who?")) == str(await engine.aquery("Who?")) == "Empty Response"
    index.close()


async def test_one_llm_reranks_and_answers(index, question, llm) -> None:
    engine = index.as_query_engine(llm, similarity_top_k=2)
    for response in (engine.query(question), await engine.aquery(question)):
        assert str(response) == ANSWER
        assert ids(response) == ["leonhard-euler", "daniel-bernoulli"]
    assert len(llm.calls) == 4

    writer, chooser = ScriptedLLM(ANSWER), choosing_llm("Edmond Halley drew the first map")
    str(index.as_query_engine(writer, rerank_llm=chooser).query(question))
    assert (len(writer.calls), len(chooser.calls)) == (1, 1)

    writer = ScriptedLLM(ANSWER)
    str(index.as_query_engine(writer, rerank_llm=None).query(question))
    assert len(writer.calls) == 1


async def test_citations(index, retriever, question) -> None:
    llm = ScriptedLLM("It is Bernoulli's principle [2].")
    for streaming in (False, True):
        engine = CitationQueryEngine.from_args(
            index, llm=llm, retriever=retriever, citation_chunk_size=64, streaming=streaming
        )
        response = engine.query(question)
        assert str(response) == "It is Bernoulli's principle [2]."
        assert response.source_nodes[0].node.get_content().startswith("Source 1:")
        assert response.source_nodes[0].node.metadata["title"] == "Daniel Bernoulli"
        documents = {node.node.ref_doc_id for node in response.source_nodes}
        assert documents <= {"book-0", "book-1", "book-2"}
        assert len((await engine.aquery(question)).source_nodes) == len(response.source_nodes)


async def test_retry(retriever, question, monkeypatch) -> None:
    # LlamaIndex's feedback takes the LLM of the settings, though it does not use it.
    monkeypatch.setattr(Settings, "_llm", MockLLM())
    for asynchronous in (False, True):
        engine = RetryQueryEngine(
            RetrieverQueryEngine.from_args(retriever, llm=ScriptedLLM(ANSWER)),
            RelevancyEvaluator(llm=(judge := ScriptedLLM(["NO", "YES"]))),
            max_retries=2,
        )
        response = await engine.aquery(question) if asynchronous else engine.query(question)
        assert str(response) == ANSWER
        assert len(judge.calls) == 2
        assert len(ids(response)) == 4


@pytest.mark.parametrize("make", ["as_query_engine", "as_chat_engine"])
def test_a_misspelled_option_is_named(index, llm, make) -> None:
    with pytest.raises(
        GraphRAGTypeError, match=r"similarity_topk.*did you mean 'similarity_top_k'"
    ):
        getattr(index, make)(llm=llm, similarity_topk=2)
