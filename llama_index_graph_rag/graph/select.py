"""From chosen relations, a ranking and dense hits to the passages of the answer."""

from __future__ import annotations

from collections.abc import Sequence
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


def passages_of_chosen(
    graph: GraphSnapshot,
    chosen: Sequence[int],
    order: Sequence[int],
    *,
    per_relation: int,
    permitted: NDArray[np.bool_] | None = None,
) -> list[int]:
    """Return the passages that state the chosen relations, a passage at its best relation.

    Within a relation passages come in the `order` given (the ranking's, then dense), then by id.
    A relation brings `per_relation` passages at first; what it shares with many more comes after
    the passages of all the others, so that it cannot flood the list.
    """
    place = {row: position for position, row in enumerate(order)}
    first: dict[int, None] = {}
    later: dict[int, None] = {}
    for relation in chosen:
        rows = [int(row) for row in graph.incidence.passages_of_relations([relation])[1]]
        if permitted is not None:
            rows = [row for row in rows if permitted[row]]
        ids = dict(zip(rows, graph.passage_ids(rows)))
        rows.sort(key=lambda row: (place.get(row, len(place)), ids[row]))
        first.update(dict.fromkeys(rows[:per_relation]))
        later.update(dict.fromkeys(rows[per_relation:]))
    return list(first | later)


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
    ranked_rows = [int(row) for row in ranked.rows]
    dense_rows = [int(row) for row in dense.rows]
    order = list(dict.fromkeys([*ranked_rows, *dense_rows]))
    origins: dict[int, Origin] = {}
    sources: list[tuple[Origin, list[int]]] = [
        (
            "chosen",
            passages_of_chosen(
                graph, chosen, order, per_relation=per_relation, permitted=permitted
            ),
        ),
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
    scores = _decreasing([known.get(row, 0.0) for row in origins])
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


def _decreasing(scores: Sequence[float]) -> list[float]:
    lifted: list[float] = []
    floor = STEP
    for score in reversed(scores):
        floor = max(score, floor * (1 + STEP))
        lifted.append(floor)
    top = max(lifted, default=1.0)
    return [score / top if top > 1 else score for score in reversed(lifted)]
