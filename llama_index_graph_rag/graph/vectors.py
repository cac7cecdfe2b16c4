"""Vectors by row, and an exact search over them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.adjacency import Mask, Rows, row_array

Vectors = NDArray[np.float32]
"""One row a vector, shape (n, dimension)."""

_BLOCK = 4_096
"""Vectors compared at once in double precision."""
_MOST_SCORES = 2**24
"""Similarities kept at once: with more vectors, fewer questions are answered together."""
_SHORT, _LONG = 1e-15, 1e15
"""Between these lengths products are safe in single precision."""
_ROUNDING = np.float32(1e-4)
"""More than what single precision is off in a cosine, in practice."""


class Chunk:
    """Vectors that came together, shape (n, dimension); never changed, so that a file can hold it.

    `name` is unique among all chunks.
    """

    def __init__(self, vectors: Vectors, name: str | None = None) -> None:
        self.vectors = vectors
        self.name = name or uuid.uuid4().hex

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """Length of each vector, 1 for zeros, shape (n,)."""
        squares = np.einsum("ij,ij->i", self.vectors, self.vectors, dtype=np.float64)
        return np.sqrt(np.where(squares > 0, squares, 1.0))

    @cached_property
    def scaled(self) -> tuple[Vectors, NDArray[np.float32]]:
        """The vectors, or such of length one where single precision would overflow; lengths."""
        if not len(self) or _SHORT < self.lengths.min() <= self.lengths.max() < _LONG:
            return self.vectors, self.lengths.astype(np.float32)
        units = (self.vectors / self.lengths[:, None]).astype(np.float32)
        return units, np.ones(len(self), dtype=np.float32)


class VectorTable:
    """Vectors by row: chunks in the order of arrival, and the place of each row in them.

    The number of chunks grows with the logarithm of the number of vectors: as in a log-structured
    merge tree, one that has grown to the size of the one before is joined with it. Reordering rows
    moves no vector.

    Parameters
    ----------
    dimension
        Length of the vectors.
    chunks
        Each of shape (n, dimension).
    places
        Place of each row's vector in the chunks laid end to end, shape (n_rows,).

    Examples
    --------
    >>> table = VectorTable(2).appended(np.array([[1, 0], [0, 2], [3, 3]], dtype=np.float32))
    >>> rows, similarities = table.reordered(row_array([2, 1])).nearest(
    ...     np.array([[0, 1]], dtype=np.float32), 1
    ... )[0]
    >>> rows.tolist(), similarities.tolist()
    ([1], [1.0])
    """

    def __init__(
        self, dimension: int, chunks: tuple[Chunk, ...] = (), places: Rows | None = None
    ) -> None:
        self.dimension = dimension
        self.chunks = chunks
        self.places = row_array([]) if places is None else places
        self._starts = [0, *accumulate(map(len, chunks))]

    def __len__(self) -> int:
        return len(self.places)

    @property
    def n_places(self) -> int:
        """Number of vectors in the chunks, those of rows that are gone among them."""
        return self._starts[-1]

    def appended(self, vectors: Vectors) -> VectorTable:
        """Return a table with these vectors, shape (n, dimension), after the present rows."""
        if not len(vectors):
            return self
        chunks = [*self.chunks, Chunk(vectors)]
        while len(chunks) > 1 and len(chunks[-1]) >= len(chunks[-2]):
            late, early = chunks.pop(), chunks.pop()
            chunks.append(Chunk(np.concatenate([early.vectors, late.vectors])))
        places = np.arange(self.n_places, self.n_places + len(vectors), dtype=np.int32)
        return VectorTable(self.dimension, tuple(chunks), np.concatenate([self.places, places]))

    def reordered(self, rows: Rows) -> VectorTable:
        """Return a table of these rows alone, in this order."""
        if 2 * len(rows) >= self.n_places:
            return VectorTable(self.dimension, self.chunks, self.places[rows])
        return VectorTable(self.dimension).appended(self.take(rows))

    def take(self, rows: Rows) -> Vectors:
        """Return the vectors of these rows, shape (n, dimension)."""
        places = self.places[rows]
        found = np.empty((len(places), self.dimension), dtype=np.float32)
        for chunk, start, end in self._spans():
            here = (places >= start) & (places < end)
            found[here] = chunk.vectors[places[here] - start]
        return found

    def nearest(
        self, questions: Vectors, limit: int, among: Mask | None = None
    ) -> list[tuple[Rows, NDArray[np.float32]]]:
        """Return the rows nearest to each of some vectors by cosine, in no order.

        Every vector is compared: the cost is that of a matrix product of `n_places` rows, and of
        more for rows that tie.

        Parameters
        ----------
        questions
            Shape (n_questions, dimension).
        limit
            Most rows a question; rows that tie for the last place come in addition.
        among
            Rows that may come, shape (n_rows,). Default: all.

        Returns
        -------
        list of (rows, similarities)
            One a question. Similarities do not depend on the order in which vectors came.
        """
        lengths = np.linalg.norm(questions.astype(np.float64), axis=1, keepdims=True)
        units = questions / np.where(lengths > 0, lengths, 1.0)
        at_once = max(1, _MOST_SCORES // max(1, self.n_places))
        found = []
        for start in range(0, len(units), at_once):
            block = units[start : start + at_once]
            scores = self._scores(block.astype(np.float32))
            for unit, column in zip(block, scores.T):
                found.append(self._best(unit, column[self.places], limit, among))
        return found

    def _best(
        self, unit: NDArray[np.float64], scores: NDArray[np.float32], limit: int, among: Mask | None
    ) -> tuple[Rows, NDArray[np.float32]]:
        rows = None if among is None else np.flatnonzero(among).astype(np.int32)
        if rows is not None:
            scores = scores[rows]
        if len(scores) > limit:
            last = np.partition(scores, len(scores) - limit)[len(scores) - limit]
            near = np.flatnonzero(scores >= last - _ROUNDING).astype(np.int32)
        else:
            near = np.arange(len(scores), dtype=np.int32)
        rows = near if rows is None else rows[near]
        # The last digits of a matrix product depend on where in the matrix a row is.
        exact = self._cosines(rows, unit)
        if len(rows) > limit:
            keep = exact >= np.partition(exact, len(rows) - limit)[len(rows) - limit]
            rows, exact = rows[keep], exact[keep]
        return rows, exact

    def _scores(self, units: Vectors) -> NDArray[np.float32]:
        """Return the similarity of each place to each vector, shape (n_places, n_units)."""
        scores = np.empty((self.n_places, len(units)), dtype=np.float32)
        for chunk, start, end in self._spans():
            vectors, lengths = chunk.scaled
            np.matmul(vectors, units.T, out=scores[start:end])
            scores[start:end] /= lengths[:, None]
        return scores

    def _cosines(self, rows: Rows, unit: NDArray[np.float64]) -> NDArray[np.float32]:
        parts = [np.empty(0)]
        for start in range(0, len(rows), _BLOCK):
            vectors = self.take(rows[start : start + _BLOCK]).astype(np.float64)
            lengths = np.sqrt((vectors * vectors).sum(axis=1))
            parts.append((vectors * unit).sum(axis=1) / np.where(lengths > 0, lengths, 1.0))
        return np.concatenate(parts).astype(np.float32)

    def _spans(self) -> Iterator[tuple[Chunk, int, int]]:
        return zip(self.chunks, self._starts, self._starts[1:])


class VectorTables(NamedTuple):
    """The vectors of a graph, by row."""

    entities: VectorTable
    relations: VectorTable
    passages: VectorTable

    @classmethod
    def empty(cls, dimension: int) -> VectorTables:
        """Return tables without rows."""
        return cls(*[VectorTable(dimension)] * 3)

    def appended(self, **added: Sequence[Vectors | None]) -> VectorTables:
        """Return tables with these vectors after the rows of the kind that they are given for.

        Raises
        ------
        GraphRAGValueError
            If a vector is None or of another dimension.
        """
        tables = self._asdict()
        for kind, vectors in added.items():
            table = tables[kind]
            if any(vector is None or vector.shape != (table.dimension,) for vector in vectors):
                raise GraphRAGValueError(
                    f"one of {len(vectors)} {kind} comes without a vector of {table.dimension} "
                    "dimensions, and this graph holds those of all; put it into the key"
                )
            rows = np.array(vectors, dtype=np.float32).reshape(len(vectors), table.dimension)
            tables[kind] = table.appended(rows)
        return VectorTables(**tables)

    def reordered(self, entities: Rows, relations: Rows, passages: Rows) -> VectorTables:
        """Return tables of these rows alone."""
        rows = (entities, relations, passages)
        return VectorTables(*(table.reordered(kept) for table, kept in zip(self, rows)))
