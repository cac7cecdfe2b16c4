"""Many writers and readers on one index, checked against a sequential model.

``python -m benchmarks.concurrency [--seconds 60]`` runs 8 threads that insert, replace and delete
beside 8 that ask, on one Milvus Lite index. With GRAPH_RAG_MILVUS_URL set it runs 4 processes
against that server instead (``python tests/servers/milvus.py -- python -m ...`` starts one).

Each writer owns the passages whose ids start with its number and tells in the end what they should
state; entities and relations are shared by all writers, so that one deletes what others are just
about to use. In the end passages, their relations, counts and evidence must be those of the model,
for the writing store, for a reader that was open all the time and refreshes, and for a new one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llama_index.core.schema import TextNode

from benchmarks.zipf_triplets import StubEmbedding
from llama_index_graph_rag import GraphRAGIndex
from llama_index_graph_rag.triplets import Triplet

N_ENTITIES = 40
N_PASSAGES = 30
URL_VARIABLE = "GRAPH_RAG_MILVUS_URL"

Model = dict[str, frozenset[str]]
"""The relation ids of each passage."""


@dataclass
class Outcome:
    """What a worker did; `model` holds what its passages state in the end."""

    model: Model = field(default_factory=dict)
    writes: int = 0
    reads: int = 0


def write(index: GraphRAGIndex, worker: int, go_on: Callable[[], bool], seed: int) -> Outcome:
    """Insert, replace and delete passages of this worker's own while `go_on` says so."""
    rng = random.Random(f"{seed}-{worker}")
    outcome = Outcome()
    while go_on():
        chosen = rng.sample(range(N_PASSAGES), rng.randint(1, 4))
        ids = [f"{worker}-{number}" for number in chosen]
        if rng.random() < 0.4:
            if rng.random() < 0.5:
                index.delete_nodes(ids)
            else:
                ids = ids[:1]
                index.delete_ref_doc(f"document-{ids[0]}")
            for id in ids:
                outcome.model.pop(id, None)
        else:
            triplets = [_triplets(rng) for _ in ids]
            nodes = [_node(id, of_one) for id, of_one in zip(ids, triplets)]
            index.insert_triplets(nodes, triplets)
            for id, of_one in zip(ids, triplets):
                outcome.model[id] = frozenset(triplet.id for triplet in of_one)
        outcome.writes += 1
    return outcome


def read(index: GraphRAGIndex, worker: int, go_on: Callable[[], bool], seed: int) -> Outcome:
    """Ask questions while `go_on` says so; each answer must fit together."""
    rng = random.Random(f"{seed}-reader-{worker}")
    retriever = index.as_retriever(similarity_top_k=3)
    outcome = Outcome()
    while go_on():
        first, second = _names(rng)
        nodes = retriever.retrieve(f"How do {first} and {second} belong together?")
        scores = [node.score or 0.0 for node in nodes]
        if scores != sorted(scores, reverse=True) or len({n.node_id for n in nodes}) < len(nodes):
            raise AssertionError(f"the answer does not fit together: {nodes}")
        outcome.reads += 1
    return outcome


def _names(rng: random.Random) -> tuple[str, str]:
    first, second = rng.sample(range(N_ENTITIES), 2)
    return f"Entity {first}", f"Entity {second}"


def _triplets(rng: random.Random) -> list[Triplet]:
    drawn = [Triplet(*_ends(rng)) for _ in range(rng.randint(0, 4))]
    return list({triplet.id: triplet for triplet in drawn}.values())


def _ends(rng: random.Random) -> tuple[str, str, str]:
    first, second = _names(rng)
    return first, rng.choice(["knows", "made"]), second


def _node(id: str, triplets: Iterable[Triplet]) -> TextNode:
    text = " ".join(f"{triplet.text}." for triplet in triplets) or "Nothing is told here."
    node = TextNode(id_=id, text=text)
    node.relationships = TextNode.model_validate(
        {"relationships": {"1": {"node_id": f"document-{id}"}}}
    ).relationships
    return node


# --- the check ----------------------------------------------------------------------------------


def differences(index: GraphRAGIndex, model: Mapping[str, frozenset[str]]) -> list[str]:
    """Return in what an index differs from the model; rows in Milvus and matrices are looked at."""
    store, found = index.store, []

    def compare(what: str, is_: object, expected: object) -> None:
        if is_ != expected:
            found.append(f"{what}: {str(is_)[:500]} instead of {str(expected)[:500]}")

    stored = {key.id: frozenset(key.relation_ids) for page in store.scan_passages() for key in page}
    wrong = {id for id in stored.keys() | model.keys() if stored.get(id) != model.get(id)}
    compare("passages that differ", sorted(wrong), [])
    relations = frozenset(id for of_one in model.values() for id in of_one)
    kept = {key.id: key for page in store.scan_relations() for key in page}
    compare("relations lost", sorted(relations - kept.keys()), [])
    ends = {end for id in relations & kept.keys() for end in (kept[id][1], kept[id][2])}
    entities = {key.id for page in store.scan_entities() for key in page}
    compare("entities lost", sorted(ends - entities), [])
    stats = store.stats()
    compare("stats: passages", stats["passages"], len(model))
    compare("stats: relations", stats["relations"], len(relations))
    compare("stats: entities", stats["entities"], len(ends))
    compare("stats: dangling_references", stats.get("dangling_references", 0), 0)
    snapshot = store.snapshot()
    for id in model:
        rows = snapshot.passage_rows([id])
        if rows[0] >= 0:
            stated = snapshot.incidence.relations_of_passages(rows)[1]
            compare(f"matrix of {id}", frozenset(snapshot.relation_ids(stated)), model[id])
        else:
            found.append(f"passage {id} is not in the matrices")
    return found


def leftovers(index: GraphRAGIndex, model: Mapping[str, frozenset[str]]) -> list[str]:
    """Return what is stored though nothing states it."""
    store = index.store
    relations = frozenset(id for of_one in model.values() for id in of_one)
    kept = {key.id for page in store.scan_relations() for key in page}
    stats = store.stats()
    found = [f"extra relation {id}" for id in sorted(kept - relations)]
    orphans = stats["orphan_relations"], stats["orphan_entities"]
    return found + ([f"orphan relations and entities: {orphans}"] if any(orphans) else [])


# --- threads on Milvus Lite ---------------------------------------------------------------------


def run_threads(
    uri: str, *, seconds: float, writers: int = 8, readers: int = 8, seed: int = 0
) -> dict[str, Any]:
    """Run threads on one index; `faults` of the answer lists exceptions and differences."""
    index = GraphRAGIndex.from_triplets(
        [TextNode(id_="first", text="Entity 0 knows Entity 1.")],
        [[("Entity 0", "knows", "Entity 1")]],
        uri=uri,
        embed_model=StubEmbedding(),
    )
    model: Model = {"first": frozenset([Triplet("Entity 0", "knows", "Entity 1").id])}
    end = time.monotonic() + seconds
    outcomes: list[Outcome] = []
    faults: list[str] = []

    def work(task: Callable[..., Outcome], number: int) -> None:
        try:
            outcomes.append(task(index, number, lambda: time.monotonic() < end, seed))
        except Exception as error:
            faults.append(f"{task.__name__} {number}: {error!r}")

    tasks = [(write, n) for n in range(writers)] + [(read, n) for n in range(readers)]
    threads = [threading.Thread(target=work, args=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for outcome in outcomes:
        model |= outcome.model
    faults += differences(index, model) + leftovers(index, model)
    index.close()
    again = GraphRAGIndex.from_existing(uri, embed_model=StubEmbedding())
    faults += [f"reopened: {fault}" for fault in differences(again, model)]
    again.close()
    return _summary(outcomes, model, faults)


# --- processes on a server ----------------------------------------------------------------------


def _process(uri: str, prefix: str, worker: int, seconds: float, seed: int, results: Any) -> None:
    try:
        index = GraphRAGIndex.from_existing(
            uri, collection_prefix=prefix, embed_model=StubEmbedding()
        )
        end = time.monotonic() + seconds
        outcome = write(index, worker, lambda: time.monotonic() < end, seed)
        index.close()
        results.put((outcome, ""))
    except Exception as error:
        results.put((Outcome(), f"process {worker}: {error!r}"))


def run_processes(
    uri: str, cache: Path, *, seconds: float, processes: int = 4, seed: int = 0
) -> dict[str, Any]:
    """Run writing processes against a server beside one reader, which refreshes in the end."""
    prefix = f"concurrency_{uuid.uuid4().hex[:8]}"
    os.environ["XDG_CACHE_HOME"] = str(cache)
    reader = GraphRAGIndex.from_triplets(
        [TextNode(id_="first", text="Entity 0 knows Entity 1.")],
        [[("Entity 0", "knows", "Entity 1")]],
        uri=uri,
        collection_prefix=prefix,
        embed_model=StubEmbedding(),
    )
    model: Model = {"first": frozenset([Triplet("Entity 0", "knows", "Entity 1").id])}
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [
        context.Process(target=_process, args=(uri, prefix, number, seconds, seed, results))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    outcomes: list[Outcome] = []
    faults: list[str] = []
    retriever = reader.as_retriever(similarity_top_k=3)
    reads = 0
    while any(worker.is_alive() for worker in workers) and len(outcomes) < processes:
        try:
            reader.store.refresh()
            retriever.retrieve("How do Entity 1 and Entity 2 belong together?")
            reads += 1
        except Exception as error:
            faults.append(f"reader: {error!r}")
            break
        while not results.empty():
            outcomes.append(_collected(results.get(), faults))
    while len(outcomes) < processes:
        outcomes.append(_collected(results.get(timeout=120), faults))
    for worker in workers:
        worker.join()
    for outcome in outcomes:
        model |= outcome.model
    outcomes.append(Outcome(reads=reads))
    reader.store.refresh()
    faults += [f"reader: {fault}" for fault in differences(reader, model)]
    reader.store.vacuum()
    faults += [f"after vacuum: {fault}" for fault in leftovers(reader, model)]
    again = GraphRAGIndex.from_existing(uri, collection_prefix=prefix, embed_model=StubEmbedding())
    faults += [f"reopened: {fault}" for fault in differences(again, model)]
    again.close()
    reader.close()
    return _summary(outcomes, model, faults)


def _collected(result: tuple[Outcome, str], faults: list[str]) -> Outcome:
    if result[1]:
        faults.append(result[1])
    return result[0]


def _summary(outcomes: Sequence[Outcome], model: Model, faults: list[str]) -> dict[str, Any]:
    return {
        "writes": sum(outcome.writes for outcome in outcomes),
        "reads": sum(outcome.reads for outcome in outcomes),
        "passages": len(model),
        "faults": faults,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        if url := os.environ.get(URL_VARIABLE):
            figures = run_processes(url, Path(scratch), seconds=options.seconds, seed=options.seed)
        else:
            uri = str(Path(scratch) / "concurrency.db")
            figures = run_threads(uri, seconds=options.seconds, seed=options.seed)
    print(json.dumps(figures, indent=2))
    return 1 if figures["faults"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
