"""Where a walk starts: entities of the nearest relations, and passages near to the question."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.graph.ranking.base import Recall, Rows, Scored
from llama_index_graph_rag.graph.ranking.walk import Mass

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.incidence import Incidence
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot

FLOOR_GAP = 1e-3
"""Least distance of the floor from 1: where all hits are alike, no difference is blown up."""


def above_floor(similarities: NDArray[np.floating]) -> Mass:
    """Return ``(s - floor) / (1 - floor)``, the floor being the least of the similarities.

    The last of a long list of hits shows what a text scores that has little to do with the
    question: 0.2 with one embedding model, 0.8 with another. What is left above it, as a share of
    what is possible (as in Cohen's kappa), can be compared between models, and one sharpness of
    a softmax serves all.

    Examples
    --------
    >>> above_floor(np.array([0.6, 0.4, 0.2])).round(2).tolist()
    [0.5, 0.25, 0.0]
    >>> above_floor(np.array([0.9, 0.85, 0.8])).round(2).tolist()
    [0.5, 0.25, 0.0]
    """
    if not len(similarities):
        return np.zeros(0)
    floor = float(similarities.min())
    return (np.asarray(similarities, dtype=np.float64) - floor) / max(1 - floor, FLOOR_GAP)


def entity_seeds(graph: Incidence, relations: Scored, *, sharpness: float) -> Mass:
    """Return one seed weight an entity, shape (n_entities,), of sum 1, or 0 without relations.

    ``w(e) = sum_r exp(sharpness s'(r)) / degree(e)`` over the recalled relations r that touch e,
    s' their similarity above the floor. The degree is the number of relations of e: what is
    everywhere says little.

    Parameters
    ----------
    graph
        The graph.
    relations
        The nearest to the question with their cosines, best first.
    sharpness
        How much more the nearest count.
    """
    closeness = above_floor(relations.scores)
    weights = np.exp(sharpness * (closeness - closeness.max(initial=0)))
    ends = np.concatenate([graph.subjects[relations.rows], graph.objects[relations.rows]])
    loops = graph.subjects[relations.rows] == graph.objects[relations.rows]
    weights = np.concatenate([weights, np.where(loops, 0, weights)])
    return normalised(
        np.bincount(
            ends, weights / np.maximum(graph.entity_degree[ends], 1), minlength=graph.n_entities
        )
    )


def name_anchor(graph: GraphSnapshot, recall: Recall, limit: int) -> Scored:
    """Return the passages that are about the question's entities, with a bonus each.

    ``bonus(p) = sum_e weight(e) idf(e) share(p, e)`` over the question's entities, share being
    the part of p's relations that touch e, and ``idf(e) = log(1 + R / degree(e)) / log(1 + R)``
    for R relations in the graph. A passage's title, where it has one, mostly is such an entity.

    Parameters
    ----------
    graph
        The graph.
    recall
        Its entities and permitted passages.
    limit
        At most so many passages, those of the highest bonus; ties by id.
    """
    incidence = graph.incidence
    entities, weights = recall.entities.rows, recall.entities.scores.astype(np.float64)
    degrees = incidence.entity_degree[entities]
    total = max(graph.n_relations, 1)
    rarity = np.log1p(total / np.maximum(degrees, 1)) / np.log1p(total)
    indptr, relations = incidence.relations_of_entities(entities)
    pointers, passages = incidence.passages_of_relations(relations)
    worth = np.repeat(weights * rarity, np.diff(indptr))
    worth = np.repeat(worth, np.diff(pointers)) / np.maximum(incidence.passage_degree[passages], 1)
    if recall.permitted is not None:
        passages, worth = passages[recall.permitted[passages]], worth[recall.permitted[passages]]
    rows, places = np.unique(passages, return_inverse=True)
    bonus = np.bincount(places, worth, minlength=len(rows))
    best = np.lexsort((graph.passage_ranks[rows], -np.round(bonus, 6)))[:limit]
    return Scored(rows[best].astype(np.int32), bonus[best].astype(np.float32))


def passage_reset(
    n_passages: int, nearest: Scored, anchor: Scored, *, sharpness: float, anchor_weight: float
) -> Mass:
    """Return one reset weight a passage, shape (n_passages,), of sum 1, or 0 without passages.

    ``softmax(sharpness s' + anchor_weight bonus)`` over the recalled passages and those with a
    bonus; s' is the similarity above the floor. A passage that was not recalled stands at the
    floor if it has a bonus, and has no reset weight otherwise.

    Parameters
    ----------
    n_passages
        Number of rows.
    nearest
        The nearest passages with their cosines, best first.
    anchor
        Passages with a bonus.
    sharpness, anchor_weight
        Of the two parts.
    """
    rows: Rows = np.union1d(nearest.rows, anchor.rows)
    logits = np.zeros(len(rows))
    logits[np.searchsorted(rows, nearest.rows)] = sharpness * above_floor(nearest.scores)
    logits[np.searchsorted(rows, anchor.rows)] += anchor_weight * anchor.scores
    reset = np.zeros(n_passages)
    reset[rows] = np.exp(logits - logits.max(initial=0))
    return normalised(reset)


def normalised(mass: NDArray[np.floating] | NDArray[np.integer]) -> Mass:
    """Return `mass` divided by its sum; zeros stay zeros."""
    total = mass.sum()
    return np.asarray(mass / total if total > 0 else mass, dtype=np.float64)
