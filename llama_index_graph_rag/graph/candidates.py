"""Which relations to show to a reranker: those that cover the ranking's passages."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.ranking.base import (
    Answer,
    Ranked,
    Recall,
    Request,
    Rows,
    VectorsFound,
    VectorsWanted,
)

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot

MAX_RELATIONS_PER_PASSAGE = 50
"""Relations of one passage that are considered: those most relevant in the ranking."""


def choose_candidates(
    graph: GraphSnapshot,
    recall: Recall,
    ranked: Ranked,
    *,
    limit: int = 60,
    detailed_passages: int = 4,
    relations_per_detailed_passage: int = 3,
) -> Generator[Request, Answer, Rows]:
    """Choose relations that cover as many of the ranked passages as there is room for.

    A passage that no candidate states cannot be chosen, so room goes to breadth: the first
    `detailed_passages` show up to `relations_per_detailed_passage` relations each, the following
    ones the one nearest to the question, in the order of the ranking, until `limit` is reached.
    A relation is shown once, for the best of its passages.

    Parameters
    ----------
    graph
        The snapshot whose rows `recall` and `ranked` hold.
    recall
        The question's vector and the permitted passages.
    ranked
        The ranking's outcome.
    limit
        Most relations to return, at least 1. An English one has about 11 tokens.
    detailed_passages, relations_per_detailed_passage
        How many passages show more than one relation, and how many.

    Returns
    -------
    NDArray[np.int32]
        Relation rows, in the order of the passages they cover. The best ranked passage of each
        is the one it covers.

    Raises
    ------
    GraphRAGValueError
        If a number is out of its range.

    Examples
    --------
    >>> from llama_index_graph_rag.graph.ranking.base import Scored
    >>> from llama_index_graph_rag.graph.snapshot import GraphSnapshot
    >>> none = Scored(np.zeros(0, np.int32), np.zeros(0, np.float32))
    >>> recall = Recall("Who?", np.ones(1, np.float32), none, none, none)
    >>> try:
    ...     next(choose_candidates(GraphSnapshot.empty(), recall, Ranked(none, none)))
    ... except StopIteration as stop:
    ...     stop.value
    array([], dtype=int32)
    """
    if limit < 1 or detailed_passages < 0 or relations_per_detailed_passage < 1:
        raise GraphRAGValueError(
            f"limit={limit} and relations_per_detailed_passage={relations_per_detailed_passage} "
            f"are at least 1, detailed_passages={detailed_passages} at least 0"
        )
    passages = ranked.passages.rows[:limit]
    indptr, relations = graph.incidence.relations_of_passages(passages)
    if not len(relations):
        return np.zeros(0, dtype=np.int32)
    owners = np.repeat(np.arange(len(passages)), np.diff(indptr))
    kept = _foremost(graph, relations, owners, ranked)
    relations, owners = relations[kept], owners[kept]
    wanted = np.unique(relations)
    found = yield VectorsWanted(entities=np.zeros(0, dtype=np.int32), relations=wanted)
    assert isinstance(found, VectorsFound)
    closeness = (found.relations @ recall.query_vector)[np.searchsorted(wanted, relations)]
    order = np.lexsort((graph.relation_ranks[relations], -closeness, owners))
    chosen: dict[int, None] = {}
    shown = np.zeros(len(passages), dtype=np.int64)
    for owner, row in zip(owners[order].tolist(), relations[order].tolist()):
        room = relations_per_detailed_passage if owner < detailed_passages else 1
        if shown[owner] < room and row not in chosen:
            shown[owner] += 1
            chosen[row] = None
    return np.array(list(chosen)[:limit], dtype=np.int32)


def _foremost(
    graph: GraphSnapshot, relations: Rows, owners: NDArray[np.integer], ranked: Ranked
) -> NDArray[np.intp]:
    """Return the places of each passage's relations that are worth a look: a vector is a read."""
    relevance = np.zeros(len(relations), dtype=np.float32)
    order = np.argsort(ranked.relations.rows)
    known = ranked.relations.rows[order]
    if len(known):
        at = np.minimum(np.searchsorted(known, relations), len(known) - 1)
        met = known[at] == relations
        relevance[met] = ranked.relations.scores[order][at[met]]
    best = np.lexsort((graph.relation_ranks[relations], -relevance, owners))
    starts = np.searchsorted(owners[best], owners[best])
    return best[np.arange(len(best)) - starts < MAX_RELATIONS_PER_PASSAGE]
