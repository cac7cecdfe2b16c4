"""The graph part of a query on 2 million relations: time, memory, and nearness to exact PageRank.

``python -m benchmarks.scale [--json OUT]``. What a store would answer is drawn at random, seeded:
it is not timed. Questions start from the relations and passages around one passage, and from
relations drawn at large, which meet the hubs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zipf_graph import ZipfGraph
from llama_index_graph_rag.extractors.vocabulary import VocabularyEntityExtractor
from llama_index_graph_rag.graph.candidates import choose_candidates
from llama_index_graph_rag.graph.ranking import (
    HopWalk,
    PersonalizedPageRank,
    Ranked,
    Recall,
    Scored,
    VectorsFound,
    VectorsWanted,
    Walk,
)
from llama_index_graph_rag.graph.snapshot import GraphSnapshot

DIMENSION = 64
EXACT_QUESTIONS = 20


class Questions:
    """Recalls over a graph, and answers to what a ranking asks for; reproducible."""

    def __init__(self, graph: GraphSnapshot, seed: int = 1) -> None:
        self.graph = graph
        self.rng = np.random.default_rng(seed)

    def recall(self) -> Recall:
        """Return what one question might recall."""
        graph, rng = self.graph, self.rng
        home = rng.integers(0, graph.n_passages, 1)
        at_home = graph.incidence.relations_of_passages(home)[1][:10]
        relations = np.unique(np.r_[at_home, rng.integers(0, graph.n_relations, 40)])
        relations = rng.permutation(relations[graph.incidence.is_visible(relations)])
        passages = rng.permutation(np.unique(np.r_[home, rng.integers(0, graph.n_passages, 99)]))
        named = graph.subjects[at_home[:2]]
        return Recall(
            question="",
            query_vector=self.vectors(1)[0],
            relations=_scored(relations, 0.7, 0.4),
            passages=_scored(passages, 0.6, 0.3),
            entities=_scored(np.unique(named), 1.0, 1.0),
        )

    def vectors(self, n: int) -> Any:
        """Return random unit vectors."""
        drawn = self.rng.standard_normal((n, DIMENSION)).astype(np.float32)
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    def answer(self, request: Any) -> Any:
        """Return what a store might answer."""
        if isinstance(request, VectorsWanted):
            return VectorsFound(
                self.vectors(len(request.entities)), self.vectors(len(request.relations))
            )
        rows = [
            np.unique(self.rng.integers(0, self.graph.n_passages, request.limit))
            for _ in request.vectors
        ]
        return [_scored(self.rng.permutation(of_one), 0.6, 0.3) for of_one in rows]


def _scored(rows: Any, best: float, least: float) -> Scored:
    return Scored(rows.astype(np.int32), np.linspace(best, least, len(rows), dtype=np.float32))


def run(process: Any, questions: Questions) -> tuple[Any, float]:
    """Return the outcome of a pure process, and the seconds spent in it alone."""
    spent, answer = 0.0, None
    while True:
        start = time.perf_counter()
        try:
            request = process.send(answer)
        except StopIteration as stop:
            return stop.value, spent + time.perf_counter() - start
        spent += time.perf_counter() - start
        answer = questions.answer(request)


def resident_mb() -> float:
    """Return the resident memory of this process in MB (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("VmRSS is not in /proc/self/status")


def measure(folder: str, n_questions: int) -> dict[str, float]:
    """Open the graph in `folder` and ask questions of it."""
    before = resident_mb()
    graph = GraphSnapshot.load(folder)
    assert graph is not None
    VocabularyEntityExtractor().extract("Where was Entity 1f born?", graph)
    questions, ranking = Questions(graph), HopWalk()
    run(ranking.rank(graph, questions.recall()), questions)
    opened = resident_mb() - before
    ranked_s, shown_s = [], []
    for _ in range(n_questions):
        recall = questions.recall()
        ranked, seconds = run(ranking.rank(graph, recall), questions)
        assert isinstance(ranked, Ranked)
        ranked_s.append(seconds)
        _, seconds = run(choose_candidates(graph, recall, ranked), questions)
        shown_s.append(ranked_s[-1] + seconds)
    exact = Walk(steps=30, max_edges=2**62, tolerance=0.0)
    overlaps, exact_s, local_s = [], [], []
    for _ in range(min(n_questions, EXACT_QUESTIONS)):
        recall = questions.recall()
        near, seconds = run(PersonalizedPageRank().rank(graph, recall), questions)
        local_s.append(seconds)
        whole, seconds = run(PersonalizedPageRank(walk=exact).rank(graph, recall), questions)
        exact_s.append(seconds)
        both = set(near.passages.rows[:10].tolist()) & set(whole.passages.rows[:10].tolist())
        overlaps.append(len(both) / 10)
    ms = 1000 * np.array(ranked_s)
    return {
        "p50_ms": float(np.percentile(ms, 50)),
        "p99_ms": float(np.percentile(ms, 99)),
        "with_candidates_p50_ms": 1000 * float(np.percentile(shown_s, 50)),
        "with_candidates_p99_ms": 1000 * float(np.percentile(shown_s, 99)),
        "rss_mb": opened,
        "overlap_at_10": float(np.mean(overlaps)),
        "pagerank_local_p50_ms": 1000 * float(np.median(local_s)),
        "pagerank_exact_p50_ms": 1000 * float(np.median(exact_s)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--graph", type=Path, help="folder that keeps the graph between runs")
    parser.add_argument("--questions", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.graph or Path(scratch)
        if GraphSnapshot.load(folder) is None:
            ZipfGraph().snapshot().save(folder)
        # A fresh process: what building left in memory is not the graph's.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            figures = pool.apply(measure, (str(folder), options.questions))
    for name, value in figures.items():
        print(f"{name:>24} {value:10.2f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
