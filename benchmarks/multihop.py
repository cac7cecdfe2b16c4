"""Passage recall over a multi-hop data set: plain retrievers and ours, from the same embeddings.

python -m benchmarks.multihop --data DIR
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES

from benchmarks.embedders import make_embedder
from llama_index_graph_rag.evaluation import Dataset, EvaluationReport, evaluate, load_dataset
from llama_index_graph_rag.evaluation.table import format_table

TOP_K = 10
RETRIEVERS = ("dense", "bm25", "fusion", "hippo2", "graph")


@dataclass
class Bench:
    """A data set with an embedding model; the retrievers over it are made when asked for."""

    dataset: Dataset
    embed_model: BaseEmbedding
    folder: Path
    show_progress: bool = True

    @cached_property
    def index(self) -> Any:
        """The graph index, which holds the passages that `dense` searches too."""
        from llama_index_graph_rag import GraphRAGIndex

        return GraphRAGIndex.from_triplets(
            self.dataset.nodes,
            self.dataset.triplets,
            uri=self.folder / "index.db",
            embed_model=self.embed_model,
            show_progress=self.show_progress,
        )

    @cached_property
    def dense(self) -> BaseRetriever:
        """Plain vector retrieval over the passages of the graph index."""
        index = VectorStoreIndex.from_vector_store(
            self.index.passage_vector_store, embed_model=self.embed_model
        )
        return index.as_retriever(similarity_top_k=TOP_K)

    @cached_property
    def bm25(self) -> BaseRetriever:
        """BM25 with stemming and stop words, the retriever's defaults."""
        from llama_index.retrievers.bm25 import BM25Retriever

        return BM25Retriever.from_defaults(nodes=[*self.dataset.nodes], similarity_top_k=TOP_K)

    @cached_property
    def fusion(self) -> BaseRetriever:
        """Dense and BM25 by reciprocal rank fusion."""
        return QueryFusionRetriever(
            [self.dense, self.bm25],
            llm=MockLLM(),
            num_queries=1,
            mode=FUSION_MODES.RECIPROCAL_RANK,
            similarity_top_k=TOP_K,
            use_async=False,
        )

    @cached_property
    def hippo2(self) -> BaseRetriever:
        """HippoRAG 2's ranking without its LLM filter."""
        reference = importlib.import_module("benchmarks.hippo2")
        retriever: BaseRetriever = reference.Hippo2Retriever(
            self.dataset.nodes,
            self.dataset.triplets,
            embed_model=self.embed_model,
            similarity_top_k=TOP_K,
        )
        return retriever

    @cached_property
    def graph(self) -> BaseRetriever:
        """Ours, without an LLM, with its defaults."""
        retriever: BaseRetriever = self.index.as_retriever(similarity_top_k=TOP_K, llm=None)
        return retriever


def run(bench: Bench, names: Sequence[str]) -> dict[str, EvaluationReport]:
    """Evaluate the retrievers called `names`; dense, if among them, is the others' baseline."""
    reports: dict[str, EvaluationReport] = {}
    for name in sorted(names, key=RETRIEVERS.index):
        try:
            retriever: BaseRetriever = getattr(bench, name)
        except ModuleNotFoundError as error:
            print(f"{name} is left out: {error}")
            continue
        reports[name] = evaluate(
            retriever,
            bench.dataset,
            baseline=reports.get("dense"),
            name=name,
            show_progress=bench.show_progress,
        )
    return reports


def summary(dataset: Dataset, embed_model: str, reports: dict[str, EvaluationReport]) -> Any:
    """Return the figures as plain data: recalls in percent, intervals, groups and costs."""
    return {
        "dataset": dataset.name,
        "questions": len(dataset.questions),
        "embed_model": embed_model,
        "retrievers": {
            name: {
                **{metric: interval.mean for metric, interval in report.metrics.items()},
                "intervals": {m: i._asdict() for m, i in report.metrics.items()},
                "difference_to_dense": {m: i._asdict() for m, i in report.differences.items()},
                "groups": report.groups(),
                "calls_per_query": report.calls_per_query(),
                "latency_ms": report.latency(),
                "stage_ms": report.stage_milliseconds(),
            }
            for name, report in reports.items()
        },
    }


def table(reports: dict[str, EvaluationReport]) -> str:
    """Return one line a retriever, recalls in percent."""
    names = next(iter(reports.values())).metric_names
    rows = [["", *names, "R@5 to dense [95%]", "ms p50", "calls a query"]]
    for name, report in reports.items():
        difference = report.differences.get("R@5")
        calls = report.calls_per_query()
        rows.append(
            [
                name,
                *(f"{report.metrics[metric].mean:.1f}" for metric in names),
                f"{difference.mean:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}]"
                if difference
                else "",
                f"{report.latency()['p50']:.1f}",
                ", ".join(f"{kind} {count:g}" for kind, count in calls.items()),
            ]
        )
    return format_table(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.multihop", description=__doc__)
    parser.add_argument("--data", required=True, help="data set: a folder or NAME.json")
    parser.add_argument("--embed-model", default="minilm", help="minilm|e5|import.path:factory")
    parser.add_argument("--cache", help="folder that keeps the vectors")
    parser.add_argument("--retrievers", default=",".join(RETRIEVERS), help="comma-separated")
    parser.add_argument("--limit", type=int, help="only the first LIMIT questions")
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    options = parser.parse_args(arguments)
    names = options.retrievers.split(",")
    unknown = [name for name in names if name not in RETRIEVERS]
    if unknown:
        parser.error(f"unknown retrievers {unknown}: choose from {', '.join(RETRIEVERS)}")
    dataset = load_dataset(options.data)
    if options.limit is not None:
        dataset = replace(dataset, questions=dataset.questions[: options.limit])
    embed_model = make_embedder(options.embed_model, cache=options.cache)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        reports = run(Bench(dataset, embed_model, Path(folder), not options.quiet), names)
    if not reports:
        parser.error("nothing to measure: every retriever asked for was left out")
    print(f"{dataset.name}, {len(dataset.questions)} questions, {embed_model.model_name}")
    print(table(reports))
    if options.json:
        figures = summary(dataset, embed_model.model_name, reports)
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
