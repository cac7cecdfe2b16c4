"""One index of the demo corpus for all, and LLMs that answer from a script."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from choosing_llm import WAY, choosing_llm
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo
from word_embedding import WordEmbedding

from llama_index_graph_rag import GraphRAGIndex, GraphRAGRetriever
from llama_index_graph_rag.demo import load_demo
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM


@pytest.fixture(scope="session")
def question() -> str:
    return load_demo().questions[0].question


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphRAGIndex]:
    """The demo corpus, each passage of a document, with metadata to filter by."""
    demo = load_demo()
    for place, node in enumerate(demo.nodes):
        node.metadata["place"] = place
        node.metadata["family"] = "Bernoulli" if "Bernoulli" in node.metadata["title"] else "other"
        node.metadata["tags"] = ["swiss", "basel"] if "Basel" in node.text else ["abroad"]
        if place % 2:
            node.metadata["odd"] = True
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=f"book-{place % 3}")
    index = GraphRAGIndex.from_triplets(
        demo.nodes,
        demo.triplets,
        uri=tmp_path_factory.mktemp("dropin") / "demo.db",
        embed_model=WordEmbedding(),
    )
    yield index
    index.close()


@pytest.fixture(scope="session")
def embed_model(index: GraphRAGIndex) -> WordEmbedding:
    """The embedding model of the index."""
    model = index._embed_model
    assert isinstance(model, WordEmbedding)
    return model


@pytest.fixture(scope="session")
def retriever(index: GraphRAGIndex) -> GraphRAGRetriever:
    """Ours, without an LLM."""
    return index.as_retriever(similarity_top_k=4)


@pytest.fixture
def vector_index(index: GraphRAGIndex, embed_model: WordEmbedding) -> VectorStoreIndex:
    """Plain vector RAG over the same passages; its async client lives in one event loop."""
    return VectorStoreIndex.from_vector_store(index.passage_vector_store, embed_model=embed_model)


@pytest.fixture
def vector_retriever(vector_index: VectorStoreIndex) -> BaseRetriever:
    return vector_index.as_retriever(similarity_top_k=4)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, and nothing left in Settings: what needs one of them fails."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for name in ("_llm", "_embed_model"):
        monkeypatch.setattr(Settings, name, None)


@pytest.fixture
def llm() -> ScriptedLLM:
    """Chooses the facts of WAY where it is asked to choose, and else gives the ANSWER."""
    return choosing_llm(*WAY)
