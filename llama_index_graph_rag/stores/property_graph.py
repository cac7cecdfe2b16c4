"""Any LlamaIndex PropertyGraphStore as a graph that can be walked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from llama_index.core.graph_stores.simple_labelled import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import (
    TRIPLET_SOURCE_KEY,
    VECTOR_SOURCE_KEY,
    ChunkNode,
    LabelledNode,
    PropertyGraphStore,
    Relation,
)

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError, StoreError
from llama_index_graph_rag.identity import canonical_name
from llama_index_graph_rag.stores.base import (
    Edge,
    EntityRef,
    Evidence,
    Fact,
    GraphReader,
    Link,
    Neighbor,
    Path,
)
from llama_index_graph_rag.stores.path_order import SCANNED_PATHS, in_turns

CYPHER_STORES = frozenset(
    {"FalkorDBPropertyGraphStore", "MemgraphPropertyGraphStore", "Neo4jPropertyGraphStore"}
)
"""Stores that keep entities as ``__Entity__`` nodes with an ``id``, and run this file's Cypher."""

HIDDEN_PROPERTIES = frozenset(
    {
        TRIPLET_SOURCE_KEY,
        VECTOR_SOURCE_KEY,
        "_node_content",
        "_node_type",
        "doc_id",
        "document_id",
        "ref_doc_id",
        "embedding",
        "id",
    }
)
"""Bookkeeping of LlamaIndex and of its stores: not shown as properties."""

_SCHEMA_LINES = 100


class _Statement(NamedTuple):
    subject: EntityRef
    relation: Relation
    object: EntityRef


class PropertyGraphReader(GraphReader):
    """Walks a LlamaIndex PropertyGraphStore: Simple, Neo4j, FalkorDB, Memgraph, Nebula, ...

    The walk is our own, breadth first over `get_triplets`; a store's `get_rel_map` is never
    called, since those repeat relations, cut in hash order or lose hops. Text chunks are not
    entities and are left out. Where the store runs Cypher, `paths` is one query a length.

    Parameters
    ----------
    store
        The store; entity ids are its own.
    cypher
        Whether `paths` asks the store in Cypher. None, the default: for the stores of
        CYPHER_STORES. True suits another one that has their layout.

    Raises
    ------
    GraphRAGTypeError
        If `store` is not a PropertyGraphStore.

    Examples
    --------
    >>> from llama_index.core.graph_stores.types import EntityNode, Relation
    >>> store = SimplePropertyGraphStore()
    >>> store.upsert_nodes([EntityNode(name="Euler"), EntityNode(name="Basel")])
    >>> store.upsert_relations(
    ...     [Relation(label="born in", source_id="Euler", target_id="Basel")]
    ... )
    >>> reader = PropertyGraphReader(store)
    >>> [ref.name for ref in reader.match_entities(["euler"])[0]]
    ['Euler']
    >>> [path.edges[0].predicate for path in reader.paths(["Euler"])]
    ['born in']
    """

    def __init__(self, store: PropertyGraphStore, *, cypher: bool | None = None) -> None:
        if not isinstance(store, PropertyGraphStore):
            raise GraphRAGTypeError(
                f"store is a LlamaIndex PropertyGraphStore, got {type(store).__name__}"
            )
        self.store = store
        self._cypher = type(store).__name__ in CYPHER_STORES if cypher is None else cypher

    def match_entities(
        self, names: Sequence[str], *, by: str | None = None, limit: int = 5
    ) -> list[list[EntityRef]]:
        """Return, per name, at most `limit` entities: by id or name, or by the property `by`.

        Without `by`, names are compared in canonical form in a SimplePropertyGraphStore; another
        store is asked for the usual spellings only (as given, lower, upper, capitalised, title).
        """
        _check_positive(limit=limit)
        if by is not None:
            return [self._by_property(by, name)[:limit] for name in names]
        found: dict[str, dict[str, EntityRef]] = {}
        for node in self._nodes(names):
            ref = _ref(node)
            for key in {ref.id, canonical_name(ref.name)}:
                found.setdefault(key, {})[ref.id] = ref
        matches = []
        for name in names:
            refs = {**found.get(canonical_name(name), {}), **found.get(name, {})} if name else {}
            ranked = sorted(
                refs.values(), key=lambda ref: (name not in (ref.id, ref.name), *_by_name(ref))
            )
            matches.append(ranked[:limit])
        return matches

    def neighbors(
        self, entity_ids: Sequence[str], *, limit_per_entity: int = 100
    ) -> dict[str, list[Neighbor]]:
        """Return each entity's neighbours in both directions, best linked first, then by name."""
        _check_positive(limit_per_entity=limit_per_entity)
        wanted = set(entity_ids)
        counts: dict[str, Counter[EntityRef]] = {}
        for subject, _, object in self._statements(entity_ids):
            for here, there in ((subject, object), (object, subject)):
                if here.id in wanted:
                    near = counts.setdefault(here.id, Counter())
                    if here.id != there.id:
                        near[there] += 1
        alone = [id for id in wanted if id not in counts]
        if alone:
            counts.update((ref.id, Counter()) for ref in self._refs(alone))
        return {
            id: sorted(
                (Neighbor(entity, count) for entity, count in counts[id].items()),
                key=lambda neighbor: (-neighbor.count, *_by_name(neighbor.entity)),
            )[:limit_per_entity]
            for id in dict.fromkeys(entity_ids)
            if id in counts
        }

    def links(
        self, left_ids: Sequence[str], right_ids: Sequence[str], *, limit: int = 10_000
    ) -> list[Link]:
        """Return the pairs joined directly, in either direction, best linked first."""
        _check_positive(limit=limit)
        lefts, rights = set(left_ids), set(right_ids)
        counts: Counter[tuple[str, str]] = Counter()
        fewer = left_ids if len(lefts) <= len(rights) else right_ids
        for subject, _, object in self._statements(fewer):
            ends = subject.id, object.id
            for left, right in {ends, ends[::-1]}:
                if left != right and left in lefts and right in rights:
                    counts[left, right] += 1
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [Link(left, right, count) for (left, right), count in ranked][:limit]

    def facts(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        per_pair: int = 5,
        query_embedding: Sequence[float] | None = None,
    ) -> list[Fact]:
        """Return the relations that join each pair, by predicate: stores embed no relations.

        A relation's evidence is the passage in its ``triplet_source_id`` property, if it has one.
        """
        _check_positive(per_pair=per_pair)
        joined: dict[frozenset[str], list[Fact]] = {}
        for subject, relation, object in self._statements([left for left, _ in pairs]):
            source = relation.properties.get(TRIPLET_SOURCE_KEY)
            fact = Fact(
                subject,
                relation.label,
                object,
                evidence=(Evidence(str(source)),) if source else (),
                properties=_shown(relation.properties),
            )
            joined.setdefault(frozenset((subject.id, object.id)), []).append(fact)
        return [
            fact
            for pair in dict.fromkeys(pairs)
            for fact in sorted(
                joined.get(frozenset(pair), ()),
                key=lambda fact: (fact.predicate, fact.subject.id, fact.object.id),
            )[:per_pair]
        ]

    def schema(self) -> str:
        """Return the store's own schema text, or for a SimplePropertyGraphStore its kinds of edge.

        Empty where another store has none.
        """
        if isinstance(self.store, SimplePropertyGraphStore):
            return self._simple_schema()
        for name in ("get_schema_str", "get_schema"):
            if hasattr(self.store, name):
                try:
                    text = getattr(self.store, name)(refresh=True)
                except TypeError:
                    text = getattr(self.store, name)()
                except NotImplementedError:
                    return ""
                return text if isinstance(text, str) else str(text or "")
        return ""

    def paths(
        self,
        entity_ids: Sequence[str],
        *,
        max_depth: int = 2,
        limit: int = 30,
        labels: Sequence[str] | None = None,
    ) -> list[Path]:
        """Return at most `limit` simple paths from the entities, shorter ones first.

        Raises
        ------
        StoreError
            If the store refuses the Cypher query; ``cypher=False`` does without.
        """
        if not self._cypher:
            return super().paths(entity_ids, max_depth=max_depth, limit=limit, labels=labels)
        _check_positive(max_depth=max_depth, limit=limit)
        parameters: dict[str, object] = {
            "ids": list(dict.fromkeys(entity_ids)),
            "most": max(limit, SCANNED_PATHS),
            "labels": list(labels or ()),
        }
        of_labels = _OF_LABELS if labels is not None else ""
        paths: list[Path] = []
        for depth in range(1, max_depth + 1):
            if len(paths) < limit:
                query = _CYPHER.format(depth=depth, of_labels=of_labels)
                rows = self._run(query, parameters) if entity_ids else []
                paths.extend(_path(row["entities"], row["edges"]) for row in rows)
        return in_turns(paths, entity_ids, limit)

    def _run(self, query: str, parameters: dict[str, object]) -> list[Any]:
        try:
            return list(self.store.structured_query(query, param_map=parameters) or ())
        # Each driver has errors of its own, of no common class.
        except Exception as error:
            raise StoreError(
                f"{type(self.store).__name__} refused the query for paths: {error}; "
                f"with cypher=False the graph is walked step by step instead"
            ) from error

    def _nodes(self, names: Sequence[str]) -> list[LabelledNode]:
        if isinstance(self.store, SimplePropertyGraphStore):
            return [node for node in self.store.get() if not isinstance(node, ChunkNode)]
        forms = (str, str.strip, str.lower, str.upper, str.capitalize, str.title)
        spellings = {form(name).replace('"', " ") for name in names for form in forms}
        return self._get(sorted(spellings - {""}))

    def _get(self, ids: Sequence[str]) -> list[LabelledNode]:
        # get(ids=[]) returns the whole graph.
        nodes = self.store.get(ids=list(ids)) if ids else []
        return [node for node in nodes if not isinstance(node, ChunkNode)]

    def _refs(self, ids: Sequence[str]) -> list[EntityRef]:
        return [_ref(node) for node in self._get(ids)]

    def _by_property(self, by: str, value: str) -> list[EntityRef]:
        nodes = self.store.get(properties={by: value})
        refs = {node.id: _ref(node) for node in nodes if not isinstance(node, ChunkNode)}
        return sorted(refs.values(), key=_by_name)

    def _statements(self, ids: Iterable[str]) -> list[_Statement]:
        """Return what the graph states about these entities, each once, in a fixed order."""
        asked = [id for id in dict.fromkeys(ids) if id]
        found: dict[tuple[str, ...], _Statement] = {}
        for source, relation, target in self.store.get_triplets(ids=asked) if asked else ():
            if isinstance(source, ChunkNode) or isinstance(target, ChunkNode):
                continue
            ends = _ref(source), _ref(target)
            if (relation.source_id, relation.target_id) == (target.id, source.id):
                ends = ends[::-1]
            properties = repr(sorted(_shown(relation.properties).items()))
            key = (ends[0].id, relation.label, ends[1].id, properties)
            found.setdefault(key, _Statement(ends[0], relation, ends[1]))
        return [found[key] for key in sorted(found)]

    def _simple_schema(self) -> str:
        kinds = {
            f"({source.label})-[{relation.label}]->({target.label})"
            for source, relation, target in self.store.get_triplets(
                ids=[node.id for node in self._nodes(())]
            )
            if not isinstance(source, ChunkNode) and not isinstance(target, ChunkNode)
        }
        lines = sorted(kinds)[:_SCHEMA_LINES]
        if len(kinds) > len(lines):
            lines.append(f"... and {len(kinds) - len(lines):,} more kinds of relation")
        return "\n".join(lines) or "no relations"


# The depth is an integer of ours; Cypher takes no parameter there. The limit lies inside, for each
# start, so that the walk around a hub ends early.
_CYPHER = """
UNWIND $ids AS id
CALL {{
  WITH id
  MATCH p = (a:`__Entity__`)-[*{depth}..{depth}]-(b:`__Entity__`)
  WHERE a.id = id
    AND all(n IN nodes(p) WHERE n.id IS NOT NULL
        AND '__Entity__' IN labels(n) AND size([m IN nodes(p) WHERE m = n]) = 1)
    {of_labels}
  RETURN p
  LIMIT $most
}}
RETURN [n IN nodes(p) | {{id: n.id, name: n.name, labels: labels(n), properties: properties(n)}}]
    AS entities,
  [r IN relationships(p) | {{label: type(r), source: startNode(r).id, properties: properties(r)}}]
    AS edges
"""
_OF_LABELS = "AND all(r IN relationships(p) WHERE type(r) IN $labels)"


def _path(entities: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]) -> Path:
    refs = []
    for row in entities:
        label = next((label for label in row["labels"] if not label.startswith("__")), "")
        id = str(row["id"])
        refs.append(EntityRef(id, str(row["name"] or id), label, _shown(row["properties"])))
    steps = (
        Edge(row["label"], row["source"] == before.id, _shown(row["properties"]))
        for before, row in zip(refs, edges)
    )
    return Path(tuple(refs), tuple(steps))


def _ref(node: LabelledNode) -> EntityRef:
    # FalkorDB's get() gives the id for a name, and the name as a property.
    name = str(node.properties.get("name") or getattr(node, "name", node.id))
    return EntityRef(node.id, name, node.label, _shown({**node.properties, "name": name}))


def _shown(properties: Mapping[str, object]) -> dict[str, object]:
    kept = {
        key: value
        for key, value in properties.items()
        if key not in HIDDEN_PROPERTIES and value is not None
    }
    return dict(sorted(kept.items(), key=lambda item: (item[0] != "name", item[0])))


def _by_name(ref: EntityRef) -> tuple[str, str]:
    return ref.name, ref.id


def _check_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise GraphRAGValueError(f"{name} must be 1 or more, got {number}")
