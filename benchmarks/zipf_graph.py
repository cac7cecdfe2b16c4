"""A large graph with hubs: seeded, in memory, without texts.

Each passage has a topic, the subject of about half its relations; all other ends are drawn by the
Zipf-Mandelbrot law p(k) ~ 1 / (k + shift), the shift set so that the largest hub has the degree
asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from llama_index_graph_rag.graph.snapshot import EntityKey, GraphSnapshot, PassageKey, RelationKey


@dataclass(frozen=True)
class ZipfGraph:
    """Sizes and seed of the graph."""

    n_entities: int = 250_000
    n_relations: int = 2_000_000
    n_passages: int = 100_000
    largest_hub: int = 25_000
    seed: int = 7

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return subject, object and passage of each relation."""
        rng = np.random.default_rng(self.seed)
        passages = np.sort(rng.integers(0, self.n_passages, self.n_relations))
        topics = rng.integers(0, self.n_entities, self.n_passages)
        subjects, objects = self._draw(rng), self._draw(rng)
        about_topic = rng.random(self.n_relations) < 0.5
        subjects[about_topic] = topics[passages[about_topic]]
        return subjects, objects, passages

    def _draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        # 1.5 ends a relation follow the law: every object and half of the subjects.
        ranks = np.arange(1, self.n_entities + 1)
        share = self.largest_hub / (1.5 * self.n_relations)

        def excess(shift: float) -> float:
            law = 1 / (ranks + shift)
            return float(law[0] / law.sum() - share)

        law = 1 / (ranks + brentq(excess, 0, self.n_entities))
        edges = np.cumsum(law / law.sum())
        drawn = np.searchsorted(edges, rng.random(self.n_relations))
        return np.minimum(drawn, self.n_entities - 1)

    def snapshot(self) -> GraphSnapshot:
        """Return the graph with ids and names; takes a minute at the default size."""
        subjects, objects, passages = self.arrays()
        starts = np.searchsorted(passages, np.arange(self.n_passages + 1)).tolist()
        subjects, objects = subjects.tolist(), objects.tolist()
        return GraphSnapshot.empty().with_changes(
            entities=(EntityKey(_id(1, e), f"Entity {e:x}") for e in range(self.n_entities)),
            relations=(
                RelationKey(_id(2, r), _id(1, s), _id(1, o))
                for r, (s, o) in enumerate(zip(subjects, objects))
            ),
            passages=(
                PassageKey(
                    f"passage-{p}",
                    f"document-{p // 20}",
                    tuple(_id(2, r) for r in range(starts[p], starts[p + 1])),
                    _id(3, p),
                    _id(4, p // 20),
                )
                for p in range(self.n_passages)
            ),
        )


def _id(kind: int, number: int) -> str:
    # Spread like a hash, and reproducible.
    return f"{(number * 0x9E3779B97F4A7C15 + kind * 0xD1B54A32D192ED03) % 2**64:016x}{number:016x}"
