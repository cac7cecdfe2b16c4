"""A seeded graph with the degrees of a real one: most entities have few relations, a hub many."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class SyntheticGraph(NamedTuple):
    """Relations as entity rows of their two ends, and the document of each."""

    n_entities: int
    n_documents: int
    subjects: NDArray[np.int32]
    objects: NDArray[np.int32]
    documents: NDArray[np.int32]

    def degrees(self) -> NDArray[np.int64]:
        """Return the number of relations of each entity."""
        ends = np.concatenate([self.subjects, self.objects])
        return np.bincount(ends, minlength=self.n_entities)

    def names(self) -> list[str]:
        """Return a name for each entity."""
        return [f"entity {row:06d}" for row in range(self.n_entities)]


def synthetic_graph(
    *,
    n_entities: int = 239_000,
    n_relations: int = 2_000_000,
    n_documents: int = 100_000,
    largest_hub: int = 25_000,
    seed: int = 0,
) -> SyntheticGraph:
    """Draw a graph by the model of Chung and Lu (2002) with power-law weights.

    Entity i has a weight proportional to ``(i + 1) ** -a``; `a` is solved such that the largest
    has about `largest_hub` relations at the mean degree ``2 * n_relations / n_entities``. Each
    entity has at least one relation, and none joins an entity to itself.
    """
    places = np.arange(1, n_entities + 1, dtype=np.float64)
    low, high = 0.0, 1.0
    for _ in range(60):
        exponent = (low + high) / 2
        weights = places**-exponent
        if 2 * n_relations / weights.sum() < largest_hub:
            low = exponent
        else:
            high = exponent
    random = np.random.default_rng(seed)
    cumulative = np.cumsum(weights / weights.sum())

    def draw(size: int) -> NDArray[np.int32]:
        rows = np.searchsorted(cumulative, random.random(size))
        return np.minimum(rows, n_entities - 1).astype(np.int32)

    subjects, objects = draw(n_relations), draw(n_relations)
    every = random.permutation(n_entities).astype(np.int32)
    subjects[: min(n_entities, n_relations)] = every[:n_relations]
    loops = np.flatnonzero(subjects == objects)
    objects[loops] = (subjects[loops] + 1) % n_entities
    names = random.permutation(n_entities).astype(np.int32)
    documents = np.arange(n_relations, dtype=np.int64) * n_documents // n_relations
    return SyntheticGraph(
        n_entities, n_documents, names[subjects], names[objects], documents.astype(np.int32)
    )
