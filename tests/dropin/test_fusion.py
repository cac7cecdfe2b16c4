"""QueryFusionRetriever over ours and a plain vector retriever of the same passages."""

from __future__ import annotations

import pytest
from llama_index.core import QueryBundle, VectorStoreIndex
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import TextNode
from word_embedding import WordEmbedding

from llama_index_graph_rag import GraphNodeWithScore
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM


def fusion(retrievers, mode=FUSION_MODES.RECIPROCAL_RANK, use_async=False, **options):
    options = {"llm": ScriptedLLM([]), "num_queries": 1, "similarity_top_k": 10} | options
    return QueryFusionRetriever(retrievers, mode=mode, use_async=use_async, **options)


@pytest.fixture
def both(retriever, vector_retriever):
    return [retriever, vector_retriever]


def check(nodes, ours, dense) -> None:
    ids = [node.node_id for node in nodes]
    assert len(ids) == len(set(ids))
    assert set(ids) == set(ours) | set(dense)
    scores = [node.score for node in nodes]
    assert scores == sorted(scores, reverse=True)
    assert any(isinstance(node, GraphNodeWithScore) and node.relations for node in nodes)


@pytest.mark.parametrize("use_async", [False, True])
@pytest.mark.parametrize("mode", list(FUSION_MODES))
def test_duplicates_merge_in_every_mode(both, question, mode, use_async) -> None:
    ours, dense = ({n.node_id: n.node for n in each.retrieve(question)} for each in both)
    assert set(ours) & set(dense)
    assert set(ours) - set(dense)
    for id in set(ours) & set(dense):
        assert ours[id].hash == dense[id].hash
    check(fusion(both, mode, use_async).retrieve(question), ours, dense)


@pytest.mark.parametrize("mode", list(FUSION_MODES))
async def test_the_same_in_async(both, question, mode) -> None:
    ours, dense = ({n.node_id: n.node for n in each.retrieve(question)} for each in both)
    check(await fusion(both, mode).aretrieve(question), ours, dense)


@pytest.mark.parametrize("mode", list(FUSION_MODES))
def test_the_same_answer_each_time(retriever, vector_retriever, question, mode) -> None:
    def ask():
        fused = fusion([retriever, vector_retriever], mode).retrieve(question)
        return [(node.node_id, node.score) for node in fused]

    before = [(node.node_id, node.score) for node in retriever.retrieve(question)]
    assert ask() == ask()  # fusion writes into the wrappers: they must be fresh each time
    assert [(node.node_id, node.score) for node in retriever.retrieve(question)] == before


async def test_generated_questions(retriever, vector_retriever, question) -> None:
    llm = ScriptedLLM("Who taught Leonhard Euler?\nWhat did Daniel Bernoulli write?")
    nodes = fusion([retriever, vector_retriever], llm=llm, num_queries=3).retrieve(question)
    assert {"leonhard-euler", "daniel-bernoulli"} <= {node.node_id for node in nodes}
    again = fusion([retriever, vector_retriever], llm=llm, num_queries=3)
    assert [n.node_id for n in await again.aretrieve(question)] == [n.node_id for n in nodes]


@pytest.mark.parametrize("dimension", [8, 1024])
async def test_a_siblings_vector_of_another_dimension_does_not_leak(
    retriever, question, dimension
) -> None:
    other = WordEmbedding(dimension)
    sibling = VectorStoreIndex([TextNode(text="Euler")], embed_model=other).as_retriever()
    bundle = QueryBundle(question)
    sibling.retrieve(bundle)
    assert len(bundle.embedding) == dimension  # the trap: LlamaIndex leaves the vector there
    expected = [(node.node_id, node.score) for node in retriever.retrieve(question)]
    assert [(node.node_id, node.score) for node in retriever.retrieve(bundle)] == expected
    assert [(n.node_id, n.score) for n in await retriever.aretrieve(bundle)] == expected
    assert len(bundle.embedding) == dimension

    ours = {node.node_id for node in retriever.retrieve(question)}
    for nodes in (
        fusion([sibling, retriever]).retrieve(question),
        await fusion([sibling, retriever]).aretrieve(question),
    ):
        assert ours <= {node.node_id for node in nodes}


def test_a_vector_of_our_dimension_is_used(retriever, embed_model, question) -> None:
    bundle = QueryBundle("?", embedding=embed_model.get_query_embedding(question))
    given = list(bundle.embedding)
    before = embed_model.calls["query"]
    nodes, trace = retriever.retrieve_with_trace(bundle)
    assert embed_model.calls["query"] == before
    assert trace.calls["embedding"] == 0
    assert nodes
    assert bundle.embedding == given
