"""The collections of an index in Milvus, and how rows are written and read back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
from numpy.typing import NDArray
from pymilvus import CollectionSchema, DataType, MilvusClient

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.graph.snapshot import EntityKey, PassageKey, RelationKey
from llama_index_graph_rag.identity import clean_text
from llama_index_graph_rag.stores.base import EntityRow, PassageRow, RelationRow, StoredPassage
from llama_index_graph_rag.stores.milvus_columns import Columns, Row
from llama_index_graph_rag.triplets import Mention, Triplet

SCHEMA_VERSION = 1
MAX_VARCHAR_BYTES = 65_535
MAX_DYNAMIC_BYTES = 65_536
NO_DOCUMENT = "None"
"""What LlamaIndex writes as the document of a passage that has none."""

_STRICT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Collections:
    """Names of the collections of one index."""

    prefix: str

    @property
    def entities(self) -> str:
        """Entities: id, text, embedding."""
        return f"{self.prefix}_entities"

    @property
    def relations(self) -> str:
        """Relations: id, subject_id, object_id, subject, predicate, object, text, embedding."""
        return f"{self.prefix}_relations"

    @property
    def passages(self) -> str:
        """Passages, in the layout of LlamaIndex's MilvusVectorStore with fields of ours."""
        return f"{self.prefix}_passages"

    @property
    def meta(self) -> str:
        """What the index is, and one row per writer."""
        return f"{self.prefix}_meta"

    @property
    def fields(self) -> dict[str, list[str]]:
        """String fields of each collection, the key first; the meta collection comes last."""
        parts = ["subject_id", "object_id", "subject", "predicate", "object"]
        return {
            self.entities: ["id", "text"],
            self.relations: ["id", *parts, "text"],
            self.passages: ["id", "doc_id", "text"],
            self.meta: ["id", "value"],
        }

    @property
    def with_vectors(self) -> tuple[str, str, str]:
        """The collections that hold embeddings."""
        return self.entities, self.relations, self.passages


def create_collection(
    client: MilvusClient, name: str, fields: Sequence[str], *, dimension: int, dynamic: bool
) -> None:
    """Create a collection of string `fields` (the first is the key) and one vector."""
    schema: CollectionSchema = client.create_schema(auto_id=False, enable_dynamic_field=dynamic)
    for position, field in enumerate(fields):
        schema.add_field(
            field, DataType.VARCHAR, max_length=MAX_VARCHAR_BYTES, is_primary=position == 0
        )
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=dimension)
    client.create_collection(name, schema=schema, consistency_level="Session")


def create_index(
    client: MilvusClient, name: str, *, metric: str, index: Mapping[str, object]
) -> None:
    """Index the vectors of a collection (create_collection would sleep half a second over it)."""
    params = client.prepare_index_params()
    params.add_index("embedding", index_name="embedding", metric_type=metric, **index)
    client.create_index(name, params, sync=False)


def entity_columns(rows: Iterable[EntityRow], dimension: int) -> Columns:
    """Return entities as Milvus takes them; of several with one id the last."""
    kept = list({row.id: row for row in rows}.values())
    texts = _varchars([row.text for row in kept], "entity name")
    return Columns(
        {"id": [row.id for row in kept], "text": texts},
        _vectors([row.embedding for row in kept], dimension, texts),
    )


def relation_columns(rows: Iterable[RelationRow], dimension: int) -> Columns:
    """Return relations as Milvus takes them; of several with one id the last."""
    kept = list({row.id: row for row in rows}.values())
    texts = {
        "id": [row.id for row in kept],
        "subject_id": [row.subject_id for row in kept],
        "object_id": [row.object_id for row in kept],
        "subject": _varchars([row.subject for row in kept], "subject"),
        "predicate": _varchars([row.predicate for row in kept], "predicate"),
        "object": _varchars([row.object for row in kept], "object"),
        "text": _varchars([row.text for row in kept], "relation text"),
    }
    return Columns(texts, _vectors([row.embedding for row in kept], dimension, texts["text"]))


def passage_columns(rows: Iterable[PassageRow], dimension: int) -> Columns:
    """Return passages as Milvus takes them, of several with one id the last; see `pack_passage`."""
    kept = list({row.node.node_id: row for row in rows}.values())
    packed = [pack_passage(row) for row in kept]
    ids = [row.node.node_id for row in kept]
    texts = {
        "id": ids,
        "doc_id": [row.node.ref_doc_id or NO_DOCUMENT for row in kept],
        "text": [row.node.text for row in kept],
    }
    return Columns(texts, _vectors([row.embedding for row in kept], dimension, ids), packed)


def pack_passage(row: PassageRow) -> str:
    """Return the dynamic fields of a passage as JSON: MilvusVectorStore's, and ours.

    Raises
    ------
    GraphRAGValueError
        If the id, the text, or metadata and mentions together are over Milvus's limits, or
        metadata cannot be written as JSON.
    """
    node = row.node
    if not node.node_id:
        raise GraphRAGValueError("a passage has an empty id; give each an id of its own")
    document = node.ref_doc_id
    if document == NO_DOCUMENT:
        raise GraphRAGValueError(
            f"passage {node.node_id[:80]!r} is of a document with the id {NO_DOCUMENT!r}, by which "
            "passages without a document are stored; give the document another id"
        )
    id = _varchar(node.node_id, f"passage id {node.node_id[:80]!r}")
    _varchar(node.text, f"text of passage {id[:80]!r}")
    _varchar(document or NO_DOCUMENT, "document id")
    try:
        entry: Row = node_to_metadata_dict(node, remove_text=True, text_field="text")
    except (TypeError, ValueError) as error:
        raise GraphRAGValueError(
            f"passage {id[:80]!r} cannot be stored: {error}; metadata holds strings, numbers, "
            "truth values, None, lists and dicts of these: convert what is of another type"
        ) from error
    for field in ("id", "doc_id", "text", "embedding"):  # have columns, metadata may not
        entry.pop(field, None)
    entry["relation_ids"] = row.relation_ids
    entry["mentions"] = [
        {
            "s": mention.triplet.subject,
            "p": mention.triplet.predicate,
            "o": mention.triplet.object,
            "start": mention.start,
            "end": mention.end,
        }
        for mention in row.mentions
    ]
    entry["content_hash"] = row.content_hash
    entry["document_hash"] = row.document_hash
    packed = _pack(entry)
    # A surrogate may be anywhere, what else Milvus refuses in metadata only; the search is slow.
    if fault := _fault(node.metadata if packed == clean_text(packed) else entry):
        raise GraphRAGValueError(
            f"passage {id[:80]!r}: its metadata holds {fault}, which Milvus cannot store; "
            "convert or leave it out"
        )
    size = len(packed) if packed.isascii() else len(packed.encode())
    if size > MAX_DYNAMIC_BYTES:
        raise GraphRAGValueError(
            f"passage {id[:80]!r}: metadata and {len(row.mentions):,} triplets take "
            f"{size:,} bytes, over Milvus's limit of {MAX_DYNAMIC_BYTES:,} a row; split the "
            "passage into smaller ones or shorten its metadata"
        )
    return packed


def read_passage(row: Mapping[str, object]) -> StoredPassage:
    """Return a row of the passages collection as it was written."""
    node = metadata_dict_to_node(dict(row), text=str(row["text"]))
    if not isinstance(node, TextNode):
        raise GraphRAGTypeError(f"passage {row['id']!r} is a {type(node).__name__}, not a TextNode")
    relation_ids = row.get("relation_ids") or []
    mentions = row.get("mentions") or []
    if not isinstance(relation_ids, Sequence) or not isinstance(mentions, Sequence):
        raise GraphRAGTypeError(f"passage {row['id']!r} has relations of another layout")
    return StoredPassage(
        node=node,
        relation_ids=tuple(relation_ids),
        mentions=tuple(
            Mention(Triplet(item["s"], item["p"], item["o"]), item["start"], item["end"])
            for item in mentions
        ),
    )


def read_metadata(row: Mapping[str, object]) -> dict[str, object]:
    """Return what LlamaIndex's filters look at: a passage's metadata and its document's id."""
    metadata: dict[str, object] = json.loads(str(row["_node_content"]))["metadata"]
    return {**metadata, **dict.fromkeys(("document_id", "doc_id", "ref_doc_id"), row["doc_id"])}


def passage_key(row: Mapping[str, object]) -> PassageKey:
    """Return what the graph keeps of a row of the passages collection."""
    relation_ids = row.get("relation_ids") or ()
    return PassageKey(
        id=str(row["id"]),
        ref_doc_id="" if row["doc_id"] == NO_DOCUMENT else str(row["doc_id"]),
        relation_ids=tuple(relation_ids) if isinstance(relation_ids, Sequence) else (),
        content_hash=str(row.get("content_hash") or ""),
        document_hash=str(row.get("document_hash") or ""),
    )


def written_key(row: PassageRow, vector: NDArray[np.float32]) -> PassageKey:
    """Return what the graph keeps of a passage that is written with this embedding."""
    return PassageKey(
        id=row.node.node_id,
        ref_doc_id=row.node.ref_doc_id or "",
        relation_ids=row.relation_ids,
        content_hash=row.content_hash,
        document_hash=row.document_hash,
        vector=vector,
    )


def relation_key(row: Mapping[str, object]) -> RelationKey:
    """Return what the graph keeps of a row of the relations collection."""
    return RelationKey(str(row["id"]), str(row["subject_id"]), str(row["object_id"]))


def entity_key(row: Mapping[str, object]) -> EntityKey:
    """Return what the graph keeps of a row of the entities collection."""
    return EntityKey(str(row["id"]), str(row["text"]))


def forgetting(columns: Columns, stored: Iterable[Row]) -> Columns:
    """Return rows that are null where stored ones of the same ids have fields that they lack.

    Milvus Lite keeps the dynamic fields of the row that is replaced where the new one does not name
    them, and filters would see them.
    """
    places = {id: place for place, id in enumerate(columns.ids)}
    dynamic = list(columns.dynamic or ())
    for row in stored:
        place = places[str(row["id"])]
        held = {name for name, value in row.items() if value is not None}
        entry = json.loads(dynamic[place])
        if gone := held - entry.keys() - columns.texts.keys():
            dynamic[place] = _pack(entry | dict.fromkeys(sorted(gone)))
    return replace(columns, dynamic=dynamic)


def _pack(entry: Row) -> str:
    try:
        return _STRICT.encode(entry)
    except ValueError:  # NaN and the infinities, which JSON lacks
        return _STRICT.encode(json.loads(json.dumps(entry), parse_constant=lambda _: None))


def _fault(value: object) -> str | None:
    """Say what Milvus's JSON cannot hold in `value`."""
    if isinstance(value, str):
        return "a lone surrogate" if value != clean_text(value) else None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else f"{value}, a number of over 64 bits"
    if isinstance(value, Mapping):
        if "$meta" in value:
            return "the key '$meta'"
        value = [*value, *value.values()]
    within = value if isinstance(value, (list, tuple)) else ()
    return next(filter(None, map(_fault, within)), None)


def _varchars(texts: list[str], what: str) -> list[str]:
    if not "".join(texts).isascii() or max(map(len, texts), default=0) > MAX_VARCHAR_BYTES:
        for text in texts:
            _varchar(text, what)
    return texts


def _varchar(text: str, what: str) -> str:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    if size > MAX_VARCHAR_BYTES:
        raise GraphRAGValueError(
            f"the {what} takes {size:,} bytes, over Milvus's limit of {MAX_VARCHAR_BYTES:,}; "
            "split it into smaller pieces"
        )
    if text != clean_text(text):
        raise GraphRAGValueError(
            f"the {what} holds a lone surrogate and cannot be encoded; clean it with "
            "text.encode('utf-8', 'replace').decode()"
        )
    return text


def _vectors(
    embeddings: Sequence[Sequence[float]], dimension: int, names: Sequence[str]
) -> NDArray[np.float32]:
    """Return embeddings as a matrix, shape (n, dimension); `names` are for messages."""
    if not embeddings:
        return np.empty((0, dimension), dtype=np.float32)
    try:
        matrix = np.array(embeddings, dtype=np.float32)
    except ValueError:  # of several lengths
        matrix = np.empty(0, dtype=np.float32)
    if matrix.shape != (len(embeddings), dimension) or not np.isfinite(matrix).all():
        return np.stack([_vector(*each, dimension) for each in zip(embeddings, names)])
    return matrix


def _vector(embedding: Sequence[float], what: str, dimension: int) -> NDArray[np.float32]:
    vector = np.asarray(embedding, dtype=np.float32)
    if vector.shape != (dimension,):
        raise GraphRAGValueError(
            f"the embedding of {what[:80]!r} has shape {vector.shape}, the index has vectors of "
            f"{dimension} dimensions; use the embedding model that the index was built with"
        )
    if not np.isfinite(vector).all():
        raise GraphRAGValueError(f"the embedding of {what[:80]!r} holds a NaN or an infinity")
    return vector
