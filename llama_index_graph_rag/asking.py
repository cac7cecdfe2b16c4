"""Retrievers and engines over an index of ours."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from llama_index.core import Settings
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.chat_engine.types import BaseChatEngine, ChatMode
from llama_index.core.llms import LLM
from llama_index.core.llms.utils import LLMType, resolve_llm

from llama_index_graph_rag.errors import GraphRAGTypeError
from llama_index_graph_rag.retrievers.connection import ConnectionRetriever
from llama_index_graph_rag.retrievers.graph_rag import GraphRAGRetriever
from llama_index_graph_rag.stores.base import GraphReader
from llama_index_graph_rag.updating import UpdatableIndex

if TYPE_CHECKING:
    from llama_index.core.vector_stores.types import BasePydanticVectorStore
    from networkx import MultiDiGraph

_RETRIEVER_OPTIONS = frozenset(inspect.signature(GraphRAGRetriever).parameters) - {"store", "llm"}
SAME_LLM = "same"
"""For `as_query_engine(rerank_llm=...)`: the LLM that synthesises also reranks."""


class AskableIndex(UpdatableIndex):
    """Questions to an index. See GraphRAGIndex."""

    @cached_property
    def passage_vector_store(self) -> BasePydanticVectorStore:
        """LlamaIndex's own vector store over the same passages: plain vector RAG. One an index."""
        return self._store.passage_vector_store()

    def to_networkx(self) -> MultiDiGraph[str]:
        """Return the graph that the passages state, for networkx.

        Nodes are entities by name, with ``id``. Edges are relations, keyed by their ids, with
        ``predicate`` and ``passages``, the ids of those that state them. All passages are read.

        Examples
        --------
        >>> from llama_index_graph_rag import GraphRAGIndex
        >>> from llama_index_graph_rag.demo import load_demo
        >>> from llama_index.core import MockEmbedding
        >>> import networkx, tempfile
        >>> demo = load_demo()
        >>> index = GraphRAGIndex.from_triplets(
        ...     demo.nodes, demo.triplets, uri=tempfile.mkdtemp() + "/demo.db",
        ...     embed_model=MockEmbedding(8),
        ... )
        >>> graph = index.to_networkx()
        >>> networkx.shortest_path(graph.to_undirected(), "Gabriel Cramer", "Leonhard Euler")
        ['Gabriel Cramer', 'Johann Bernoulli', 'Leonhard Euler']
        >>> index.close()
        """
        from llama_index_graph_rag.visualize.networkx_graph import graph_of_store

        graph: MultiDiGraph[str] = graph_of_store(self._store)
        return graph

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
        _check_options(rest, RetrieverQueryEngine.from_args)
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
            from llama_index.core.query_engine import RetrieverQueryEngine

            makers = RetrieverQueryEngine.from_args, CondenseQuestionChatEngine.from_defaults
            _check_options(kwargs, *makers)
            of_engine = frozenset(inspect.signature(makers[0]).parameters) | _RETRIEVER_OPTIONS
            engine = self.as_query_engine(
                resolved, rerank_llm=rerank_llm, **_only(kwargs, of_engine)
            )
            return CondenseQuestionChatEngine.from_defaults(
                query_engine=engine, llm=resolved, **kwargs
            )
        retriever, rest = self._retriever_for(resolved, rerank_llm, kwargs)
        if chat_mode == ChatMode.CONTEXT:
            _check_options(rest, ContextChatEngine.from_defaults)
            return ContextChatEngine.from_defaults(retriever=retriever, llm=resolved, **rest)
        if chat_mode in (ChatMode.CONDENSE_PLUS_CONTEXT, ChatMode.BEST):
            _check_options(rest, CondensePlusContextChatEngine.from_defaults)
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


def _check_options(options: Mapping[str, object], *factories: Callable[..., object]) -> None:
    """Raise for options that nobody takes: the engines would swallow a misspelled one."""
    known = set(_RETRIEVER_OPTIONS).union(
        *(inspect.signature(factory).parameters for factory in factories)
    )
    for name in options.keys() - known:
        near = difflib.get_close_matches(name, sorted(known), 1)
        remedy = f"did you mean {near[0]!r}?" if near else f"take {', '.join(sorted(known))}"
        raise GraphRAGTypeError(f"unknown option {name!r}; {remedy}")


def _only(kwargs: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if key in names}
