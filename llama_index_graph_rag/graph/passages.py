"""What a snapshot knows of passages besides their relations: ids, documents and hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llama_index_graph_rag.graph.adjacency import Adjacency, Rows, distinct, row_array
from llama_index_graph_rag.graph.keys import PassageKey
from llama_index_graph_rag.graph.tables import (
    KeyTable,
    TextTable,
    digest_keys,
    key_order,
    renumbering,
)


@dataclass(frozen=True, eq=False)
class PassageTable:
    """Passages by row; the row of a removed passage stays, dead, until the table is merged.

    Ids are any strings: they are found by a hash of theirs.

    Attributes
    ----------
    keys, ids, content_hashes, document_hashes
        By passage row.
    owners
        Document row of each passage, shape (n_passages,); -1 for the dead.
    document_keys, document_ids
        By document row.
    members
        Document to passages.

    Examples
    --------
    >>> table = PassageTable.empty().changed([PassageKey("p1", "book", (), "", "")], row_array([]))
    >>> table.rows(["p1", "p2"])
    array([ 0, -1], dtype=int32)
    >>> table.changed([], row_array([0])).rows(["p1"])
    array([-1], dtype=int32)
    """

    keys: KeyTable
    ids: TextTable
    content_hashes: TextTable
    document_hashes: TextTable
    owners: Rows
    document_keys: KeyTable
    document_ids: TextTable
    members: Adjacency

    @classmethod
    def empty(cls) -> PassageTable:
        """Return a table without passages."""
        keys, texts, none = KeyTable(digest_keys([])), TextTable.pack([]), row_array([])
        members = Adjacency.from_pairs(0, none, none)
        return cls(keys, texts, texts, texts, none, keys, texts, members)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def n_alive(self) -> int:
        """Number of passages that are not removed."""
        return int((self.owners >= 0).sum())

    def rows(self, ids: Sequence[str]) -> Rows:
        """Return the row of each passage id, -1 where it is unknown or removed."""
        rows = self.keys.rows(digest_keys(ids))
        known = np.flatnonzero(rows >= 0)
        rows[known[self.owners[rows[known]] < 0]] = -1
        return rows

    def ref_doc_ids(self, rows: object) -> list[str]:
        """Return the ids of the source documents of these passages, "" for a removed one."""
        owners = self.owners[row_array(rows)]
        return [self.document_ids[owner] if owner >= 0 else "" for owner in owners.tolist()]

    def of_document(self, ref_doc_id: str) -> Rows:
        """Return the passages of a source document, in the order of their ids' hashes."""
        row = self.document_keys.rows(digest_keys([ref_doc_id]))
        rows = self.members.gather(row[row >= 0])[1]
        return rows[key_order(self.keys.take(rows))]

    def changed(self, added: Sequence[PassageKey], dead: Rows) -> PassageTable:
        """Return a table with passages appended and the rows `dead`, ascending, removed."""
        names = list(dict.fromkeys(key.ref_doc_id for key in added))
        name_keys = digest_keys(names)
        new = self.document_keys.rows(name_keys) < 0
        document_keys = self.document_keys.appended(name_keys[new])
        rows = np.arange(len(self), len(self) + len(added), dtype=np.int32)
        added_owners = document_keys.rows(digest_keys(key.ref_doc_id for key in added))
        owners = np.concatenate([self.owners, added_owners])
        owners[dead] = -1
        return PassageTable(
            self.keys.appended(digest_keys(key.id for key in added)),
            self.ids.appended(key.id for key in added),
            self.content_hashes.appended(key.content_hash for key in added),
            self.document_hashes.appended(key.document_hash for key in added),
            owners,
            document_keys,
            self.document_ids.appended(name for name, is_new in zip(names, new) if is_new),
            self.members.updated(
                len(document_keys),
                add=(added_owners, rows),
                touched=self.owners[dead],
                drop=dead,
            ),
        )

    def merged(self) -> tuple[Rows, PassageTable]:
        """Return the rows that are alive in the order of keys, and a table of just these."""
        rows = np.flatnonzero(self.owners >= 0).astype(np.int32)
        rows = rows[key_order(self.keys.take(rows))]
        documents = distinct(self.owners[rows])
        documents = documents[key_order(self.document_keys.take(documents))]
        owners = renumbering(documents, len(self.document_keys))[self.owners[rows]]
        return rows, PassageTable(
            KeyTable(self.keys.take(rows)),
            self.ids.packed(rows),
            self.content_hashes.packed(rows),
            self.document_hashes.packed(rows),
            owners,
            KeyTable(self.document_keys.take(documents)),
            self.document_ids.packed(documents),
            Adjacency.from_pairs(len(documents), owners, np.arange(len(rows), dtype=np.int32)),
        )
