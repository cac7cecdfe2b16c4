"""The index as a LlamaIndex vector store: a target for an IngestionPipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.steps import Process, adrive, call, drive
from llama_index_graph_rag.stores.base import Limits, Vectors

if TYPE_CHECKING:
    from llama_index_graph_rag.updating import UpdatableIndex


class GraphRAGVectorStore(BasePydanticVectorStore):
    """Takes nodes into a GraphRAGIndex, and answers with passages by plain similarity.

    Made by ``index.as_vector_store()``. Nodes bring their own embeddings, and their triplets where
    an extractor is among the pipeline's transformations; otherwise the index reads them if it was
    given an LLM or an extractor.

    Examples
    --------
    >>> import tempfile
    >>> from llama_index.core import MockEmbedding
    >>> from llama_index.core.ingestion import IngestionPipeline
    >>> from llama_index.core.schema import TextNode
    >>> from llama_index_graph_rag import GraphRAGIndex
    >>> model = MockEmbedding(8)
    >>> uri = tempfile.mkdtemp() + "/demo.db"
    >>> index = GraphRAGIndex.from_triplets([], [], uri=uri, embed_model=model)
    >>> pipeline = IngestionPipeline(
    ...     transformations=[model], vector_store=index.as_vector_store()
    ... )
    >>> nodes = pipeline.run(nodes=[TextNode(text="Euler lived in Basel.", id_="p1")])
    >>> index.stats()["passages"]
    1
    >>> index.close()
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    _index: UpdatableIndex = PrivateAttr()

    def __init__(self, index: UpdatableIndex) -> None:
        super().__init__(stores_text=True)
        self._index = index

    @classmethod
    def class_name(cls) -> str:
        """Name of the class."""
        return "GraphRAGVectorStore"

    @property
    def client(self) -> Any:
        """The index's store."""
        return self._index.store

    def add(self, nodes: list[BaseNode], **add_kwargs: Any) -> list[str]:  # type: ignore[override]
        """Write nodes with their triplets; return their ids."""
        self._index.insert_nodes(nodes)
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: list[BaseNode], **add_kwargs: Any) -> list[str]:  # type: ignore[override]
        """Async twin of `add`."""
        await self._index.ainsert_nodes(nodes)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete all passages of a document."""
        self._index.delete_ref_doc(ref_doc_id)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Async twin of `delete`."""
        await self._index.adelete_ref_doc(ref_doc_id)

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Delete the passages that are in `node_ids` and pass `filters`, where given."""
        self._index.delete_nodes(drive(self._ids(node_ids, filters)))

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Async twin of `delete_nodes`."""
        await self._index.adelete_nodes(await adrive(self._ids(node_ids, filters)))

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return the passages that are in `node_ids` and pass `filters`, where given."""
        return drive(self._get(node_ids, filters))

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Async twin of `get_nodes`."""
        return await adrive(self._get(node_ids, filters))

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the passages nearest to the query's embedding.

        Raises
        ------
        GraphRAGValueError
            If the query has no embedding, or another mode than ``default``.
        """
        return drive(self._query(query))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Async twin of `query`."""
        return await adrive(self._query(query))

    def _query(self, query: VectorStoreQuery) -> Process[VectorStoreQueryResult]:
        if query.mode != VectorStoreQueryMode.DEFAULT or query.query_embedding is None:
            raise GraphRAGValueError(
                f"a query of mode {query.mode!r} with"
                f"{'out' if query.query_embedding is None else ''} an embedding is not supported; "
                "use mode 'default' with an embedding, or index.as_retriever()"
            )
        store = self._index.store
        vector = np.asarray([query.query_embedding], dtype=np.float32)
        if query.node_ids or query.doc_ids:
            hits = yield from self._ranked(query, vector)
        else:
            found = yield from call(
                store.search,
                store.asearch,
                passages=vector,
                limits=Limits(0, 0, query.similarity_top_k),
                filters=query.filters,
            )
            hits = list(zip(found.passages[0].ids, found.passages[0].similarities))
        passages = yield from call(store.get_passages, store.aget_passages, [id for id, _ in hits])
        nodes = {passage.node.node_id: passage.node for passage in passages}
        kept = [(id, similarity) for id, similarity in hits if id in nodes]
        return VectorStoreQueryResult(
            nodes=[nodes[id] for id, _ in kept],
            similarities=[similarity for _, similarity in kept],
            ids=[id for id, _ in kept],
        )

    def _ranked(self, query: VectorStoreQuery, vector: Vectors) -> Process[list[tuple[str, float]]]:
        """Rank the passages asked for by name, exactly: engines cannot search among given ids."""
        store = self._index.store
        ids = set(query.node_ids or ())
        snapshot = store.snapshot()
        of_documents = {
            id for document in query.doc_ids or () for id in snapshot.passages_of_document(document)
        }
        if query.doc_ids:
            ids = ids & of_documents if query.node_ids else of_documents
        if query.filters is not None:
            ids &= yield from call(store.permitted, store.apermitted, query.filters)
        vectors = yield from call(store.passage_vectors, store.apassage_vectors, sorted(ids))
        lengths = float(np.linalg.norm(vector)) or 1.0
        similarities = {
            id: float(vector[0] @ row) / (lengths * (float(np.linalg.norm(row)) or 1.0))
            for id, row in vectors.items()
        }
        ranked = sorted(similarities.items(), key=lambda hit: (-hit[1], hit[0]))
        return ranked[: query.similarity_top_k]

    def _get(
        self, node_ids: list[str] | None, filters: MetadataFilters | None
    ) -> Process[list[BaseNode]]:
        ids = yield from self._ids(node_ids, filters)
        store = self._index.store
        passages = yield from call(store.get_passages, store.aget_passages, ids)
        return [passage.node for passage in passages]

    def _ids(
        self, node_ids: list[str] | None, filters: MetadataFilters | None
    ) -> Process[list[str]]:
        if node_ids is None and filters is None:
            raise GraphRAGValueError("give node_ids or filters; without either all would be meant")
        if filters is None:
            return list(node_ids or ())
        store = self._index.store
        permitted = yield from call(store.permitted, store.apermitted, filters)
        return sorted(permitted) if node_ids is None else [i for i in node_ids if i in permitted]
