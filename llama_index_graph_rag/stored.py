"""Passages as they are stored, to be written anew without a model; and what they lack, repaired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from llama_index_graph_rag.graph.snapshot import PassageKey
from llama_index_graph_rag.steps import Process, Step, call, perform
from llama_index_graph_rag.stores.base import (
    Batch,
    EntityRow,
    GraphIndexStore,
    RelationRow,
    StoredPassage,
)
from llama_index_graph_rag.triplets import Triplet
from llama_index_graph_rag.writing import BATCH_PASSAGES, Passage, Writer


def stored_passages(store: GraphIndexStore, ids: Sequence[str]) -> Process[list[Passage]]:
    """Return passages with embedding and hashes, as they were written; without the missing ones."""
    found = yield from call(store.get_passages, store.aget_passages, ids)
    vectors = yield from call(store.passage_vectors, store.apassage_vectors, ids)
    snapshot = store.snapshot()
    passages = []
    for stored in found:
        node = stored.node
        vector = vectors.get(node.node_id)
        hash = snapshot.content_hash(node.node_id)
        if vector is not None and hash is not None:  # else deleted meanwhile
            of_document = snapshot.document_hashes(node.ref_doc_id or "")
            passages.append(
                Passage(
                    node=node,
                    mentions=stored.mentions,
                    relation_ids=stored.relation_ids,
                    content_hash=hash,
                    document_hash=of_document.get(node.node_id, ""),
                    embedding=vector.tolist(),
                )
            )
    return passages


def repair(writer: Writer) -> Process[dict[str, int]]:
    """Write the entities and relations anew that passages state and the store lacks.

    Returns
    -------
    dict
        How many ``entities`` and ``relations`` were written.
    """
    store = writer.store
    yield from call(store.refresh, store.arefresh, full=True)
    if not store.dimension:
        return {"entities": 0, "relations": 0}
    counts = {}
    # Entities first: a relation is known only where its entities are.
    for kind, mend in (("entities", _mend_entities), ("relations", _mend_relations)):
        counts[kind] = 0
        pages = store.scan_passages()
        while page := (yield from _next(pages)):
            for start in range(0, len(page), BATCH_PASSAGES):
                ids = [key.id for key in page[start : start + BATCH_PASSAGES] if key.relation_ids]
                found = yield from call(store.get_passages, store.aget_passages, ids)
                counts[kind] += yield from mend(writer, _stated(found))
        if counts[kind]:
            yield from call(store.refresh, store.arefresh, full=True)
    yield from call(store.flush, store.aflush)
    return counts


def _mend_entities(writer: Writer, triplets: Sequence[Triplet]) -> Process[int]:
    store = writer.store
    names: dict[str, str] = {}
    for triplet in triplets:
        names.setdefault(triplet.subject_id, triplet.subject)
        names.setdefault(triplet.object_id, triplet.object)
    missing = yield from call(store.missing, store.amissing, entities=list(names))
    lacking = [id for id in names if id in missing[0]]
    if lacking:
        vectors = yield from writer.embed([names[id] for id in lacking])
        rows = [EntityRow(id, names[id], vector) for id, vector in zip(lacking, vectors)]
        yield from call(store.upsert, store.aupsert, Batch(entities=rows))
    return len(lacking)


def _mend_relations(writer: Writer, triplets: Sequence[Triplet]) -> Process[int]:
    store = writer.store
    first: dict[str, Triplet] = {}
    for triplet in triplets:
        first.setdefault(triplet.id, triplet)
    missing = yield from call(store.missing, store.amissing, relations=list(first))
    lacking = [id for id in first if id in missing[1]]
    if lacking:
        vectors = yield from writer.embed([first[id].text for id in lacking])
        rows = [
            RelationRow(id, first[id].subject_id, first[id].object_id, *first[id], embedding=vector)
            for id, vector in zip(lacking, vectors)
        ]
        yield from call(store.upsert, store.aupsert, Batch(relations=rows))
    return len(lacking)


def _stated(passages: Sequence[StoredPassage]) -> list[Triplet]:
    return [mention.triplet for passage in passages for mention in passage.mentions]


def _next(pages: Iterator[list[PassageKey]]) -> Process[list[PassageKey]]:
    read: Callable[[], list[PassageKey]] = lambda: next(pages, [])  # noqa: E731
    return (yield from perform(Step(read, lambda: asyncio.to_thread(read))))
