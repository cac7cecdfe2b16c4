"""The default ranking: a walk, a second look along the hops it suggests, and a walk again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from llama_index_graph_rag.graph.ranking.base import (
    PassagesWanted,
    Ranks,
    Recall,
    Rows,
    Vectors,
    VectorsFound,
    VectorsWanted,
    check_range,
    top_rows,
)
from llama_index_graph_rag.graph.ranking.pagerank import PersonalizedPageRank
from llama_index_graph_rag.graph.ranking.walk import Mass

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot


@dataclass(frozen=True, kw_only=True)
class HopWalk(PersonalizedPageRank):
    """Personalised PageRank that looks a second time, for what the question does not say.

    A multi-hop question names its last passage only through the others. After a first walk, take
    the `hop_passages` best passages; of each the `hop_relations` relations r nearest to the
    question q, and of r the endpoint e that is farther from q: what the passage adds. Then

        ``v = norm(q - (q . r) r + novelty e)``

    is the question less what r explains, plus the new name. The passages nearest to each v, by
    the same `passage_reset` and averaged, join the restart with `hop_weight`, and the walk goes
    once more. That costs one get of vectors and one batched search.

    Parameters
    ----------
    hop_passages, hop_relations
        How many passages, and relations of each, the second look starts from.
    novelty
        Weight of the new entity in v.
    hop_top_k
        Passages that each hop may bring; a search costs by the hit.
    hop_weight
        Weight of the second look in the restart, entities having 1.
    max_relations_per_passage
        Relations of one passage whose vectors are asked for: those with the most mass.
    **kwargs
        See `PersonalizedPageRank`.

    Raises
    ------
    GraphRAGValueError
        If a number is out of its range.

    Examples
    --------
    >>> HopWalk(hop_passages=5).hop_relations
    3
    """

    hop_passages: int = 3
    hop_relations: int = 3
    novelty: float = 0.8
    hop_top_k: int = 30
    hop_weight: float = 0.5
    max_relations_per_passage: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(
            self, 1, None, "hop_passages", "hop_relations", "hop_top_k", "max_relations_per_passage"
        )
        check_range(self, 0, None, "novelty", "hop_weight")

    def rank(self, graph: GraphSnapshot, recall: Recall) -> Ranks:
        """Ask for the vectors of the best passages' relations, then for passages near the hops."""
        incidence = graph.incidence
        entities, passages, anchor = self.restart(graph, recall)
        mass = self.walk.run(incidence, entities, passages, recall.permitted)
        best = top_rows(mass[1], graph.passage_ranks, self.hop_passages)
        near = self._near_relations(graph, best.rows, mass[0])
        if not len(near[0]):
            return self.ranked(graph, recall, *mass)
        ends = np.union1d(graph.subjects[near[0]], graph.objects[near[0]])
        found = yield VectorsWanted(entities=ends, relations=near[0])
        assert isinstance(found, VectorsFound)
        hops = self._hop_vectors(graph, recall.query_vector, near, found)
        if not len(hops):
            return self.ranked(graph, recall, *mass)
        nearest = yield PassagesWanted(vectors=hops, limit=self.hop_top_k)
        assert isinstance(nearest, list)
        look = np.mean([self.reset(incidence, hits, anchor) for hits in nearest], axis=0)
        # The walk is linear in its restart: only what is new has to be walked.
        more = self.walk.run(
            incidence, np.zeros_like(entities), self.hop_weight * look, recall.permitted
        )
        return self.ranked(graph, recall, mass[0] + more[0], mass[1] + more[1])

    def _near_relations(
        self, graph: GraphSnapshot, passages: Rows, entities: Mass
    ) -> tuple[Rows, Rows]:
        """Return relations of these passages, and the place of each one's passage among them."""
        indptr, relations = graph.incidence.relations_of_passages(passages)
        owners = np.repeat(np.arange(len(passages), dtype=np.int32), np.diff(indptr))
        flow = entities[graph.subjects[relations]] + entities[graph.objects[relations]]
        order = np.lexsort((graph.relation_ranks[relations], -flow, owners))
        within = np.arange(len(order)) - np.repeat(indptr[:-1], np.diff(indptr))
        kept = order[within < self.max_relations_per_passage]
        return relations[kept], owners[kept]

    def _hop_vectors(
        self, graph: GraphSnapshot, question: Vectors, near: tuple[Rows, Rows], found: VectorsFound
    ) -> Vectors:
        """Return one unit vector a hop; what has no vector in the store makes none."""
        relations, owners = near
        ends = np.stack([graph.subjects[relations], graph.objects[relations]], axis=1)
        names = found.entities[np.searchsorted(np.unique(ends), ends)]
        farther = np.argmin(names @ question, axis=1)
        names = names[np.arange(len(names)), farther]
        known = found.relations.any(axis=1) & names.any(axis=1)
        closeness = np.where(known, found.relations @ question, -np.inf)
        order = np.lexsort((-closeness, owners))
        counts = np.bincount(owners)
        within = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        kept = order[(within < self.hop_relations) & known[order]]
        explained = closeness[kept, None] * found.relations[kept]
        hops = question - explained + self.novelty * names[kept]
        lengths = np.linalg.norm(hops, axis=1, keepdims=True)
        kept_hops = lengths[:, 0] > 1e-6
        vectors: Vectors = (hops[kept_hops] / lengths[kept_hops]).astype(np.float32)
        return vectors
