"""Two toy graphs with the structure of HugeGraph's examples."""

from __future__ import annotations

from llama_index_graph_rag.stores.gremlin import Gremlin, GremlinClient, Request


def people_and_software():
    """People who know each other and create software: ids made from primary keys."""
    yield from _property_keys(name="TEXT", age="INT", city="TEXT", lang="TEXT", date="TEXT")
    yield from _vertex_label("person", ["name", "age", "city"], primary_keys=["name"])
    yield from _vertex_label("software", ["name", "lang"], primary_keys=["name"])
    yield from _edge_label("knows", "person", "person", ["date"])
    yield from _edge_label("created", "person", "software", ["date", "city"])
    yield from _vertices(
        ("person", None, {"name": "marko", "age": 29, "city": "Beijing"}),
        ("person", None, {"name": "vadas", "age": 27, "city": "Hongkong"}),
        ("person", None, {"name": "josh", "age": 32, "city": "Beijing"}),
        ("person", None, {"name": "a:b!c", "age": 1}),
        ("software", None, {"name": "lop", "lang": "java"}),
        ("software", None, {"name": "ripple", "lang": "java"}),
    )
    yield from _edges(
        ("knows", "person", "1:marko", "person", "1:vadas", {"date": "20160110"}),
        ("knows", "person", "1:marko", "person", "1:josh", {"date": "20130220"}),
        ("created", "person", "1:marko", "software", "2:lop", {"date": "20171210"}),
        ("created", "person", "1:josh", "software", "2:ripple", {"date": "20151010"}),
        ("created", "person", "1:josh", "software", "2:lop", {"city": "Beijing"}),
    )


def films():
    """Films and actors under ids of their own, and users under numbers."""
    yield from _property_keys(name="TEXT", born="INT", year="INT", role="TEXT")
    yield from _vertex_label("actor", ["name", "born"])
    yield from _vertex_label("film", ["year"])
    yield from _vertex_label("user", ["name"], id_strategy="CUSTOMIZE_NUMBER")
    yield from _edge_label("played in", "actor", "film", ["role"])
    yield from _edge_label("saw", "user", "film", [])
    yield from _vertices(
        ("actor", "nm1", {"name": "Ida Berg", "born": 1940}),
        ("actor", "nm2", {"name": "Tom O'Hara", "born": 1951}),
        ("film", "The Harbour", {"year": 1972}),
        ("film", "Night Tram", {"year": 1980}),
        ("user", 7, {"name": "Seven"}),
    )
    yield from _edges(
        ("played in", "actor", "nm1", "film", "The Harbour", {"role": "Olga"}),
        ("played in", "actor", "nm2", "film", "The Harbour", {}),
        ("played in", "actor", "nm2", "film", "Night Tram", {"role": "guard"}),
        ("saw", "user", 7, "film", "Night Tram", {}),
    )


def load(url, graph):
    """Load one of the graphs into the empty HugeGraph at `url`."""
    GremlinClient(url).run(graph())


def contents(url):
    """Count vertices and edges, whatever happened to them."""

    def ask():
        vertices = yield Gremlin("g.V().count()", {})
        edges = yield Gremlin("g.E().count()", {})
        return vertices[0], edges[0]

    return GremlinClient(url).run(ask())


def _property_keys(**types):
    for name, kind in types.items():
        body = {"name": name, "data_type": kind, "cardinality": "SINGLE"}
        yield Request("POST", "{graph}/schema/propertykeys", body)


def _vertex_label(name, properties, *, primary_keys=(), id_strategy="CUSTOMIZE_STRING"):
    body = {
        "name": name,
        "id_strategy": "PRIMARY_KEY" if primary_keys else id_strategy,
        "primary_keys": list(primary_keys),
        "properties": properties,
        "nullable_keys": [key for key in properties if key not in primary_keys],
    }
    yield Request("POST", "{graph}/schema/vertexlabels", body)


def _edge_label(name, source, target, properties):
    body = {
        "name": name,
        "source_label": source,
        "target_label": target,
        "frequency": "SINGLE",
        "properties": properties,
        "nullable_keys": properties,
    }
    yield Request("POST", "{graph}/schema/edgelabels", body)


def _vertices(*rows):
    yield Request(
        "POST",
        "{graph}/graph/vertices/batch",
        [
            {"label": label, "properties": properties, **({} if id is None else {"id": id})}
            for label, id, properties in rows
        ],
    )


def _edges(*rows):
    yield Request(
        "POST",
        "{graph}/graph/edges/batch",
        [
            {
                "label": label,
                "outVLabel": out_label,
                "outV": out,
                "inVLabel": in_label,
                "inV": into,
                "properties": properties,
            }
            for label, out_label, out, in_label, into, properties in rows
        ],
    )
