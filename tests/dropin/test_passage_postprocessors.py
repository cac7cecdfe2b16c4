"""LlamaIndex's postprocessors behind our retriever, and GraphNodeWithScore through them."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
from choosing_llm import ANSWER
from llama_index.core.postprocessor import (
    LLMRerank,
    LongContextReorder,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
    SimilarityPostprocessor,
)
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_index_graph_rag import GraphNodeWithScore, GraphRAGIndex
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM


@pytest.mark.parametrize(
    "processor",
    [
        SimilarityPostprocessor(similarity_cutoff=0.0),
        LongContextReorder(),
    ],
)
async def test_relations_survive(retriever, question, processor) -> None:
    before = {node.node_id: node.relations for node in retriever.retrieve(question)}
    engine = RetrieverQueryEngine.from_args(
        retriever, llm=ScriptedLLM(ANSWER), node_postprocessors=[processor]
    )
    for response in (engine.query(question), await engine.aquery(question)):
        assert {node.node_id: node.relations for node in response.source_nodes} == before


async def test_llm_rerank_of_passages(retriever, question) -> None:
    rerank = LLMRerank(llm=ScriptedLLM("Doc: 2, Relevance: 9\nDoc: 1, Relevance: 3"), top_n=1)
    second = retriever.retrieve(question)[1].node_id
    nodes = rerank.postprocess_nodes(retriever.retrieve(question), query_str=question)
    assert [node.node_id for node in nodes] == [second]


def test_metadata_replacement(retriever, question) -> None:
    replace = MetadataReplacementPostProcessor(target_metadata_key="title")
    nodes = replace.postprocess_nodes(retriever.retrieve(question))
    assert nodes[0].node.get_content() == "Daniel Bernoulli"


def test_neighbours_by_relationship(tmp_path, embed_model) -> None:
    texts = ["Euler left Basel.", "In Russia he met Goldbach.", "Goldbach wrote letters."]
    nodes = [TextNode(id_=f"s{i}", text=text) for i, text in enumerate(texts)]
    for one, other in pairwise(nodes):
        one.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=other.node_id)
        other.relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=one.node_id)
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes)
    index = GraphRAGIndex.from_triplets(
        nodes,
        [
            [("Euler", "left", "Basel")],
            [("Euler", "met", "Goldbach")],
            [("Goldbach", "wrote", "letters")],
        ],
        uri=tmp_path / "next.db",
        embed_model=embed_model,
    )
    both = PrevNextNodePostprocessor(docstore=docstore, num_nodes=1, mode="both")
    found = index.as_retriever(similarity_top_k=1).retrieve("Euler met Goldbach")
    assert [node.node_id for node in found] == ["s1"]
    assert [node.node_id for node in both.postprocess_nodes(found)] == ["s0", "s1", "s2"]
    index.close()


def test_copies_keep_relations(retriever, question) -> None:
    node = retriever.retrieve(question)[0]
    assert node.relations
    for other in (copy.deepcopy(node), node.model_copy()):
        assert isinstance(other, GraphNodeWithScore)
        assert [use.text for use in other.relations] == [use.text for use in node.relations]
