"""Retrievers that wrap ours and call its sync side, whether a loop is running or not."""

from __future__ import annotations

from llama_index.core import StorageContext
from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.retrievers import AutoMergingRetriever, RecursiveRetriever, TransformRetriever
from llama_index.core.schema import IndexNode, NodeRelationship, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_index_graph_rag import GraphRAGIndex
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM


async def test_hyde(index, question) -> None:
    hyde = HyDEQueryTransform(
        llm=ScriptedLLM("Gabriel Cramer was professor in Geneva."), include_original=False
    )
    plain = index.as_retriever(similarity_top_k=3, ranking="dense")
    assert "gabriel-cramer" not in {node.node_id for node in plain.retrieve(question)}
    transformed = TransformRetriever(plain, query_transform=hyde)
    for nodes in (transformed.retrieve(question), await transformed.aretrieve(question)):
        assert "gabriel-cramer" in {node.node_id for node in nodes}


async def test_hyde_with_the_original_is_one_embedding_call(retriever, question) -> None:
    hyde = HyDEQueryTransform(llm=ScriptedLLM("Johann Bernoulli, then Daniel Bernoulli."))
    bundle = hyde(question)
    assert len(bundle.embedding_strs) == 2
    for nodes, trace in (
        retriever.retrieve_with_trace(bundle),
        await retriever.aretrieve_with_trace(bundle),
    ):
        assert len(nodes) == 4
        assert trace.calls["embedding"] == 1
        assert trace.question == question


async def test_recursive_retriever(retriever, question) -> None:
    expected = [node.node_id for node in retriever.retrieve(question)]
    recursive = RecursiveRetriever("root", retriever_dict={"root": retriever})
    for nodes in (recursive.retrieve(question), await recursive.aretrieve(question)):
        assert [node.node_id for node in nodes] == expected


async def test_an_index_node_leads_to_its_object(tmp_path, embed_model) -> None:
    table = TextNode(id_="table", text="1707 1783")
    index = GraphRAGIndex.from_triplets(
        [IndexNode(id_="summary", text="The years of Euler.", index_id="years")],
        [[("Euler", "lived", "years")]],
        uri=tmp_path / "objects.db",
        embed_model=embed_model,
    )
    plain = index.as_retriever()
    assert [node.node_id for node in plain.retrieve("When did Euler live?")] == ["summary"]
    leading = index.as_retriever(object_map={"years": table})
    for nodes in (
        leading.retrieve("When did Euler live?"),
        await leading.aretrieve("When did Euler live?"),
    ):
        assert [node.node_id for node in nodes] == ["table"]
        assert 0 < nodes[0].score <= 1
    index.close()


async def test_auto_merging(tmp_path, embed_model) -> None:
    parent = TextNode(id_="book", text="Euler was a pupil of Johann. Johann lived in Basel.")
    leaves = [
        TextNode(id_="b1", text="Euler was a pupil of Johann."),
        TextNode(id_="b2", text="Johann lived in Basel."),
    ]
    other = TextNode(id_="alone", text="Halley drew a map of winds.")
    for leaf in leaves:
        leaf.relationships[NodeRelationship.PARENT] = parent.as_related_node_info()
    parent.relationships[NodeRelationship.CHILD] = [leaf.as_related_node_info() for leaf in leaves]
    docstore = SimpleDocumentStore()
    docstore.add_documents([parent, *leaves, other])
    index = GraphRAGIndex.from_triplets(
        [*leaves, other],
        [
            [("Euler", "was a pupil of", "Johann")],
            [("Johann", "lived in", "Basel")],
            [("Halley", "drew", "a map of winds")],
        ],
        uri=tmp_path / "books.db",
        embed_model=embed_model,
    )
    merging = AutoMergingRetriever(
        index.as_retriever(similarity_top_k=3), StorageContext.from_defaults(docstore=docstore)
    )
    asked = "Where did the teacher of Euler live?"
    for nodes in (merging.retrieve(asked), await merging.aretrieve(asked)):
        assert {node.node_id for node in nodes} == {"book", "alone"}
    index.close()
