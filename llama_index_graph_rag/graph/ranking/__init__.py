"""Strategies that rank passages from what a question recalled."""

from __future__ import annotations

from collections.abc import Mapping

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.graph.ranking.base import (
    PassagesWanted,
    Ranked,
    Ranking,
    Recall,
    Scored,
    VectorsFound,
    VectorsWanted,
)
from llama_index_graph_rag.graph.ranking.dense import Dense
from llama_index_graph_rag.graph.ranking.hop_walk import HopWalk
from llama_index_graph_rag.graph.ranking.pagerank import PersonalizedPageRank
from llama_index_graph_rag.graph.ranking.walk import Walk

DEFAULT_RANKING = "hop_walk"
RANKINGS: Mapping[str, type[Ranking]] = {
    "hop_walk": HopWalk,
    "pagerank": PersonalizedPageRank,
    "dense": Dense,
}
"""Rankings by name; each class has a default for every number."""


def get_ranking(ranking: str | Ranking = DEFAULT_RANKING) -> Ranking:
    """Return the ranking of this name with its defaults, or `ranking` itself if it is one.

    Raises
    ------
    GraphRAGValueError
        If no ranking has this name.
    GraphRAGTypeError
        If it is neither a name nor a ranking.

    Examples
    --------
    >>> get_ranking("dense")
    Dense()
    """
    if isinstance(ranking, Ranking):
        return ranking
    if not isinstance(ranking, str):
        raise GraphRAGTypeError(
            f"ranking={ranking!r} is neither a name nor a Ranking; an instance is expected, "
            f"or one of {', '.join(RANKINGS)}"
        )
    if ranking not in RANKINGS:
        raise GraphRAGValueError(
            f"there is no ranking {ranking!r}; take one of {', '.join(RANKINGS)}, "
            "or an instance of Ranking"
        )
    return RANKINGS[ranking]()


__all__ = [
    "DEFAULT_RANKING",
    "RANKINGS",
    "Dense",
    "HopWalk",
    "PassagesWanted",
    "PersonalizedPageRank",
    "Ranked",
    "Ranking",
    "Recall",
    "Scored",
    "VectorsFound",
    "VectorsWanted",
    "Walk",
    "get_ranking",
]
