"""Random walk with restart over entities and passages: whole on small graphs, local on large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.graph.incidence import Incidence
from llama_index_graph_rag.graph.ranking.base import Mask, Rows, check_range

Mass = NDArray[np.float64]
"""One non-negative number a row."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Personalised PageRank over entities and passages that are joined by relations.

    One step goes from an entity evenly to its relations, and from each of those with one half to
    its two endpoints and with one half evenly to the passages that state it; from a passage
    evenly to its relations and on to their endpoints. With P this step, a the damping and r the
    restart, the result is ``(1 - a) sum_t (a P)^t r`` for t up to `steps`: what is left out is
    ``a^(steps + 1)`` of the mass, and in a local walk what was not followed. It is linear in r.

    Where a step could meet more than `max_edges` edges the walk is local: each step follows those
    nodes that hold the most mass an edge, as long as that is at least `tolerance` of the
    restart's mass and their edges are at most `max_edges` together; what the others hold is
    counted and walks no further. So a hub costs nothing until the mass on it is worth its size.

    Parameters
    ----------
    damping
        Share of the mass that walks on at each step, in [0, 1].
    steps
        Longest walk, at least 1.
    max_edges
        Edges from nodes to relations that one step may follow, at least 1.
    tolerance
        Least mass that an edge carries, as a share of the restart's, in [0, 1].

    Raises
    ------
    GraphRAGValueError
        If a number is out of its range.

    References
    ----------
    T. Haveliwala, "Topic-Sensitive PageRank", WWW 2002. R. Andersen, F. Chung, K. Lang, "Local
    Graph Partitioning using PageRank Vectors", FOCS 2006: mass below a threshold an edge is not
    pushed.

    Examples
    --------
    >>> graph = Incidence.build(3, [0, 1], [1, 2], passages=[0, 1], relations=[0, 1], n_passages=2)
    >>> walk = Walk(damping=0.5, steps=2)
    >>> entities, passages = walk.run(graph, np.array([1.0, 0, 0]), np.zeros(2))
    >>> entities.tolist(), passages.tolist()
    ([0.60546875, 0.109375, 0.00390625], [0.1484375, 0.0078125])
    """

    damping: float = 0.7
    steps: int = 8
    max_edges: int = 60_000
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        check_range(self, 0, 1, "damping", "tolerance")
        check_range(self, 1, None, "steps", "max_edges")

    def run(
        self, graph: Incidence, entities: Mass, passages: Mass, permitted: Mask | None = None
    ) -> tuple[Mass, Mass]:
        """Return the mass that the walk leaves on entities and on passages.

        Parameters
        ----------
        graph
            What is walked.
        entities, passages
            The restart, shapes (n_entities,) and (n_passages,): non-negative, of any sum.
        permitted
            Mask over passages, shape (n_passages,): the walk is that over a graph of these
            passages alone, and the others get nothing.
        """
        if permitted is not None:
            passages = np.where(permitted, passages, 0.0)
        step = self._stepper(graph, permitted, float(entities.sum() + passages.sum()))
        return sum_of_steps(step, entities, passages, self.damping, self.steps)

    def _stepper(self, graph: Incidence, permitted: Mask | None, mass: float) -> _Whole | _Local:
        edges = len(graph.entity_relations.indices) + len(graph.passage_relations.indices)
        if edges <= self.max_edges:
            return _Whole(graph, permitted)
        return _Local(graph, permitted, self.max_edges, self.tolerance * mass)


class _Whole:
    """Steps over every edge, by products with the incidence matrices in float32."""

    def __init__(self, graph: Incidence, permitted: Mask | None) -> None:
        self.graph = graph
        self.permitted = permitted
        self.entity_relation = graph.entity_relation_matrix
        self.relation_passage = graph.relation_passage_matrix
        self.passage_relation = graph.passage_relation_matrix
        self.loops = np.flatnonzero(graph.subjects == graph.objects)
        if permitted is None:
            frequency, degree = graph.relation_frequency, graph.entity_degree
        else:
            frequency = self.relation_passage @ permitted.astype(np.float32)
            degree = self.entity_relation @ (frequency > 0).astype(np.float32)
        self.per_relation = _inverse(frequency).astype(np.float32)
        self.per_entity = _inverse(degree).astype(np.float32)
        self.per_passage = _inverse(graph.passage_degree).astype(np.float32)
        self.per_end = np.where(frequency > 0, np.float32(0.5), np.float32(0))
        self.per_end[self.loops] *= 2

    def advance(self, entities: Mass, passages: Mass) -> tuple[Mass, Mass]:
        """Return where the mass is after one step."""
        going = 0.5 * self.per_entity * entities.astype(np.float32)
        half = going[self.graph.subjects] + going[self.graph.objects]
        half[self.loops] *= 0.5
        whole = half + self.relation_passage @ (self.per_passage * passages.astype(np.float32))
        at_entities = self.entity_relation @ (self.per_end * whole)
        at_passages = self.passage_relation @ (self.per_relation * half)
        if self.permitted is not None:
            at_passages[~self.permitted] = 0
        return at_entities.astype(np.float64), at_passages.astype(np.float64)


class _Local:
    """Steps from the nodes with the most mass an edge, by gathering their rows."""

    def __init__(
        self, graph: Incidence, permitted: Mask | None, max_edges: int, least: float
    ) -> None:
        self.graph = graph
        self.permitted = permitted
        self.max_edges = max_edges
        self.least = least

    def advance(self, entities: Mass, passages: Mass) -> tuple[Mass, Mass]:
        """Return where the mass is after one step."""
        graph, n = self.graph, self.graph.n_entities
        nodes = self._frontier(entities, passages)
        from_entities, from_passages = nodes[nodes < n], nodes[nodes >= n] - n
        indptr, stated = graph.relations_of_passages(from_passages)
        whole = np.repeat(passages[from_passages] / np.diff(indptr), np.diff(indptr))
        indptr, relations = graph.relations_of_entities(from_entities)
        pointers, stating = graph.passages_of_relations(relations)
        owners = np.repeat(np.arange(len(from_entities)), np.diff(indptr))
        counts = np.diff(pointers)
        if self.permitted is not None:
            allowed = self.permitted[stating]
            edges = np.repeat(np.arange(len(relations)), counts)[allowed]
            stating, counts = stating[allowed], np.bincount(edges, minlength=len(relations))
            degrees = np.bincount(owners[counts > 0], minlength=len(from_entities))
        else:
            degrees = np.diff(indptr)
        half = np.where(counts > 0, (0.5 * entities[from_entities] * _inverse(degrees))[owners], 0)
        relations = np.concatenate([relations, stated])
        ends = np.concatenate([graph.subjects[relations], graph.objects[relations]])
        arriving = 0.5 * np.concatenate([half, whole])
        per_passage = np.repeat(half * _inverse(counts), counts)
        return (
            _summed(ends, np.concatenate([arriving, arriving]), n),
            _summed(stating, per_passage, len(passages)),
        )

    def _frontier(self, entities: Mass, passages: Mass) -> NDArray[np.intp]:
        """Return the nodes to follow, passages after entities, in ascending order."""
        degrees = np.concatenate([self.graph.entity_degree, self.graph.passage_degree])
        mass = np.concatenate([entities, passages])
        nodes = np.flatnonzero(mass > self.least * degrees)
        nodes = nodes[degrees[nodes] > 0]
        degrees = degrees[nodes]
        if degrees.sum() <= self.max_edges:
            return nodes
        best = np.argsort(-mass[nodes] / degrees, kind="stable")
        # A hub over the limit is passed over, not the end of the list.
        kept = best[degrees[best] <= self.max_edges]
        return np.sort(nodes[kept[np.cumsum(degrees[kept]) <= self.max_edges]])


def sum_of_steps(
    step: _Whole | _Local, entities: Mass, passages: Mass, damping: float, steps: int
) -> tuple[Mass, Mass]:
    """Return ``(1 - damping) sum_t (damping step)^t`` of the restart."""
    at_entities, at_passages = (1 - damping) * entities, (1 - damping) * passages
    all_entities, all_passages = at_entities.copy(), at_passages.copy()
    for _ in range(steps):
        at_entities, at_passages = step.advance(at_entities, at_passages)
        at_entities *= damping
        at_passages *= damping
        all_entities += at_entities
        all_passages += at_passages
    return all_entities, all_passages


def _inverse(values: NDArray[np.integer] | Mass) -> Mass:
    return np.divide(1.0, values, out=np.zeros(len(values)), where=values > 0)


def _summed(rows: Rows, mass: Mass, size: int) -> Mass:
    return np.asarray(np.bincount(rows, mass, minlength=size), dtype=np.float64)
