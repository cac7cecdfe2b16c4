"""LlamaIndex's Milvus vector store over our passages, for any event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores import (
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from llama_index.vector_stores.milvus import MilvusVectorStore


class PassageVectorStore(MilvusVectorStore):
    """A MilvusVectorStore that is read in a thread where it is awaited.

    Its parent's async client lives in the first loop that uses it, and LlamaIndex gives each sync
    call of an async component, such as a fusion retriever, a loop of its own.
    """

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Async twin of `query`."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    async def aget_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **kwargs: Any,
    ) -> list[BaseNode]:
        """Async twin of `get_nodes`."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters, **kwargs)
