"""GraphRAGIndex: build, update, delete, reopen and ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from llama_index.core import Settings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.graph_stores.types import PropertyGraphStore
from llama_index.core.indices.property_graph import PropertyGraphIndex
from llama_index.core.llms import LLM
from llama_index.core.schema import BaseNode, Document, TransformComponent

from llama_index_graph_rag.asking import AskableIndex
from llama_index_graph_rag.errors import StoreError
from llama_index_graph_rag.extractors.resolver import EntityResolver
from llama_index_graph_rag.property_graph_import import read_property_graph
from llama_index_graph_rag.steps import Process, adrive, drive
from llama_index_graph_rag.stores.milvus import MilvusGraphStore
from llama_index_graph_rag.triplets import InvalidTriplet

logger = logging.getLogger("llama_index_graph_rag")

T = TypeVar("T")


class GraphRAGIndex(AskableIndex):
    """An index of passages and of the graph of their triplets, kept in a store.

    Build one with `from_documents` or `from_triplets`, open one with `from_existing`; the
    constructor takes a store that is open already.

    Parameters
    ----------
    store
        Where the index is kept.
    embed_model
        Embeds passages, entities, relations and questions. Default: ``Settings.embed_model``.
    llm
        Reads triplets out of passages; never used to answer a question. Default: for documents
        ``Settings.llm``, looked up when the first passage is to be read; for nodes none.
    triplet_extractor
        Reads them instead: a `TripletExtractor`, or any transform that leaves triplets on nodes.
    entity_resolver
        A callable from names to the names that replace them; applied to what is written.
    transformations
        What turns documents into passages. Default: ``Settings.transformations``.
    num_workers
        Calls of the LLM, and of the embedding model, in flight. Default 4.
    show_progress
        Whether long work shows progress bars. Default False.

    Attributes
    ----------
    report
        What came of the last write of this object, see `WriteReport`.

    Raises
    ------
    GraphRAGValueError
        If `num_workers` is under 1.

    Examples
    --------
    >>> from llama_index.core import MockEmbedding
    >>> from llama_index.core.schema import TextNode
    >>> import tempfile
    >>> index = GraphRAGIndex.from_triplets(
    ...     [TextNode(text="Euler was a student of Johann Bernoulli.", id_="p1")],
    ...     [[("Euler", "was a student of", "Johann Bernoulli")]],
    ...     uri=tempfile.mkdtemp() + "/demo.db", embed_model=MockEmbedding(8),
    ... )
    >>> index.stats()["entities"]
    2
    >>> index.delete_nodes(["p1"])
    >>> index.stats()["relations"], index.stats()["orphan_entities"]
    (0, 0)
    >>> index.close()
    """

    # --- making one -----------------------------------------------------------------------------

    @classmethod
    def from_documents(  # type: ignore[override]
        cls,
        documents: Sequence[Document],
        *,
        uri: str | Path = "./graph_rag.db",
        collection_prefix: str = "graph_rag",
        llm: LLM | None = None,
        triplet_extractor: TransformComponent | None = None,
        embed_model: BaseEmbedding | None = None,
        entity_resolver: EntityResolver | None = None,
        transformations: list[TransformComponent] | None = None,
        num_workers: int = 4,
        show_progress: bool = False,
        **store_options: Any,
    ) -> GraphRAGIndex:
        """Build an index from documents, or bring one that exists up to date with them.

        Passages are committed a few at a time. A run that was broken off is finished by calling
        this again: what is committed is neither read by the LLM nor embedded twice. A passage on
        which the LLM fails is stored without triplets, listed in ``index.report.failures``, and
        read again by the next call.

        Parameters
        ----------
        documents
            Documents, with ids of their own; random ids cannot be recognised by a later run.
        uri, collection_prefix, **store_options
            As for `MilvusGraphStore`.
        llm, triplet_extractor, embed_model, entity_resolver, transformations, num_workers
            As for the constructor.
        show_progress
            Whether to show a progress bar.

        Raises
        ------
        GraphRAGError
            If a document cannot be stored; what was committed before stays.
        StoreError
            If Milvus cannot be reached or the index was built with another model.

        Examples
        --------
        >>> import tempfile
        >>> from llama_index.core import Document, MockEmbedding
        >>> from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
        >>> index = GraphRAGIndex.from_documents(
        ...     [Document(text="Euler was a student of Johann Bernoulli.", id_="euler")],
        ...     uri=tempfile.mkdtemp() + "/demo.db", embed_model=MockEmbedding(8),
        ...     llm=ScriptedLLM('[["Euler", "was a student of", "Johann Bernoulli"]]'),
        ... )
        >>> index.stats()["relations"], index.report.usage.calls
        (1, 1)
        >>> index.close()
        """
        index = cls._opened(
            uri,
            collection_prefix,
            store_options,
            llm=llm,
            triplet_extractor=triplet_extractor,
            embed_model=embed_model,
            entity_resolver=entity_resolver,
            transformations=transformations,
            num_workers=num_workers,
            show_progress=show_progress,
        )
        drive(index._or_closed(index._add_documents(documents)))
        return index

    @classmethod
    async def afrom_documents(
        cls,
        documents: Sequence[Document],
        *,
        uri: str | Path = "./graph_rag.db",
        collection_prefix: str = "graph_rag",
        llm: LLM | None = None,
        triplet_extractor: TransformComponent | None = None,
        embed_model: BaseEmbedding | None = None,
        entity_resolver: EntityResolver | None = None,
        transformations: list[TransformComponent] | None = None,
        num_workers: int = 4,
        show_progress: bool = False,
        **store_options: Any,
    ) -> GraphRAGIndex:
        """Async twin of `from_documents`."""
        index = cls._opened(
            uri,
            collection_prefix,
            store_options,
            llm=llm,
            triplet_extractor=triplet_extractor,
            embed_model=embed_model,
            entity_resolver=entity_resolver,
            transformations=transformations,
            num_workers=num_workers,
            show_progress=show_progress,
        )
        await adrive(index._or_closed(index._add_documents(documents)))
        return index

    @classmethod
    def from_triplets(
        cls,
        nodes: Sequence[BaseNode],
        triplets: Sequence[Sequence[object]],
        *,
        uri: str | Path = "./graph_rag.db",
        collection_prefix: str = "graph_rag",
        embed_model: BaseEmbedding | None = None,
        entity_resolver: EntityResolver | None = None,
        num_workers: int = 4,
        show_progress: bool = False,
        **store_options: Any,
    ) -> GraphRAGIndex:
        """Build an index from passages and their triplets, or add them to one that exists.

        Passages that are there already with the same content cost nothing, so that a build that
        was broken off is finished by calling it again.

        Parameters
        ----------
        nodes
            Passages.
        triplets
            ``triplets[i]`` are those of ``nodes[i]``: (subject, predicate, object) each.
        uri, collection_prefix, **store_options
            As for `MilvusGraphStore`.
        embed_model, entity_resolver, num_workers
            As for the constructor.
        show_progress
            Whether to show a progress bar.

        Raises
        ------
        GraphRAGError
            If a node or triplet cannot be stored; nothing has been written then.
        StoreError
            If Milvus cannot be reached or the index was built with another model.
        """
        index = cls._opened(
            uri,
            collection_prefix,
            store_options,
            embed_model=embed_model,
            entity_resolver=entity_resolver,
            num_workers=num_workers,
            show_progress=show_progress,
        )
        drive(index._or_closed(index._write(nodes, triplets)))
        return index

    @classmethod
    async def afrom_triplets(
        cls,
        nodes: Sequence[BaseNode],
        triplets: Sequence[Sequence[object]],
        *,
        uri: str | Path = "./graph_rag.db",
        collection_prefix: str = "graph_rag",
        embed_model: BaseEmbedding | None = None,
        entity_resolver: EntityResolver | None = None,
        num_workers: int = 4,
        show_progress: bool = False,
        **store_options: Any,
    ) -> GraphRAGIndex:
        """Async twin of `from_triplets`."""
        index = cls._opened(
            uri,
            collection_prefix,
            store_options,
            embed_model=embed_model,
            entity_resolver=entity_resolver,
            num_workers=num_workers,
            show_progress=show_progress,
        )
        await adrive(index._or_closed(index._write(nodes, triplets)))
        return index

    @classmethod
    def from_existing(
        cls,
        uri: str | Path = "./graph_rag.db",
        *,
        collection_prefix: str = "graph_rag",
        llm: LLM | None = None,
        triplet_extractor: TransformComponent | None = None,
        embed_model: BaseEmbedding | None = None,
        entity_resolver: EntityResolver | None = None,
        transformations: list[TransformComponent] | None = None,
        num_workers: int = 4,
        show_progress: bool = False,
        **store_options: Any,
    ) -> GraphRAGIndex:
        """Open an index.

        Where an embedding model is given, or set in Settings, one text is embedded to tell
        whether it is the model that the index was built with. The other options, as for the
        constructor, serve to add documents.

        Raises
        ------
        StoreError
            If there is no index, or it was built with another embedding model.
        """
        _require_file(uri)
        index = cls._opened(
            uri,
            collection_prefix,
            store_options,
            llm=llm,
            triplet_extractor=triplet_extractor,
            embed_model=embed_model,
            entity_resolver=entity_resolver,
            transformations=transformations,
            num_workers=num_workers,
            show_progress=show_progress,
        )
        drive(index._or_closed(index._open()))
        return index

    @classmethod
    async def afrom_existing(
        cls,
        uri: str | Path = "./graph_rag.db",
        *,
        collection_prefix: str = "graph_rag",
        llm: LLM | None = None,
        triplet_extractor: TransformComponent | None = None,
        embed_model: BaseEmbedding | None = None,
        entity_resolver: EntityResolver | None = None,
        transformations: list[TransformComponent] | None = None,
        num_workers: int = 4,
        show_progress: bool = False,
        **store_options: Any,
    ) -> GraphRAGIndex:
        """Async twin of `from_existing`."""
        _require_file(uri)
        index = cls._opened(
            uri,
            collection_prefix,
            store_options,
            llm=llm,
            triplet_extractor=triplet_extractor,
            embed_model=embed_model,
            entity_resolver=entity_resolver,
            transformations=transformations,
            num_workers=num_workers,
            show_progress=show_progress,
        )
        await adrive(index._or_closed(index._open()))
        return index

    @classmethod
    def from_property_graph_index(
        cls,
        pg_index: PropertyGraphIndex | PropertyGraphStore,
        *,
        uri: str | Path = "./graph_rag.db",
        collection_prefix: str = "graph_rag",
        embed_model: BaseEmbedding | None = None,
        entity_resolver: EntityResolver | None = None,
        num_workers: int = 4,
        show_progress: bool = False,
        **store_options: Any,
    ) -> GraphRAGIndex:
        """Build an index from what a PropertyGraphIndex, or its store, has extracted: no LLM.

        Triplets for which the property graph names no passage are left out and listed in
        ``index.report.invalid``.

        Parameters
        ----------
        pg_index
            Read, never changed.
        uri, collection_prefix, embed_model, entity_resolver, num_workers, **store_options
            As for `from_triplets`.
        show_progress
            Whether to show a progress bar.
        """
        found = read_property_graph(pg_index)
        index = cls.from_triplets(
            found.nodes,
            found.triplets,
            uri=uri,
            collection_prefix=collection_prefix,
            embed_model=embed_model,
            entity_resolver=entity_resolver,
            num_workers=num_workers,
            show_progress=show_progress,
            **store_options,
        )
        index._leave_out(found.unplaced)
        return index

    @classmethod
    async def afrom_property_graph_index(
        cls,
        pg_index: PropertyGraphIndex | PropertyGraphStore,
        *,
        uri: str | Path = "./graph_rag.db",
        collection_prefix: str = "graph_rag",
        embed_model: BaseEmbedding | None = None,
        entity_resolver: EntityResolver | None = None,
        num_workers: int = 4,
        show_progress: bool = False,
        **store_options: Any,
    ) -> GraphRAGIndex:
        """Async twin of `from_property_graph_index`."""
        found = await asyncio.to_thread(read_property_graph, pg_index)
        index = await cls.afrom_triplets(
            found.nodes,
            found.triplets,
            uri=uri,
            collection_prefix=collection_prefix,
            embed_model=embed_model,
            entity_resolver=entity_resolver,
            num_workers=num_workers,
            show_progress=show_progress,
            **store_options,
        )
        index._leave_out(found.unplaced)
        return index

    @classmethod
    def _opened(
        cls,
        uri: str | Path,
        collection_prefix: str,
        store_options: Mapping[str, Any],
        **index_options: Any,
    ) -> GraphRAGIndex:
        store = MilvusGraphStore(uri, collection_prefix=collection_prefix, **store_options)
        try:
            return cls(store, **index_options)
        except BaseException:
            store.close()
            raise

    def _or_closed(self, process: Process[T]) -> Process[T]:
        """Close the store if the first write fails: nobody gets hold of this object."""
        try:
            return (yield from process)
        except BaseException:
            self.close()
            raise

    def _leave_out(self, triplets: Sequence[tuple[str, str, str]]) -> None:
        reason = "the property graph names no passage that states it"
        self.report.invalid += [InvalidTriplet(triplet, reason) for triplet in triplets]
        if triplets:
            logger.warning("%d triplets left out: %s", len(triplets), reason)

    def _open(self) -> Process[None]:
        if not self._store.dimension:
            raise StoreError(
                f"{self._store!r} holds no index; check uri and collection_prefix, or build one "
                "with GraphRAGIndex.from_triplets or from_documents"
            )
        # The private attribute: the property would make a default model, which needs a key.
        if self._embed_model is not None or Settings._embed_model is not None:
            yield from self._check_model()


def _require_file(uri: str | Path) -> None:
    if "://" not in str(uri) and not Path(uri).expanduser().exists():
        raise StoreError(f"there is no {str(uri)!r}; check uri, or build an index there first")
