"""The two contracts a store can meet: holding an index of ours, and being walked.

Sync methods are abstract; their ``a...`` twins default to a worker thread. Missing ids are not an
error, the order of every result is deterministic, and where a limit applies a result of exactly
that length may have been cut.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from llama_index_graph_rag.errors import StoreError
from llama_index_graph_rag.graph.snapshot import EntityKey, PassageKey, RelationKey
from llama_index_graph_rag.graph.vectors import Vectors
from llama_index_graph_rag.stores.records import (
    Batch,
    Edge,
    EntityRef,
    EntityRow,
    Evidence,
    Fact,
    Hits,
    Limits,
    Link,
    Neighbor,
    PassageRow,
    Path,
    Properties,
    RelationRow,
    SearchResult,
    StoredPassage,
)

if TYPE_CHECKING:
    from llama_index.core.vector_stores import MetadataFilters
    from llama_index.core.vector_stores.types import BasePydanticVectorStore

    from llama_index_graph_rag.graph.snapshot import GraphSnapshot


__all__ = [
    "Batch",
    "Edge",
    "EntityRef",
    "EntityRow",
    "Evidence",
    "Fact",
    "GraphIndexStore",
    "GraphReader",
    "Hits",
    "Limits",
    "Link",
    "Neighbor",
    "PassageRow",
    "Path",
    "Properties",
    "RelationRow",
    "SearchResult",
    "StaleBatchError",
    "StoredPassage",
    "Vectors",
]

# --- an index of ours ---


class StaleBatchError(StoreError):
    """A batch relies on entities or relations that the store does not hold: embed and add them."""


class GraphIndexStore(ABC):
    """Holds an index of ours: vectors of entities, relations and passages, and what links them."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Length of the embeddings; 0 while the index does not exist."""

    @abstractmethod
    def create(
        self, dimension: int, *, embedding_model: str = "", probe: Sequence[float] = ()
    ) -> None:
        """Create the index; where it is there, raise StoreError if another model made it.

        `probe` is the model's embedding of a fixed text, by which the model is recognised.
        """

    @abstractmethod
    def check(self, passage: PassageRow) -> None:
        """Raise GraphRAGValueError if the passage, apart from its embedding, cannot be stored."""

    @abstractmethod
    def missing(
        self, *, entities: Sequence[str] = (), relations: Sequence[str] = ()
    ) -> tuple[set[str], set[str]]:
        """Return those of the ids that are not stored: what has to be embedded and written."""

    @abstractmethod
    def upsert(self, batch: Batch) -> None:
        """Write entities, then relations, then passages; all, or an error after which to retry.

        The spelling first written of an entity or relation stays.

        Raises
        ------
        StaleBatchError
            Before anything is written, if an entity or relation that the batch relies on is
            neither in it nor in the store.
        """

    @abstractmethod
    def delete_passages(self, ids: Sequence[str]) -> None:
        """Delete passages by id; their relations go from every result at once."""

    @abstractmethod
    def delete_documents(self, ref_doc_ids: Sequence[str]) -> None:
        """Delete all passages of these source documents."""

    @abstractmethod
    def search(
        self,
        *,
        entities: Vectors | None = None,
        relations: Vectors | None = None,
        passages: Vectors | None = None,
        limits: Limits = Limits(),  # noqa: B008
        filters: MetadataFilters | None = None,
    ) -> SearchResult:
        """Return what is nearest to each vector: one call to the engine a kind that is asked for.

        `filters` apply to passages.
        """

    @abstractmethod
    def get_passages(self, ids: Sequence[str]) -> list[StoredPassage]:
        """Return the passages with these ids, in the order asked, without the missing ones."""

    @abstractmethod
    def get_vectors(
        self, *, entities: Sequence[str] = (), relations: Sequence[str] = ()
    ) -> tuple[Mapping[str, Vectors], Mapping[str, Vectors]]:
        """Return the embeddings of these entities and relations by id, without the missing ones."""

    @abstractmethod
    def passage_vectors(self, ids: Sequence[str]) -> Mapping[str, Vectors]:
        """Return the embeddings of these passages by id, without the missing ones."""

    @abstractmethod
    def permitted(self, filters: MetadataFilters) -> frozenset[str]:
        """Return the ids of the passages that pass `filters`."""

    @abstractmethod
    def scan_passages(self) -> Iterator[list[PassageKey]]:
        """Yield all passages in pages."""

    @abstractmethod
    def scan_relations(self) -> Iterator[list[RelationKey]]:
        """Yield all relations in pages."""

    @abstractmethod
    def scan_entities(self) -> Iterator[list[EntityKey]]:
        """Yield all entities in pages."""

    @abstractmethod
    def snapshot(self) -> GraphSnapshot:
        """Return the graph as it is now, immutable: matrices, ids and names."""

    @abstractmethod
    def refresh(self, *, full: bool = False, wait: bool = True) -> bool:
        """Take in what other writers wrote; return whether anything had changed.

        `full` reads everything again, even where nothing seems to have changed. Without `wait`
        it may do nothing: while this process writes, or where it was done just now.
        """

    @abstractmethod
    def flush(self) -> None:
        """Make what was written fast to search and to open; called at the end of a bulk."""

    @abstractmethod
    def close(self) -> None:
        """Flush and let go of what the store holds open."""

    @abstractmethod
    def passage_vector_store(self) -> BasePydanticVectorStore:
        """Return a plain LlamaIndex vector store over the same passages."""

    @abstractmethod
    def vacuum(self) -> dict[str, int]:
        """Remove relations that no passage holds and entities without a relation; counts."""

    @abstractmethod
    def stats(self) -> dict[str, int]:
        """Return passages, entities, relations, orphan_entities and orphan_relations."""

    async def acreate(
        self, dimension: int, *, embedding_model: str = "", probe: Sequence[float] = ()
    ) -> None:
        """Async twin of `create`."""
        await asyncio.to_thread(
            self.create, dimension, embedding_model=embedding_model, probe=probe
        )

    async def amissing(
        self, *, entities: Sequence[str] = (), relations: Sequence[str] = ()
    ) -> tuple[set[str], set[str]]:
        """Async twin of `missing`."""
        return await asyncio.to_thread(self.missing, entities=entities, relations=relations)

    async def aupsert(self, batch: Batch) -> None:
        """Async twin of `upsert`."""
        await asyncio.to_thread(self.upsert, batch)

    async def adelete_passages(self, ids: Sequence[str]) -> None:
        """Async twin of `delete_passages`."""
        await asyncio.to_thread(self.delete_passages, ids)

    async def adelete_documents(self, ref_doc_ids: Sequence[str]) -> None:
        """Async twin of `delete_documents`."""
        await asyncio.to_thread(self.delete_documents, ref_doc_ids)

    async def asearch(
        self,
        *,
        entities: Vectors | None = None,
        relations: Vectors | None = None,
        passages: Vectors | None = None,
        limits: Limits = Limits(),  # noqa: B008
        filters: MetadataFilters | None = None,
    ) -> SearchResult:
        """Async twin of `search`."""
        return await asyncio.to_thread(
            self.search,
            entities=entities,
            relations=relations,
            passages=passages,
            limits=limits,
            filters=filters,
        )

    async def aget_passages(self, ids: Sequence[str]) -> list[StoredPassage]:
        """Async twin of `get_passages`."""
        return await asyncio.to_thread(self.get_passages, ids)

    async def aget_vectors(
        self, *, entities: Sequence[str] = (), relations: Sequence[str] = ()
    ) -> tuple[Mapping[str, Vectors], Mapping[str, Vectors]]:
        """Async twin of `get_vectors`."""
        return await asyncio.to_thread(self.get_vectors, entities=entities, relations=relations)

    async def apassage_vectors(self, ids: Sequence[str]) -> Mapping[str, Vectors]:
        """Async twin of `passage_vectors`."""
        return await asyncio.to_thread(self.passage_vectors, ids)

    async def aflush(self) -> None:
        """Async twin of `flush`."""
        await asyncio.to_thread(self.flush)

    async def arefresh(self, *, full: bool = False, wait: bool = True) -> bool:
        """Async twin of `refresh`."""
        return await asyncio.to_thread(self.refresh, full=full, wait=wait)

    async def avacuum(self) -> dict[str, int]:
        """Async twin of `vacuum`."""
        return await asyncio.to_thread(self.vacuum)

    async def apermitted(self, filters: MetadataFilters) -> frozenset[str]:
        """Async twin of `permitted`."""
        return await asyncio.to_thread(self.permitted, filters)


# --- a graph that can be walked ---


class GraphReader(ABC):
    """A graph that can be walked: every store, ours included."""

    @abstractmethod
    def match_entities(
        self, names: Sequence[str], *, by: str | None = None, limit: int = 5
    ) -> list[list[EntityRef]]:
        """Return, per name, at most `limit` entities: by id or name, or by the property `by`."""

    @abstractmethod
    def neighbors(
        self, entity_ids: Sequence[str], *, limit_per_entity: int = 100
    ) -> dict[str, list[Neighbor]]:
        """Return each entity's neighbours in both directions, best linked first, then by name.

        An entity is not its own neighbour. Unknown ids are left out.
        """

    @abstractmethod
    def links(
        self, left_ids: Sequence[str], right_ids: Sequence[str], *, limit: int = 10_000
    ) -> list[Link]:
        """Return the pairs (one of each side, not equal) joined directly, in either direction.

        Best linked first, then by ids.
        """

    @abstractmethod
    def facts(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        per_pair: int = 5,
        query_embedding: Sequence[float] | None = None,
    ) -> list[Fact]:
        """Return the triplets that join each pair, in either direction, pairs in the order given.

        Within a pair nearest to the question first, or by count, then predicate.
        """

    @abstractmethod
    def schema(self) -> str:
        """Return a text that tells an LLM which labels, properties and relations there are."""

    def paths(
        self,
        entity_ids: Sequence[str],
        *,
        max_depth: int = 2,
        limit: int = 30,
        labels: Sequence[str] | None = None,
    ) -> list[Path]:
        """Return at most `limit` simple paths of 1 to `max_depth` edges that start at the entities.

        Shorter paths first, then best linked; `labels` keeps only edges of these predicates.
        Built from `neighbors` and `facts`: a store that can do it in one query overrides it.
        """
        from llama_index_graph_rag.stores.walk import simple_paths

        return simple_paths(self, entity_ids, max_depth=max_depth, limit=limit, labels=labels)

    async def amatch_entities(
        self, names: Sequence[str], *, by: str | None = None, limit: int = 5
    ) -> list[list[EntityRef]]:
        """Async twin of `match_entities`."""
        return await asyncio.to_thread(self.match_entities, names, by=by, limit=limit)

    async def aneighbors(
        self, entity_ids: Sequence[str], *, limit_per_entity: int = 100
    ) -> dict[str, list[Neighbor]]:
        """Async twin of `neighbors`."""
        return await asyncio.to_thread(
            self.neighbors, entity_ids, limit_per_entity=limit_per_entity
        )

    async def alinks(
        self, left_ids: Sequence[str], right_ids: Sequence[str], *, limit: int = 10_000
    ) -> list[Link]:
        """Async twin of `links`."""
        return await asyncio.to_thread(self.links, left_ids, right_ids, limit=limit)

    async def afacts(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        per_pair: int = 5,
        query_embedding: Sequence[float] | None = None,
    ) -> list[Fact]:
        """Async twin of `facts`."""
        return await asyncio.to_thread(
            self.facts, pairs, per_pair=per_pair, query_embedding=query_embedding
        )

    async def aschema(self) -> str:
        """Async twin of `schema`."""
        return await asyncio.to_thread(self.schema)

    async def apaths(
        self,
        entity_ids: Sequence[str],
        *,
        max_depth: int = 2,
        limit: int = 30,
        labels: Sequence[str] | None = None,
    ) -> list[Path]:
        """Async twin of `paths`."""
        return await asyncio.to_thread(
            self.paths, entity_ids, max_depth=max_depth, limit=limit, labels=labels
        )
