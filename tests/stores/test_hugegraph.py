from __future__ import annotations

import asyncio
import json
import logging
import threading

import pytest

pytest.importorskip("httpx", reason="needs the extra hugegraph")

from hugegraph_toys import contents, films, load, people_and_software

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError, StoreError
from llama_index_graph_rag.retrievers.connection import ConnectionRetriever
from llama_index_graph_rag.retrievers.knowledge_graph import KnowledgeGraphRetriever
from llama_index_graph_rag.stores.gremlin import MAX_BODY_BYTES
from llama_index_graph_rag.stores.hugegraph import HugeGraphStore
from llama_index_graph_rag.testing.graph_reader import GraphReaderSuite
from llama_index_graph_rag.testing.hugegraph_server import HugeGraphTestServer

HOSTILE = [
    "x')).drop().V().has('a','b",
    'x")).drop().V().has("a","b',
    "'; g.V().drop().iterate(); '",
    "${'g'.drop()}",
    "$ids",
    "back\\slash' \\",
    "line\nbreak\r\ttab",
    "\u2028\u0000 zero",
    "x" * 10_000,
    "欧拉" * 3_000,
]


def stand_in(*args, **kwargs):
    pytest.importorskip("graphersal", reason="the stand-in server needs graphersal")
    return HugeGraphTestServer(*args, **kwargs)


class TestGraphReaderSuite(GraphReaderSuite):
    @pytest.fixture
    def load_graph(self, hugegraph_url):
        def loaded(toy):
            store = HugeGraphStore(hugegraph_url)
            assert store.add_triplets(toy.triplets) == len(toy.triplets)
            return store

        return loaded


@pytest.fixture
def people(hugegraph_url):
    load(hugegraph_url, people_and_software)
    return HugeGraphStore(hugegraph_url)


@pytest.fixture
def cinema(hugegraph_url):
    load(hugegraph_url, films)
    return HugeGraphStore(hugegraph_url)


@pytest.fixture
def fault_server():
    with stand_in() as server:
        yield server


def ids(found):
    return [[ref.id for ref in refs] for refs in found]


# --- matching -----------------------------------------------------------------------------------


def test_a_name_finds_the_id_made_from_a_primary_key(people):
    names = ["marko", "1:marko", "lop", "a:b!c", "MARKO", "nobody", ""]
    expected = [["1:marko"], ["1:marko"], ["2:lop"], ["1:a`:b`!c"], [], [], []]
    assert ids(people.match_entities(names)) == expected


def test_custom_ids_and_numbers_match_as_they_are(cinema):
    names = ["nm1", "The Harbour", "7", "Ida Berg", "8"]
    assert ids(cinema.match_entities(names)) == [["nm1"], ["The Harbour"], ["7"], [], []]


def test_a_vertex_carries_label_name_and_properties(people):
    (marko,) = people.match_entities(["marko"])[0]
    assert (marko.name, marko.label) == ("marko", "person")
    assert list(marko.properties.items()) == [("name", "marko"), ("age", 29), ("city", "Beijing")]


def test_a_vertex_without_a_name_is_shown_by_its_id(cinema):
    (film,) = cinema.match_entities(["The Harbour"])[0]
    assert (film.name, film.properties) == ("The Harbour", {"year": 1972})


def test_primary_keys_match_by_property_without_an_index(people):
    assert ids(people.match_entities(["marko", "lop", "x"], by="name")) == [
        ["1:marko"],
        ["2:lop"],
        [],
    ]


def test_a_missing_index_is_an_error_with_a_remedy(cinema):
    with pytest.raises(StoreError, match=r"create_index\('name'\)"):
        cinema.match_entities(["Ida Berg"], by="name")


def test_create_index_makes_a_property_matchable(cinema):
    cinema.create_index("name")
    found = cinema.match_entities(["Tom O'Hara", "Seven", "Nobody"], by="name")
    assert ids(found) == [["nm2"], ["7"], []]
    cinema.create_index("name")


def test_create_index_on_request_by_the_store(cinema):
    store = HugeGraphStore(cinema.client.url, match_property="name", create_index=True)
    assert ids(store.match_entities(["Ida Berg"])) == [["nm1"]]


def test_numbers_match_a_number_property(cinema):
    store = HugeGraphStore(cinema.client.url, match_property="born", create_index=True)
    assert ids(store.match_entities(["1951", "not a number", "1951.5"])) == [["nm2"], [], []]


def test_an_unknown_property_is_an_error_that_names_the_known(people):
    with pytest.raises(GraphRAGValueError, match="known: age, city, lang, name"):
        people.match_entities(["marko"], by="nope")


async def test_several_vertices_of_one_name_are_cut_in_order(cinema):
    def twins():
        from hugegraph_toys import _vertices

        yield from _vertices(*(("actor", f"t{n}", {"name": "Twin"}) for n in range(8)))

    cinema.client.run(twins())
    await cinema.acreate_index("name")
    (found,) = await cinema.amatch_entities(["Twin"], by="name", limit=3)
    assert [ref.id for ref in found] == ["t0", "t1", "t2"]


def test_a_store_sees_labels_that_others_add_later(hugegraph_url):
    store = HugeGraphStore(hugegraph_url)
    assert store.match_entities(["marko"]) == [[]]
    load(hugegraph_url, people_and_software)
    assert ids(store.match_entities(["marko"])) == [["1:marko"]]
    assert len(store.paths(["1:marko"], max_depth=1, labels=["knows"])) == 2


# --- paths --------------------------------------------------------------------------------------


def written(path):
    parts = [path.entities[0].id]
    for edge, ref in zip(path.edges, path.entities[1:]):
        step = edge.predicate + "".join(f" {k}={v}" for k, v in edge.properties.items())
        parts += [f"-{step}->" if edge.forward else f"<-{step}-", ref.id]
    return " ".join(parts)


def test_paths_of_depth_1(people):
    assert [written(path) for path in people.paths(["1:marko"], max_depth=1)] == [
        "1:marko -knows date=20130220-> 1:josh",
        "1:marko -created date=20171210-> 2:lop",
        "1:marko -knows date=20160110-> 1:vadas",
    ]


def test_paths_of_depth_2_hold_the_shorter_ones_and_no_way_back(people):
    josh = "1:marko -knows date=20130220-> 1:josh"
    lop = "1:marko -created date=20171210-> 2:lop"
    assert [written(path) for path in people.paths(["1:marko"])] == [
        josh,
        lop,
        "1:marko -knows date=20160110-> 1:vadas",
        f"{josh} -created city=Beijing-> 2:lop",
        f"{josh} -created date=20151010-> 2:ripple",
        f"{lop} <-created city=Beijing- 1:josh",
    ]


def test_paths_over_custom_ids_and_numbers(cinema):
    assert [written(path) for path in cinema.paths(["7", "nm1"])] == [
        "7 -saw-> Night Tram",
        "nm1 -played in role=Olga-> The Harbour",
        "7 -saw-> Night Tram <-played in role=guard- nm2",
        "nm1 -played in role=Olga-> The Harbour <-played in- nm2",
    ]


def test_labels_are_edge_labels_or_predicates(people, hugegraph_url, caplog):
    assert [written(p) for p in people.paths(["1:josh"], labels=["knows"])] == [
        "1:josh <-knows date=20130220- 1:marko",
        "1:josh <-knows date=20130220- 1:marko -knows date=20160110-> 1:vadas",
    ]
    with caplog.at_level(logging.WARNING, "llama_index_graph_rag"):
        assert people.paths(["1:josh"], labels=["nope"]) == []
    assert "'nope'" in caplog.text
    people.add_triplets([("josh", "likes", "tea"), ("josh", "drinks", "tea")])
    found = people.paths(["josh"], labels=["likes", "knows"])
    assert [written(path) for path in found] == ["josh -likes-> tea"]


def test_a_hub_leaves_room_for_others(hugegraph_url):
    store = HugeGraphStore(hugegraph_url)
    store.add_triplets([*(("hub", "has", f"spoke {n}") for n in range(60)), ("A", "knows", "B")])
    found = store.paths(["hub", "a"], limit=4)
    assert [path.entities[0].id for path in found] == ["hub", "a", "hub", "hub"]


def test_schema_tells_labels_properties_and_relations(people):
    assert people.schema().splitlines() == [
        "(person {age: int, city: text, name: text})",
        "(software {lang: text, name: text})",
        "(person)-[created {city: text, date: text}]->(software)",
        "(person)-[knows {date: text}]->(person)",
    ]


# --- loading ------------------------------------------------------------------------------------


def test_adding_twice_changes_nothing_and_keeps_the_first_spelling(hugegraph_url):
    store = HugeGraphStore(hugegraph_url)
    triplets = [("Euler", "born in", "Basel"), ("Euler", "a > b: c!", "Basel")]
    assert store.add_triplets(triplets) == 2
    assert store.add_triplets([("EULER", "born in", "basel")]) == 1
    assert contents(hugegraph_url) == (2, 2)
    assert store.match_entities(["eUler"])[0][0].name == "Euler"


def test_long_names_are_loaded_under_a_hash(hugegraph_url):
    store = HugeGraphStore(hugegraph_url)
    name = "word " * 100
    store.add_triplets([(name, "is", "long")])
    (long,) = store.paths(["long"])
    assert long.entities[1].name == name.strip()


def test_nothing_is_written_if_a_triplet_cannot_be_used(hugegraph_url):
    store = HugeGraphStore(hugegraph_url)
    with pytest.raises(GraphRAGTypeError):
        store.add_triplets([("A", "b", "C"), ("A", 1, "C")])
    assert contents(hugegraph_url) == (0, 0)


def test_a_label_of_another_layout_is_refused(people):
    with pytest.raises(StoreError, match="choose another vertex_label"):
        people.add_triplets([("A", "b", "C")], vertex_label="person")


async def test_loading_async(hugegraph_url):
    store = HugeGraphStore(hugegraph_url)
    assert await store.aadd_triplets([("A", "b", "C")]) == 1
    assert contents(hugegraph_url) == (2, 1)


# --- injection and size -------------------------------------------------------------------------


def test_hostile_names_change_nothing(people):
    before = contents(people.client.url)
    assert people.match_entities(HOSTILE) == [[] for _ in HOSTILE]
    assert people.match_entities(HOSTILE, by="name") == [[] for _ in HOSTILE]
    assert people.neighbors(HOSTILE) == {}
    assert people.links(HOSTILE, ["1:marko", *HOSTILE]) == []
    assert people.facts([(name, "1:marko") for name in HOSTILE]) == []
    assert people.paths([*HOSTILE, "1:vadas"], max_depth=1) == people.paths(
        ["1:vadas"], max_depth=1
    )
    assert people.paths(["1:marko"], labels=HOSTILE) == []
    assert contents(people.client.url) == before


def test_hostile_names_can_be_written_and_found(hugegraph_url):
    store = HugeGraphStore(hugegraph_url)
    names = [name for name in HOSTILE if len(name) < 1_000 and "\u0000" not in name]
    store.add_triplets([(name, name, "end") for name in names])
    assert contents(hugegraph_url) == (len(names) + 1, len(names))
    assert {path.entities[1].name for path in store.paths(["end"])} == set(names)
    assert [refs[0].name for refs in store.match_entities(names)] == names


def test_many_ids_go_in_several_requests(hugegraph_url):
    store = HugeGraphStore(hugegraph_url)
    store.add_triplets([("A", "b", "C")])
    many = [f"{n}:{'ü' * 40}" for n in range(1_500)]
    assert list(store.neighbors([*many, "a"])) == ["a"]
    assert len(store.links([*many[:400], "a"], [*many[:400], "c"])) == 1
    assert ids(store.match_entities([*many, "a"]))[-1] == ["a"]


def test_requests_stay_under_the_limit(fault_server):
    store = HugeGraphStore(fault_server.url)
    store.match_entities(["\u00fc" * 40 + str(n) for n in range(1_500)])
    sizes = [len(json.dumps(body)) for _, path, body in fault_server.requests if path == "/gremlin"]
    assert len(sizes) > 3
    assert max(sizes) < MAX_BODY_BYTES


def test_a_value_that_no_request_can_carry_is_left_out_with_a_word(cinema, caplog):
    cinema.create_index("name")
    with caplog.at_level(logging.WARNING, "llama_index_graph_rag"):
        found = cinema.match_entities(["x" * 60_000, "Ida Berg"], by="name")
    assert ids(found) == [[], ["nm1"]]
    assert "left out" in caplog.text


# --- protocol and trouble -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "path", "alias"),
    [
        ("1.3.0", "/graphs/hugegraph/schema", "__g_hugegraph"),
        ("1.5.0", "/graphs/hugegraph/schema", "__g_hugegraph"),
        ("1.7.0", "/graphspaces/DEFAULT/graphs/hugegraph/schema", "__g_DEFAULT-hugegraph"),
    ],
)
def test_each_version_is_spoken_to_in_its_way(version, path, alias):
    with stand_in(version) as server:
        store = HugeGraphStore(server.url)
        store.add_triplets([("A", "b", "C")])
        server.requests.clear()
        assert [p.entities[1].id for p in store.paths(["a"], max_depth=1)] == ["c"]
        store.schema()
        ((_, _, query), (_, schema, _)) = server.requests
        assert query["aliases"]["g"] == alias
        assert schema == path


@pytest.mark.parametrize("status", [500, 503])
def test_5xx_is_tried_again(fault_server, status, caplog):
    fault_server.faults.extend([status, status])
    store = HugeGraphStore(fault_server.url, backoff=0)
    assert store.match_entities(["x"]) == [[]]
    assert caplog.text.count("trying again") == 2


@pytest.mark.parametrize("name", ["x" * 8_000, "\u957f" * 100, "Name: " + "z" * 128])
def test_a_name_longer_than_an_id_is_found_and_walked_from(hugegraph_url, name):
    store = HugeGraphStore(hugegraph_url)
    store.add_triplets([(name, "knows", "Euler")])
    (found,), (other,) = store.match_entities([name, "Euler"])
    assert found.name == name
    assert [len(path.edges) for path in store.paths([found.id])] == [1]
    assert store.neighbors([name]) == {}
    assert store.links([name, found.id], [other.id])[0].left_id == found.id


def test_lone_surrogates_are_asked_for_like_any_text(hugegraph_url):
    store = HugeGraphStore(hugegraph_url)
    store.add_triplets([("half \ud800 pair", "knows", "Euler")])
    names = ["half \ud800 pair", "\ud800", "Euler"]
    assert ids(store.match_entities(names)) == [["half \ufffd pair"], [], ["euler"]]
    assert store.neighbors(["\ud800"]) == {}
    assert store.paths(["euler"], labels=["\ud800"]) == []


@pytest.mark.parametrize("odd", ["9" * 30, "-9" + "9" * 20, "1e999", "nan", "inf", "9" * 5_000])
def test_a_number_out_of_range_spoils_no_other(cinema, odd):
    cinema.create_index("born")
    assert ids(cinema.match_entities([odd, "1951"], by="born")) == [[], ["nm2"]]


def test_a_vertex_that_is_deleted_in_between_takes_its_facts_along(hugegraph_url, monkeypatch):
    store = HugeGraphStore(hugegraph_url)
    store.add_triplets([("A", "r", "B"), ("A", "r", "C")])
    read = store._queries._vertices

    def without_b(wanted):
        found = yield from read(wanted)
        found.pop("b", None)
        return found

    monkeypatch.setattr(type(store._queries), "_vertices", lambda self, wanted: without_b(wanted))
    facts = store.facts([("a", "b"), ("a", "c")])
    assert [fact.object.name for fact in facts] == ["C"]


def test_429_is_tried_again(fault_server, caplog):
    fault_server.faults.extend([429, 429])
    assert HugeGraphStore(fault_server.url, backoff=0).match_entities(["x"]) == [[]]
    assert "429" in caplog.text


async def test_429_that_stays_names_the_remedy(fault_server):
    fault_server.faults.extend([429] * 3)
    with pytest.raises(StoreError, match="lower the load"):
        await HugeGraphStore(fault_server.url, backoff=0).aschema()


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://[::1", "http://\ud800"])
def test_an_address_that_cannot_be_is_refused_at_once(url):
    with pytest.raises(GraphRAGValueError, match="url"):
        HugeGraphStore(url)


def test_5xx_that_stays_is_an_error(fault_server):
    fault_server.faults.extend([500] * 3)
    with pytest.raises(StoreError, match="status 500: injected 500"):
        HugeGraphStore(fault_server.url, backoff=0).schema()
    assert len(fault_server.requests) == 3


@pytest.mark.parametrize("status", [400, 403, 404, 413])
async def test_4xx_is_not_tried_again(fault_server, status):
    store = HugeGraphStore(fault_server.url, backoff=0)
    for call in (store.aschema, lambda: asyncio.to_thread(store.schema)):
        fault_server.faults.append(status)
        with pytest.raises(StoreError, match=f"status {status}"):
            await call()
    assert len(fault_server.requests) == 2


async def test_a_slow_server_is_an_error_that_names_the_time_out(fault_server):
    held = threading.Event()
    fault_server.faults.extend([held, held])
    store = HugeGraphStore(fault_server.url, timeout=0.05, retries=0)
    with pytest.raises(StoreError, match=r"ReadTimeout, 1 attempts, timeout 0\.05 s"):
        store.schema()
    with pytest.raises(StoreError, match="raise timeout="):
        await store.aschema()
    held.set()


def test_no_server_is_an_error_that_says_so():
    store = HugeGraphStore("http://127.0.0.1:1", retries=1, backoff=0)
    with pytest.raises(StoreError, match="ConnectError, 2 attempts"):
        store.schema()


def test_basic_auth_and_a_password_that_is_never_shown():
    with stand_in(username="admin", password="hush-hush") as server:
        store = HugeGraphStore(server.url, username="admin", password="hush-hush")
        store.add_triplets([("A", "b", "C")])
        wrong = HugeGraphStore(server.url, username="admin", password="hush-not")
        with pytest.raises(StoreError, match="status 401") as caught:
            wrong.schema()
        with pytest.raises(StoreError, match="set username="):
            HugeGraphStore(server.url).schema()
    shown = [repr(store), repr(store.client), str(caught.value), repr(caught.value)]
    assert not [text for text in shown if "hush" in text]


def test_a_password_in_the_url_is_refused_without_showing_it():
    with pytest.raises(GraphRAGValueError) as caught:
        HugeGraphStore("http://admin:hush-hush@127.0.0.1:8080")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "127.0.0.1:8080"},
        {"url": ""},
        {"graph": "../other"},
        {"graphspace": "a/b"},
        {"timeout": 0},
        {"retries": -1},
    ],
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(GraphRAGValueError):
        HugeGraphStore(**arguments)


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.match_entities(["A"], limit=0),
        lambda store: store.neighbors(["A"], limit_per_entity=0),
        lambda store: store.links(["A"], ["B"], limit=-1),
        lambda store: store.facts([("A", "B")], per_pair=0),
        lambda store: store.paths(["A"], max_depth=0),
        lambda store: store.paths(["A"], limit=0),
    ],
)
def test_limits_below_one_are_refused(call):
    with pytest.raises(GraphRAGValueError, match="must be 1 or more"):
        call(HugeGraphStore("http://127.0.0.1:1"))


def test_one_store_serves_several_event_loops(people):
    for _ in range(3):
        assert asyncio.run(people.amatch_entities(["marko"]))[0][0].id == "1:marko"


async def test_calls_run_beside_each_other(people):
    found = await asyncio.gather(*(people.apaths(["1:marko"]) for _ in range(8)))
    assert all(paths == found[0] for paths in found)


def test_something_else_than_hugegraph_is_an_error(fault_server):
    fault_server._route = lambda *_: (200, {"hello": "world"})
    with pytest.raises(StoreError, match="does not answer like HugeGraph"):
        HugeGraphStore(fault_server.url).schema()


def test_the_official_client_and_ours_see_one_graph(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it writes log files where it stands
    client = pytest.importorskip("pyhugegraph.client", reason="needs hugegraph-python")
    with stand_in() as server:
        official = client.PyHugeClient(server.url, user="admin", pwd="", graph="hugegraph")
        schema = official.schema()
        schema.propertyKey("name").asText().ifNotExist().create()
        person = schema.vertexLabel("person").properties("name")
        person.usePrimaryKeyId().primaryKeys("name").ifNotExist().create()
        ends = schema.edgeLabel("knows").sourceLabel("person").targetLabel("person")
        ends.ifNotExist().create()
        graph = official.graph()
        a, b = (graph.addVertex("person", {"name": name}) for name in ("A", "B"))
        graph.addEdge("knows", a.id, b.id, {})
        store = HugeGraphStore(server.url)
        assert [written(path) for path in store.paths(["1:A"])] == ["1:A -knows-> 1:B"]
        store.add_triplets([("Euler", "born in", "Basel")])
        names = official.gremlin().exec("g.V().hasLabel('entity').values('name')")
        assert sorted(names["data"]) == ["Basel", "Euler"]


@pytest.mark.parametrize(
    "data",
    [[1], [None], [{"id": 1}], "abc", {"a": 1}, 3, [{"id": "a", "label": "x", "props": None}]],
)
@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.match_entities(["a"]),
        lambda store: store.neighbors(["a"]),
        lambda store: store.links(["a"], ["b"]),
        lambda store: store.facts([("a", "b")]),
        lambda store: store.paths(["a"]),
    ],
)
def test_rows_of_an_unknown_form_are_an_error_of_the_store(fault_server, monkeypatch, data, ask):
    monkeypatch.setattr(fault_server, "_gremlin", lambda body: {"result": {"data": data}})
    with pytest.raises(StoreError, match=r"unknown form|without a result"):
        ask(HugeGraphStore(fault_server.url))


def test_no_rows_are_an_empty_answer(fault_server, monkeypatch):
    for data in ([], None):
        monkeypatch.setattr(fault_server, "_gremlin", lambda body, d=data: {"result": {"data": d}})
        assert HugeGraphStore(fault_server.url).neighbors(["a"]) == {}


@pytest.mark.parametrize("at", range(1, 10))
def test_a_graph_that_is_emptied_in_between_gives_what_is_left(fault_server, at):
    store = HugeGraphStore(fault_server.url)
    store.add_triplets([("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d")])
    answer, left = fault_server._answer, [at]

    def emptied(*request):
        left[0] -= 1
        if not left[0]:
            fault_server._graph = fault_server._new_graph()
        return answer(*request)

    fault_server._answer = emptied
    try:
        for retriever in (
            KnowledgeGraphRetriever(store, keyword_extractor=lambda _: ["a", "d"]),
            ConnectionRetriever(store, entity_extractor=lambda _: ["a", "d"]),
        ):
            assert isinstance(retriever.retrieve("?"), list)
    finally:
        fault_server._answer = answer
