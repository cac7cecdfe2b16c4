"""Writing a graph to Elasticsearch such that a retry, or another writer, never counts twice.

Rows have ids made of their content, and a pair's count is never incremented: it is counted anew
from the relation rows and written under the condition that nobody wrote it since before that
count. A passage's row lists the pairs it touches and goes first in and last out, so whatever was
interrupted is put right by doing it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from llama_index_graph_rag.errors import GraphRAGValueError, StoreError
from llama_index_graph_rag.steps import Process
from llama_index_graph_rag.stores.elasticsearch_connection import Json, Session
from llama_index_graph_rag.stores.elasticsearch_queries import chunks, entity_names
from llama_index_graph_rag.stores.elasticsearch_rows import (
    MAPPINGS,
    SCHEMA_VERSION,
    Indices,
    Passage,
    document_id,
    document_row,
    mention_id,
    mention_row,
)

IDS = 1_000
"""Ids of one lookup."""
MAX_CONFLICTS = 20
"""How often a pair is counted again because another writer changed it meanwhile."""


def ensure_indices(
    session: Session,
    indices: Indices,
    *,
    settings: Mapping[str, object],
    vector_index: str,
    dimensions: Mapping[str, int | None],
) -> Process[bool]:
    """Create what is missing; return whether the graph is new.

    Raises
    ------
    StoreError
        If an index of this name holds something else.
    GraphRAGValueError
        If it holds vectors of another dimension.
    """
    new = False
    for kind, name in indices._asdict().items():
        exists = yield from session.call("indices.exists", index=name)
        if not exists["value"]:
            new = kind == "relations" or new
            yield from _create(session, name, settings, MAPPINGS[kind])
        mapping = yield from read_mapping(session, name)
        wanted, found = dimensions.get(kind), vector_dimension(mapping)
        if wanted is not None and found is None:
            yield from session.call(
                "indices.put_mapping",
                index=name,
                properties={
                    "embedding": {
                        "type": "dense_vector",
                        "dims": wanted,
                        "index": True,
                        "similarity": "cosine",
                        "index_options": {"type": vector_index},
                    }
                },
            )
        elif wanted is not None and wanted != found:
            raise GraphRAGValueError(
                f"embeddings of {wanted} dimensions do not fit index {name!r}, which holds "
                f"{found}; use the model it was built with, or another index_prefix"
            )
    return new


def _create(
    session: Session, name: str, settings: Mapping[str, object], properties: Json
) -> Process[None]:
    try:
        yield from session.call(
            "indices.create",
            index=name,
            settings={"max_inner_result_window": 10_000, **settings},
            mappings={
                "dynamic": "strict",
                "_meta": {"llama_index_graph_rag": SCHEMA_VERSION},
                "properties": properties,
            },
        )
    except StoreError as error:
        if "resource_already_exists" not in str(error):  # another writer was faster
            raise


def read_mapping(session: Session, name: str) -> Process[Json]:
    """Return the mapping of an index of ours."""
    answer = yield from session.call("indices.get_mapping", index=name)
    mapping: Json = next(iter(answer.values()))["mappings"]
    version = mapping.get("_meta", {}).get("llama_index_graph_rag")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"index {name!r} has schema version {version}, this package writes {SCHEMA_VERSION}; "
            "choose another index_prefix and load the graph anew"
        )
    return mapping


def vector_dimension(mapping: Json) -> int | None:
    """Return the dimension of the embeddings, None where there are none."""
    dims: int | None = mapping["properties"].get("embedding", {}).get("dims")
    return dims


def write(
    session: Session,
    indices: Indices,
    passages: Sequence[Passage],
    *,
    embeddings: Mapping[str, Sequence[float]],
    names: dict[str, str],
    new: bool,
) -> Process[None]:
    """Write passages whole: relations that one of them stated before and states no more go.

    `names` holds the spelling of entities already known and takes up those met here; `new` spares
    looking for what cannot be there.
    """
    ids = [passage.id for passage in passages]
    before, pairs_before = ({}, {}) if new else (yield from _present(session, indices, ids))
    yield from _learn_names(session, indices, passages, names, new=new)
    rows: dict[str, Json] = {}
    documents: dict[str, Json] = {}
    touched: set[str] = set()
    for passage in passages:
        pairs = set(pairs_before.get(passage.id, ()))
        for mention in passage.mentions:
            id_ = mention.triplet.id
            row = mention_row(passage, mention, names, embeddings.get(id_))
            rows[mention_id(passage.id, id_)] = row
            pairs.add(row["pair"])
        touched |= pairs
        documents[document_id(passage.id)] = document_row(passage, sorted(pairs))
    yield from session.bulk([_index(indices.documents, *item) for item in documents.items()])
    yield from session.bulk([_index(indices.relations, *item) for item in rows.items()])
    gone = [_delete(indices.relations, id_) for id_ in before if id_ not in rows]
    yield from session.bulk(gone)
    yield from recount(session, indices, sorted(touched))


def remove(session: Session, indices: Indices, field: str, values: Sequence[str]) -> Process[int]:
    """Delete the passages with these values of ``passage_id`` or ``doc_id``; return how many."""
    removed = 0
    yield from session.call("indices.refresh", index=list(indices))
    for part in chunks(list(dict.fromkeys(values)), IDS):
        of_part: Json = {"bool": {"filter": [{"terms": {field: list(part)}}]}}
        ids = dict.fromkeys((yield from _values(session, indices.documents, of_part)))
        ids.update(dict.fromkeys((yield from _values(session, indices.relations, of_part))))
        for some in chunks(list(ids), IDS):
            rows, pairs = yield from _present(session, indices, some)
            yield from session.bulk([_delete(indices.relations, id_) for id_ in rows])
            yield from recount(session, indices, sorted({p for of in pairs.values() for p in of}))
            yield from session.bulk([_delete(indices.documents, document_id(id_)) for id_ in some])
            removed += len(some)
    return removed


def recount(session: Session, indices: Indices, pairs: Sequence[str]) -> Process[None]:
    """Count the relations of these pairs anew and write the counts.

    Raises
    ------
    StoreError
        If other writers keep changing the same pairs.
    """
    yield from session.call("indices.refresh", index=indices.relations)
    apart = [pair for pair in pairs if len(set(pair.split(" "))) == 2]
    for part in chunks(apart, IDS):
        pending: Sequence[str] = part
        for _ in range(MAX_CONFLICTS):
            # Versions are read before the count: a count that missed a later row cannot be written.
            answer = yield from session.call(
                "mget", index=indices.aggregated, ids=list(pending), source=False
            )
            rows = yield from session.scan(
                index=indices.relations,
                query={"bool": {"filter": [{"terms": {"pair": list(pending)}}]}},
                sort=["pair", "relation_id", "passage_id"],
                source=["pair", "relation_id", "source", "source_name", "target", "target_name"],
            )
            counted = _count(hit["_source"] for hit in rows)
            actions = [
                action
                for found in answer["docs"]
                if (action := _aggregate(indices.aggregated, found, counted.get(found["_id"])))
            ]
            pending = yield from session.bulk(actions)
            if not pending:
                break
            yield from session.call("indices.refresh", index=indices.relations)
        else:
            raise StoreError(
                f"other writers changed {len(pending)} pairs {MAX_CONFLICTS} times while they "
                "were counted; repeat this call, or let one process write"
            )


def _count(rows: Iterable[Json]) -> dict[str, Json]:
    relations: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    for row in rows:
        relations.setdefault(row["pair"], set()).add(row["relation_id"])
        for end in ("source", "target"):
            names[row[end]] = min(row[f"{end}_name"], names.get(row[end], row[f"{end}_name"]))
    counted = {}
    for pair, ids in relations.items():
        source, target = pair.split(" ")
        counted[pair] = {
            "source": source,
            "target": target,
            "source_name": names[source],
            "target_name": names[target],
            "count": len(ids),
        }
    return counted


def _aggregate(index: str, found: Json, row: Json | None) -> tuple[Json, Json | None] | None:
    """Return the action that sets a pair's row to `row`, if nobody changed it meanwhile."""
    where: Json = {"_index": index, "_id": found["_id"]}
    if not found["found"]:
        return None if row is None else ({"create": where}, row)
    where |= {"if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"]}
    return ({"delete": where}, None) if row is None else ({"index": where}, row)


def _present(
    session: Session, indices: Indices, passage_ids: Sequence[str]
) -> Process[tuple[dict[str, str], dict[str, set[str]]]]:
    """Return the relation rows of these passages, and the pairs that each passage touches."""
    rows: dict[str, str] = {}
    pairs: dict[str, set[str]] = {}
    for part in chunks(passage_ids, IDS):
        hits = yield from session.scan(
            index=indices.relations,
            query={"bool": {"filter": [{"terms": {"passage_id": list(part)}}]}},
            sort=["passage_id", "relation_id"],
            source=["passage_id", "pair"],
        )
        for hit in hits:
            rows[hit["_id"]] = hit["_source"]["pair"]
            pairs.setdefault(hit["_source"]["passage_id"], set()).add(hit["_source"]["pair"])
        answer = yield from session.call(
            "mget",
            index=indices.documents,
            ids=[document_id(id_) for id_ in part],
            source=["passage_id", "pairs"],
        )
        for found in answer["docs"]:
            if found["found"]:
                row = found["_source"]
                pairs.setdefault(row["passage_id"], set()).update(row["pairs"])
    return rows, pairs


def _values(session: Session, index: str, query: Json) -> Process[list[str]]:
    tie = ["passage_id"] if index.endswith("_documents") else ["passage_id", "relation_id"]
    hits = yield from session.scan(index=index, query=query, sort=tie, source=["passage_id"])
    return [hit["_source"]["passage_id"] for hit in hits]


def _learn_names(
    session: Session,
    indices: Indices,
    passages: Sequence[Passage],
    names: dict[str, str],
    *,
    new: bool,
) -> Process[None]:
    """Add the entities of these passages to `names`, as they were first written."""
    spelled: dict[str, str] = {}
    for passage in passages:
        for mention in passage.mentions:
            triplet = mention.triplet
            spelled.setdefault(triplet.subject_id, triplet.subject)
            spelled.setdefault(triplet.object_id, triplet.object)
    unknown = [id_ for id_ in spelled if id_ not in names]
    if not new:
        for part in chunks(unknown, IDS):
            names.update((yield from entity_names(session, indices, part)))
    for id_ in unknown:
        names.setdefault(id_, spelled[id_])


def _index(index: str, id_: str, row: Json) -> tuple[Json, Json | None]:
    return {"index": {"_index": index, "_id": id_}}, row


def _delete(index: str, id_: str) -> tuple[Json, Json | None]:
    return {"delete": {"_index": index, "_id": id_}}, None
