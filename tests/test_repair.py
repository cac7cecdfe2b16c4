"""Entities and relations that were lost come back from the mentions of the passages."""

from __future__ import annotations

import pytest
from fact_corpus import CountingEmbedding, Paragraphs, contents, documents, paragraph, reader
from llama_index.core.schema import TextNode

from llama_index_graph_rag import GraphRAGIndex


@pytest.fixture
def index(tmp_path):
    index = GraphRAGIndex.from_documents(
        documents(2, 5),
        uri=tmp_path / "index.db",
        embed_model=CountingEmbedding(),
        triplet_extractor=reader(),
        transformations=[Paragraphs()],
    )
    yield index
    index.close()


def lose(index, collection, every):
    """Delete rows behind the store's back."""
    store = index.store
    name = getattr(store.collections, collection)
    scan = store.scan_entities if collection == "entities" else store.scan_relations
    ids = sorted(key.id for page in scan() for key in page)[::every]
    store.connection.delete(name, ids)
    return len(ids)


@pytest.mark.parametrize(("entities", "relations"), [(0, 1), (1, 0), (3, 2), (1, 1)])
def test_what_is_lost_comes_back(index, entities, relations):
    whole = contents(index)
    found = [
        (node.node_id, round(node.score, 5)) for node in index.as_retriever().retrieve("E103 joins")
    ]
    lost_entities = lose(index, "entities", entities) if entities else 0
    lost_relations = lose(index, "relations", relations) if relations else 0
    embedded = len(index._embed_model.texts)
    repaired = index.repair()
    assert repaired["entities"] == lost_entities
    assert repaired["relations"] >= lost_relations
    assert len(index._embed_model.texts) == embedded + sum(repaired.values())
    assert contents(index) == whole
    assert index.stats()["dangling_references"] == 0
    again = [
        (node.node_id, round(node.score, 5)) for node in index.as_retriever().retrieve("E103 joins")
    ]
    assert again == found


def test_nothing_lost_nothing_written(index):
    embedded = len(index._embed_model.texts)
    assert index.repair() == {"entities": 0, "relations": 0}
    assert len(index._embed_model.texts) == embedded
    assert index.vacuum() == {"entities": 0, "relations": 0}


async def test_async_and_after_reopening(index):
    whole = contents(index)
    uri = index.store.connection.uri
    lose(index, "relations", 1)
    index.close()
    again = GraphRAGIndex.from_existing(uri, embed_model=CountingEmbedding())
    assert await again.arepair() == {"entities": 0, "relations": len(whole["relations"])}
    assert contents(again) == whole
    again.close()


def test_an_empty_store(tmp_path):
    from llama_index_graph_rag.stores.milvus import MilvusGraphStore

    index = GraphRAGIndex(MilvusGraphStore(tmp_path / "e.db"), embed_model=CountingEmbedding())
    assert index.repair() == {"entities": 0, "relations": 0}
    assert index.vacuum() == {"entities": 0, "relations": 0}
    index.close()


def test_passages_without_relations_are_no_obstacle(index):
    index.insert_triplets([TextNode(text=paragraph(1), id_="bare")], [[]])
    assert index.repair() == {"entities": 0, "relations": 0}
