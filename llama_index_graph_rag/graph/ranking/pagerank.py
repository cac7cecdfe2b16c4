"""Personalised PageRank from the relations and passages nearest to the question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from llama_index_graph_rag.graph.ranking.base import (
    Ranked,
    Ranking,
    Ranks,
    Recall,
    Rows,
    Scored,
    check_range,
    first,
    top_rows,
)
from llama_index_graph_rag.graph.ranking.restart import (
    entity_seeds,
    name_anchor,
    normalised,
    passage_reset,
)
from llama_index_graph_rag.graph.ranking.walk import Mass, Walk

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.incidence import Incidence
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot

RANKED_PASSAGES = 1_000
"""Most passages that are returned."""
DESCRIBED_PASSAGES = 50
"""Passages at the top whose relations get a relevance."""


@dataclass(frozen=True, kw_only=True)
class PersonalizedPageRank(Ranking):
    """Passages by a random walk with restart at what the question recalled.

    The restart is ``[W, passage_weight b]``: W of `entity_seeds` over the nearest relations, with
    `entity_weight` of it for the question's own entities, and b of `passage_reset` over the
    nearest passages with the `name_anchor`. The walk is that of `Walk`. Only the nearest
    relations and passages have to be known: the rest of the index has no reset weight.

    Parameters
    ----------
    relation_top_k, passage_top_k
        How many of the recalled relations and passages are used; recall at least so many.
    sharpness
        Of the softmax over similarities above their floor; the higher, the more the nearest
        count.
    anchor_weight
        What naming an entity that a passage is about adds to its logit; 0 for no anchor.
    entity_weight
        Share of the question's own entities in W, in [0, 1].
    passage_weight
        Reset weight of passages, that of entities being 1.
    walk
        Damping, steps and bounds.

    Raises
    ------
    GraphRAGValueError
        If a number is out of its range.

    References
    ----------
    B. Gutierrez et al., "From RAG to Memory: Non-Parametric Continual Learning for Large Language
    Models" (HippoRAG 2), 2025, for seeds from relations and for passages as nodes.

    Examples
    --------
    >>> from llama_index_graph_rag.graph.snapshot import GraphSnapshot
    >>> graph = GraphSnapshot.empty()
    >>> nothing = Scored(np.zeros(0, np.int32), np.zeros(0, np.float32))
    >>> recall = Recall("Who?", np.ones(1, np.float32), nothing, nothing, nothing)
    >>> try:
    ...     next(PersonalizedPageRank().rank(graph, recall))
    ... except StopIteration as stop:
    ...     stop.value.passages.rows
    array([], dtype=int32)
    """

    relation_top_k: int = 50
    passage_top_k: int = 100
    sharpness: float = 20.0
    anchor_weight: float = 2.5
    entity_weight: float = 0.1
    passage_weight: float = 0.5
    walk: Walk = field(default_factory=Walk)

    def __post_init__(self) -> None:
        check_range(self, 1, None, "relation_top_k", "passage_top_k")
        check_range(self, 0, None, "sharpness", "anchor_weight", "passage_weight")
        check_range(self, 0, 1, "entity_weight")

    def rank(self, graph: GraphSnapshot, recall: Recall) -> Ranks:
        """Return the ranked passages; nothing is asked for."""
        entities, passages, _ = self.restart(graph, recall)
        mass = self.walk.run(graph.incidence, entities, passages, recall.permitted)
        return self.ranked(graph, recall, *mass)
        yield  # a generator, as every ranking is

    def restart(self, graph: GraphSnapshot, recall: Recall) -> tuple[Mass, Mass, Scored]:
        """Return the reset weights of entities and passages, and the anchored passages."""
        incidence = graph.incidence
        nearest = first(recall.relations, self.relation_top_k)
        seeds = entity_seeds(incidence, nearest, sharpness=self.sharpness)
        named = np.zeros(graph.n_entities)
        np.add.at(named, recall.entities.rows, recall.entities.scores)
        named = normalised(named / np.maximum(incidence.entity_degree, 1))
        if seeds.any() and named.any():
            seeds = (1 - self.entity_weight) * seeds + self.entity_weight * named
        elif named.any():
            seeds = named
        anchor = name_anchor(graph, recall, self.passage_top_k if self.anchor_weight else 0)
        reset = self.reset(incidence, recall.passages, anchor)
        return seeds, self.passage_weight * reset, anchor

    def reset(self, graph: Incidence, nearest: Scored, anchor: Scored) -> Mass:
        """Return the reset weights, of sum 1, of the nearest passages."""
        return passage_reset(
            graph.n_passages,
            first(nearest, self.passage_top_k),
            anchor,
            sharpness=self.sharpness,
            anchor_weight=self.anchor_weight,
        )

    def ranked(
        self, graph: GraphSnapshot, recall: Recall, entities: Mass, passages: Mass
    ) -> Ranked:
        """Return the outcome of a walk: a relation's relevance is its share of the flow."""
        best = top_rows(passages, graph.passage_ranks, RANKED_PASSAGES)
        near = graph.incidence.relations_of_passages(best.rows[:DESCRIBED_PASSAGES])[1]
        rows: Rows = np.union1d(recall.relations.rows, near)
        share = entities / np.maximum(graph.incidence.entity_degree, 1)
        flow = share[graph.subjects[rows]] + share[graph.objects[rows]]
        flow = np.round(flow / max(float(flow.max(initial=0)), 1e-30), 6)
        order = np.lexsort((graph.relation_ranks[rows], -flow))
        return Ranked(best, Scored(rows[order], flow[order].astype(np.float32)))
