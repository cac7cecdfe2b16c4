"""From chosen relations, a ranking and dense hits to the passages of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.ranking.base import Rows, Scored
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot

Origin = Literal["chosen", "ranking", "dense"]
STEP = 1e-6
"""Least relative difference between two scores that follow each other."""


@dataclass(frozen=True, slots=True)
class Selected:
    """A passage of the answer: its row, score in (0, 1], what brought it and by which relations."""

    row: int
    score: float
    origin: Origin
    relations: tuple[int, ...] = ()


def places(ranked: Scored, dense: Scored) -> dict[int, int]:
    """Return the place of each passage: those of the ranking first, then dense ones."""
    rows = dict.fromkeys([*ranked.rows.tolist(), *dense.rows.tolist()])
    return {row: place for place, row in enumerate(rows)}


def passages_of_relation(
    graph: GraphSnapshot,
    relation: int,
    place: Mapping[int, int],
    *,
    limit: int,
    permitted: NDArray[np.bool_] | None = None,
) -> list[int]:
    """Return the first `limit` passages that state a relation, in the order of `place`, then id.

    The limit keeps a relation that many passages share from flooding a list.
    """
    rows = graph.incidence.passages_of_relations([relation])[1]
    if permitted is not None:
        rows = rows[permitted[rows]]
    ranks = graph.passage_ranks
    return sorted(rows.tolist(), key=lambda row: (place.get(row, len(place)), ranks[row]))[:limit]


def select_passages(
    graph: GraphSnapshot,
    *,
    chosen: Sequence[int],
    ranked: Scored,
    dense: Scored,
    relevant: Rows,
    top_k: int,
    per_relation: int = 2,
    dense_fill: bool = True,
    permitted: NDArray[np.bool_] | None = None,
) -> list[Selected]:
    """Return at most `top_k` passages: those of chosen relations, then ranked, then dense ones.

    Parameters
    ----------
    graph
        The snapshot that all rows refer to.
    chosen
        Relations that a reranker chose, best first; empty where none decided.
    ranked
        The ranking's passages, best first.
    dense
        The passages nearest to the question, best first.
    relevant
        Relations that were met in ranking, best first: the first few that a passage states are
        named as what brought it.
    top_k, per_relation
        How many passages to return, and how many one relation may bring before the others.
    dense_fill
        Whether dense passages fill what is still missing.
    permitted
        Mask over passages.

    Returns
    -------
    list[Selected]
        Scores are the ranking's, scaled to (0, 1] and lifted where needed, so that they strictly
        decrease with the order.
    """
    ranked_rows = ranked.rows.tolist()
    dense_rows = dense.rows.tolist()
    place = places(ranked, dense)
    origins: dict[int, Origin] = {}
    stating = [
        passages_of_relation(graph, row, place, limit=per_relation, permitted=permitted)
        for row in chosen
    ]
    sources: list[tuple[Origin, list[int]]] = [
        ("chosen", [row for rows in stating for row in rows]),
        ("ranking", ranked_rows),
        ("dense", dense_rows if dense_fill else []),
    ]
    for origin, rows in sources:
        for row in rows:
            if len(origins) < top_k and (permitted is None or permitted[row]):
                origins.setdefault(row, origin)
    best = float(ranked.scores[0]) if len(ranked.scores) else 0.0
    known = {
        row: float(score) / best
        for row, score in zip(ranked_rows, ranked.scores)
        if best > 0 and score > 0
    }
    scores = decreasing([known.get(row, 0.0) for row in origins])
    names = [int(row) for row in chosen] + [int(row) for row in relevant]
    rank = {relation: position for position, relation in reversed(list(enumerate(names)))}
    selected = []
    for (row, origin), score in zip(origins.items(), scores):
        stated = [
            int(relation)
            for relation in graph.incidence.relations_of_passages([row])[1]
            if int(relation) in rank
        ]
        stated.sort(key=rank.__getitem__)
        selected.append(Selected(row, score, origin, tuple(stated[:3])))
    return selected


def decreasing(scores: Sequence[float]) -> list[float]:
    """Return scores in (0, 1] that strictly decrease: lifted where they did not.

    Examples
    --------
    >>> decreasing([0.5, 0.8, 0.0])[0] > decreasing([0.5, 0.8, 0.0])[1]
    True
    """
    lifted: list[float] = []
    floor = STEP
    for score in reversed(scores):
        floor = max(score, floor * (1 + STEP))
        lifted.append(floor)
    top = max(lifted, default=1.0)
    return [score / top if top > 1 else score for score in reversed(lifted)]
