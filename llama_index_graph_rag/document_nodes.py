"""Passages of a document: the same ids in every run, and a hash of what is read."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from llama_index.core.schema import (
    BaseNode,
    Document,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
)

from llama_index_graph_rag.identity import content_hash
from llama_index_graph_rag.triplets import Triplet

_FORM = (
    "text_template", "metadata_template", "metadata_separator", "mimetype",
    "index_id", "image_url", "image_path",
)  # fmt: skip
_DESCRIBE = json.JSONEncoder(sort_keys=True, default=str, ensure_ascii=False)
UNREAD = "unread:"
"""Prefix of the content hash of a passage that no extractor has read yet, or that it failed on."""


def is_random(id: str) -> bool:
    """Tell whether `id` is a random UUID, as LlamaIndex gives where it is told no other.

    Examples
    --------
    >>> is_random("ba31a9ea-c0f5-4c25-b0bb-1b1cbc1c0e4a"), is_random("report.txt")
    (True, False)
    """
    try:
        return uuid.UUID(id).version == 4 and len(id) == 36
    except ValueError:
        return False


def with_stable_ids(document: Document, nodes: Sequence[BaseNode]) -> list[BaseNode]:
    """Return copies of a document's nodes whose random ids are replaced by hashes.

    The hash is of the document's id, the text, and how many nodes before have the same text: so
    a change in one place of a document leaves the ids of all others. Ids that are not random stay.
    All nodes name the document as their source.

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> document = Document(text="Euler", id_="d")
    >>> ids = [with_stable_ids(document, [TextNode(text="Euler")])[0].node_id for _ in range(2)]
    >>> ids[0] == ids[1]
    True
    """
    seen: Counter[str] = Counter()
    names: dict[str, str] = {}
    for node in nodes:
        if is_random(node.node_id):
            text = node.get_content(metadata_mode=MetadataMode.NONE)
            names[node.node_id] = content_hash("passage", document.id_, text, str(seen[text]))
            seen[text] += 1
    return [_renamed(node, document, names) for node in nodes]


def passage_hash(node: BaseNode, triplets: Sequence[Triplet] | None = None) -> str:
    """Return a hash of all that is stored of a passage, by which a change is recognised.

    `triplets` are None where nobody has read the passage, empty where it states nothing.

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> passage_hash(TextNode(text="a")) == passage_hash(TextNode(text="a"), [])
    False
    """
    hash = source_hash(node)
    return hash if triplets is None else content_hash(hash, *map(repr, triplets))


def source_hash(node: BaseNode) -> str:
    """Return a hash of all of a passage that comes from its document: all but its triplets.

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> source_hash(TextNode(text="a", id_="1")) == source_hash(TextNode(text="a", id_="2"))
    True
    """
    related = {
        kind.name: _related_ids(value)
        for kind, value in node.relationships.items()
        if kind != NodeRelationship.SOURCE
    }
    described = {
        "metadata": node.metadata,
        "hidden": [node.excluded_embed_metadata_keys, node.excluded_llm_metadata_keys],
        "form": dict.fromkeys(_FORM)
        | {name: getattr(node, name, None) for name in _form(type(node))},
        "embedding": node.embedding,
        "related": related,
        # Where the text is moves when the document is changed before it.
        "place": [getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)],
    }
    return content_hash(
        node.get_content(metadata_mode=MetadataMode.NONE),
        node.ref_doc_id or "",
        _DESCRIBE.encode(described),
    )


@cache
def _form(kind: type[BaseNode]) -> list[str]:
    # Asking a pydantic object for what it lacks is slow.
    return [name for name in _FORM if name in kind.model_fields or hasattr(kind, name)]


def _renamed(node: BaseNode, document: Document, names: Mapping[str, str]) -> BaseNode:
    relationships = {
        kind: [_pointing(item, names) for item in value]
        if isinstance(value, list)
        else _pointing(value, names)
        for kind, value in node.relationships.items()
    }
    if node.ref_doc_id != document.id_:
        relationships[NodeRelationship.SOURCE] = document.as_related_node_info()
    else:
        relationships[NodeRelationship.SOURCE] = node.relationships[NodeRelationship.SOURCE]
    return node.model_copy(
        update={
            "id_": names.get(node.node_id, node.node_id),
            "relationships": relationships,
            "metadata": dict(node.metadata),
        }
    )


def _pointing(info: RelatedNodeInfo, names: Mapping[str, str]) -> RelatedNodeInfo:
    name = names.get(info.node_id)
    return info if name is None else info.model_copy(update={"node_id": name})


def _related_ids(value: RelatedNodeInfo | list[RelatedNodeInfo]) -> list[str]:
    return [item.node_id for item in (value if isinstance(value, list) else [value])]
