"""LlamaIndex's vector store over our passages, beside our retriever, in one loop after another."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import TextNode

QUESTION = "Who taught Euler?"


@pytest.fixture
def index(build_index):
    texts = ["Euler was a pupil of Johann.", "Johann taught in Basel."]
    nodes = [TextNode(id_=f"p{place}", text=text) for place, text in enumerate(texts)]
    return build_index(
        nodes, [[("Euler", "was a pupil of", "Johann")], [("Johann", "taught in", "Basel")]]
    )


async def test_fusion_in_a_notebook_cell(index, embedding) -> None:
    # The sync call runs its retrievers in a loop of its own, which is closed afterwards.
    plain = VectorStoreIndex.from_vector_store(
        index.passage_vector_store, embed_model=embedding
    ).as_retriever(similarity_top_k=2)
    fusion = QueryFusionRetriever(
        [plain, index.as_retriever()], llm=MockLLM(), num_queries=1, use_async=True
    )
    expected = {"p0", "p1"}
    assert {node.node_id for node in fusion.retrieve(QUESTION)} == expected
    assert {node.node_id for node in await fusion.aretrieve(QUESTION)} == expected
    assert {node.node_id for node in fusion.retrieve(QUESTION)} == expected


def test_one_loop_after_the_other(index, embedding) -> None:
    store = index.passage_vector_store
    plain = VectorStoreIndex.from_vector_store(store, embed_model=embedding).as_retriever()
    expected = [(node.node_id, node.score) for node in plain.retrieve(QUESTION)]
    for _ in range(2):
        found = asyncio.run(plain.aretrieve(QUESTION))
        assert [(node.node_id, node.score) for node in found] == expected
        assert [node.node_id for node in asyncio.run(store.aget_nodes(["p1"]))] == ["p1"]
