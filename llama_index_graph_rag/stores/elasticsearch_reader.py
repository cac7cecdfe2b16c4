"""Reading a graph and its documents from Elasticsearch: the walk, facts, plain search."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from llama_index.core.schema import NodeWithScore, TextNode
from typing_extensions import Self

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.steps import Process, adrive, drive
from llama_index_graph_rag.stores import elasticsearch_documents as documents
from llama_index_graph_rag.stores import elasticsearch_queries as queries
from llama_index_graph_rag.stores import elasticsearch_writing as writing
from llama_index_graph_rag.stores.base import EntityRef, Fact, GraphReader, Link, Neighbor
from llama_index_graph_rag.stores.elasticsearch_connection import (
    ElasticsearchConnection,
    Session,
    counting,
)
from llama_index_graph_rag.stores.elasticsearch_rows import Indices, check_vectors

T = TypeVar("T")
_logger = logging.getLogger("llama_index_graph_rag")


class ElasticsearchReader(GraphReader):
    """The reading half of `ElasticsearchStore`.

    Parameters
    ----------
    connection
        Where the indices are.
    indices
        Their names.
    evidence_per_fact
        Passages named with a fact.
    """

    def __init__(
        self, connection: ElasticsearchConnection, indices: Indices, evidence_per_fact: int
    ) -> None:
        self.indices = indices
        self._connection = connection
        self._evidence = evidence_per_fact
        self._dimension: int | None = None

    @staticmethod
    def count_calls() -> AbstractContextManager[Counter[str]]:
        """Count calls by kind within a block: ``with store.count_calls() as calls: ...``.

        ``calls["elasticsearch.search"]`` is the number of searches, each of a multi-search
        counted and a retry counted again; calls made by tasks and ``asyncio.to_thread`` within the
        block count too.
        """
        return counting()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of the sync client."""
        self._connection.close()

    def match_entities(
        self, names: Sequence[str], *, by: str | None = None, limit: int = 5
    ) -> list[list[EntityRef]]:
        """Return, per name, the entity of that canonical name or that id; one search for 500."""
        return self._run(
            lambda session: queries.match_entities(session, self.indices, names, by, limit)
        )

    async def amatch_entities(
        self, names: Sequence[str], *, by: str | None = None, limit: int = 5
    ) -> list[list[EntityRef]]:
        """Async twin of `match_entities`."""
        return await self._arun(
            lambda session: queries.match_entities(session, self.indices, names, by, limit)
        )

    def neighbors(
        self, entity_ids: Sequence[str], *, limit_per_entity: int = 100
    ) -> dict[str, list[Neighbor]]:
        """Return each entity's neighbours, best linked first; one search for 200 entities."""
        return self._run(lambda session: self._neighbors(session, entity_ids, limit_per_entity))

    async def aneighbors(
        self, entity_ids: Sequence[str], *, limit_per_entity: int = 100
    ) -> dict[str, list[Neighbor]]:
        """Async twin of `neighbors`."""
        return await self._arun(
            lambda session: self._neighbors(session, entity_ids, limit_per_entity)
        )

    def _neighbors(
        self, session: Session, entity_ids: Sequence[str], limit: int
    ) -> Process[dict[str, list[Neighbor]]]:
        return queries.neighbors(session, self.indices, entity_ids, limit)

    def links(
        self, left_ids: Sequence[str], right_ids: Sequence[str], *, limit: int = 10_000
    ) -> list[Link]:
        """Return the pairs joined directly; one search, at most 65,536 entities a side."""
        return self._run(lambda session: self._links(session, left_ids, right_ids, limit))

    async def alinks(
        self, left_ids: Sequence[str], right_ids: Sequence[str], *, limit: int = 10_000
    ) -> list[Link]:
        """Async twin of `links`."""
        return await self._arun(lambda session: self._links(session, left_ids, right_ids, limit))

    def _links(
        self, session: Session, left_ids: Sequence[str], right_ids: Sequence[str], limit: int
    ) -> Process[list[Link]]:
        return queries.links(session, self.indices, left_ids, right_ids, limit)

    def facts(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        per_pair: int = 5,
        query_embedding: Sequence[float] | None = None,
    ) -> list[Fact]:
        """Return the triplets that join each pair, with evidence; one search for 1,000 pairs."""
        return self._run(lambda session: self._facts(session, pairs, per_pair, query_embedding))

    async def afacts(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        per_pair: int = 5,
        query_embedding: Sequence[float] | None = None,
    ) -> list[Fact]:
        """Async twin of `facts`."""
        return await self._arun(
            lambda session: self._facts(session, pairs, per_pair, query_embedding)
        )

    def _facts(
        self,
        session: Session,
        pairs: Sequence[tuple[str, str]],
        per_pair: int,
        query_embedding: Sequence[float] | None,
    ) -> Process[list[Fact]]:
        if query_embedding is not None:
            if self._dimension is None:
                mapping = yield from writing.read_mapping(session, self.indices.relations)
                self._dimension = writing.vector_dimension(mapping)
            if self._dimension is None:
                _logger.warning(
                    "%s holds no vectors: facts are ordered by count, not by the question; pass "
                    "relation_embeddings to add()",
                    self.indices.relations,
                )
                query_embedding = None
            else:
                check_vectors({"the question": query_embedding}, "query_embedding of")
                if len(query_embedding) != self._dimension:
                    raise GraphRAGValueError(
                        f"query_embedding has {len(query_embedding)} dimensions, the relations "
                        f"have {self._dimension}; use the model that embedded the relations"
                    )
        return (
            yield from queries.facts(
                session,
                self.indices,
                pairs,
                per_pair=per_pair,
                evidence=self._evidence,
                query_embedding=query_embedding,
            )
        )

    def schema(self) -> str:
        """Return a text with the 50 most frequent predicates."""
        return self._run(lambda session: queries.schema(session, self.indices))

    async def aschema(self) -> str:
        """Async twin of `schema`."""
        return await self._arun(lambda session: queries.schema(session, self.indices))

    def get_passages(self, ids: Sequence[str]) -> list[TextNode]:
        """Return the passages with these ids, in the order asked, without the missing ones."""
        return self._run(lambda session: documents.get_passages(session, self.indices, ids))

    async def aget_passages(self, ids: Sequence[str]) -> list[TextNode]:
        """Async twin of `get_passages`."""
        return await self._arun(lambda session: documents.get_passages(session, self.indices, ids))

    def stats(self) -> dict[str, int]:
        """Return the numbers of passages, of statements (a relation in a passage) and of pairs."""
        return self._run(lambda session: documents.stats(session, self.indices))

    async def astats(self) -> dict[str, int]:
        """Async twin of `stats`."""
        return await self._arun(lambda session: documents.stats(session, self.indices))

    def search_documents(
        self, query: str | Sequence[float], *, limit: int = 5
    ) -> list[NodeWithScore]:
        """Return the passages nearest to `query`: by BM25 for a text, by cosine for a vector."""
        return self._run(lambda session: documents.search(session, self.indices, query, limit))

    async def asearch_documents(
        self, query: str | Sequence[float], *, limit: int = 5
    ) -> list[NodeWithScore]:
        """Async twin of `search_documents`."""
        return await self._arun(
            lambda session: documents.search(session, self.indices, query, limit)
        )

    def _run(self, process: Callable[[Session], Process[T]]) -> T:
        return drive(process(self._connection.session))

    async def _arun(self, process: Callable[[Session], Process[T]]) -> T:
        async with self._connection.async_session() as session:
            return await adrive(process(session))
