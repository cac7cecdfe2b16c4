"""How fast entities are connected on Elasticsearch, with the aggregated index and without.

    python -m benchmarks.elasticsearch_connect --elasticsearch http://localhost:9200 [--json OUT]

Loads a synthetic graph (by default 50,000 relations, mean degree 17) under a prefix of its own,
connects random pairs of entities, once walking the aggregated index and once the relations
themselves, and deletes what it made. Printed are milliseconds and searches of a pair, and how many
times longer the walk and one expand take without the aggregated index.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
from llama_index.core.schema import TextNode

from benchmarks.synthetic_graph import SyntheticGraph, synthetic_graph
from llama_index_graph_rag.graph.connections import ConnectLimits
from llama_index_graph_rag.retrievers.walk import ReaderWalk, search
from llama_index_graph_rag.steps import Process, drive
from llama_index_graph_rag.stores.base import EntityRef, GraphReader, Link, Neighbor
from llama_index_graph_rag.stores.elasticsearch import ElasticsearchStore
from llama_index_graph_rag.stores.elasticsearch_connection import Json, Session

PREFIX = "graph_rag_benchmark"
LIMITS = ConnectLimits(frontier=100)


class WithoutAggregated(ElasticsearchStore):
    """Walks the relation rows: what an expand costs when pairs are counted while walking."""

    def neighbors(
        self, entity_ids: Sequence[str], *, limit_per_entity: int = 100
    ) -> dict[str, list[Neighbor]]:
        """Count the relations of each pair while walking."""
        return self._run(lambda session: self._expand(session, entity_ids, limit_per_entity))

    def _expand(
        self, session: Session, ids: Sequence[str], limit: int
    ) -> Process[dict[str, list[Neighbor]]]:
        answer = yield from session.search(
            index=self.indices.relations,
            size=0,
            query=_any_of(*({"terms": {end: list(ids)}} for end in ("source", "target"))),
            aggs={
                near: {
                    "filter": {"terms": {near: list(ids)}},
                    "aggs": {
                        "each": {
                            "terms": {"field": near, "size": len(ids)},
                            "aggs": {
                                "other": {
                                    "terms": {"field": far, "size": limit},
                                    "aggs": {
                                        "name": {
                                            "top_hits": {"size": 1, "_source": [f"{far}_name"]}
                                        }
                                    },
                                }
                            },
                        }
                    },
                }
                for near, far in (("source", "target"), ("target", "source"))
            },
        )
        found: dict[str, dict[EntityRef, int]] = {}
        for near, far in (("source", "target"), ("target", "source")):
            for bucket in answer["aggregations"][near]["each"]["buckets"]:
                counts = found.setdefault(bucket["key"], {})
                for other in bucket["other"]["buckets"]:
                    name = other["name"]["hits"]["hits"][0]["_source"][f"{far}_name"]
                    ref = EntityRef(other["key"], name)
                    counts[ref] = counts.get(ref, 0) + other["doc_count"]
        return {
            id_: sorted(
                (Neighbor(ref, count) for ref, count in counts.items() if ref.id != id_),
                key=lambda one: (-one.count, one.entity.name, one.entity.id),
            )[:limit]
            for id_, counts in found.items()
        }

    def links(
        self, left_ids: Sequence[str], right_ids: Sequence[str], *, limit: int = 10_000
    ) -> list[Link]:
        """Count the relations of each pair while checking."""
        return self._run(lambda session: self._check(session, left_ids, right_ids, limit))

    def _check(
        self, session: Session, left: Sequence[str], right: Sequence[str], limit: int
    ) -> Process[list[Link]]:
        answer = yield from session.search(
            index=self.indices.relations,
            size=0,
            query=_any_of(
                *(
                    {"bool": {"filter": [{"terms": {a: list(left)}}, {"terms": {b: list(right)}}]}}
                    for a, b in (("source", "target"), ("target", "source"))
                )
            ),
            aggs={"pair": {"terms": {"field": "pair", "size": limit}}},
        )
        sides, found = (set(left), set(right)), []
        for bucket in answer["aggregations"]["pair"]["buckets"]:
            one, other = bucket["key"].split(" ")
            for ends in ((one, other), (other, one)):
                if ends[0] in sides[0] and ends[1] in sides[1]:
                    found.append(Link(*ends, bucket["doc_count"]))
        return found


def _any_of(*queries: Json) -> Json:
    return {"bool": {"filter": [{"bool": {"should": list(queries), "minimum_should_match": 1}}]}}


def load(store: ElasticsearchStore, graph: SyntheticGraph) -> float:
    """Write the graph and return the seconds it took."""
    names = graph.names()
    triplets: list[list[tuple[str, str, str]]] = [[] for _ in range(graph.n_documents)]
    ends = zip(graph.documents.tolist(), graph.subjects.tolist(), graph.objects.tolist())
    for number, (document, subject, object_) in enumerate(ends):
        triplets[document].append((names[subject], f"relation {number}", names[object_]))
    nodes = [TextNode(id_=f"document {i}", text=f"Document {i}.") for i in range(len(triplets))]
    start = time.perf_counter()
    store.add(nodes, triplets, show_progress=True)
    return time.perf_counter() - start


def walks(
    store: ElasticsearchStore, pairs: Sequence[tuple[EntityRef, EntityRef]]
) -> tuple[list[int], dict[str, float]]:
    """Connect each pair; return the lengths found (0 for none) and what it took."""
    lengths, milliseconds, searches = [], [], []
    for left, right in pairs:
        start = time.perf_counter()
        with store.count_calls() as calls:
            walk = ReaderWalk(store, calls)
            found = drive(search(walk, [[left], [right]], LIMITS)).found
        milliseconds.append((time.perf_counter() - start) * 1000)
        searches.append(calls["elasticsearch.search"])
        lengths.append(found[0].length if found else 0)
    return lengths, {
        "p50_ms": round(median(milliseconds), 1),
        "p99_ms": round(float(np.percentile(milliseconds, 99)), 1),
        "max_searches": max(searches),
        "connected": sum(map(bool, lengths)),
    }


def expand(reader: GraphReader, ids: Sequence[str], repeats: int = 5) -> float:
    """Return the median milliseconds of one expand of these entities."""
    return _median_ms(lambda: reader.neighbors(ids), repeats)


def _median_ms(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1000)
    return median(times)


def measure(url: str, *, n_relations: int = 50_000, n_pairs: int = 100) -> dict[str, object]:
    """Load, walk and clean up; return the figures."""
    share = n_relations / 2_000_000
    graph = synthetic_graph(
        n_entities=round(239_000 * share),
        n_relations=n_relations,
        n_documents=round(100_000 * share),
        largest_hub=round(25_000 * share),
    )
    names, random = graph.names(), np.random.default_rng(1)
    with (
        ElasticsearchStore(url, index_prefix=PREFIX, request_timeout=120) as store,
        WithoutAggregated(url, index_prefix=PREFIX, request_timeout=120) as without,
    ):
        try:
            seconds = load(store, graph)
            drawn = random.choice(graph.n_entities, (n_pairs, 2), replace=False).ravel()
            refs = [found[0] for found in store.match_entities([names[row] for row in drawn])]
            pairs = list(zip(refs[::2], refs[1::2]))
            hubs = np.argsort(-graph.degrees())[:100]
            ids = [found[0].id for found in store.match_entities([names[row] for row in hubs])]
            lengths, with_it = walks(store, pairs)
            lengths_without, without_it = walks(without, pairs)
            expands = expand(store, ids), expand(without, ids)
        finally:
            store._run(lambda session: session.call("indices.delete", index=list(store.indices)))
    return {
        "relations": n_relations,
        "entities": graph.n_entities,
        "mean_degree": round(2 * n_relations / graph.n_entities, 2),
        "load_seconds": round(seconds, 1),
        "aggregated": with_it,
        "relations_only": without_it,
        "same_lengths": lengths == lengths_without,
        "ratio_walk": round(float(without_it["p50_ms"]) / float(with_it["p50_ms"]), 2),
        "expand_100_hubs_ms": [round(value, 1) for value in expands],
        "ratio_expand": round(expands[1] / expands[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--elasticsearch", required=True, metavar="URL")
    parser.add_argument("--relations", type=int, default=50_000)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--json", metavar="OUT", help="also write the figures to this file")
    options = parser.parse_args()
    found = measure(options.elasticsearch, n_relations=options.relations, n_pairs=options.pairs)
    text = json.dumps(found, indent=2)
    print(text)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            out.write(text + "\n")


if __name__ == "__main__":
    main()
