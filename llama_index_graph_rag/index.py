"""GraphRAGIndex: build, update, delete, reopen and ask."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_index.core import Settings
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.chat_engine.types import BaseChatEngine, ChatMode
from llama_index.core.data_structs.data_structs import IndexDict
from llama_index.core.indices.base import BaseIndex
from llama_index.core.llms import LLM
from llama_index.core.llms.utils import LLMType, resolve_llm
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.core.storage.docstore.types import RefDocInfo

from llama_index_graph_rag.errors import GraphRAGTypeError, StoreError
from llama_index_graph_rag.extractors.node_triplets import triplets_from_node
from llama_index_graph_rag.retrievers.connection import ConnectionRetriever
from llama_index_graph_rag.retrievers.graph_rag import GraphRAGRetriever
from llama_index_graph_rag.steps import Process, adrive, call, drive
from llama_index_graph_rag.stores.base import GraphIndexStore, GraphReader
from llama_index_graph_rag.stores.milvus import MilvusGraphStore
from llama_index_graph_rag.writing import PROBE_TEXT, Writer, WriteReport, prepare_all

if TYPE_CHECKING:
    from llama_index.core.vector_stores.types import BasePydanticVectorStore

logger = logging.getLogger("llama_index_graph_rag")

_RETRIEVER_OPTIONS = frozenset(inspect.signature(GraphRAGRetriever).parameters) - {"store", "llm"}
SAME_LLM = "same"
"""For `as_query_engine(rerank_llm=...)`: the LLM that synthesises also reranks."""


class GraphRAGIndex(BaseIndex[IndexDict]):
    """An index of passages and of the graph of their triplets, kept in a store.

    Build one with `from_triplets`, open one with `from_existing`; the constructor takes a store
    that is open already.

    Parameters
    ----------
    store
        Where the index is kept.
    embed_model
        Embeds passages, entities, relations and questions. Default: ``Settings.embed_model``.
    transformations
        What turns documents into passages. Default: ``Settings.transformations``.
    show_progress
        Whether long work shows progress bars. Default False.

    Attributes
    ----------
    report
        What came of the last write of this object.

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

    index_struct_cls = IndexDict

    def __init__(
        self,
        store: GraphIndexStore,
        *,
        embed_model: BaseEmbedding | None = None,
        transformations: list[TransformComponent] | None = None,
        show_progress: bool = False,
    ) -> None:
        self._store = store
        self._embed_model = embed_model
        self._given_transformations = transformations
        self._model_checked = False
        self.report = WriteReport()
        # BaseIndex resolves Settings.transformations here, which needs no key.
        super().__init__(
            index_struct=IndexDict(),
            transformations=transformations,
            show_progress=show_progress,
        )

    # --- making one -----------------------------------------------------------------------------

    @classmethod
    def from_triplets(
        cls,
        nodes: Sequence[BaseNode],
        triplets: Sequence[Sequence[object]],
        *,
        uri: str | Path = "./graph_rag.db",
        collection_prefix: str = "graph_rag",
        embed_model: BaseEmbedding | None = None,
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
        embed_model
            Default: ``Settings.embed_model``.
        show_progress
            Whether to show a progress bar.

        Raises
        ------
        GraphRAGError
            If a node or triplet cannot be stored; nothing has been written then.
        StoreError
            If Milvus cannot be reached or the index was built with another model.
        """
        index = cls._opened(uri, collection_prefix, embed_model, show_progress, store_options)
        drive(index._first_write(nodes, triplets))
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
        show_progress: bool = False,
        **store_options: Any,
    ) -> GraphRAGIndex:
        """Async twin of `from_triplets`."""
        index = cls._opened(uri, collection_prefix, embed_model, show_progress, store_options)
        await adrive(index._first_write(nodes, triplets))
        return index

    @classmethod
    def from_existing(
        cls,
        uri: str | Path = "./graph_rag.db",
        *,
        collection_prefix: str = "graph_rag",
        embed_model: BaseEmbedding | None = None,
        show_progress: bool = False,
        **store_options: Any,
    ) -> GraphRAGIndex:
        """Open an index.

        Where an embedding model is given, or set in Settings, one text is embedded to tell
        whether it is the model that the index was built with.

        Raises
        ------
        StoreError
            If there is no index, or it was built with another embedding model.
        """
        if "://" not in str(uri) and not Path(uri).expanduser().exists():
            raise StoreError(f"there is no {str(uri)!r}; check uri, or build an index there first")
        index = cls._opened(uri, collection_prefix, embed_model, show_progress, store_options)
        try:
            index._require()
            # The private attribute: the property would make a default model, which needs a key.
            if embed_model is not None or Settings._embed_model is not None:
                drive(index._check_model())
        except Exception:
            index.close()
            raise
        return index

    @classmethod
    def _opened(
        cls,
        uri: str | Path,
        collection_prefix: str,
        embed_model: BaseEmbedding | None,
        show_progress: bool,
        store_options: Mapping[str, Any],
    ) -> GraphRAGIndex:
        store = MilvusGraphStore(uri, collection_prefix=collection_prefix, **store_options)
        return cls(store, embed_model=embed_model, show_progress=show_progress)

    def _first_write(
        self, nodes: Sequence[BaseNode], triplets: Sequence[Sequence[object]]
    ) -> Process[None]:
        try:
            yield from self._write(nodes, triplets)
        except Exception:
            self.close()
            raise

    def _check_model(self) -> Process[None]:
        model = self._resolved_embed_model()
        probe = yield from call(model.get_text_embedding, model.aget_text_embedding, PROBE_TEXT)
        name = model.model_name
        yield from call(
            self._store.create, self._store.acreate, len(probe), embedding_model=name, probe=probe
        )
        self._model_checked = True

    def _require(self) -> None:
        if not self._store.dimension:
            raise StoreError(
                f"{self._store!r} holds no index; check uri and collection_prefix, or build one "
                "with GraphRAGIndex.from_triplets or from_documents"
            )

    def _resolved_embed_model(self) -> BaseEmbedding:
        return self._embed_model or Settings.embed_model

    # --- writing --------------------------------------------------------------------------------

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
        if invalid:
            logger.warning(
                "%d triplets left out, the first %r: %s; index.report.invalid lists them",
                len(invalid),
                invalid[0].triplet,
                invalid[0].reason,
            )
        if not self._model_checked:
            yield from self._check_model()
        writer = Writer(self._store, self._resolved_embed_model)
        yield from writer.write(passages, self.report, show_progress=self._show_progress)
        yield from call(self._store.flush, self._store.aflush)

    def insert_nodes(self, nodes: Sequence[BaseNode], **insert_kwargs: Any) -> None:
        """Add passages with the triplets that an extractor left on them, if any."""
        self._insert(nodes, **insert_kwargs)

    async def ainsert_nodes(self, nodes: Sequence[BaseNode], **insert_kwargs: Any) -> None:
        """Async twin of `insert_nodes`."""
        await self.ainsert_triplets(nodes, [triplets_from_node(node).triplets for node in nodes])

    def _insert(self, nodes: Sequence[BaseNode], **insert_kwargs: Any) -> None:
        self.insert_triplets(nodes, [triplets_from_node(node).triplets for node in nodes])

    def _build_index_from_nodes(self, nodes: Sequence[BaseNode], **build_kwargs: Any) -> IndexDict:
        self._insert(nodes)
        return IndexDict()

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
        self._store.delete_documents([ref_doc_id])

    async def adelete_ref_doc(
        self, ref_doc_id: str, delete_from_docstore: bool = False, **delete_kwargs: Any
    ) -> None:
        """Async twin of `delete_ref_doc`."""
        await self._store.adelete_documents([ref_doc_id])

    # --- reading --------------------------------------------------------------------------------

    @property
    def store(self) -> GraphIndexStore:
        """The store that holds the index."""
        return self._store

    @property
    def passage_vector_store(self) -> BasePydanticVectorStore:
        """LlamaIndex's own vector store over the same passages: plain vector RAG."""
        return self._store.passage_vector_store()

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

    def as_retriever(self, **kwargs: Any) -> GraphRAGRetriever:
        """Return a GraphRAGRetriever over this index; options as for its constructor.

        ``llm=None``, the default, means that no LLM is used when a question is asked.
        """
        kwargs.setdefault("embed_model", self._embed_model)
        return GraphRAGRetriever(self._store, **kwargs)

    def as_connection_retriever(self, **kwargs: Any) -> ConnectionRetriever:
        """Return a ConnectionRetriever over this index; options as for its constructor."""
        if not isinstance(self._store, GraphReader):
            raise GraphRAGTypeError(
                f"{type(self._store).__name__} is not a GraphReader and cannot be walked; use "
                "MilvusGraphStore, or implement GraphReader"
            )
        return ConnectionRetriever(self._store, **kwargs)

    def as_query_engine(
        self,
        llm: LLMType | None = None,
        *,
        rerank_llm: LLM | str | None = SAME_LLM,
        **kwargs: Any,
    ) -> BaseQueryEngine:
        """Return a query engine over `as_retriever`.

        Parameters
        ----------
        llm
            Writes the answer. Default: ``Settings.llm``.
        rerank_llm
            Chooses among the relations. Default: the same LLM; None turns the choice off.
        **kwargs
            Options of GraphRAGRetriever and of ``RetrieverQueryEngine.from_args``.
        """
        from llama_index.core.query_engine import RetrieverQueryEngine

        resolved = resolve_llm(llm) if llm else Settings.llm
        retriever, rest = self._retriever_for(resolved, rerank_llm, kwargs)
        return RetrieverQueryEngine.from_args(retriever, llm=resolved, **rest)

    def as_chat_engine(
        self,
        chat_mode: ChatMode = ChatMode.BEST,
        llm: LLMType | None = None,
        *,
        rerank_llm: LLM | str | None = SAME_LLM,
        **kwargs: Any,
    ) -> BaseChatEngine:
        """Return a chat engine over `as_retriever`; options as for `as_query_engine`."""
        from llama_index.core.chat_engine import (
            CondensePlusContextChatEngine,
            CondenseQuestionChatEngine,
            ContextChatEngine,
            SimpleChatEngine,
        )

        resolved = resolve_llm(llm) if llm else Settings.llm
        if chat_mode == ChatMode.SIMPLE:
            return SimpleChatEngine.from_defaults(llm=resolved, **kwargs)
        if chat_mode == ChatMode.CONDENSE_QUESTION:
            engine = self.as_query_engine(resolved, rerank_llm=rerank_llm, **kwargs)
            return CondenseQuestionChatEngine.from_defaults(
                query_engine=engine, llm=resolved, **kwargs
            )
        retriever, rest = self._retriever_for(resolved, rerank_llm, kwargs)
        if chat_mode == ChatMode.CONTEXT:
            return ContextChatEngine.from_defaults(retriever=retriever, llm=resolved, **rest)
        if chat_mode in (ChatMode.CONDENSE_PLUS_CONTEXT, ChatMode.BEST):
            return CondensePlusContextChatEngine.from_defaults(
                retriever=retriever, llm=resolved, **rest
            )
        raise GraphRAGTypeError(
            f"chat_mode={chat_mode!r} is not supported; use 'context', 'condense_question', "
            "'condense_plus_context' or 'simple', or wrap the query engine in a tool for an agent"
        )

    def _retriever_for(
        self, llm: LLM, rerank_llm: LLM | str | None, kwargs: dict[str, Any]
    ) -> tuple[GraphRAGRetriever, dict[str, Any]]:
        options = _only(kwargs, _RETRIEVER_OPTIONS)
        if options.get("relation_reranker") is None:
            chooser = llm if rerank_llm == SAME_LLM else rerank_llm
            options["llm"] = None if chooser is None else resolve_llm(chooser)
        rest = {key: value for key, value in kwargs.items() if key not in options}
        return self.as_retriever(**options), rest


def _only(kwargs: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if key in names}


def _ids(node_ids: Sequence[str]) -> Sequence[str]:
    if isinstance(node_ids, str):
        raise GraphRAGTypeError(f"node_ids={node_ids!r} is one string; give a list of ids")
    return node_ids
