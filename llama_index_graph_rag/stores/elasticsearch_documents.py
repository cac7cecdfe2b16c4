"""Plain retrieval of passages from the documents index, by words or by vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.settings import Settings

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.steps import Process
from llama_index_graph_rag.stores.elasticsearch_connection import Session
from llama_index_graph_rag.stores.elasticsearch_queries import MAX_HITS, chunks
from llama_index_graph_rag.stores.elasticsearch_rows import (
    Indices,
    check_vectors,
    document_id,
    node_of,
)

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding

    from llama_index_graph_rag.stores.elasticsearch import ElasticsearchStore

_SOURCE = ["passage_id", "text", "node"]


def get_passages(session: Session, indices: Indices, ids: Sequence[str]) -> Process[list[TextNode]]:
    """Return the passages with these ids, in the order asked, without the missing ones."""
    nodes: list[TextNode] = []
    for part in chunks(ids, 1_000):
        answer = yield from session.call(
            "mget", index=indices.documents, ids=list(map(document_id, part)), source=_SOURCE
        )
        nodes += [node_of(row["_source"]) for row in answer["docs"] if row["found"]]
    return nodes


def search(
    session: Session, indices: Indices, query: str | Sequence[float], limit: int
) -> Process[list[NodeWithScore]]:
    """Return the passages nearest to a text (BM25) or to a vector (cosine), best first."""
    if not 1 <= limit <= MAX_HITS:
        raise GraphRAGValueError(f"limit={limit} is not 1 to {MAX_HITS:,}")
    by_words = isinstance(query, str)
    if by_words:
        wanted = {"query": {"match": {"text": query}}, "sort": ["_score", {"passage_id": "asc"}]}
    else:
        vector = [float(x) for x in query]
        check_vectors({"the question": vector}, "query of")
        wanted = {
            "knn": {
                "field": "embedding",
                "query_vector": vector,
                "k": limit,
                "num_candidates": min(MAX_HITS, max(100, 2 * limit)),
            }
        }
    answer = yield from session.search(
        index=indices.documents, size=limit, source=_SOURCE, track_total_hits=False, **wanted
    )
    hits = answer["hits"]["hits"]
    if not by_words:
        hits.sort(key=lambda hit: (-hit["_score"], hit["_source"]["passage_id"]))
    return [
        NodeWithScore(
            node=node_of(hit["_source"]),
            score=hit["_score"] if by_words else 2.0 * hit["_score"] - 1.0,
        )
        for hit in hits
    ]


def stats(session: Session, indices: Indices) -> Process[dict[str, int]]:
    """Return the number of rows of each index."""
    counts: dict[str, int] = {}
    for name, index in zip(("passages", "statements", "pairs"), indices):
        counts[name] = (yield from session.call("count", index=index))["count"]
    return counts


class ElasticsearchRetriever(BaseRetriever):
    """Plain retrieval of the passages of an ElasticsearchStore, beside its graph.

    Scores are BM25's in mode ``"text"`` and cosines in mode ``"vector"``.

    Parameters
    ----------
    store
        Holds the passages.
    mode
        ``"text"`` (default) for BM25, ``"vector"`` for kNN over the nodes' embeddings.
    similarity_top_k
        Passages returned. Default 5.
    embed_model
        Embeds the question in mode ``"vector"``; default ``Settings.embed_model``.

    Raises
    ------
    GraphRAGValueError
        If `mode` or `similarity_top_k` is out of range.
    """

    def __init__(
        self,
        store: ElasticsearchStore,
        *,
        mode: Literal["text", "vector"] = "text",
        similarity_top_k: int = 5,
        embed_model: BaseEmbedding | None = None,
    ) -> None:
        super().__init__()
        if mode not in ("text", "vector"):
            raise GraphRAGValueError(f"mode={mode!r}: choose 'text' or 'vector'")
        if not 1 <= similarity_top_k <= MAX_HITS:
            raise GraphRAGValueError(
                f"similarity_top_k={similarity_top_k} is not 1 to {MAX_HITS:,}"
            )
        self._store = store
        self._top_k = similarity_top_k
        self._embed_model = (embed_model or Settings.embed_model) if mode == "vector" else None

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query: str | list[float] = query_bundle.query_str
        if self._embed_model is not None:
            query = query_bundle.embedding or self._embed_model.get_agg_embedding_from_queries(
                query_bundle.embedding_strs
            )
        return self._store.search_documents(query, limit=self._top_k)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query: str | list[float] = query_bundle.query_str
        if self._embed_model is not None:
            query = (
                query_bundle.embedding
                or await self._embed_model.aget_agg_embedding_from_queries(
                    query_bundle.embedding_strs
                )
            )
        return await self._store.asearch_documents(query, limit=self._top_k)
