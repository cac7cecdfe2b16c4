"""RelationsToPassages: from relation nodes to the passages that state them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores import MetadataFilters
from llama_index_instrumentation import get_dispatcher
from pydantic import ConfigDict, PrivateAttr

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.select import passages_of_relation
from llama_index_graph_rag.query_state import QueryState, RelationNodeWithScore
from llama_index_graph_rag.steps import Process, adrive, call, drive
from llama_index_graph_rag.stores.base import GraphIndexStore, StoredPassage
from llama_index_graph_rag.trace import GraphNodeWithScore, RelationUse

logger = logging.getLogger("llama_index_graph_rag")
dispatcher = get_dispatcher(__name__)


class RelationsToPassages(BaseNodePostprocessor):
    """Turns chosen relation nodes into passages, and fills up with the question's ranking.

    Parameters
    ----------
    store
        The store that the relations came from.
    similarity_top_k
        Passages to return. Default: as many as the retriever was asked for, or 5.
    max_passages_per_relation
        Passages that one relation may bring where the question's state is lost. Default 2.
    filters
        The retriever's filters, for where the question's state is lost: without it nothing else
        says which passages are permitted.

    Raises
    ------
    GraphRAGValueError
        If a number is less than 1.

    Notes
    -----
    The relation nodes of a RelationRetriever carry the state of their question. Where another
    postprocessor rebuilt the nodes, that is lost: relations still become passages, in their
    order, without the fill, and a warning says so. No call to Milvus in the first case (one where
    `similarity_top_k` is more than the retriever's, or relations of several questions are mixed,
    as by fusion: the first one's state serves all), one in the second.

    Examples
    --------
    >>> from llama_index_graph_rag.stores.milvus import MilvusGraphStore
    >>> import tempfile
    >>> store = MilvusGraphStore(tempfile.mkdtemp() + "/demo.db")
    >>> RelationsToPassages(store).postprocess_nodes([])
    []
    >>> store.close()
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    similarity_top_k: int | None = None
    max_passages_per_relation: int = 2
    filters: MetadataFilters | None = None
    _store: GraphIndexStore = PrivateAttr()

    def __init__(self, store: GraphIndexStore, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name in ("similarity_top_k", "max_passages_per_relation"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise GraphRAGValueError(f"{name}={value} must be at least 1")
        self._store = store

    @classmethod
    def class_name(cls) -> str:
        """Name of the class."""
        return "RelationsToPassages"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return drive(self._process(nodes))

    @dispatcher.span
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return await adrive(self._process(nodes))

    def _process(self, nodes: Sequence[NodeWithScore]) -> Process[list[NodeWithScore]]:
        if not nodes:
            return []
        state = next(
            (node.state for node in nodes if isinstance(node, RelationNodeWithScore)), None
        )
        if state is None:
            return (yield from self._without_state(nodes))
        return (yield from self._with_state(nodes, state))

    def _with_state(
        self, nodes: Sequence[NodeWithScore], state: QueryState
    ) -> Process[list[NodeWithScore]]:
        if any(isinstance(node, RelationNodeWithScore) and node.undecided for node in nodes):
            chosen: list[int] = []
        else:
            ids = [node.node.node_id for node in nodes]
            chosen = []
            for id, row in zip(ids, state.graph.relation_rows(ids).tolist()):
                if row >= 0:
                    chosen.append(row)
                else:
                    state.trace.dropped.append(f"node {id!r} is no relation of the store")
        selected = state.select(chosen, self.similarity_top_k)
        # All are there already, unless more are wanted or questions are mixed.
        yield from state.fetch(self._store, [item.row for item in selected])
        return state.nodes(selected)

    def _without_state(self, nodes: Sequence[NodeWithScore]) -> Process[list[NodeWithScore]]:
        logger.warning(
            "RelationsToPassages: the relation nodes were rebuilt on the way and have lost their "
            "question's state; their passages are returned without filling up, and its filters "
            "are those given here, if any"
        )
        graph = self._store.snapshot()
        permitted = None
        if self.filters is not None and self.filters.filters:
            ids = yield from call(self._store.permitted, self._store.apermitted, self.filters)
            permitted = np.zeros(graph.n_passages, dtype=np.bool_)
            known = graph.passage_rows(sorted(ids))
            permitted[known[known >= 0]] = True
        texts = {node.node.node_id: node.node.get_content() for node in nodes}
        wanted: dict[int, str] = {}
        for id, relation in zip(texts, graph.relation_rows(list(texts)).tolist()):
            if relation < 0:
                logger.warning("RelationsToPassages: node %r is no relation of the store", id)
                continue
            limit = self.max_passages_per_relation
            for row in passages_of_relation(graph, relation, {}, limit=limit, permitted=permitted):
                wanted.setdefault(row, id)
        rows = list(wanted)[: self.similarity_top_k or 5]
        passage_ids = graph.passage_ids(rows)
        passages: list[StoredPassage] = yield from call(
            self._store.get_passages, self._store.aget_passages, passage_ids
        )
        brought_by = dict(zip(passage_ids, (wanted[row] for row in rows)))
        return [
            GraphNodeWithScore(
                node=passage.node,
                score=1 / (1 + place),
                relations=(
                    RelationUse(
                        brought_by[passage.node.node_id],
                        texts[brought_by[passage.node.node_id]],
                        1.0,
                    ),
                ),
            )
            for place, passage in enumerate(passages)
        ]
