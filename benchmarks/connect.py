"""How fast two entities are connected: ``python -m benchmarks.connect [--json OUT]``.

A seeded graph of 100,000 documents, 2,000,000 relations and 239,000 entities in memory; 1,000
random pairs. Search and pruning are timed alone; writing the documents out, with the fetch of
their evidence (from memory), apart. With ``--elasticsearch URL`` the same is measured on a smaller
graph in a store.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from llama_index.core.schema import TextNode

from benchmarks.synthetic_graph import SyntheticGraph, synthetic_graph
from llama_index_graph_rag.graph.connect import connect
from llama_index_graph_rag.graph.connections import Connections
from llama_index_graph_rag.graph.link_matrix import LinkMatrix, link_matrix
from llama_index_graph_rag.graph.path_graph import PathGraph
from llama_index_graph_rag.graph.prune import ChosenPath, choose_paths
from llama_index_graph_rag.graph.snapshot import EntityKey, GraphSnapshot, PassageKey, RelationKey
from llama_index_graph_rag.retrievers.connection import ConnectionRetriever
from llama_index_graph_rag.stores.base import StoredPassage
from llama_index_graph_rag.stores.snapshot_reader import SnapshotReader
from llama_index_graph_rag.triplets import Mention, Triplet


class SyntheticReader(SnapshotReader):
    """The synthetic graph as an index in memory; passages are written when they are asked for."""

    def __init__(self, graph: SyntheticGraph) -> None:
        self.graph = graph
        self.names = graph.names()
        self.bounds = np.searchsorted(graph.documents, np.arange(graph.n_documents + 1)).tolist()
        entity_ids = [_id(row) for row in range(graph.n_entities)]
        ends = zip(graph.subjects.tolist(), graph.objects.tolist())
        self._snapshot = GraphSnapshot.empty().with_changes(
            entities=[EntityKey(*entity) for entity in zip(entity_ids, self.names)],
            relations=[
                RelationKey(_id(row), entity_ids[a], entity_ids[b])
                for row, (a, b) in enumerate(ends)
            ],
            passages=[
                PassageKey(f"{document}", f"{document}", self._relation_ids(document), "", "")
                for document in range(graph.n_documents)
            ],
        )

    def _relation_ids(self, document: int) -> tuple[str, ...]:
        return tuple(map(_id, range(self.bounds[document], self.bounds[document + 1])))

    def snapshot(self) -> GraphSnapshot:
        """Return the graph."""
        return self._snapshot

    def get_passages(self, ids: Sequence[str]) -> list[StoredPassage]:
        """Write these passages."""
        return [self._passage(int(id_)) for id_ in ids]

    def get_vectors(self, *, entities=(), relations=()):
        """Return nothing: the question is not embedded."""
        return {}, {}

    def _passage(self, document: int) -> StoredPassage:
        sentences, mentions, start = [], [], 0
        for row in range(self.bounds[document], self.bounds[document + 1]):
            subject = self.names[self.graph.subjects[row]]
            triplet = Triplet(subject, "is linked to", self.names[self.graph.objects[row]])
            sentences.append(f"{triplet.text}.")
            mentions.append(Mention(triplet, start, start + len(sentences[-1])))
            start += len(sentences[-1]) + 1
        node = TextNode(id_=str(document), text=" ".join(sentences))
        return StoredPassage(node, self._relation_ids(document), tuple(mentions))


def _id(row: int) -> str:
    return f"{row:032x}"


def search_and_prune(
    matrix: LinkMatrix, pair: Sequence[int]
) -> tuple[Connections, list[ChosenPath]]:
    """Connect two rows."""
    process = connect([[row] for row in pair], matrix.order, size=len(matrix.ranks))
    wanted = next(process)
    try:
        while True:
            wanted = process.send(matrix.answer(wanted))
    except StopIteration as stop:
        found: Connections = stop.value
    graphs = [PathGraph.of(connection, matrix.order) for connection in found.found]
    return found, choose_paths(graphs)


def measure_memory(
    *, n_pairs: int, n_entities: int, n_relations: int, n_documents: int, seed: int
) -> dict[str, object]:
    """Measure on the graph in memory."""
    graph = synthetic_graph(
        n_entities=n_entities, n_relations=n_relations, n_documents=n_documents, seed=seed
    )
    degrees = graph.degrees()
    start = time.perf_counter()
    reader = SyntheticReader(graph)
    snapshot_seconds = time.perf_counter() - start
    start = time.perf_counter()
    matrix = link_matrix(reader.snapshot())
    matrix_seconds = time.perf_counter() - start
    pairs = np.random.default_rng(seed + 1).integers(0, graph.n_entities, (n_pairs, 2))
    pairs = [pair for pair in pairs.tolist() if pair[0] != pair[1]]
    # Rows of the snapshot are in the order of ids, which here is that of the graph.
    for pair in pairs[:20]:
        search_and_prune(matrix, pair)
    wall, cpu, nodes, lengths, paths = [], [], [], Counter(), []
    for pair in pairs:
        start, cpu_start = time.perf_counter(), time.thread_time()
        found, chosen = search_and_prune(matrix, pair)
        cpu.append(time.thread_time() - cpu_start)
        wall.append(time.perf_counter() - start)
        nodes.append(sum(found.nodes))
        lengths[found.found[0].length if found.found else 0] += 1
        paths.append(len(chosen))
    retriever = ConnectionRetriever(reader, entity_extractor=None)
    write, calls = [], []
    for pair in pairs[:200]:
        _, trace = retriever.connect([_id(row) for row in pair])
        spent = trace.milliseconds
        write.append(spent["facts"] + spent["write"])
        calls.append(spent["total"])
    return {
        "entities": graph.n_entities,
        "relations": len(graph.subjects),
        "documents": graph.n_documents,
        "mean_degree": round(float(degrees.mean()), 2),
        "largest_hub": int(degrees.max()),
        "snapshot_build_seconds": round(snapshot_seconds, 2),
        "link_matrix_build_seconds": round(matrix_seconds, 2),
        "link_matrix_megabytes": round(matrix.nbytes / 1e6, 1),
        "pairs": len(pairs),
        "connected": len(pairs) - lengths[0],
        "lengths": {str(length): lengths[length] for length in sorted(lengths)},
        "p50_ms": _percentile(wall, 50),
        "p99_ms": _percentile(wall, 99),
        "worst_ms": _percentile(wall, 100),
        "cpu_p50_ms": _percentile(cpu, 50),
        "cpu_p99_ms": _percentile(cpu, 99),
        "max_nodes": max(nodes),
        "mean_paths": round(float(np.mean(paths)), 2),
        "writing_p50_ms": round(float(np.percentile(write, 50)), 2),
        "writing_p99_ms": round(float(np.percentile(write, 99)), 2),
        "retriever_p50_ms": round(float(np.percentile(calls, 50)), 2),
        "retriever_p99_ms": round(float(np.percentile(calls, 99)), 2),
    }


def _percentile(seconds: Sequence[float], percent: float) -> float:
    return round(float(np.percentile(seconds, percent)) * 1000, 3)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="file to write the result to")
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--entities", type=int, default=239_000)
    parser.add_argument("--relations", type=int, default=2_000_000)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--elasticsearch", metavar="URL", help="measure on this engine instead")
    arguments = parser.parse_args(argv)
    if arguments.elasticsearch:
        from benchmarks.elasticsearch_connect import measure

        result = measure(arguments.elasticsearch)
    else:
        result = measure_memory(
            n_pairs=arguments.pairs,
            n_entities=arguments.entities,
            n_relations=arguments.relations,
            n_documents=arguments.documents,
            seed=arguments.seed,
        )
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
