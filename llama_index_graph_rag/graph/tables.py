"""Ids and texts by row: packed arrays with a short tail of what came later."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.adjacency import Rows, row_array

Keys = NDArray[np.bytes_]
"""16-byte keys, dtype S16."""

_HEX = re.compile("[0-9a-f]*")


def hex_keys(ids: Sequence[str]) -> tuple[Keys, NDArray[np.bool_]]:
    """Return ids of 32 hexadecimal digits as keys, and which of the ids are such.

    Examples
    --------
    >>> hex_keys(["00" * 16, "euler"])[1]
    array([ True, False])
    """
    joined = "".join(ids)
    if set(map(len, ids)) <= {32} and _HEX.fullmatch(joined):
        valid = np.ones(len(ids), dtype=np.bool_)
    else:
        valid = np.array([len(i) == 32 and _HEX.fullmatch(i) is not None for i in ids], np.bool_)
        joined = "".join(i if ok else "0" * 32 for i, ok in zip(ids, valid))
    return np.frombuffer(bytes.fromhex(joined), dtype="S16"), valid


def valid_keys(ids: Sequence[str], kind: str) -> Keys:
    """Return ids as keys.

    Raises
    ------
    GraphRAGValueError
        If an id is not 32 hexadecimal digits.
    """
    keys, valid = hex_keys(ids)
    if not valid.all():
        bad = ids[int(np.argmin(valid))]
        raise GraphRAGValueError(
            f"{bad!r} is not the id of {kind}: 32 hexadecimal digits are expected; "
            "take ids from llama_index_graph_rag.identity"
        )
    return keys


def digest_keys(texts: Iterable[str]) -> Keys:
    """Return a key for each of any texts: the first 16 bytes of its BLAKE2b hash."""
    digests = (
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for text in texts
    )
    return np.frombuffer(b"".join(digests), dtype="S16")


def key_order(keys: Keys) -> NDArray[np.intp]:
    """Return the stable order that sorts `keys`."""
    # Far faster than argsort on bytes: a stable sort of integers takes what is in order as it is.
    halves = np.frombuffer(keys.tobytes(), dtype=">u8").reshape(-1, 2).astype(np.uint64)
    order = np.argsort(halves[:, 0], kind="stable")
    first = halves[order, 0]
    if (first[1:] == first[:-1]).any():
        return np.lexsort((halves[:, 1], halves[:, 0]))
    return order


def renumbering(kept: Rows, size: int) -> Rows:
    """Return the new place of each of `size` rows of which only `kept` stay, -1 for the others.

    Examples
    --------
    >>> renumbering(row_array([2, 0]), 3)
    array([ 1, -1,  0], dtype=int32)
    """
    places = np.full(size, -1, dtype=np.int32)
    places[kept] = np.arange(len(kept), dtype=np.int32)
    return places


class KeyTable:
    """Keys by row: a sorted base, and a tail in the order of arrival.

    A key may come again in the tail: the last row holds.

    Parameters
    ----------
    base
        Distinct keys, ascending.
    tail
        Keys of the rows after the base.

    Examples
    --------
    >>> table = KeyTable(digest_keys([])).appended(digest_keys(["a", "b"]))
    >>> table.rows(digest_keys(["b", "c"]))
    array([ 1, -1], dtype=int32)
    """

    def __init__(self, base: Keys, tail: Keys | None = None) -> None:
        self.base = base
        self.tail = base[:0] if tail is None else tail
        self._tail_order = key_order(self.tail)
        self._tail_sorted = self.tail[self._tail_order]

    def __len__(self) -> int:
        return len(self.base) + len(self.tail)

    def rows(self, keys: Keys) -> Rows:
        """Return the row of each key, -1 where it is unknown."""
        rows = np.full(len(keys), -1, dtype=np.int32)
        if len(self.base):
            at = np.minimum(np.searchsorted(self.base, keys), len(self.base) - 1)
            found = self.base[at] == keys
            rows[found] = at[found]
        if len(self.tail):
            at = np.maximum(np.searchsorted(self._tail_sorted, keys, "right") - 1, 0)
            found = self._tail_sorted[at] == keys
            rows[found] = self._tail_order[at[found]] + len(self.base)
        return rows

    def rows_of_hex(self, ids: Sequence[str]) -> Rows:
        """Return the row of each id of 32 hexadecimal digits, -1 for others and unknown ones."""
        keys, valid = hex_keys(ids)
        rows = self.rows(keys)
        rows[~valid] = -1
        return rows

    def take(self, rows: object) -> Keys:
        """Return the keys of these rows."""
        wanted = row_array(rows)
        n_base = len(self.base)
        if not len(self.tail):
            return self.base[wanted]
        late = wanted >= n_base
        keys = np.empty(len(wanted), dtype="S16")
        keys[~late] = self.base[wanted[~late]]
        keys[late] = self.tail[wanted[late] - n_base]
        return keys

    def hex(self, rows: object) -> list[str]:
        """Return the keys of these rows as 32 hexadecimal digits each."""
        digits = self.take(rows).tobytes().hex()
        return [digits[i : i + 32] for i in range(0, len(digits), 32)]

    def appended(self, keys: Keys) -> KeyTable:
        """Return a table with these keys after the present rows."""
        return KeyTable(self.base, np.concatenate([self.tail, keys])) if len(keys) else self

    def ranks_of(self, rows: object) -> Rows:
        """Return the place of each of these rows in the order of keys: how ties are broken."""
        wanted = row_array(rows)
        if not len(self.tail):
            return wanted
        n_base = len(self.base)
        late = wanted >= n_base
        ranks = wanted + np.searchsorted(self._before, wanted, "right").astype(np.int32)
        ranks[late] = self._tail_ranks[wanted[late] - n_base]
        return ranks

    @cached_property
    def ranks(self) -> Rows:
        """Place of each row in the order of keys, shape (n,)."""
        return self.ranks_of(np.arange(len(self), dtype=np.int32))

    @cached_property
    def _before(self) -> Rows:
        # For each key of the tail, in their order, the number of base keys before it.
        return np.searchsorted(self.base, self._tail_sorted).astype(np.int32)

    @cached_property
    def _tail_ranks(self) -> Rows:
        ranks = np.empty(len(self.tail), dtype=np.int32)
        ranks[self._tail_order] = self._before + np.arange(len(self.tail), dtype=np.int32)
        return ranks


class TextTable(Sequence[str]):
    """Texts by row: UTF-8 in one buffer, and a tail of strings.

    Parameters
    ----------
    buffer, offsets
        Text i is ``buffer[offsets[i]:offsets[i + 1]]``.
    tail
        Texts of the rows after the buffer's.

    Examples
    --------
    >>> table = TextTable.pack(["Euler", "Lagrange"]).appended(["Gauß"])
    >>> len(table), table[1], list(table.take([2, 0]))
    (3, 'Lagrange', ['Gauß', 'Euler'])
    """

    def __init__(
        self, buffer: NDArray[np.uint8], offsets: NDArray[np.int64], tail: tuple[str, ...] = ()
    ) -> None:
        self.buffer = buffer
        self.offsets = offsets
        self.tail = tail

    @classmethod
    def pack(cls, texts: Iterable[str]) -> TextTable:
        """Build from texts."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1 + len(self.tail)

    def _get(self, row: int) -> str:
        n_base = len(self.offsets) - 1
        if row >= n_base:
            return self.tail[row - n_base]
        text = self.buffer[self.offsets[row] : self.offsets[row + 1]].tobytes()
        return text.decode("utf-8", "surrogatepass")

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._get(row) for row in range(*index.indices(len(self)))]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"row {index} of {len(self)} texts")
        return self._get(row)

    def __iter__(self) -> Iterator[str]:
        return iter(self.take(np.arange(len(self), dtype=np.int32)))

    def take(self, rows: object) -> list[str]:
        """Return the texts of these rows."""
        wanted = row_array(rows)
        early = wanted < len(self.offsets) - 1
        buffer, offsets = self._gather(wanted[early])
        data, bounds = buffer.tobytes(), offsets.tolist()
        found = (
            data[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(bounds)
        )
        if early.all():
            return list(found)
        n_base = len(self.offsets) - 1
        return [
            next(found) if is_early else self.tail[row - n_base]
            for row, is_early in zip(wanted.tolist(), early)
        ]

    def _gather(self, rows: Rows) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        starts = self.offsets[rows]
        lengths = self.offsets[rows + np.int64(1)] - starts
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        at = np.repeat(starts - offsets[:-1], lengths)
        at += np.arange(offsets[-1])
        return self.buffer[at], offsets

    def appended(self, texts: Iterable[str]) -> TextTable:
        """Return a table with these texts after the present rows."""
        return TextTable(self.buffer, self.offsets, (*self.tail, *texts))

    def packed(self, rows: Rows) -> TextTable:
        """Return a table of these rows alone, in this order, without a tail."""
        late = TextTable.pack(self.tail)
        whole = TextTable(
            np.concatenate([self.buffer, late.buffer]),
            np.concatenate([self.offsets, late.offsets[1:] + self.offsets[-1]]),
        )
        return TextTable(*whole._gather(rows))
