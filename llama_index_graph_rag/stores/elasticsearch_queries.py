"""What is asked of the three indices, and how the answers are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.identity import entity_id
from llama_index_graph_rag.steps import Process
from llama_index_graph_rag.stores.base import EntityRef, Evidence, Fact, Link, Neighbor
from llama_index_graph_rag.stores.elasticsearch_connection import Json, Session
from llama_index_graph_rag.stores.elasticsearch_rows import Indices, pair_id

T = TypeVar("T")

EXPANDED = 200
"""Entities of one expand: the frontiers of 100 of both sides of a question."""
MAX_HITS = 10_000
"""Most hits of one search (``index.max_result_window``)."""
MAX_TERMS = 65_536
"""Most values of one terms query (``index.max_terms_count``)."""
MAX_BUCKETS = 60_000
"""Most buckets asked of one search, below the engine's 65,536 (``search.max_buckets``)."""
RELATIONS_PER_PAIR = 1_000
"""Most relations of one pair among which the best are chosen."""
NAMES = 500
"""Names looked up by one search."""


def match_entities(
    session: Session, indices: Indices, names: Sequence[str], by: str | None, limit: int
) -> Process[list[list[EntityRef]]]:
    """Find entities by canonical name or id: one search for up to 500 names."""
    if by not in (None, "id", "name"):
        raise GraphRAGValueError(
            f"by={by!r} is no property of an entity here; give 'id', 'name' or None for both"
        )
    wanted: list[list[str]] = []
    for name in names:
        both = {None: (entity_id(name), name), "id": (name,), "name": (entity_id(name),)}[by]
        wanted.append(list(dict.fromkeys(both)))
    found: dict[str, str] = {}
    for part in chunks(list(dict.fromkeys(id_ for ids in wanted for id_ in ids)), 2 * NAMES):
        found.update((yield from entity_names(session, indices, part)))
    return [[EntityRef(id_, found[id_]) for id_ in ids if id_ in found][:limit] for ids in wanted]


def entity_names(session: Session, indices: Indices, ids: Sequence[str]) -> Process[dict[str, str]]:
    """Return the names of those of these entities that are there, in one search."""
    if not ids:
        return {}
    answer = yield from session.search(
        index=indices.relations,
        size=0,
        query=_either_end(ids),
        aggs={
            end: _each(end, ids, {"name": _best(1, f"{end}_name", sort=[f"{end}_name"])})
            for end in ("source", "target")
        },
    )
    found: dict[str, str] = {}
    for end in ("source", "target"):
        for bucket in _buckets(answer, end):
            name = bucket["name"]["hits"]["hits"][0]["_source"][f"{end}_name"]
            # One spelling an entity, unless two writers brought it at one time.
            found[bucket["key"]] = min(name, found.get(bucket["key"], name))
    return found


def neighbors(
    session: Session, indices: Indices, entity_ids: Sequence[str], limit: int
) -> Process[dict[str, list[Neighbor]]]:
    """Return each entity's best linked neighbours: one search for up to 200 entities.

    Every entity has hits of its own (`terms` with `top_hits`), so that a hub starves no other.
    """
    if not 1 <= limit <= MAX_HITS:
        raise GraphRAGValueError(f"limit_per_entity={limit} is not 1 to {MAX_HITS:,}")
    unique = list(dict.fromkeys(entity_ids))
    found: dict[str, list[Neighbor]] = {}
    for part in chunks(unique, EXPANDED):
        answer = yield from session.search(
            index=indices.aggregated,
            size=0,
            query=_either_end(part),
            aggs={
                near: _each(
                    near,
                    part,
                    {
                        "best": _best(
                            limit,
                            far,
                            f"{far}_name",
                            "count",
                            sort=["-count", f"{far}_name", far],
                        )
                    },
                )
                for near, far in (("source", "target"), ("target", "source"))
            },
        )
        for near, far in (("source", "target"), ("target", "source")):
            for bucket in _buckets(answer, near):
                found.setdefault(bucket["key"], []).extend(
                    Neighbor(EntityRef(row[far], row[f"{far}_name"]), row["count"])
                    for row in _sources(bucket["best"])
                )
    missing = [id_ for id_ in unique if id_ not in found]
    # An entity whose relations are all self-loops has no neighbour, but it is known.
    for part in chunks(missing, 2 * NAMES):
        found.update({id_: [] for id_ in (yield from entity_names(session, indices, part))})
    for around in found.values():
        around.sort(key=lambda one: (-one.count, one.entity.name, one.entity.id))
        del around[limit:]
    return {id_: found[id_] for id_ in unique if id_ in found}


def links(
    session: Session,
    indices: Indices,
    left_ids: Sequence[str],
    right_ids: Sequence[str],
    limit: int,
) -> Process[list[Link]]:
    """Return what joins the two sides directly, in one search."""
    left, right = set(left_ids), set(right_ids)
    if not 1 <= limit <= MAX_HITS:
        raise GraphRAGValueError(f"limit={limit} is not 1 to {MAX_HITS:,}")
    if max(len(left), len(right)) > MAX_TERMS:
        raise GraphRAGValueError(
            f"{max(len(left), len(right)):,} entities on one side are over the engine's limit of "
            f"{MAX_TERMS:,}; lower new_nodes or max_frontier"
        )
    if not left or not right:
        return []
    answer = yield from session.search(
        index=indices.aggregated,
        size=limit,
        query={
            "bool": {
                "should": [
                    {"bool": {"filter": [_in(near, left), _in(far, right)]}}
                    for near, far in (("source", "target"), ("target", "source"))
                ],
                "minimum_should_match": 1,
            }
        },
        sort=_sort(["-count", "source", "target"]),
        source=["source", "target", "count"],
        track_total_hits=False,
    )
    found = set()
    for row in _sources(answer):
        for one, other in ((row["source"], row["target"]), (row["target"], row["source"])):
            if one in left and other in right:
                found.add(Link(one, other, row["count"]))
    return sorted(found, key=lambda link: (-link.count, link.left_id, link.right_id))[:limit]


def facts(
    session: Session,
    indices: Indices,
    pairs: Sequence[tuple[str, str]],
    *,
    per_pair: int,
    evidence: int,
    query_embedding: Sequence[float] | None,
) -> Process[list[Fact]]:
    """Return the relations of each pair with their evidence: one search for up to 1,000 pairs.

    With an embedding the same search looks for the relations nearest to it, each pair with a
    filtered kNN of its own, so that none starves another.
    """
    if not 1 <= per_pair <= RELATIONS_PER_PAIR:
        raise GraphRAGValueError(f"per_pair={per_pair} is not 1 to {RELATIONS_PER_PAIR:,}")
    keys = [pair_id(left, right) for left, right in pairs]
    found: dict[str, list[Fact]] = {}
    for part in chunks(list(dict.fromkeys(keys)), min(1_000, MAX_BUCKETS // (per_pair + 1))):
        considered = max(per_pair, min(RELATIONS_PER_PAIR, MAX_BUCKETS // len(part) - 1))
        answer = yield from session.search(
            index=indices.relations,
            query={"bool": {"filter": [_in("pair", part)]}},
            aggs={
                "pair": _each(
                    "pair",
                    part,
                    {
                        "relation": {
                            "terms": {
                                "field": "relation_id",
                                "size": considered,
                                "order": [{"_count": "desc"}, {"_key": "asc"}],
                            },
                            "aggs": {
                                "rows": {
                                    "top_hits": {
                                        "size": evidence,
                                        "sort": _sort(["passage_id"]),
                                        "_source": {"excludes": ["embedding"]},
                                    }
                                }
                            },
                        }
                    },
                )
            },
            track_total_hits=False,
            **_nearest(part, per_pair, query_embedding),
        )
        relations = {
            bucket["key"]: {one["key"]: one for one in bucket["relation"]["buckets"]}
            for bucket in _buckets(answer, "pair")
        }
        similar: dict[str, float] = {}
        for hit in answer["hits"]["hits"]:
            if hit["_score"]:  # 0 for a row of the pair that is not among the nearest
                row = hit["_source"]
                similar.setdefault(row["relation_id"], 2.0 * hit["_score"] - 1.0)
                # Near, but not among the relations that were considered for their count.
                relations[row["pair"]].setdefault(
                    row["relation_id"],
                    {"key": row["relation_id"], "doc_count": 1, "rows": {"hits": {"hits": [hit]}}},
                )
        for key in part:
            of_pair = [_fact(bucket, similar) for bucket in relations.get(key, {}).values()]
            of_pair.sort(key=lambda item: item[0])
            found[key] = [fact for _, fact in of_pair[:per_pair]]
    return [fact for key in keys for fact in found[key]]


def _nearest(part: Sequence[str], per_pair: int, embedding: Sequence[float] | None) -> Json:
    if embedding is None:
        return {"size": 0}
    # Passages that state one relation share its vector: room for some of them.
    k = min(4 * per_pair, 1_000)
    return {
        "size": min(MAX_HITS, k * len(part)),
        "source_excludes": ["embedding"],
        "knn": [
            {
                "field": "embedding",
                "query_vector": [float(x) for x in embedding],
                "k": k,
                "num_candidates": max(k, 100),
                "filter": {"term": {"pair": key}},
            }
            for key in part
        ],
    }


def _fact(bucket: Json, similar: Mapping[str, float]) -> tuple[tuple[float, int, str, str], Fact]:
    rows = _sources(bucket["rows"])
    first, id_ = rows[0], bucket["key"]
    fact = Fact(
        subject=EntityRef(first["source"], first["source_name"]),
        predicate=first["relation"],
        object=EntityRef(first["target"], first["target_name"]),
        count=bucket["doc_count"],
        evidence=tuple(Evidence(row["passage_id"], row["sentence"]) for row in rows),
        similarity=similar.get(id_),
    )
    # Those that the kNN did not bring come after those that it did.
    return (-similar.get(id_, -2.0), -fact.count, fact.predicate, id_), fact


def schema(session: Session, indices: Indices, limit: int = 50) -> Process[str]:
    """Return the predicates with their counts as a text."""
    answer = yield from session.search(
        index=indices.relations,
        size=0,
        aggs={
            "relation": {
                "terms": {"field": "relation", "size": limit, "order": _sort(["-_count", "_key"])}
            }
        },
        track_total_hits=False,
    )
    relations = answer["aggregations"]["relation"]
    lines = [f"- {bucket['key']} ({bucket['doc_count']})" for bucket in relations["buckets"]]
    if relations["sum_other_doc_count"]:
        lines.append(f"- and others ({relations['sum_other_doc_count']})")
    return "\n".join(
        ["Entities have the properties: id, name.", "Relations (number of statements):", *lines]
    )


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield `items` in order, at most `size` at a time.

    Examples
    --------
    >>> list(chunks("abc", 2))
    ['ab', 'c']
    """
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _in(field: str, values: Sequence[str] | set[str]) -> Json:
    return {"terms": {field: sorted(values) if isinstance(values, set) else list(values)}}


def _either_end(ids: Sequence[str]) -> Json:
    ends = [_in("source", ids), _in("target", ids)]
    return {"bool": {"filter": [{"bool": {"should": ends, "minimum_should_match": 1}}]}}


def _each(field: str, values: Sequence[str], aggs: Json) -> Json:
    """Return an aggregation with one bucket for each of these values (see `_buckets`)."""
    terms = {"field": field, "size": len(values)}
    return {"filter": _in(field, values), "aggs": {"each": {"terms": terms, "aggs": aggs}}}


def _buckets(answer: Json, name: str) -> list[Json]:
    buckets: list[Json] = answer["aggregations"][name]["each"]["buckets"]
    return buckets


def _best(size: int, *source: str, sort: Sequence[str]) -> Json:
    return {"top_hits": {"size": size, "sort": _sort(sort), "_source": list(source)}}


def _sort(fields: Sequence[str]) -> list[Json]:
    return [{field.lstrip("-"): "desc" if field.startswith("-") else "asc"} for field in fields]


def _sources(answer: Json) -> list[Json]:
    return [hit["_source"] for hit in answer["hits"]["hits"]]
