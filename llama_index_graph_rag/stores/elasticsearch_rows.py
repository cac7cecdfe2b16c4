"""The rows of a graph in Elasticsearch: mappings, and rows from nodes and mentions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llama_index.core.schema import BaseNode, MetadataMode, TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.extractors.node_triplets import strip_graph_metadata, triplets_from_node
from llama_index_graph_rag.identity import clean_text, content_hash
from llama_index_graph_rag.stores.elasticsearch_connection import Json
from llama_index_graph_rag.triplets import InvalidTriplet, Mention, as_triplet, unique_triplets

SCHEMA_VERSION = 1
MAX_KEYWORD_BYTES = 32_766
"""Longest value of a keyword field, a limit of Lucene."""

_KEYWORD: Json = {"type": "keyword"}
_KEPT: Json = {"type": "keyword", "index": False, "doc_values": False}

MAPPINGS: dict[str, Json] = {
    "documents": {
        "passage_id": _KEYWORD,
        "doc_id": _KEYWORD,
        "text": {"type": "text"},
        "node": _KEPT,
        "pairs": _KEPT,
    },
    # One row for each passage that states a relation: no hub outgrows a row, and a passage's rows
    # can be replaced without reading those of another.
    "relations": {
        "relation_id": _KEYWORD,
        "pair": _KEYWORD,
        "source": _KEYWORD,
        "target": _KEYWORD,
        "source_name": _KEYWORD,
        "target_name": _KEYWORD,
        "relation": _KEYWORD,
        "text": {"type": "text"},
        "sentence": {"type": "text", "index": False},
        "passage_id": _KEYWORD,
        "doc_id": _KEYWORD,
    },
    # One row for each two entities that relations join, in either direction.
    "aggregated": {
        "source": _KEYWORD,
        "target": _KEYWORD,
        "source_name": _KEYWORD,
        "target_name": _KEYWORD,
        "count": {"type": "integer"},
    },
}


class Indices(NamedTuple):
    """The three indices of one prefix."""

    documents: str
    relations: str
    aggregated: str

    @classmethod
    def of(cls, prefix: str) -> Indices:
        """Return the names under `prefix`.

        Examples
        --------
        >>> Indices.of("euler").relations
        'euler_relations'
        """
        return cls(*(f"{prefix}_{name}" for name in cls._fields))


@dataclass(frozen=True, slots=True)
class Passage:
    """A node to write with its mentions, each relation once."""

    node: BaseNode
    mentions: tuple[Mention, ...]

    @property
    def id(self) -> str:
        """The node's id."""
        return self.node.node_id

    @property
    def doc_id(self) -> str:
        """The id of the document that the node comes from."""
        return self.node.ref_doc_id or ""


def pair_id(left: str, right: str) -> str:
    """Return the key of two entities, whichever comes first.

    Examples
    --------
    >>> pair_id("b", "a")
    'a b'
    """
    return f"{min(left, right)} {max(left, right)}"


def as_passages(
    nodes: Sequence[BaseNode], triplets: Sequence[Sequence[object]] | None
) -> tuple[list[Passage], list[InvalidTriplet]]:
    """Check nodes and their triplets (three strings or a Mention each; None: from the metadata).

    Raises
    ------
    GraphRAGTypeError, GraphRAGValueError
        If a node or triplet cannot be stored, before anything is written.
    """
    for node in nodes:
        if not isinstance(node, BaseNode):
            raise GraphRAGTypeError(f"nodes holds a {type(node).__name__}; give LlamaIndex nodes")
    if triplets is None:
        triplets = [triplets_from_node(node).triplets for node in nodes]
    if len(triplets) != len(nodes):
        raise GraphRAGValueError(
            f"{len(nodes)} nodes but {len(triplets)} lists of triplets; triplets[i] are node i's"
        )
    passages: dict[str, Passage] = {}
    invalid: list[InvalidTriplet] = []
    for node, given in zip(nodes, triplets):
        if node.node_id in passages:
            raise GraphRAGValueError(
                f"two nodes have the id {node.node_id!r}; give each passage its own, or once"
            )
        passages[node.node_id], left_out = _as_passage(node, given)
        invalid += left_out
    return list(passages.values()), invalid


def _as_passage(node: BaseNode, triplets: Sequence[object]) -> tuple[Passage, list[InvalidTriplet]]:
    for name, value in (("id", node.node_id), ("ref_doc_id", node.ref_doc_id or "")):
        if clean_text(value) != value:
            raise GraphRAGValueError(
                f"a node's {name} {value[:40]!r} holds a lone surrogate, which no request can "
                "carry; give the node another"
            )
        size = len(value.encode())
        if size > MAX_KEYWORD_BYTES:
            raise GraphRAGValueError(
                f"a node's {name} of {size:,} bytes ({value[:40]!r}...) is over the limit of "
                f"{MAX_KEYWORD_BYTES:,}; give the node a shorter one"
            )
    given: dict[str, Mention] = {}
    for item in triplets:
        mention = item if isinstance(item, Mention) else Mention(as_triplet(item))
        given.setdefault(mention.triplet.id, mention)
    valid, invalid = unique_triplets(mention.triplet for mention in given.values())
    return Passage(node, tuple(given[triplet.id] for triplet in valid)), invalid


def document_id(passage_id: str) -> str:
    """Return the row id of a passage: node ids may be longer than the engine's 512 bytes."""
    return content_hash(passage_id)


def document_row(passage: Passage, pairs: Sequence[str]) -> Json:
    """Return the row of a passage."""
    node = strip_graph_metadata(passage.node)
    embedding, node.embedding = node.embedding, None
    try:
        content = node_to_metadata_dict(node, remove_text=True)
    except (TypeError, ValueError) as error:
        raise GraphRAGTypeError(
            f"node {passage.id!r} cannot be written as JSON ({error}); keep strings, numbers, "
            "lists and dicts in its metadata"
        ) from error
    row: Json = {
        "passage_id": passage.id,
        "doc_id": passage.doc_id,
        "text": clean_text(node.get_content(metadata_mode=MetadataMode.NONE)),
        "node": content["_node_content"],
        "pairs": list(pairs),
    }
    return row if embedding is None else {**row, "embedding": list(embedding)}


def node_of(row: Mapping[str, str]) -> TextNode:
    """Return the node of a passage's row."""
    node = metadata_dict_to_node({"_node_content": row["node"]}, text=row["text"])
    if not isinstance(node, TextNode):
        raise GraphRAGTypeError(f"row {row['passage_id']!r} holds a {type(node).__name__}")
    return node


def mention_id(passage_id: str, relation_id: str) -> str:
    """Return the row id of one relation in one passage."""
    return content_hash(relation_id, passage_id)


def mention_row(
    passage: Passage,
    mention: Mention,
    names: Mapping[str, str],
    embedding: Sequence[float] | None,
) -> Json:
    """Return the row of one relation in one passage; entities are spelled as `names` says."""
    triplet = mention.triplet
    text = passage.node.get_content(metadata_mode=MetadataMode.NONE)
    source, target = triplet.subject_id, triplet.object_id
    row: Json = {
        "relation_id": triplet.id,
        "pair": pair_id(source, target),
        "source": source,
        "target": target,
        "source_name": names[source],
        "target_name": names[target],
        "relation": triplet.predicate,
        "text": triplet.text,
        # A mention without a place has no sentence of its own; the passage stands in at reading.
        "sentence": "" if mention.start is None else clean_text(mention.evidence(text)),
        "passage_id": passage.id,
        "doc_id": passage.doc_id,
    }
    return row if embedding is None else {**row, "embedding": [float(x) for x in embedding]}


def check_vectors(vectors: Mapping[str, Sequence[float]], what: str) -> int | None:
    """Return the dimension of these vectors, None if there are none.

    Raises
    ------
    GraphRAGValueError
        If they differ in dimension, or one is zero or not finite: the engine has no cosine for it.
    """
    dimension: int | None = None
    for key, vector in vectors.items():
        dimension = len(vector) if dimension is None else dimension
        if len(vector) != dimension:
            raise GraphRAGValueError(
                f"{what} {key!r} has an embedding of {len(vector)} dimensions, others have "
                f"{dimension}; embed all with one model"
            )
        norm = math.fsum(float(x) * float(x) for x in vector)
        if not math.isfinite(norm) or norm == 0:
            raise GraphRAGValueError(
                f"{what} {key!r} has an embedding that is zero or not finite; the engine has no "
                "cosine for it: leave this embedding out or embed again"
            )
    return dimension
