"""Sparse rows that can change a little without being rebuilt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int32]
Pointers = NDArray[np.int64]
Mask = NDArray[np.bool_]


def row_array(rows: object) -> Rows:
    """Return `rows` as a flat int32 array."""
    return np.asarray(rows, dtype=np.int32).reshape(-1)


def member(values: Rows, ordered: Rows) -> Mask:
    """Return which of `values` occur in the ascending array `ordered`."""
    if not len(ordered):
        return np.zeros(len(values), dtype=np.bool_)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: NDArray[np.bool_] = ordered[at] == values
    return found


def distinct(*parts: NDArray[np.integer]) -> Rows:
    """Return the distinct rows of some arrays, ascending.

    Examples
    --------
    >>> distinct(row_array([3, 1]), row_array([1]))
    array([1, 3], dtype=int32)
    """
    return _sorted_once(np.concatenate(parts).astype(np.int32))


def _sorted_once(values: NDArray[Any]) -> NDArray[Any]:
    # np.unique hashes since numpy 2.3: ten times slower than this on millions of integers.
    values = np.sort(values)
    keep = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=keep[1:])
    return values[keep]


def unique_pairs(left: Rows, right: Rows) -> tuple[Rows, Rows]:
    """Return the distinct pairs, ascending by left, then right.

    Examples
    --------
    >>> unique_pairs(row_array([1, 0, 1]), row_array([2, 5, 2]))
    (array([0, 1], dtype=int32), array([5, 2], dtype=int32))
    """
    keys = _sorted_once((left.astype(np.int64) << 32) | right)
    return (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32)


def _pointers(lengths: NDArray[np.integer]) -> Pointers:
    indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=indptr[1:])
    return indptr


@dataclass(frozen=True, eq=False, slots=True)
class Adjacency:
    """Row-wise adjacency: a base in CSR form, and whole rows written anew over it.

    A row is read from one place, so reading needs no merge; a change copies the rows that it
    touches and shares the base.

    Attributes
    ----------
    n_rows
        Number of rows; rows in neither the base nor `over_rows` are empty.
    indptr, indices
        The base: row i is ``indices[indptr[i]:indptr[i + 1]]``, ascending.
    over_rows, over_indptr, over_indices
        The rows that replace those of the base, ascending by row.

    Examples
    --------
    >>> graph = Adjacency.from_pairs(2, row_array([0, 0, 1]), row_array([3, 1, 3]))
    >>> graph.gather([1, 0])
    (array([0, 1, 3]), array([3, 1, 3], dtype=int32))
    >>> graph = graph.updated(3, add=(row_array([2, 1]), row_array([0, 4])))
    >>> graph.gather([1, 2])
    (array([0, 2, 3]), array([3, 4, 0], dtype=int32))
    """

    n_rows: int
    indptr: NDArray[np.integer]
    indices: Rows
    over_rows: Rows = field(default_factory=lambda: row_array([]))
    over_indptr: Pointers = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    over_indices: Rows = field(default_factory=lambda: row_array([]))

    @classmethod
    def from_pairs(cls, n_rows: int, rows: Rows, columns: Rows) -> Adjacency:
        """Build from (row, column) pairs; a pair given twice counts once."""
        rows, columns = unique_pairs(rows, columns)
        indptr = np.searchsorted(rows, np.arange(n_rows + 1))
        return cls(n_rows, _compact_pointers(indptr), columns)

    @property
    def n_over(self) -> int:
        """Number of entries written over the base: what merging would save."""
        return len(self.over_rows) + len(self.over_indices)

    def _locate(self, rows: Rows) -> tuple[Pointers, Pointers, Mask]:
        n_base = len(self.indptr) - 1
        inside = rows < n_base
        safe = np.where(inside, rows, 0) if n_base else np.zeros_like(rows)
        if n_base:
            starts = self.indptr[safe].astype(np.int64)
            lengths = np.where(inside, self.indptr[safe + 1] - starts, 0)
        else:
            starts, lengths = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        over = member(rows, self.over_rows)
        if over.any():
            at = np.searchsorted(self.over_rows, rows[over])
            starts[over] = self.over_indptr[at]
            lengths[over] = self.over_indptr[at + 1] - self.over_indptr[at]
        return starts, lengths, over

    def lengths(self, rows: object) -> Pointers:
        """Return the number of entries of each of these rows."""
        return self._locate(row_array(rows))[1]

    def all_lengths(self) -> Rows:
        """Return the number of entries of every row, shape (n_rows,)."""
        lengths = np.zeros(self.n_rows, dtype=np.int32)
        lengths[: len(self.indptr) - 1] = np.diff(self.indptr)
        lengths[self.over_rows] = np.diff(self.over_indptr)
        return lengths

    def gather(self, rows: object) -> tuple[Pointers, Rows]:
        """Return these rows as (indptr, indices), in the order given."""
        starts, lengths, over = self._locate(row_array(rows))
        indptr = _pointers(lengths)
        at = np.repeat(starts - indptr[:-1], lengths)
        at += np.arange(indptr[-1])
        if not over.any():
            return indptr, self.indices[at]
        if over.all():
            return indptr, self.over_indices[at]
        from_over = np.repeat(over, lengths)
        indices = np.empty(len(at), dtype=np.int32)
        indices[from_over] = self.over_indices[at[from_over]]
        indices[~from_over] = self.indices[at[~from_over]]
        return indptr, indices

    def updated(
        self,
        n_rows: int,
        *,
        add: tuple[Rows, Rows],
        touched: Rows | None = None,
        drop: Rows | None = None,
    ) -> Adjacency:
        """Return a copy of `n_rows` rows with pairs added and columns dropped from some rows.

        Parameters
        ----------
        n_rows
            Number of rows from now on, not less than before.
        add
            Pairs (rows, columns) to add.
        touched
            Rows from which the columns `drop` are taken.
        drop
            Columns to take from the rows `touched`, ascending; None takes all.
        """
        touched = row_array([]) if touched is None else distinct(touched)
        rows = distinct(touched, add[0])
        indptr, indices = self.gather(rows)
        owners = np.repeat(rows, np.diff(indptr))
        lost = member(owners, touched)
        if drop is not None:
            lost &= member(indices, drop)
        left, right = unique_pairs(
            np.concatenate([owners[~lost], add[0]]), np.concatenate([indices[~lost], add[1]])
        )
        kept_rows = self.over_rows[~member(self.over_rows, rows)]
        kept_indptr, kept = self.gather(kept_rows)
        kept_lengths = np.diff(kept_indptr)
        lengths = np.searchsorted(left, rows, "right") - np.searchsorted(left, rows, "left")
        over_rows = np.concatenate([kept_rows, rows])
        order = np.argsort(over_rows, kind="stable")
        unsorted = Adjacency(
            len(over_rows),
            _pointers(np.concatenate([kept_lengths, lengths])),
            np.concatenate([kept, right]),
        )
        over_indptr, over_indices = unsorted.gather(order)
        return Adjacency(
            n_rows, self.indptr, self.indices, over_rows[order], over_indptr, over_indices
        )

    def merged(self) -> Adjacency:
        """Return the same rows with everything in the base."""
        if not len(self.over_rows) and self.n_rows == len(self.indptr) - 1:
            return self
        indptr, indices = self.gather(np.arange(self.n_rows, dtype=np.int32))
        return Adjacency(self.n_rows, _compact_pointers(indptr), indices)


def _compact_pointers(indptr: NDArray[np.integer]) -> NDArray[np.integer]:
    # Half the memory, until a matrix of ours passes 2 billion entries.
    if not len(indptr) or indptr[-1] <= np.iinfo(np.int32).max:
        return indptr.astype(np.int32)
    return indptr
