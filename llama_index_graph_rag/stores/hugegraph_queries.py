"""What each operation of HugeGraphStore asks of the server, and how it reads the answers.

Each method is a generator for `GremlinClient`. Values are bindings; only the names of variables,
the depth and fixed text make up the scripts.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_index_graph_rag.errors import GraphRAGValueError, StoreError
from llama_index_graph_rag.identity import clean_text
from llama_index_graph_rag.stores.base import (
    Edge,
    EntityRef,
    Fact,
    Link,
    Neighbor,
    Path,
)
from llama_index_graph_rag.stores.gremlin import BATCH_BYTES, Ask, Gremlin, batches
from llama_index_graph_rag.stores.hugegraph_loading import load_triplets
from llama_index_graph_rag.stores.hugegraph_schema import (
    HugeGraphSchema,
    ask_index,
    ask_schema,
    can_be_id,
)
from llama_index_graph_rag.stores.path_order import SCANNED_PATHS, in_turns

logger = logging.getLogger("llama_index_graph_rag")

_VERTEX = '__.project("id","label","props").by(T.id).by(T.label).by(__.valueMap())'
_EDGE = (
    '__.project("id","label","out","in","props").by(T.id).by(T.label)'
    ".by(__.outV().id()).by(__.inV().id()).by(__.valueMap())"
)
_NEAR = (
    "__.both().groupCount().by(T.id).unfold()"
    ".order().by(__.select(Column.values),Order.desc).by(__.select(Column.keys)).limit(most)"
    '.project("id","count").by(__.select(Column.keys)).by(__.select(Column.values)).fold()'
)
_MOST_EDGES = 100_000
_STARTS = "g.V().hasId(within(ids))"


@dataclass(slots=True)
class HugeGraphQueries:
    """The queries over one graph; see `HugeGraphStore` for the settings."""

    match_property: str | None = None
    name_property: str = "name"
    predicate_property: str | None = "predicate"
    create_index: bool = False
    timeout: float = 30.0
    _schema: HugeGraphSchema | None = field(default=None, init=False)

    def read_schema(self, *, fresh: bool = False) -> Ask[HugeGraphSchema]:
        """Ask for the schema, or take the one read before."""
        if self._schema is None or fresh:
            self._schema = yield from ask_schema()
        return self._schema

    def index(self, property_name: str) -> Ask[None]:
        """Create the indexes that a match by this property needs."""
        schema = yield from self.read_schema(fresh=True)
        schema.check_property(property_name)
        yield from ask_index(schema.unindexed(property_name), property_name, self.timeout)
        yield from self.read_schema(fresh=True)

    def load(
        self, triplets: Iterable[Sequence[str]], vertex_label: str, edge_label: str
    ) -> Ask[int]:
        """Write triplets; the result counts the distinct ones."""
        schema = yield from self.read_schema(fresh=True)
        count = yield from load_triplets(schema, triplets, vertex_label, edge_label)
        yield from self.read_schema(fresh=True)
        return count

    def match(self, names: Sequence[str], by: str | None, limit: int) -> Ask[list[list[EntityRef]]]:
        """Match names to vertices."""
        _check_positive(limit=limit)
        by = by or self.match_property
        # Read anew: the labels decide which ids a name may have, and others may have added some.
        schema = yield from self.read_schema(fresh=True)
        if by is not None:
            schema.check_property(by)
        ids = {name: schema.candidate_ids(name, by) for name in names}
        found = yield from self._vertices(id for each in ids.values() for id in each)
        by_value: dict[str, list[EntityRef]] = {}
        if by is not None:
            by_value = yield from self._by_property(schema, by, list(ids), limit)
        matches = []
        for name in names:
            refs = {id: found[id] for id in ids[name] if id in found}
            refs.update({ref.id: ref for ref in by_value.get(name, ())})
            matches.append(list(refs.values())[:limit])
        return matches

    def _by_property(
        self, schema: HugeGraphSchema, by: str, names: list[str], limit: int
    ) -> Ask[dict[str, list[EntityRef]]]:
        if missing := schema.unindexed(by):
            if not self.create_index:
                raise StoreError(
                    f"property {by!r} has no index on {', '.join(missing)}, so HugeGraph cannot "
                    f"match by it; call create_index({by!r}), or set create_index=True, once"
                )
            yield from self.index(by)
            schema = yield from self.read_schema()
        found: dict[str, list[EntityRef]] = {}
        labels, bindings = _varargs("l", schema.indexed(by))
        if not bindings:
            return found
        typed = {name: schema.value(by, name) for name in names}
        for values in batches(value for value in typed.values() if value is not None):
            rows = yield Gremlin(
                f"g.V().hasLabel({labels}).has(prop, within(kws)).limit(most).map({_VERTEX})",
                {**bindings, "prop": by, "kws": values, "most": max(1_000, limit * len(values))},
            )
            for row in rows:
                ref = self._ref(row)
                for name, value in typed.items():
                    if ref.properties.get(by) == value:
                        found.setdefault(name, []).append(ref)
        return {name: sorted(refs, key=_by_name) for name, refs in found.items()}

    def _vertices(self, ids: Iterable[str]) -> Ask[dict[str, EntityRef]]:
        found: dict[str, EntityRef] = {}
        for batch in _id_batches(ids):
            rows = yield Gremlin(f"{_STARTS}.map({_VERTEX})", {"ids": batch})
            found.update((ref.id, ref) for ref in map(self._ref, rows))
        return found

    def neighbors(self, ids: Sequence[str], most: int) -> Ask[dict[str, list[Neighbor]]]:
        """Ask for the neighbours of entities."""
        _check_positive(limit_per_entity=most)
        near: dict[str, dict[str, int]] = {}
        for batch in _id_batches(ids):
            # One more than asked for: a self-loop counts an entity as its own neighbour.
            rows = yield Gremlin(
                f'{_STARTS}.project("id","near").by(T.id).by({_NEAR})',
                {"ids": batch, "most": most + 1},
            )
            for row in rows:
                id = str(row["id"])
                counts = {str(other["id"]): int(other["count"]) for other in row["near"]}
                near[id] = {other: count for other, count in counts.items() if other != id}
        refs = yield from self._vertices(other for counts in near.values() for other in counts)
        result = {}
        for id in dict.fromkeys(ids):
            if id in near:
                cut = list(near[id].items())[:most]
                result[id] = sorted(
                    (Neighbor(refs[other], count) for other, count in cut if other in refs),
                    key=lambda neighbor: (-neighbor.count, _by_name(neighbor.entity)),
                )
        return result

    def _edges_between(
        self, left: Sequence[str], right: Sequence[str]
    ) -> Ask[list[Mapping[str, Any]]]:
        edges: dict[str, Mapping[str, Any]] = {}
        for ids in _id_batches(left, share=2):
            for others in _id_batches(right, share=2):
                rows = yield Gremlin(
                    f"{_STARTS}.bothE().where(__.otherV().hasId(within(others))).dedup()"
                    f".limit(most).map({_EDGE})",
                    {"ids": ids, "others": others, "most": _MOST_EDGES},
                )
                if len(rows) == _MOST_EDGES:
                    logger.warning("HugeGraph returned %d edges and may have more", len(rows))
                edges.update((str(row["id"]), row) for row in rows)
        return list(edges.values())

    def links(self, left: Sequence[str], right: Sequence[str], limit: int) -> Ask[list[Link]]:
        """Ask which pairs are joined."""
        _check_positive(limit=limit)
        edges = yield from self._edges_between(left, right)
        counts: Counter[tuple[str, str]] = Counter()
        lefts, rights = set(left), set(right)
        for edge in edges:
            ends = str(edge["out"]), str(edge["in"])
            for a, b in {ends, ends[::-1]}:
                if a != b and a in lefts and b in rights:
                    counts[a, b] += 1
        return [
            Link(a, b, count)
            for (a, b), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ][:limit]

    def facts(self, pairs: Sequence[tuple[str, str]], per_pair: int) -> Ask[list[Fact]]:
        """Ask for the edges of pairs."""
        _check_positive(per_pair=per_pair)
        wanted = dict.fromkeys(pairs)
        edges = yield from self._edges_between(
            list(dict.fromkeys(a for a, _ in wanted)),
            list(dict.fromkeys(b for _, b in wanted)),
        )
        joined: dict[frozenset[str], list[Mapping[str, Any]]] = {}
        for edge in edges:
            joined.setdefault(frozenset((str(edge["out"]), str(edge["in"]))), []).append(edge)
        asked = [joined.get(frozenset(pair), []) for pair in wanted]
        refs = yield from self._vertices(
            str(edge[end]) for edges in asked for edge in edges for end in ("out", "in")
        )
        facts = []
        for edges in asked:
            # A vertex may have been deleted since its edge was read.
            each = [
                self._fact(edge, refs)
                for edge in edges
                if str(edge["out"]) in refs and str(edge["in"]) in refs
            ]
            each.sort(key=lambda fact: (fact.predicate, fact.subject.id, fact.object.id))
            facts.extend(each[:per_pair])
        return facts

    def paths(
        self, ids: Sequence[str], max_depth: int, limit: int, labels: Sequence[str] | None
    ) -> Ask[list[Path]]:
        """Ask for paths, once for each length."""
        _check_positive(max_depth=max_depth, limit=limit)
        edges, bindings = yield from self._edge_filter(labels)
        if not edges:
            return []
        paths: list[Path] = []
        for depth in range(1, max_depth + 1):
            if len(paths) >= limit:
                break
            for batch in _id_batches(ids):
                # Without a name for it, some servers optimise the edge away, path or not.
                rows = yield Gremlin(
                    f'{_STARTS}.local(__.repeat(__.{edges}.as("edge").otherV().simplePath())'
                    f".times({depth}).limit(most)).path().by({_VERTEX}).by({_EDGE})",
                    {**bindings, "ids": batch, "most": max(limit, SCANNED_PATHS)},
                )
                paths.extend(self._path(row["objects"]) for row in rows)
        return in_turns(paths, ids, limit)

    def _edge_filter(self, labels: Sequence[str] | None) -> Ask[tuple[str, dict[str, object]]]:
        """Return the step that walks edges of these predicates; empty if there are none such."""
        if labels is None:
            return "bothE()", {}
        schema = yield from self.read_schema()
        if not set(labels) <= schema.edge_labels.keys():
            schema = yield from self.read_schema(fresh=True)
        known = [label for label in labels if label in schema.edge_labels]
        others = [label for label in labels if label not in schema.edge_labels]
        names, bindings = _varargs("l", known)
        if others and self.predicate_property in schema.property_keys:
            bindings.update(prop=self.predicate_property, predicates=others)
            by_property = "__.has(prop, within(predicates))"
            either = f"__.or(__.hasLabel({names}), {by_property})" if known else by_property
            return f"bothE().filter({either})", bindings
        for label in others:
            logger.warning("HugeGraph has no edge label %r: left out of the walk", label)
        return (f"bothE({names})" if known else ""), bindings

    # --- from the wire --------------------------------------------------------------------------

    def _ref(self, row: Mapping[str, Any]) -> EntityRef:
        properties = {
            name: value[0] if isinstance(value, list) and len(value) == 1 else value
            for name, value in sorted(row["props"].items(), key=self._name_first)
        }
        id = str(row["id"])
        return EntityRef(id, str(properties.get(self.name_property, id)), row["label"], properties)

    def _name_first(self, item: tuple[str, object]) -> tuple[bool, str]:
        return item[0] != self.name_property, item[0]

    def _predicate(self, edge: Mapping[str, Any]) -> tuple[str, Mapping[str, object]]:
        properties: dict[str, object] = dict(sorted(edge["props"].items()))
        if self.predicate_property is not None and self.predicate_property in properties:
            return str(properties.pop(self.predicate_property)), properties
        return str(edge["label"]), properties

    def _fact(self, edge: Mapping[str, Any], refs: Mapping[str, EntityRef]) -> Fact:
        predicate, properties = self._predicate(edge)
        return Fact(refs[str(edge["out"])], predicate, refs[str(edge["in"])], properties=properties)

    def _path(self, objects: Sequence[Mapping[str, Any]]) -> Path:
        entities = tuple(self._ref(row) for row in objects[::2])
        edges = []
        for before, row in zip(entities, objects[1::2]):
            predicate, properties = self._predicate(row)
            edges.append(Edge(predicate, str(row["out"]) == before.id, properties))
        return Path(entities, tuple(edges))


def _by_name(ref: EntityRef) -> tuple[str, str]:
    return ref.name, ref.id


def _varargs(prefix: str, values: Sequence[str]) -> tuple[str, dict[str, object]]:
    bindings: dict[str, object] = {f"{prefix}{i}": value for i, value in enumerate(values)}
    return ",".join(bindings), bindings


def _id_batches(ids: Iterable[str], share: int = 1) -> Iterator[list[Any]]:
    """Split ids into requests; an id of digits is asked for as a text and as a number.

    HugeGraph wants all ids of one query to be of one type. What can be no id is not asked for.
    """
    texts = [id for id in dict.fromkeys(map(clean_text, ids)) if can_be_id(id)]
    numbers = [int(id) for id in texts if id.isascii() and id.isdigit() and len(id) < 19]
    limit = BATCH_BYTES // share
    yield from batches(texts, limit)
    yield from batches(numbers, limit)


def _check_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise GraphRAGValueError(f"{name} must be 1 or more, got {number}")
