"""Triplets on a node's metadata: ours, and what LlamaIndex's own extractors leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.graph_stores.types import (
    KG_NODES_KEY,
    KG_RELATIONS_KEY,
    LabelledNode,
    Relation,
)
from llama_index.core.schema import BaseNode

from llama_index_graph_rag.errors import GraphRAGError
from llama_index_graph_rag.triplets import InvalidTriplet, Triplet, unique_triplets

TRIPLETS_KEY = "graph_rag_triplets"
"""Metadata key of the triplets that our extractors leave: a list of [subject, predicate, object].

An empty list says that the passage was read and states nothing.
"""

FAILURE_KEY = "graph_rag_extraction_failure"
"""Metadata key of the reason why an extraction failed; such a node has no TRIPLETS_KEY."""

_OURS = (TRIPLETS_KEY, FAILURE_KEY)
_STRUCTURAL = frozenset({"SOURCE", "PREVIOUS", "NEXT", "PARENT", "CHILD"})


@dataclass(frozen=True, slots=True)
class NodeTriplets:
    """What the extractors left on one node.

    Attributes
    ----------
    triplets
        The valid triplets, each once, in the order in which they were left.
    invalid
        Those that cannot be used, with the reason.
    extracted
        Whether any extractor has read the node: tells "states nothing" from "not read yet".
    failure
        Why the last extraction failed, or None.
    structural
        Relations between chunks, as ImplicitPathExtractor leaves them; they state no fact.
    """

    triplets: tuple[Triplet, ...] = ()
    invalid: tuple[InvalidTriplet, ...] = ()
    extracted: bool = False
    failure: str | None = None
    structural: int = 0


@dataclass(frozen=True, slots=True)
class ExtractionFailure:
    """A passage whose extraction failed, and why; `ref_doc_id` is its document, "" without one."""

    node_id: str
    reason: str
    ref_doc_id: str = ""


@dataclass(frozen=True, slots=True)
class ExtractionReport:
    """What an extraction run came to.

    Attributes
    ----------
    passages, triplets
        Nodes looked at, and valid triplets on them (each counted once a node).
    empty
        Ids of the nodes that were read and state nothing.
    failures
        The nodes that failed; giving them to the extractor again retries these alone.
    missing
        Ids of the nodes that no extractor has seen.
    invalid
        Triplets left out, with the reason.
    """

    passages: int
    triplets: int
    empty: tuple[str, ...]
    failures: tuple[ExtractionFailure, ...]
    missing: tuple[str, ...]
    invalid: tuple[InvalidTriplet, ...]


def triplets_from_node(node: BaseNode) -> NodeTriplets:
    """Return the triplets on `node`, whoever left them.

    Read are our own key and LlamaIndex's KG_NODES_KEY and KG_RELATIONS_KEY, as objects or, after a
    round trip through a pipeline's cache, as dicts. An unusable entry is listed, never raised for.

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> node = TextNode(text="...", metadata={TRIPLETS_KEY: [["Euler", "lived in", "Basel"]]})
    >>> triplets_from_node(node).triplets
    (Triplet(subject='Euler', predicate='lived in', object='Basel'),)
    >>> triplets_from_node(TextNode(text="...")).extracted
    False
    """
    metadata = node.metadata
    failure = metadata.get(FAILURE_KEY)
    values: list[object] = []
    structural = 0
    own = metadata.get(TRIPLETS_KEY)
    if isinstance(own, Sequence) and not isinstance(own, str):
        values += own
    foreign = _is_graph_list(metadata.get(KG_RELATIONS_KEY), _is_relation)
    if foreign:
        names = {
            _field(item, "id") or _field(item, "name").replace('"', " "): _field(item, "name")
            for item in metadata.get(KG_NODES_KEY) or ()
            if _is_entity(item)
        }
        for relation in metadata[KG_RELATIONS_KEY]:
            source, target = _field(relation, "source_id"), _field(relation, "target_id")
            label = _field(relation, "label")
            if label in _STRUCTURAL and source not in names:
                structural += 1
            else:
                values.append((names.get(source, source), label, names.get(target, target)))
    valid, invalid = valid_triplets(values)
    return NodeTriplets(
        triplets=tuple(valid),
        invalid=tuple(invalid),
        extracted=own is not None or (foreign and (not structural or len(values) > 0)),
        failure=None if failure is None else str(failure),
        structural=structural,
    )


def extraction_report(nodes: Iterable[BaseNode]) -> ExtractionReport:
    """Return what the extraction of `nodes` came to, read from the nodes themselves.

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> nodes = [
    ...     TextNode(id_="a", text="", metadata={TRIPLETS_KEY: []}),
    ...     TextNode(id_="b", text="", metadata={FAILURE_KEY: "timed out"}),
    ... ]
    >>> report = extraction_report(nodes)
    >>> report.empty, report.failures
    (('a',), (ExtractionFailure(node_id='b', reason='timed out', ref_doc_id=''),))
    """
    passages = triplets = 0
    empty: list[str] = []
    failures: list[ExtractionFailure] = []
    missing: list[str] = []
    invalid: list[InvalidTriplet] = []
    for node in nodes:
        found = triplets_from_node(node)
        passages += 1
        triplets += len(found.triplets)
        invalid += found.invalid
        if found.failure is not None:
            failures.append(ExtractionFailure(node.node_id, found.failure, node.ref_doc_id or ""))
        elif not found.extracted:
            missing.append(node.node_id)
        elif not found.triplets:
            empty.append(node.node_id)
    return ExtractionReport(
        passages, triplets, tuple(empty), tuple(failures), tuple(missing), tuple(invalid)
    )


def put_triplets(node: BaseNode, triplets: Sequence[Triplet]) -> None:
    """Leave `triplets` on `node` in place, out of sight of embedder and LLM."""
    node.metadata.pop(FAILURE_KEY, None)
    node.metadata[TRIPLETS_KEY] = [list(triplet) for triplet in triplets]
    _hide(node)


def put_failure(node: BaseNode, reason: str) -> None:
    """Leave the reason of a failed extraction on `node` in place."""
    node.metadata.pop(TRIPLETS_KEY, None)
    node.metadata[FAILURE_KEY] = reason
    _hide(node)


def strip_graph_metadata(node: BaseNode) -> BaseNode:
    """Return a copy of `node` without graph metadata: what is embedded, hashed and stored.

    User metadata that only happens to be called ``nodes`` or ``relations`` stays.

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> node = TextNode(text="a", metadata={TRIPLETS_KEY: [], "nodes": 3})
    >>> strip_graph_metadata(node).metadata
    {'nodes': 3}
    """
    return node.model_copy(
        update={
            "metadata": {
                key: value for key, value in node.metadata.items() if not _is_graph(key, value)
            },
            "excluded_embed_metadata_keys": _without_ours(node.excluded_embed_metadata_keys),
            "excluded_llm_metadata_keys": _without_ours(node.excluded_llm_metadata_keys),
            "relationships": dict(node.relationships),
        }
    )


def valid_triplets(
    values: Iterable[object], *, limit: int | None = None
) -> tuple[list[Triplet], list[InvalidTriplet]]:
    """Split `values` of any kind into valid triplets, each once, and those left out.

    Unlike `unique_triplets` it raises for nothing, since an LLM may write anything.

    Examples
    --------
    >>> valid, invalid = valid_triplets([("A", "b", "C"), ("D", "e", "F"), "x"], limit=1)
    >>> len(valid), [item.reason for item in invalid][:1]
    (1, ['over the limit of 1 triplets a passage'])
    """
    valid: dict[str, Triplet] = {}
    invalid: list[InvalidTriplet] = []
    for value in values:
        parts = tuple(
            str(part) for part in (value if isinstance(value, (list, tuple)) else [value])
        )
        try:
            good, bad = unique_triplets([value])
        except GraphRAGError as error:
            invalid.append(InvalidTriplet(parts, str(error)))
            continue
        invalid += bad
        for triplet in good:
            if limit is not None and len(valid) >= limit and triplet.id not in valid:
                reason = f"over the limit of {limit} triplets a passage"
                invalid.append(InvalidTriplet(parts, reason))
            else:
                valid.setdefault(triplet.id, triplet)
    return list(valid.values()), invalid


def _field(item: object, name: str) -> str:
    """Return a text field of an object or of the dict that it became, else an empty string."""
    value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
    return value if isinstance(value, str) else ""


def _hide(node: BaseNode) -> None:
    for keys in (node.excluded_embed_metadata_keys, node.excluded_llm_metadata_keys):
        keys += [key for key in _OURS if key not in keys]


def _without_ours(keys: Iterable[str]) -> list[str]:
    return [key for key in keys if key not in _OURS]


def _is_graph(key: str, value: object) -> bool:
    if key == KG_NODES_KEY:
        return _is_graph_list(value, _is_entity)
    if key == KG_RELATIONS_KEY:
        return _is_graph_list(value, _is_relation)
    return key in _OURS


def _is_graph_list(value: object, test: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(test(item) for item in value)


def _is_entity(item: object) -> bool:
    if isinstance(item, Mapping):
        return "label" in item and ("name" in item or "text" in item) and "properties" in item
    return isinstance(item, LabelledNode)


def _is_relation(item: object) -> bool:
    if isinstance(item, Mapping):
        return {"label", "source_id", "target_id"} <= item.keys()
    return isinstance(item, Relation)
