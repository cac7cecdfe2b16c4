"""The nearest passages as they are: the baseline that every ranking is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llama_index_graph_rag.graph.ranking.base import Ranked, Ranking, Ranks, Recall

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot


@dataclass(frozen=True)
class Dense(Ranking):
    """Passages by their cosine to the question, in the order recalled; no graph.

    Examples
    --------
    >>> Dense()
    Dense()
    """

    def rank(self, graph: GraphSnapshot, recall: Recall) -> Ranks:
        """Return what was recalled; nothing is asked for."""
        return Ranked(recall.passages, recall.relations)
        yield  # a generator, as every ranking is
