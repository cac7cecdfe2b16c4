"""The state of one question, and how it rides on relation nodes from retriever to postprocessor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from llama_index.core.schema import NodeWithScore, TextNode
from numpy.typing import NDArray
from pydantic import PrivateAttr

from llama_index_graph_rag.graph.expansion import Expansion
from llama_index_graph_rag.graph.ranking.base import Ranked, Recall
from llama_index_graph_rag.graph.select import (
    Selected,
    passages_of_relation,
    places,
    select_passages,
)
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.postprocessors.relation_choice import RelationChoice
from llama_index_graph_rag.retrievers.subgraph import subgraph_of
from llama_index_graph_rag.steps import Process, call
from llama_index_graph_rag.stores.base import GraphIndexStore, StoredPassage
from llama_index_graph_rag.trace import GraphNodeWithScore, RelationUse, RetrievalTrace, TracedHit


@dataclass(slots=True)
class GraphRAGTrace(RetrievalTrace):
    """The record of one retrieval of passages through the graph.

    Attributes
    ----------
    entities
        The question's entities that the graph knows, with their weights.
    relations, passages
        The nearest to the question, with similarities (the first 50 each).
    expansion
        Number of relations reached at each degree.
    candidates
        The relations that stood for choice, in the order shown.
    reasoning, llm_answer
        What the relation reranker said, parsed and raw.
    chosen
        The relations it chose, best first.
    results
        The passages returned, what brought each (``chosen``, ``ranking`` or ``dense``), and the
        relations named with it.

    Examples
    --------
    >>> from llama_index_graph_rag.stores.milvus import MilvusGraphStore
    >>> from llama_index_graph_rag.retrievers.graph_rag import GraphRAGRetriever
    >>> import tempfile
    >>> store = MilvusGraphStore(tempfile.mkdtemp() + "/demo.db")
    >>> nodes, trace = GraphRAGRetriever(store).retrieve_with_trace("Who taught Euler?")
    >>> trace.fallbacks
    ['the index is empty: nothing to find']
    >>> store.close()
    """

    entities: list[TracedHit] = field(default_factory=list)
    relations: list[TracedHit] = field(default_factory=list)
    passages: list[TracedHit] = field(default_factory=list)
    expansion: dict[int, int] = field(default_factory=dict)
    candidates: list[TracedHit] = field(default_factory=list)
    reasoning: str = ""
    llm_answer: str = ""
    chosen: list[TracedHit] = field(default_factory=list)
    results: list[TracedResult] = field(default_factory=list)


class TracedResult(NamedTuple):
    """A passage that was returned and what brought it."""

    id: str
    score: float
    origin: str
    relations: tuple[RelationUse, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A relation that stands for choice: its row, id, text as a passage spells it, relevance."""

    row: int
    id: str
    text: str
    relevance: float


@dataclass(slots=True)
class QueryState:
    """What one question has found so far; rows refer to `graph`.

    Attributes
    ----------
    graph
        The snapshot that the whole question works on.
    recall, ranked
        What was recalled, and the ranking made of it.
    candidates
        Relations for a reranker, in recall order.
    pool
        Passages fetched already, by row.
    top_k, per_relation, dense_fill
        How passages are selected; see `select_passages`.
    trace
        The record.
    expansion
        What was reached from the seeds, once that was asked.
    lost
        Passages that were to be fetched and are no longer there.
    """

    graph: GraphSnapshot
    recall: Recall
    ranked: Ranked
    trace: GraphRAGTrace
    top_k: int
    per_relation: int
    dense_fill: bool
    candidates: list[Candidate] = field(default_factory=list)
    pool: dict[int, StoredPassage] = field(default_factory=dict)
    expansion: Expansion | None = None
    lost: set[int] = field(default_factory=set)

    @property
    def permitted(self) -> NDArray[np.bool_] | None:
        """Mask over passages, None where all are permitted."""
        return self.recall.permitted

    def select(self, chosen: Sequence[int], top_k: int | None = None) -> list[Selected]:
        """Return the passages of the answer, given the rows of the chosen relations."""
        return select_passages(
            self.graph,
            chosen=chosen,
            ranked=self.ranked.passages,
            dense=self.recall.passages,
            relevant=self.ranked.relations.rows,
            top_k=top_k or self.top_k,
            per_relation=self.per_relation,
            dense_fill=self.dense_fill,
            permitted=self.permitted,
        )

    def fetch(self, store: GraphIndexStore, rows: Sequence[int]) -> Process[None]:
        """Bring passages into the pool, in one get of those not there yet."""
        missing = [row for row in rows if row not in self.pool and row not in self.lost]
        if not missing:
            return
        ids = self.graph.passage_ids(missing)
        self.trace.calls["store.get"] += 1
        with self.trace.timed("get"):
            stored = yield from call(store.get_passages, store.aget_passages, ids)
        by_id = {passage.node.node_id: passage for passage in stored}
        self.pool.update({row: by_id[id] for row, id in zip(missing, ids) if id in by_id})
        self.lost.update(row for row in missing if row not in self.pool)

    def record(self, choice: RelationChoice, shown: Sequence[str]) -> None:
        """Write what a reranker chose among these relations, said and cost into the trace."""
        trace = self.trace
        trace.calls["llm"] += choice.llm_calls
        trace.tokens["prompt"] += choice.prompt_tokens
        trace.tokens["completion"] += choice.completion_tokens
        trace.reasoning, trace.llm_answer = choice.reasoning, choice.raw
        candidates = {candidate.id: candidate for candidate in trace.candidates}
        chosen = [shown[index] for index in choice.indices]
        trace.chosen = [candidates[id] for id in chosen if id in candidates]
        trace.dropped.extend(f"relation rerank: {line}" for line in choice.dropped)
        if choice.reason:
            trace.fallbacks.append(
                f"relation rerank: {choice.reason}; the graph's ranking stands in"
            )

    def of_relations(self, rows: Sequence[int]) -> list[int]:
        """Return the passages that a choice among these relations may bring."""
        place = places(self.ranked.passages, self.recall.passages)
        return [
            passage
            for row in rows
            for passage in passages_of_relation(
                self.graph, row, place, limit=self.per_relation, permitted=self.permitted
            )
        ]

    def nodes(self, selected: Sequence[Selected]) -> list[NodeWithScore]:
        """Return fresh nodes for what was selected, and write the results into the trace."""
        texts = {candidate.row: candidate.text for candidate in self.candidates}
        relevance = dict(
            zip(self.ranked.relations.rows.tolist(), self.ranked.relations.scores.tolist())
        )
        nodes: list[NodeWithScore] = []
        self.trace.results = []
        for item in selected:
            passage = self.pool.get(item.row)
            if passage is None:
                (id,) = self.graph.passage_ids([item.row])
                self.trace.dropped.append(f"passage {id!r}: deleted since by another writer")
                continue
            spelled = {
                id: mention.triplet.text
                for id, mention in zip(passage.relation_ids, passage.mentions)
            }
            uses = tuple(
                RelationUse(id, texts.get(row) or spelled.get(id, ""), relevance.get(row, 0.0))
                for row, id in zip(item.relations, self.graph.relation_ids(item.relations))
            )
            nodes.append(GraphNodeWithScore(node=passage.node, score=item.score, relations=uses))
            self.trace.results.append(
                TracedResult(passage.node.node_id, item.score, item.origin, uses)
            )
        self.trace_subgraph()
        return nodes

    def trace_subgraph(self) -> None:
        """Write the relations around the question into the trace, as they stand now."""
        self.trace.subgraph, self.trace.beyond_subgraph = subgraph_of(self)


class RelationNodeWithScore(NodeWithScore):
    """A relation as a node, with the state of the question that found it.

    `undecided` says that a reranker failed and the order is still that of the recall.
    """

    undecided: bool = False
    _state: QueryState | None = PrivateAttr(default=None)

    @classmethod
    def from_candidate(
        cls, candidate: Candidate, state: QueryState, score: float
    ) -> RelationNodeWithScore:
        """Make the node of one candidate."""
        node = TextNode(id_=candidate.id, text=candidate.text)
        relation = cls(node=node, score=score)
        relation._state = state
        return relation

    @property
    def state(self) -> QueryState | None:
        """The state of the question that found it; lost where other code rebuilt the wrapper."""
        return self._state
