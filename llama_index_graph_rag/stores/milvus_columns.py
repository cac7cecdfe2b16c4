"""Rows for Milvus as columns, and the message that writes them.

`MilvusClient.upsert` packs rows value by value, strings even letter by letter, which takes longer
than all else that a client does. Milvus itself takes columns, and so does the message of its
protocol, which is filled here: the one that pymilvus would make of the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray
from pymilvus import DataType, MilvusClient
from pymilvus.grpc_gen import milvus_pb2, schema_pb2

Row = dict[str, object]

MAX_ROWS = 1_000
MAX_REQUEST_BYTES = 16 * 2**20
_DYNAMIC = "$meta"


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of one collection, by column.

    Attributes
    ----------
    texts
        String fields by name, the key first; all of one length.
    vectors
        The embeddings, shape (n, dimension).
    dynamic
        What each row holds besides, as JSON; None where the collection has no dynamic fields.

    Examples
    --------
    >>> columns = Columns({"id": ["a", "b"]}, np.eye(2, dtype=np.float32))
    >>> len(columns), columns[1:].rows()
    (2, [{'id': 'b', 'embedding': array([0., 1.], dtype=float32)}])
    """

    texts: dict[str, list[str]]
    vectors: NDArray[np.float32]
    dynamic: list[str] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def ids(self) -> list[str]:
        """The key of each row."""
        return next(iter(self.texts.values()))

    def __getitem__(self, part: slice) -> Columns:
        return Columns(
            {name: column[part] for name, column in self.texts.items()},
            self.vectors[part],
            None if self.dynamic is None else self.dynamic[part],
        )

    def only(self, wanted: NDArray[np.bool_]) -> Columns:
        """Return the rows where `wanted`, shape (n,), is true."""
        if wanted.all():
            return self
        texts = {name: list(compress(column, wanted)) for name, column in self.texts.items()}
        dynamic = None if self.dynamic is None else list(compress(self.dynamic, wanted))
        return Columns(texts, self.vectors[wanted], dynamic)

    def unit(self) -> Columns:
        """Return the rows with embeddings divided by their lengths; zeros stay zeros."""
        vectors = self.vectors.astype(np.float64)  # the squares of float32 may overflow
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        lengths[lengths == 0] = 1
        return replace(self, vectors=(vectors / lengths).astype(np.float32))

    def rows(self) -> list[Row]:
        """Return the rows as `MilvusClient.upsert` takes them."""
        rows: list[Row] = [
            {**dict(zip(self.texts, values)), "embedding": vector}
            for *values, vector in zip(*self.texts.values(), self.vectors)
        ]
        for row, packed in zip(rows, self.dynamic or ()):
            row.update(json.loads(packed))
        return rows

    def requests(self) -> Iterator[Columns]:
        """Yield the rows in order, in requests that a Milvus server accepts."""
        sizes = np.full(len(self), self.vectors[:1].nbytes)
        for column in (*self.texts.values(), self.dynamic or ()):
            sizes[: len(column)] += 4 * np.fromiter(map(len, column), np.int64, len(column))
        ends = np.cumsum(sizes)
        start = 0
        while start < len(self):
            before = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, before + MAX_REQUEST_BYTES, "right"))
            stop = max(start + 1, min(stop, start + MAX_ROWS))
            yield self[start:stop]
            start = stop

    def message(self, collection: str) -> milvus_pb2.UpsertRequest:
        """Return the message that upserts all rows."""
        fields = [
            schema_pb2.FieldData(
                field_name=name,
                type=DataType.VARCHAR,
                scalars=schema_pb2.ScalarField(string_data=schema_pb2.StringArray(data=column)),
            )
            for name, column in self.texts.items()
        ]
        vectors = schema_pb2.VectorField(
            dim=self.vectors.shape[1], float_vector=_float_array(self.vectors)
        )
        fields.append(
            schema_pb2.FieldData(
                field_name="embedding", type=DataType.FLOAT_VECTOR, vectors=vectors
            )
        )
        if self.dynamic is not None:
            packed = schema_pb2.JSONArray(data=[row.encode() for row in self.dynamic])
            fields.append(
                schema_pb2.FieldData(
                    field_name=_DYNAMIC,
                    type=DataType.JSON,
                    is_dynamic=True,
                    scalars=schema_pb2.ScalarField(json_data=packed),
                )
            )
        return milvus_pb2.UpsertRequest(
            collection_name=collection, num_rows=len(self), fields_data=fields
        )


def upsert(client: MilvusClient, collection: str, columns: Columns) -> None:
    """Upsert rows in one request, which is retried and keeps Session consistency."""
    try:
        # Not public, though the same from pymilvus 2.6.14 to 3.0: MilvusClient takes rows alone,
        # and the ORM, which takes columns, is deprecated.
        handler, context = client._get_connection(), client._generate_call_context()
    except AttributeError:
        client.upsert(collection, columns.rows())
        return
    # An empty schema would have it ask the server for one.
    handler.upsert(
        collection,
        [],
        upsert_param=columns.message(collection),
        schema={"fields": []},
        context=context,
    )


def _float_array(matrix: NDArray[np.float32]) -> schema_pb2.FloatArray:
    """Return a matrix as a message: protobuf's packed encoding, a hundred times faster here."""
    data = np.ascontiguousarray(matrix, dtype="<f4").tobytes()
    head, size = bytearray(b"\x0a"), len(data)  # field 1, then the length as a varint
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return schema_pb2.FloatArray.FromString(bytes(head) + data)
