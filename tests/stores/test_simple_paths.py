from __future__ import annotations

import pytest

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.stores.base import EntityRef, Fact, GraphReader, Neighbor
from llama_index_graph_rag.stores.walk import simple_paths


class Table(GraphReader):
    """A reader over (subject, predicate, object) rows whose ids are the names."""

    def __init__(self, *rows: tuple[str, str, str]) -> None:
        self.rows = rows
        self.asked: list[list[tuple[str, str]]] = []

    def match_entities(self, names, *, by=None, limit=5):
        raise NotImplementedError

    def links(self, left_ids, right_ids, *, limit=10_000):
        raise NotImplementedError

    def schema(self):
        return ""

    def neighbors(self, entity_ids, *, limit_per_entity=100):
        found = {}
        for id in entity_ids:
            others = [o if s == id else s for s, _, o in self.rows if id in (s, o) and s != o]
            ranked = sorted({(-others.count(other), other) for other in others})
            if ranked:
                found[id] = [Neighbor(EntityRef(n, n), -c) for c, n in ranked][:limit_per_entity]
        return found

    def facts(self, pairs, *, per_pair=5, query_embedding=None):
        self.asked.append(list(pairs))
        return [
            Fact(EntityRef(s, s), p, EntityRef(o, o))
            for pair in pairs
            for s, p, o in [row for row in sorted(self.rows) if {row[0], row[2]} == {*pair}][
                :per_pair
            ]
        ]


def written(paths) -> list[str]:
    return [
        path.entities[0].name
        + "".join(
            f" -{edge.predicate}-> {entity.name}"
            if edge.forward
            else f" <-{edge.predicate}- {entity.name}"
            for edge, entity in zip(path.edges, path.entities[1:])
        )
        for path in paths
    ]


DIAMOND = [("a", "r", "b"), ("a", "r", "c"), ("a", "s", "c"), ("b", "t", "d"), ("c", "t", "d")]


def test_shorter_first_then_best_linked():
    assert written(simple_paths(Table(*DIAMOND), ["a"])) == [
        "a -r-> c",
        "a -s-> c",
        "a -r-> b",
        "a -r-> c -t-> d",
        "a -s-> c -t-> d",
        "a -r-> b -t-> d",
    ]


def test_no_entity_comes_twice_however_deep():
    ring = Table(*((str(n), "next", str((n + 1) % 5)) for n in range(5)), ("0", "self", "0"))
    paths = simple_paths(ring, ["0"], max_depth=20, limit=1000)
    assert len(paths) == 8
    for path in paths:
        assert len({entity.id for entity in path.entities}) == len(path.entities)


def test_the_limit_stops_the_walk_before_it_grows():
    star = Table(*(("hub", "has", f"s{n:02d}") for n in range(60)))
    paths = simple_paths(star, ["hub"], max_depth=5, limit=3)
    assert written(paths) == ["hub -has-> s00", "hub -has-> s01", "hub -has-> s02"]
    assert [len(pairs) for pairs in star.asked] == [3]


def test_a_pair_is_read_once():
    table = Table(*DIAMOND)
    simple_paths(table, ["a", "d"], max_depth=4, limit=1000)
    pairs = [frozenset(pair) for asked in table.asked for pair in asked]
    assert len(pairs) == len(set(pairs))


def test_labels_hold_on_each_step_and_do_not_hide_behind_others():
    many = [("a", f"x{n}", "b") for n in range(9)]
    table = Table(*many, ("a", "z", "b"), ("b", "z", "c"), ("b", "y", "d"))
    assert written(simple_paths(table, ["a"], labels=["z"])) == ["a -z-> b", "a -z-> b -z-> c"]


def test_unknown_and_repeated_starts():
    table = Table(("a", "r", "b"))
    assert written(simple_paths(table, ["?", "a", "a"])) == ["a -r-> b"]
    assert simple_paths(table, []) == []


@pytest.mark.parametrize("name", ["max_depth", "limit"])
def test_bad_numbers_are_named(name):
    with pytest.raises(GraphRAGValueError, match=f"{name} is -1"):
        simple_paths(Table(), ["a"], **{name: -1})
