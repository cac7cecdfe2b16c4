"""A graph and its documents in Elasticsearch: walked, searched and kept up to date there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from llama_index.core.schema import BaseNode
from llama_index.core.utils import get_tqdm_iterable

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.steps import Process
from llama_index_graph_rag.stores import elasticsearch_queries as queries
from llama_index_graph_rag.stores import elasticsearch_writing as writing
from llama_index_graph_rag.stores.base import GraphIndexStore
from llama_index_graph_rag.stores.elasticsearch_connection import ElasticsearchConnection, Session
from llama_index_graph_rag.stores.elasticsearch_documents import ElasticsearchRetriever
from llama_index_graph_rag.stores.elasticsearch_reader import ElasticsearchReader
from llama_index_graph_rag.stores.elasticsearch_rows import (
    Indices,
    Passage,
    as_passages,
    check_vectors,
)
from llama_index_graph_rag.triplets import InvalidTriplet

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding


class ElasticsearchStore(ElasticsearchReader):
    """A graph of triplets and its passages in three Elasticsearch indices.

    ``<prefix>_documents`` holds the passages, ``<prefix>_relations`` a row for each relation that
    a passage states, with its vector, and ``<prefix>_aggregated`` a row for each pair of entities
    with the number of relations between them, which is what a walk reads. Nothing is contacted
    before the first call; the indices are made by the first `add`.

    Tested with elasticsearch-py 8.19 against the API of Elasticsearch 8.15.

    Parameters
    ----------
    url
        One URL or several of one cluster. Default ``"http://localhost:9200"``.
    index_prefix
        Start of the names of the three indices. Default ``"graph_rag"``.
    api_key, basic_auth
        Credentials, if the cluster wants any. They are in no repr, log or exception.
    ca_certs
        Path of the certificate that signed the cluster's.
    request_timeout
        Seconds to wait for one answer. Default 10.
    max_retries
        How often a request is made again that the cluster refused for its load (429, 502, 503,
        504) or did not answer. Default 3.
    retry_backoff
        Seconds before the first retry; doubled for each next, at most 10. Default 0.2. A
        ``Retry-After`` of the cluster goes first.
    evidence_per_fact
        Passages named with a fact, 1 to 100; its `count` tells how many there are. Default 3.
    vector_index
        How vectors are indexed: ``"hnsw"`` (default), ``"flat"``, or ``"int8_hnsw"`` for a quarter
        of the memory and similarities that are off by up to 0.02.
    index_settings
        Settings of new indices, such as ``{"number_of_shards": 3}``.
    client_options
        Further arguments of ``elasticsearch.Elasticsearch``.

    Raises
    ------
    MissingExtraError
        If elasticsearch-py is not installed.
    GraphRAGValueError
        If an argument is out of range.
    StoreError
        By every method, if the cluster cannot be reached, is too slow or refuses, with the remedy.

    Examples
    --------
    >>> store = ElasticsearchStore(index_prefix="euler", api_key="secret")
    >>> store
    ElasticsearchStore('http://localhost:9200', index_prefix='euler')
    >>> store.close()

    With an engine that runs::

        store.add(nodes, [[("Euler", "was a student of", "Johann Bernoulli")], ...])
        store.neighbors([entity_id("Euler")])
    """

    def __init__(
        self,
        url: str | Sequence[str] = "http://localhost:9200",
        *,
        index_prefix: str = "graph_rag",
        api_key: str | None = None,
        basic_auth: tuple[str, str] | None = None,
        ca_certs: str | None = None,
        request_timeout: float = 10.0,
        max_retries: int = 3,
        retry_backoff: float = 0.2,
        evidence_per_fact: int = 3,
        vector_index: Literal["hnsw", "flat", "int8_hnsw"] = "hnsw",
        index_settings: Mapping[str, object] | None = None,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,199}", index_prefix):
            raise GraphRAGValueError(
                f"index_prefix={index_prefix!r} is not 1 to 200 lower-case letters, digits, - or _ "
                "that start with a letter or digit"
            )
        if not 1 <= evidence_per_fact <= 100:
            raise GraphRAGValueError(f"evidence_per_fact={evidence_per_fact} is not 1 to 100")
        if max_retries < 0 or retry_backoff < 0 or request_timeout <= 0:
            raise GraphRAGValueError(
                f"max_retries={max_retries}, retry_backoff={retry_backoff} and "
                f"request_timeout={request_timeout}: none may be negative, nor the last zero"
            )
        if vector_index not in ("hnsw", "flat", "int8_hnsw"):
            raise GraphRAGValueError(
                f"vector_index={vector_index!r}: choose 'hnsw', 'flat' or 'int8_hnsw'"
            )
        self._prefix = index_prefix
        self._vector_index = vector_index
        self._settings = dict(index_settings or {})
        connection = ElasticsearchConnection(
            url,
            api_key=api_key,
            basic_auth=basic_auth,
            ca_certs=ca_certs,
            request_timeout=request_timeout,
            max_retries=max_retries,
            retry_backoff=retry_backoff,
            client_options=client_options,
        )
        super().__init__(connection, Indices.of(index_prefix), evidence_per_fact)

    @classmethod
    def from_index(
        cls,
        index: object,
        url: str | Sequence[str] = "http://localhost:9200",
        *,
        batch_size: int = 500,
        show_progress: bool = False,
        **options: Any,
    ) -> ElasticsearchStore:
        """Load an index of ours, such as one in Milvus, and return the store that holds it.

        Mentions come with their sentences, entities as they are spelled there, and relations with
        their vectors. The vectors of passages stay behind: plain retrieval finds these passages by
        their words.

        Parameters
        ----------
        index
            A GraphRAGIndex or its GraphIndexStore.
        url, **options
            As for the constructor.
        batch_size
            Passages read and written at a time. Default 500.
        show_progress
            Show a progress bar. Default False.
        """
        source = index if isinstance(index, GraphIndexStore) else getattr(index, "store", None)
        if not isinstance(source, GraphIndexStore):
            raise GraphRAGTypeError(
                f"index is a {type(index).__name__}; give a GraphRAGIndex or a GraphIndexStore"
            )
        store = cls(url, **options)
        names = {key.id: key.text for page in source.scan_entities() for key in page}
        keys = [key.id for page in source.scan_passages() for key in page]
        parts = list(queries.chunks(keys, batch_size))
        for part in get_tqdm_iterable(parts, show_progress, "Writing passages"):
            passages = source.get_passages(part)
            relations = list(dict.fromkeys(id_ for one in passages for id_ in one.relation_ids))
            _, found = source.get_vectors(relations=relations)
            checked, _ = as_passages(
                [passage.node for passage in passages], [passage.mentions for passage in passages]
            )
            vectors = {id_: vector.tolist() for id_, vector in found.items()}
            store._write(checked, vectors, names)
        return store

    def __repr__(self) -> str:
        return f"ElasticsearchStore({self._connection.shown!r}, index_prefix={self._prefix!r})"

    def add(
        self,
        nodes: Sequence[BaseNode],
        triplets: Sequence[Sequence[object]] | None = None,
        relation_embeddings: Mapping[str, Sequence[float]] | None = None,
        *,
        batch_size: int = 500,
        show_progress: bool = False,
    ) -> list[InvalidTriplet]:
        """Write passages and what they state; one that is there already is replaced.

        Safe to repeat after an error: nothing is counted twice.

        Parameters
        ----------
        nodes
            The passages; a node's ``embedding``, if it has one, serves `as_retriever`.
        triplets
            ``triplets[i]`` are node i's: three strings each, or a Mention with its place in the
            text. Default: what extractors left on the nodes' metadata.
        relation_embeddings
            Vectors by relation id (``Triplet.id``), so that facts can be ordered by a question.
        batch_size
            Passages written at a time. Default 500.
        show_progress
            Show a progress bar. Default False.

        Returns
        -------
        list of InvalidTriplet
            Triplets left out because a part of them is empty.

        Raises
        ------
        GraphRAGTypeError, GraphRAGValueError
            If anything cannot be stored; then nothing was written.
        """
        passages, invalid = as_passages(nodes, triplets)
        self._write(passages, relation_embeddings or {}, {}, batch_size, show_progress)
        return invalid

    async def aadd(
        self,
        nodes: Sequence[BaseNode],
        triplets: Sequence[Sequence[object]] | None = None,
        relation_embeddings: Mapping[str, Sequence[float]] | None = None,
        *,
        batch_size: int = 500,
        show_progress: bool = False,
    ) -> list[InvalidTriplet]:
        """Async twin of `add`."""
        passages, invalid = as_passages(nodes, triplets)
        vectors = relation_embeddings or {}
        await self._arun(
            lambda session: self._writing(session, passages, vectors, {}, batch_size, show_progress)
        )
        return invalid

    def delete_passages(self, ids: Sequence[str]) -> int:
        """Delete passages and what only they state; return how many there were."""
        return self._run(lambda session: self._deleting(session, "passage_id", ids))

    async def adelete_passages(self, ids: Sequence[str]) -> int:
        """Async twin of `delete_passages`."""
        return await self._arun(lambda session: self._deleting(session, "passage_id", ids))

    def delete_documents(self, ref_doc_ids: Sequence[str]) -> int:
        """Delete all passages of these source documents; return how many there were.

        An empty id is nobody's: passages without a source document stay.
        """
        return self._run(lambda session: self._deleting(session, "doc_id", ref_doc_ids))

    async def adelete_documents(self, ref_doc_ids: Sequence[str]) -> int:
        """Async twin of `delete_documents`."""
        return await self._arun(lambda session: self._deleting(session, "doc_id", ref_doc_ids))

    def _write(
        self,
        passages: Sequence[Passage],
        embeddings: Mapping[str, Sequence[float]],
        names: dict[str, str],
        batch_size: int = 500,
        show_progress: bool = False,
    ) -> None:
        self._run(
            lambda session: self._writing(
                session, passages, embeddings, names, batch_size, show_progress
            )
        )

    def _writing(
        self,
        session: Session,
        passages: Sequence[Passage],
        embeddings: Mapping[str, Sequence[float]],
        names: dict[str, str],
        batch_size: int,
        show_progress: bool,
    ) -> Process[None]:
        if batch_size < 1:
            raise GraphRAGValueError(f"batch_size={batch_size}; give 1 or more")
        dimensions = {
            "documents": check_vectors(
                {one.id: one.node.embedding for one in passages if one.node.embedding}, "passage"
            ),
            "relations": check_vectors(embeddings, "relation"),
        }
        new = yield from writing.ensure_indices(
            session,
            self.indices,
            settings=self._settings,
            vector_index=self._vector_index,
            dimensions=dimensions,
        )
        if not new:
            yield from self._refresh(session)
        parts = list(queries.chunks(passages, batch_size))
        for part in get_tqdm_iterable(parts, show_progress, "Writing passages"):
            yield from writing.write(
                session, self.indices, part, embeddings=embeddings, names=names, new=new
            )
        yield from self._refresh(session)

    def _deleting(self, session: Session, field: str, values: Sequence[str]) -> Process[int]:
        if isinstance(values, str):
            raise GraphRAGTypeError(f"ids is a list of strings, got the string {values!r:.100}")
        named = [value for value in values if value]
        removed = yield from writing.remove(session, self.indices, field, named)
        yield from self._refresh(session)
        return removed

    def _refresh(self, session: Session) -> Process[object]:
        return session.call("indices.refresh", index=list(self.indices))

    def as_retriever(
        self,
        *,
        mode: Literal["text", "vector"] = "text",
        similarity_top_k: int = 5,
        embed_model: BaseEmbedding | None = None,
    ) -> ElasticsearchRetriever:
        """Return a plain retriever over the passages.

        Parameters
        ----------
        mode
            ``"text"`` (default) for BM25, ``"vector"`` for kNN over the nodes' embeddings.
        similarity_top_k
            Passages returned. Default 5.
        embed_model
            Embeds the question in mode ``"vector"``; default ``Settings.embed_model``.
        """
        return ElasticsearchRetriever(
            self, mode=mode, similarity_top_k=similarity_top_k, embed_model=embed_model
        )
