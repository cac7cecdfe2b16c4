"""What a ranking is given and what it returns.

A ranking is pure: where it needs vectors or a second search it *yields* a request and is sent the
answer, so that one implementation serves sync and async callers and knows no store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.errors import GraphRAGValueError

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot

Rows = NDArray[np.int32]
Scores = NDArray[np.float32]
Vectors = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Scored:
    """Rows of the snapshot with a score each, best first."""

    rows: Rows
    scores: Scores


def top_rows(mass: NDArray[np.floating], ranks: Rows, limit: int | None = None) -> Scored:
    """Return the rows with the most mass, most first, ties by `ranks`.

    Masses that differ by less than a millionth of the most are equal: sums of floats depend on
    the order of rows, which depends on the history of an index. What comes to nothing by that is
    left out.

    Parameters
    ----------
    mass
        One number a row, shape (n,), not negative.
    ranks
        Place of each row in the order by which ties are broken, shape (n,).
    limit
        At most so many; None gives all.

    Examples
    --------
    >>> top_rows(np.array([0.0, 0.2, 0.5, 0.2]), np.array([0, 2, 1, 3], np.int32), 2).rows
    array([2, 1], dtype=int32)
    """
    most = float(mass.max(initial=0))
    if most <= 0:
        return Scored(np.zeros(0, np.int32), np.zeros(0, np.float32))
    rows = np.flatnonzero(mass > 5e-7 * most)
    shares = np.round(mass[rows] / most, 6)
    if limit is not None and limit < len(rows):
        enough = shares >= np.partition(shares, len(rows) - limit)[len(rows) - limit]
        rows, shares = rows[enough], shares[enough]
    order = np.lexsort((ranks[rows], -shares))[:limit]
    return Scored(rows[order].astype(np.int32), (shares[order] * most).astype(np.float32))


def first(scored: Scored, limit: int) -> Scored:
    """Return the first `limit` of `scored`."""
    return Scored(scored.rows[:limit], scored.scores[:limit])


def check_range(owner: object, least: float, most: float | None, *names: str) -> None:
    """Check that these attributes of `owner` are numbers from `least` to `most`.

    Raises
    ------
    GraphRAGValueError
        If one is not.
    """
    for name in names:
        value = getattr(owner, name)
        if not value >= least or (most is not None and not value <= most):
            limits = f"at least {least}" if most is None else f"from {least} to {most}"
            raise GraphRAGValueError(f"{name}={value!r} is not a number {limits}")


@dataclass(frozen=True, slots=True)
class Recall:
    """What the question recalled, as rows of the snapshot.

    Attributes
    ----------
    question
        The question's text.
    query_vector
        Its embedding, shape (dimension,), L2-normalised.
    relations, passages
        The nearest to the question with their cosines.
    entities
        The question's entities: a weight in (0, 1] each (1 for a name found whole).
    permitted
        Mask over passages, shape (n_passages,), or None where all are permitted. Relations
        without a permitted passage are already missing above; the ranking keeps to it as well.
    """

    question: str
    query_vector: Vectors
    relations: Scored
    passages: Scored
    entities: Scored
    permitted: Mask | None = None


@dataclass(frozen=True, slots=True)
class VectorsWanted:
    """Request: the embeddings of these rows; answered by a VectorsFound."""

    entities: Rows
    relations: Rows


@dataclass(frozen=True, slots=True)
class VectorsFound:
    """Answer to VectorsWanted: arrays (n, dimension), row by row, L2-normalised, 0 if missing."""

    entities: Vectors
    relations: Vectors


@dataclass(frozen=True, slots=True)
class PassagesWanted:
    """Request: the passages nearest to each of these vectors; answered by a list of Scored."""

    vectors: Vectors
    limit: int


Request = VectorsWanted | PassagesWanted
Answer = VectorsFound | list[Scored]


@dataclass(frozen=True, slots=True)
class Ranked:
    """Passages best first with their scores, and the relevance of the relations that were met."""

    passages: Scored
    relations: Scored


Ranks = Generator[Request, Answer, Ranked]


class Ranking(ABC):
    """A strategy that ranks passages from what was recalled."""

    @abstractmethod
    def rank(self, graph: GraphSnapshot, recall: Recall) -> Ranks:
        """Yield requests, be sent their answers, and return the ranked passages."""
