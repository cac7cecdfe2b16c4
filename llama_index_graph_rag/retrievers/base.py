"""What GraphRAGRetriever and RelationRetriever share: a query over one store, sync and async."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Any, TypeVar

from llama_index.core import Settings
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.prompts.mixin import PromptMixin, PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores import MetadataFilters
from llama_index_instrumentation import get_dispatcher

from llama_index_graph_rag.checks import EMBED_MODEL, instance
from llama_index_graph_rag.errors import GraphRAGTypeError
from llama_index_graph_rag.explanation import Explaining
from llama_index_graph_rag.extractors.query import (
    EntityExtractor,
    NameFunction,
    as_entity_extractor,
)
from llama_index_graph_rag.extractors.vocabulary import VocabularyEntityExtractor
from llama_index_graph_rag.graph.ranking import DEFAULT_RANKING, Ranking, get_ranking
from llama_index_graph_rag.identity import clean_text
from llama_index_graph_rag.query_state import GraphRAGTrace
from llama_index_graph_rag.retrievers.options import QueryOptions
from llama_index_graph_rag.retrievers.query import GraphQuery
from llama_index_graph_rag.retrievers.recall import Recaller
from llama_index_graph_rag.steps import Process, adrive, drive
from llama_index_graph_rag.stores.base import GraphIndexStore
from llama_index_graph_rag.trace import RetrievalTraceEvent

logger = logging.getLogger("llama_index_graph_rag")
dispatcher = get_dispatcher(__name__)

T = TypeVar("T")

VOCABULARY = VocabularyEntityExtractor()
"""The default extractor: no LLM, and what it builds of a graph is kept per graph."""


class GraphStoreRetriever(Explaining, BaseRetriever):
    """Base: turns a query into a process over the store and runs it, sync or async.

    A subclass writes `_process`. No state is kept between calls.
    """

    def __init__(
        self,
        store: GraphIndexStore,
        *,
        entity_extractor: EntityExtractor | NameFunction | None = VOCABULARY,
        embed_model: BaseEmbedding | None = None,
        ranking: str | Ranking = DEFAULT_RANKING,
        filters: MetadataFilters | None = None,
        options: QueryOptions,
        callback_manager: CallbackManager | None = None,
        object_map: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        instance("embed_model", embed_model, BaseEmbedding, EMBED_MODEL)
        instance("filters", filters, MetadataFilters, "give MetadataFilters")
        if not isinstance(store, GraphIndexStore):
            raise GraphRAGTypeError(
                f"store={repr(store)[:80]} is a {type(store).__name__}, not a GraphIndexStore; "
                "give index.store, or a MilvusGraphStore"
            )
        self._store = store
        self._embed_model = embed_model
        self._query = GraphQuery(
            Recaller(
                store,
                self._resolved_embed_model,
                as_entity_extractor(entity_extractor),
                options,
                filters,
            ),
            get_ranking(ranking),
        )
        super().__init__(callback_manager=callback_manager, object_map=object_map, verbose=verbose)

    def _resolved_embed_model(self) -> BaseEmbedding:
        # Settings.embed_model raises without a key: ask for it when it is needed, not before.
        return self._embed_model or Settings.embed_model

    @property
    def store(self) -> GraphIndexStore:
        """The store that is asked."""
        return self._store

    def _get_prompt_modules(self) -> PromptMixinType:
        extractor = self._query.recaller.entity_extractor
        return {"entity_extractor": extractor} if isinstance(extractor, PromptMixin) else {}

    @abstractmethod
    def _process(self, bundle: QueryBundle, trace: GraphRAGTrace) -> Process[list[NodeWithScore]]:
        """Return the nodes of one question."""

    def retrieve_with_trace(self, query: QueryType) -> tuple[list[NodeWithScore], GraphRAGTrace]:
        """Return what `retrieve` does, and the record of how it came about."""
        bundle, trace = _asked(query)
        return drive(self._run(bundle, trace)), trace

    async def aretrieve_with_trace(
        self, query: QueryType
    ) -> tuple[list[NodeWithScore], GraphRAGTrace]:
        """Async twin of `retrieve_with_trace`."""
        bundle, trace = _asked(query)
        return await adrive(self._run(bundle, trace)), trace

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.retrieve_with_trace(query_bundle)[0]

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return (await self.aretrieve_with_trace(query_bundle))[0]

    def _run(self, bundle: QueryBundle, trace: GraphRAGTrace) -> Process[list[NodeWithScore]]:
        nodes: list[NodeWithScore] = []
        with trace.timed("total"):
            if not trace.question:
                trace.fallbacks.append("the question is empty: nothing was asked")
            elif not self._store.snapshot().stats()["passages"]:
                trace.fallbacks.append("the index is empty: nothing to find")
            else:
                nodes = yield from self._process(bundle, trace)
        for line in trace.fallbacks:
            # A model that fails for months must not go unnoticed.
            of_a_model = line.startswith(("relation rerank", "query entities"))
            logger.log(
                logging.WARNING if of_a_model else logging.INFO, "%s: %s", type(self).__name__, line
            )
        dispatcher.event(RetrievalTraceEvent(trace=trace))
        return nodes


def _asked(query: QueryType) -> tuple[QueryBundle, GraphRAGTrace]:
    bundle = query if isinstance(query, QueryBundle) else QueryBundle(query)
    return bundle, GraphRAGTrace(question=clean_text(bundle.query_str).strip())
