"""What an index of ours can be given, and how it is kept right: the base of GraphRAGIndex."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from llama_index.core import Settings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.data_structs.data_structs import IndexDict
from llama_index.core.indices.base import BaseIndex
from llama_index.core.llms import LLM
from llama_index.core.schema import BaseNode, Document, TransformComponent
from llama_index.core.storage.docstore.types import RefDocInfo

from llama_index_graph_rag.aliases import resolve_passages
from llama_index_graph_rag.checks import EMBED_MODEL, instance, whole_number
from llama_index_graph_rag.documents import Ingestion
from llama_index_graph_rag.errors import GraphRAGTypeError
from llama_index_graph_rag.estimate import Estimate
from llama_index_graph_rag.extractors.adapter import AdaptedExtractor, as_extractor
from llama_index_graph_rag.extractors.base import TripletExtractor
from llama_index_graph_rag.extractors.resolver import EntityResolver
from llama_index_graph_rag.extractors.triplets import LLMTripletExtractor
from llama_index_graph_rag.steps import Process, adrive, call, drive
from llama_index_graph_rag.stored import repair
from llama_index_graph_rag.stores.base import GraphIndexStore
from llama_index_graph_rag.writing import Writer, WriteReport, prepare_all

if TYPE_CHECKING:
    from llama_index_graph_rag.vector_store import GraphRAGVectorStore

logger = logging.getLogger("llama_index_graph_rag")


class UpdatableIndex(BaseIndex[IndexDict]):
    """Documents, nodes and triplets in; changes and deletions; care. See GraphRAGIndex."""

    index_struct_cls = IndexDict

    def __init__(
        self,
        store: GraphIndexStore,
        *,
        embed_model: BaseEmbedding | None = None,
        llm: LLM | None = None,
        triplet_extractor: TransformComponent | None = None,
        entity_resolver: EntityResolver | None = None,
        transformations: list[TransformComponent] | None = None,
        num_workers: int = 4,
        show_progress: bool = False,
    ) -> None:
        num_workers = whole_number("num_workers", num_workers)
        instance("embed_model", embed_model, BaseEmbedding, EMBED_MODEL)
        if entity_resolver is not None and not callable(entity_resolver):
            raise GraphRAGTypeError(
                f"entity_resolver is a {type(entity_resolver).__name__}; give a callable from a "
                "list of names to a dict of those to replace"
            )
        self._store = store
        self._embed_model = embed_model
        self._extractor: TripletExtractor | None = None
        if triplet_extractor is not None:
            self._extractor = as_extractor(triplet_extractor)
        elif llm is not None:
            self._extractor = LLMTripletExtractor(llm, num_workers=num_workers)
        self._resolver = entity_resolver
        self._num_workers = num_workers
        self._writer = Writer(store, self._resolved_embed_model, num_workers, check_model=True)
        self.report = WriteReport()
        # BaseIndex resolves Settings.transformations here, which needs no key.
        super().__init__(
            index_struct=IndexDict(),
            transformations=transformations,
            show_progress=show_progress,
        )

    # --- documents ------------------------------------------------------------------------------

    def insert(self, document: Document, **insert_kwargs: Any) -> None:
        """Add a document; one whose id is here is replaced, as by `update_ref_doc`."""
        self.refresh_ref_docs([document])

    async def ainsert(self, document: Document, **insert_kwargs: Any) -> None:
        """Async twin of `insert`."""
        await self.arefresh_ref_docs([document])

    def update_ref_doc(self, document: Document, **update_kwargs: Any) -> None:
        """Replace a document: new passages are written, then those that it has no more deleted.

        Passages that it still has stay, and cost nothing.
        """
        self.refresh_ref_docs([document])

    async def aupdate_ref_doc(self, document: Document, **update_kwargs: Any) -> None:
        """Async twin of `update_ref_doc`."""
        await self.arefresh_ref_docs([document])

    def refresh_ref_docs(self, documents: Sequence[Document], **update_kwargs: Any) -> list[bool]:
        """Add the documents that are new, replace those that have changed, complete the rest.

        What is here is known from the store, so that it does not matter which process wrote it.
        Passages are committed a few at a time; whatever ends a run, the next one takes it up.

        Parameters
        ----------
        documents
            Documents with ids of their own. Those not given stay as they are.

        Returns
        -------
        list of bool
            For each document, whether anything had to be written or deleted.

        Raises
        ------
        GraphRAGError
            If documents are given that cannot be stored.
        StoreError
            If the store fails; what is committed stays.
        """
        return drive(self._add_documents(documents))

    async def arefresh_ref_docs(
        self, documents: Sequence[Document], **update_kwargs: Any
    ) -> list[bool]:
        """Async twin of `refresh_ref_docs`."""
        return await adrive(self._add_documents(documents))

    @overload
    def refresh(self, documents: None = None) -> bool: ...

    @overload
    def refresh(self, documents: Sequence[Document], **update_kwargs: Any) -> list[bool]: ...

    def refresh(
        self, documents: Sequence[Document] | None = None, **update_kwargs: Any
    ) -> bool | list[bool]:
        """Take in what other writers wrote; return whether anything had changed.

        With documents it is LlamaIndex's old name of `refresh_ref_docs`.
        """
        if documents is None:
            return self._store.refresh()
        logger.warning("refresh(documents) is deprecated, use refresh_ref_docs(documents)")
        return self.refresh_ref_docs(documents, **update_kwargs)

    async def arefresh(self) -> bool:
        """Async twin of `refresh` without documents."""
        return await self._store.arefresh()

    def estimate(self, documents: Sequence[Document], **options: Any) -> Estimate:
        """Return what adding `documents` will cost: only what is not here yet is counted.

        Parameters
        ----------
        documents
            As for `refresh_ref_docs`; they are split, nothing is written.
        **options
            Prices and tokenizer, as for `llama_index_graph_rag.estimate.estimate`. The real
            figures are in ``index.report`` after the run.
        """
        return drive(self._estimate(documents, options))

    async def aestimate(self, documents: Sequence[Document], **options: Any) -> Estimate:
        """Async twin of `estimate`."""
        return await adrive(self._estimate(documents, options))

    def _estimate(
        self, documents: Sequence[Document], options: dict[str, Any]
    ) -> Process[Estimate]:
        extractor = self._extractor or LLMTripletExtractor()
        if isinstance(extractor, LLMTripletExtractor):
            options.setdefault("prompt", extractor.prompt)
            options.setdefault("max_triplets_per_passage", extractor.max_triplets_per_passage)
        if isinstance(extractor, (LLMTripletExtractor, AdaptedExtractor)):
            return (yield from self._ingestion(WriteReport()).estimate(documents, **options))
        for price in ("price_per_million_input", "price_per_million_output"):
            options.pop(price, None)
        found = yield from self._ingestion(WriteReport()).estimate(documents, **options)
        return replace(found, llm_calls=0, prompt_tokens=0, completion_tokens=0)  # no LLM in it

    def _add_documents(self, documents: Sequence[Document]) -> Process[list[bool]]:
        self.report = WriteReport()
        changed = yield from self._ingestion(self.report).add_documents(documents)
        yield from call(self._store.flush, self._store.aflush)
        self._log_report()
        return changed

    def _ingestion(self, report: WriteReport, *, by_default: bool = True) -> Ingestion:
        def extractor() -> TripletExtractor | None:
            if self._extractor is None and by_default:
                return LLMTripletExtractor(num_workers=self._num_workers)
            return self._extractor

        return Ingestion(
            self._writer,
            self._transformations,
            extractor,
            self._resolver,
            report,
            self._show_progress,
        )

    # --- nodes and triplets ---------------------------------------------------------------------

    def insert_triplets(
        self, nodes: Sequence[BaseNode], triplets: Sequence[Sequence[object]]
    ) -> None:
        """Add passages with their triplets; a passage whose id is there is replaced."""
        drive(self._write(nodes, triplets))

    async def ainsert_triplets(
        self, nodes: Sequence[BaseNode], triplets: Sequence[Sequence[object]]
    ) -> None:
        """Async twin of `insert_triplets`."""
        await adrive(self._write(nodes, triplets))

    def _write(
        self,
        nodes: Sequence[BaseNode],
        triplets: Sequence[Sequence[object]],
    ) -> Process[None]:
        passages, invalid = prepare_all(nodes, triplets)
        self.report = WriteReport(invalid=invalid)
        if self._resolver is not None:
            passages, self.report.aliases = resolve_passages(passages, self._resolver)
        yield from self._writer.write(passages, self.report, show_progress=self._show_progress)
        del passages  # a flush may need the memory
        yield from call(self._store.flush, self._store.aflush)
        self._log_report()

    def insert_nodes(self, nodes: Sequence[BaseNode], **insert_kwargs: Any) -> None:
        """Add passages with the triplets that an extractor left on them.

        Those that no extractor has seen are read if the index was given an `llm` or a
        `triplet_extractor`. Otherwise they are stored without triplets, and listed in
        ``index.report.failures``; given again to an index that has one, they are read.
        """
        drive(self._add_nodes(nodes))

    async def ainsert_nodes(self, nodes: Sequence[BaseNode], **insert_kwargs: Any) -> None:
        """Async twin of `insert_nodes`."""
        await adrive(self._add_nodes(nodes))

    def _insert(self, nodes: Sequence[BaseNode], **insert_kwargs: Any) -> None:
        self.insert_nodes(nodes)

    def _build_index_from_nodes(self, nodes: Sequence[BaseNode], **build_kwargs: Any) -> IndexDict:
        self.insert_nodes(nodes)
        return IndexDict()

    def _add_nodes(self, nodes: Sequence[BaseNode]) -> Process[None]:
        self.report = WriteReport()
        yield from self._ingestion(self.report, by_default=False).add_nodes(nodes)
        yield from call(self._store.flush, self._store.aflush)
        self._log_report()

    def as_vector_store(self) -> GraphRAGVectorStore:
        """Return this index as the target of an IngestionPipeline.

        Its strategies ``UPSERTS`` and ``UPSERTS_AND_DELETE`` work. Put an embedding model last
        among the transformations: pipelines hand over only nodes with embeddings.
        """
        from llama_index_graph_rag.vector_store import GraphRAGVectorStore

        return GraphRAGVectorStore(self)

    # --- deleting -------------------------------------------------------------------------------

    def delete_nodes(
        self, node_ids: list[str], delete_from_docstore: bool = False, **delete_kwargs: Any
    ) -> None:
        """Delete passages by id; unknown ids are no error."""
        self._store.delete_passages(_ids(node_ids))

    async def adelete_nodes(
        self, node_ids: list[str], delete_from_docstore: bool = False, **delete_kwargs: Any
    ) -> None:
        """Async twin of `delete_nodes`."""
        await self._store.adelete_passages(_ids(node_ids))

    def _delete_node(self, node_id: str, **delete_kwargs: Any) -> None:
        self.delete_nodes([node_id])

    def delete_ref_doc(
        self, ref_doc_id: str, delete_from_docstore: bool = False, **delete_kwargs: Any
    ) -> None:
        """Delete all passages of a document; an unknown one is no error."""
        self._store.delete_documents(_ids([ref_doc_id]))

    async def adelete_ref_doc(
        self, ref_doc_id: str, delete_from_docstore: bool = False, **delete_kwargs: Any
    ) -> None:
        """Async twin of `delete_ref_doc`."""
        await self._store.adelete_documents(_ids([ref_doc_id]))

    # --- care -----------------------------------------------------------------------------------

    def vacuum(self) -> dict[str, int]:
        """Remove relations that no passage holds and entities without a relation; return counts.

        On Milvus Lite it runs by itself. On a server, call it while no other process writes.
        """
        return self._store.vacuum()

    async def avacuum(self) -> dict[str, int]:
        """Async twin of `vacuum`."""
        return await self._store.avacuum()

    def repair(self) -> dict[str, int]:
        """Write entities and relations anew that passages state and the store lacks.

        Returns
        -------
        dict
            How many ``entities`` and ``relations`` were written.
        """
        return drive(repair(self._writer))

    async def arepair(self) -> dict[str, int]:
        """Async twin of `repair`."""
        return await adrive(repair(self._writer))

    # --- what it holds --------------------------------------------------------------------------

    @property
    def store(self) -> GraphIndexStore:
        """The store that holds the index."""
        return self._store

    @property
    def ref_doc_info(self) -> dict[str, RefDocInfo]:
        """The documents whose passages are here."""
        info: dict[str, RefDocInfo] = {}
        for page in self._store.scan_passages():
            for key in page:
                if key.ref_doc_id:
                    info.setdefault(key.ref_doc_id, RefDocInfo()).node_ids.append(key.id)
        return info

    def stats(self) -> dict[str, int]:
        """Return passages, entities, relations, orphan_entities and orphan_relations."""
        return self._store.stats()

    def close(self) -> None:
        """Let go of the store; a Milvus Lite file can then be opened by another process."""
        self._store.close()

    # --- within ---------------------------------------------------------------------------------

    def _resolved_embed_model(self) -> BaseEmbedding:
        return self._embed_model or Settings.embed_model

    def check_model(self) -> None:
        """Raise StoreError if the index was built with another embedding model: one embedding."""
        drive(self._check_model())

    def _check_model(self) -> Process[None]:
        self._writer.check_model = True
        yield from self._writer.begin(())

    def _log_report(self) -> None:
        report = self.report
        if report.invalid:
            logger.warning(
                "%d triplets left out, the first %r: %s; index.report.invalid lists them",
                len(report.invalid),
                report.invalid[0].triplet,
                report.invalid[0].reason,
            )
        if report.failures:
            logger.warning(
                "%d passages are stored without triplets, the first (%s) since %s; "
                "index.report.failures lists them, and the next run reads them again",
                len(report.failures),
                report.failures[0].node_id,
                report.failures[0].reason,
            )


def _ids(node_ids: Sequence[str]) -> Sequence[str]:
    if isinstance(node_ids, str):
        raise GraphRAGTypeError(f"node_ids={node_ids!r} is one string; give a list of ids")
    ids = list(node_ids) if isinstance(node_ids, Iterable) else [node_ids]
    for id in ids:
        if not isinstance(id, str):
            raise GraphRAGTypeError(f"{repr(id)[:80]} is no id: ids are strings")
    return ids
