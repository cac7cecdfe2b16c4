"""One question over the graph, as a process of steps: recall, ranking, expansion, candidates."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from llama_index.core.schema import QueryBundle

from llama_index_graph_rag.graph.candidates import choose_candidates
from llama_index_graph_rag.graph.incidence import Expansion
from llama_index_graph_rag.graph.ranking.base import (
    Answer,
    PassagesWanted,
    Ranking,
    Request,
    Rows,
    Scored,
    VectorsFound,
    VectorsWanted,
)
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.query_state import Candidate, GraphRAGTrace, QueryState
from llama_index_graph_rag.retrievers.recall import Recaller, known_hits, search
from llama_index_graph_rag.steps import Process, Step, call, perform
from llama_index_graph_rag.stores.base import Limits, Vectors
from llama_index_graph_rag.trace import TracedHit

T = TypeVar("T")

LARGE_GRAPH = 100_000
"""Relations from which on a ranking is worth a thread of its own when async."""


@dataclass(frozen=True, slots=True)
class GraphQuery:
    """A recaller and a ranking: what is needed to ask questions of one store."""

    recaller: Recaller
    ranking: Ranking

    def passages(self, bundle: QueryBundle, trace: GraphRAGTrace) -> Process[QueryState]:
        """Rank, and fetch the passages that the ranking alone selects."""
        return (yield from self._up_to_date(lambda: self._passages(bundle, trace), trace))

    def candidates(self, bundle: QueryBundle, trace: GraphRAGTrace) -> Process[QueryState]:
        """Rank, choose the relations that stand for choice, and fetch what may follow of them.

        Every passage that any choice can select is fetched in one get: the texts of the
        candidates are those of its mentions.
        """
        return (yield from self._up_to_date(lambda: self._candidates(bundle, trace), trace))

    def _up_to_date(
        self, ask: Callable[[], Process[QueryState]], trace: GraphRAGTrace
    ) -> Process[QueryState]:
        """Ask, and once more where passages had been deleted meanwhile."""
        state = yield from ask()
        if not state.lost:
            return state
        store = self.recaller.store
        trace.calls["store.refresh"] += 1
        yield from call(store.refresh, store.arefresh, wait=False)
        if store.snapshot() is state.graph:
            trace.dropped.append(
                f"{len(state.lost)} passages that the graph holds and the store does not (any "
                "more): a deletion may be under way"
            )
            return state
        trace.fallbacks.append(f"{len(state.lost)} passages had been deleted: asked again")
        return (yield from ask())

    def _passages(self, bundle: QueryBundle, trace: GraphRAGTrace) -> Process[QueryState]:
        state = yield from self._ranked(bundle, trace)
        self._expand(state)
        yield from state.fetch(self.recaller.store, [item.row for item in state.select([])])
        return state

    def _candidates(self, bundle: QueryBundle, trace: GraphRAGTrace) -> Process[QueryState]:
        state = yield from self._ranked(bundle, trace)
        expansion = self._expand(state)
        with trace.timed("candidates"):
            rows = yield from self._candidate_rows(state, expansion)
        wanted = dict.fromkeys(item.row for item in state.select([])) | dict.fromkeys(
            state.of_relations(rows)
        )
        yield from state.fetch(self.recaller.store, list(wanted))
        self._name(state, rows)
        return state

    def _ranked(self, bundle: QueryBundle, trace: GraphRAGTrace) -> Process[QueryState]:
        graph, recall = yield from self.recaller.recall(bundle, trace)
        with trace.timed("ranking"):
            ranked = yield from self._serve(graph, self.ranking.rank(graph, recall), trace)
        options = self.recaller.options
        return QueryState(
            graph=graph,
            recall=recall,
            ranked=ranked,
            trace=trace,
            top_k=options.similarity_top_k,
            per_relation=options.max_passages_per_relation,
            dense_fill=options.dense_fill,
        )

    # --- expansion and candidates ---------------------------------------------------------------

    def _expand(self, state: QueryState) -> Expansion:
        options, recall, graph = self.recaller.options, state.recall, state.graph
        permitted = None
        if recall.permitted is not None:
            permitted = graph.incidence.permitted_relations(recall.permitted)
        with state.trace.timed("expansion"):
            expansion = graph.incidence.expand(
                entities=recall.entities.rows,
                relations=recall.relations.rows[: options.max_seed_relations],
                degree=options.degree,
                permitted=permitted,
                max_per_entity=options.max_relations_per_entity,
                max_relations=options.max_expanded_relations,
                relevance=Relevance(recall.relations),
            )
        state.expansion = expansion
        degrees = Counter(expansion.degrees.tolist())
        state.trace.expansion = {degree: degrees[degree] for degree in sorted(degrees)}
        if expansion.cut_at_entities:
            state.trace.dropped.append(
                f"expansion: {expansion.cut_at_entities} relations at "
                f"{expansion.capped_entities} entities with more than "
                f"{options.max_relations_per_entity}"
            )
        if expansion.cut_by_total:
            state.trace.dropped.append(
                f"expansion: {expansion.cut_by_total} relations beyond "
                f"{options.max_expanded_relations}"
            )
        return expansion

    def _candidate_rows(self, state: QueryState, expansion: Expansion) -> Process[list[int]]:
        options = self.recaller.options
        relevance = Relevance(state.recall.relations)(expansion.relations)
        best = np.lexsort((state.graph.relation_ranks[expansion.relations], -relevance))
        expanded = expansion.relations[best].tolist()
        rows: list[int] = []
        if options.candidates == "coverage":
            covering = yield from self._serve(
                state.graph,
                choose_candidates(
                    state.graph, state.recall, state.ranked, limit=options.max_candidates
                ),
                state.trace,
            )
            rows = covering.tolist()
        return list(dict.fromkeys([*rows, *expanded]))[: options.max_candidates]

    def _name(self, state: QueryState, rows: Sequence[int]) -> None:
        texts: dict[str, str] = {}
        for passage in state.pool.values():
            for id, mention in zip(passage.relation_ids, passage.mentions):
                texts.setdefault(id, mention.triplet.text)
        relevance = {
            **dict(zip(state.recall.relations.rows.tolist(), state.recall.relations.scores)),
            **dict(zip(state.ranked.relations.rows.tolist(), state.ranked.relations.scores)),
        }
        for row, id in zip(rows, state.graph.relation_ids(rows)):
            if id in texts:
                state.candidates.append(
                    Candidate(row, id, texts[id], float(relevance.get(row, 0.0)))
                )
            else:
                state.trace.dropped.append(f"candidate {id}: no passage states it any more")
        state.trace.candidates = [
            TracedHit(candidate.id, candidate.text, candidate.relevance)
            for candidate in state.candidates
        ]

    # --- serving what a pure process asks for ---------------------------------------------------

    def _serve(
        self, graph: GraphSnapshot, asking: Generator[Request, Answer, T], trace: GraphRAGTrace
    ) -> Process[T]:
        answer: Answer | None = None
        while True:
            request, finished = yield from perform(_advance(asking, answer, graph))
            if request is None:
                return finished[0]
            if isinstance(request, PassagesWanted):
                answer = yield from self._look_again(graph, request, trace)
            else:
                answer = yield from self._vectors(graph, request, trace)

    def _vectors(
        self, graph: GraphSnapshot, wanted: VectorsWanted, trace: GraphRAGTrace
    ) -> Process[VectorsFound]:
        store = self.recaller.store
        entities = graph.entity_ids(wanted.entities)
        relations = graph.relation_ids(wanted.relations)
        trace.calls["store.get"] += bool(entities) + bool(relations)
        with trace.timed("get"):
            found = yield from call(
                store.get_vectors, store.aget_vectors, entities=entities, relations=relations
            )
        zeros = np.zeros(store.dimension, dtype=np.float32)
        return VectorsFound(
            *(
                _units(np.stack([of_kind.get(id, zeros) for id in ids]) if ids else zeros[None][:0])
                for of_kind, ids in zip(found, (entities, relations))
            )
        )

    def _look_again(
        self, graph: GraphSnapshot, wanted: PassagesWanted, trace: GraphRAGTrace
    ) -> Process[list[Scored]]:
        found = yield from search(
            self.recaller.store,
            trace,
            passages=wanted.vectors,
            limits=Limits(passages=wanted.limit),
            filters=self.recaller.active_filters,
        )
        return [known_hits(graph.passage_rows, hits) for hits in found.passages]


def _advance(
    asking: Generator[Request, Answer, T], answer: Answer | None, graph: GraphSnapshot
) -> Step[tuple[Request | None, list[T]]]:
    """Run a pure process to its next request, or to its result; a long one off the event loop."""

    def run() -> tuple[Request | None, list[T]]:
        try:
            # None starts a generator, as next() does.
            return asking.send(answer), []  # type: ignore[arg-type]
        except StopIteration as stop:
            return None, [stop.value]

    async def arun() -> tuple[Request | None, list[T]]:
        return run() if graph.n_relations < LARGE_GRAPH else await asyncio.to_thread(run)

    return Step(run, arun)


class Relevance:
    """Similarity of relations to the question where it is known, 0 elsewhere; of any rows."""

    def __init__(self, recalled: Scored) -> None:
        order = np.argsort(recalled.rows)
        self._rows = recalled.rows[order]
        self._scores = recalled.scores[order]

    def __call__(self, rows: Rows) -> Vectors:
        """Return the similarity of each relation, shape (n,)."""
        if not len(self._rows):
            return np.zeros(len(rows), dtype=np.float32)
        at = np.minimum(np.searchsorted(self._rows, rows), len(self._rows) - 1)
        known = self._rows[at] == rows
        scores: Vectors = np.where(known, self._scores[at], np.float32(0)).astype(np.float32)
        return scores


def _units(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Vectors = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return units
