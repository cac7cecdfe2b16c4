"""The index as the target of an IngestionPipeline."""

from __future__ import annotations

import pytest
from fact_corpus import CountingEmbedding, Paragraphs, document, paragraph, read, reader
from llama_index.core import VectorStoreIndex
from llama_index.core.ingestion import DocstoreStrategy, IngestionCache, IngestionPipeline
from llama_index.core.schema import MetadataMode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from test_documents import Foreign

from llama_index_graph_rag import GraphRAGIndex
from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM


@pytest.fixture
def index(tmp_path):
    index = GraphRAGIndex.from_documents(
        [],
        uri=tmp_path / "index.db",
        embed_model=CountingEmbedding(),
        triplet_extractor=reader(),
        transformations=[Paragraphs()],
    )
    yield index
    index.close()


def pipeline(index, strategy=DocstoreStrategy.UPSERTS, extractor=None, **options):
    return IngestionPipeline(
        transformations=[Paragraphs(), extractor or reader(), CountingEmbedding()],
        docstore=SimpleDocumentStore(),
        vector_store=index.as_vector_store(),
        docstore_strategy=strategy,
        **options,
    )


def texts(index):
    return sorted(
        passage.node.text
        for page in index.store.scan_passages()
        for passage in index.store.get_passages([key.id for key in page])
    )


def test_upserts(index):
    run = pipeline(index).run
    run(documents=[document("d", [1, 2]), document("e", [3])])
    assert index.stats()["relations"] == 6
    run(documents=[document("d", [1, 4]), document("e", [3])])
    assert texts(index) == [paragraph(1), paragraph(3), paragraph(4)]
    assert index.stats()["relations"] == 6
    assert index.stats()["orphan_relations"] == 0
    assert index.report.failures == []


def test_upserts_and_delete(index):
    run = pipeline(index, DocstoreStrategy.UPSERTS_AND_DELETE).run
    run(documents=[document("d", [1, 2]), document("e", [3])])
    run(documents=[document("e", [3])])
    assert texts(index) == [paragraph(3)]
    assert index.stats()["entities"] == 3


async def test_async_pipeline(index):
    line = pipeline(index)
    await line.arun(documents=[document("d", [1, 2])])
    await line.arun(documents=[document("d", [2])])
    assert texts(index) == [paragraph(2)]
    assert index.stats()["relations"] == 2


def test_triplets_of_llamaindex_after_the_cache(index):
    """The cache turns EntityNodes into dicts."""
    cache = IngestionCache()
    pipeline(index, extractor=Foreign(), cache=cache).run(documents=[document("d", [2])])
    assert index.stats()["relations"] == 2
    index.delete_ref_doc("d")
    assert index.stats()["relations"] == 0
    pipeline(index, extractor=Foreign(), cache=cache).run(documents=[document("d", [2])])
    assert index.stats()["relations"] == 2
    [found] = index.as_retriever(similarity_top_k=1).retrieve(paragraph(2))
    assert found.node.get_content(MetadataMode.ALL) == paragraph(2)


def test_without_an_extractor_in_the_pipeline_the_index_reads(tmp_path):
    llm = ScriptedLLM(read)
    index = GraphRAGIndex.from_documents(
        [], uri=tmp_path / "i.db", embed_model=CountingEmbedding(), triplet_extractor=reader(llm)
    )
    model = CountingEmbedding()
    IngestionPipeline(
        transformations=[Paragraphs(), model], vector_store=index.as_vector_store()
    ).run(documents=[document("d", [1, 2])])
    assert len(llm.calls) == 2
    assert index.stats()["relations"] == 4
    assert index.report.failures == []
    index.close()


def test_embeddings_of_the_pipeline_are_used(index):
    before = len(index._embed_model.texts)
    pipeline(index).run(documents=[document("d", [1, 2])])
    assert not [text for text in index._embed_model.texts[before:] if "Paragraph" in text]


def test_query(index):
    index.insert_nodes([])
    store = index.as_vector_store()
    index.refresh_ref_docs(
        [document("d", [1], kind="a"), document("e", [2], kind="b"), document("f", [3], kind="b")]
    )
    vector = CountingEmbedding()._get_text_embedding

    def ask(text, **options):
        return store.query(
            VectorStoreQuery(query_embedding=vector(text), similarity_top_k=2, **options)
        )

    everything = ask(paragraph(2))
    assert len(everything.ids) == 2
    assert everything.similarities == sorted(everything.similarities, reverse=True)
    only = MetadataFilters(filters=[MetadataFilter(key="kind", value="a")])
    assert [node.ref_doc_id for node in ask(paragraph(2), filters=only).nodes] == ["d"]
    by_document = ask(paragraph(2), doc_ids=["f", "unknown"])
    assert [node.ref_doc_id for node in by_document.nodes] == ["f"]
    assert ask(paragraph(2), node_ids=[everything.ids[1]]).ids == [everything.ids[1]]
    exact = ask(paragraph(2), node_ids=everything.ids)
    assert exact.ids == everything.ids
    assert exact.similarities == pytest.approx(everything.similarities, abs=1e-5)
    assert ask(paragraph(2), node_ids=everything.ids, filters=only, doc_ids=["e"]).ids == []
    with pytest.raises(GraphRAGValueError, match="mode"):
        ask("x", mode=VectorStoreQueryMode.HYBRID)
    with pytest.raises(GraphRAGValueError, match="without an embedding"):
        store.query(VectorStoreQuery(query_str="x"))


async def test_nodes_by_id_and_filter(index):
    await index.arefresh_ref_docs([document("d", [1], kind="a"), document("e", [2], kind="b")])
    store = index.as_vector_store()
    only = MetadataFilters(filters=[MetadataFilter(key="kind", value="a")])
    [node] = store.get_nodes(filters=only)
    assert node.ref_doc_id == "d"
    assert await store.aget_nodes(node_ids=["unknown"], filters=only) == []
    assert len(store.get_nodes(node_ids=[node.node_id, "unknown"])) == 1
    with pytest.raises(GraphRAGValueError, match="give node_ids or filters"):
        store.get_nodes()
    with pytest.raises(GraphRAGValueError, match="give node_ids or filters"):
        store.delete_nodes()
    await store.adelete_nodes(filters=only)
    assert texts(index) == [paragraph(2)]
    found = await store.aquery(VectorStoreQuery(query_embedding=[1.0] * 16, similarity_top_k=5))
    store.delete_nodes(found.ids)
    await store.adelete("e")
    assert texts(index) == []


def test_under_a_vector_store_index(index):
    index.refresh_ref_docs([document("d", range(5))])
    vectors = VectorStoreIndex.from_vector_store(
        index.as_vector_store(), embed_model=CountingEmbedding()
    )
    found = vectors.as_retriever(similarity_top_k=1).retrieve(paragraph(3))
    assert [node.text for node in found] == [paragraph(3)]
