"""Passage recall of dense and ours fused by QueryFusionRetriever, in each of its modes.

python -m benchmarks.fusion --data DIR
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES

from benchmarks.embedders import make_embedder
from benchmarks.multihop import TOP_K, Bench, summary, table
from llama_index_graph_rag.evaluation import EvaluationReport, evaluate, load_dataset


def run(bench: Bench) -> dict[str, EvaluationReport]:
    """Evaluate dense, ours, and both fused in each mode, dense being the baseline."""
    dense = evaluate(bench.dense, bench.dataset, name="dense")
    reports = {"dense": dense}
    reports["graph"] = evaluate(bench.graph, bench.dataset, baseline=dense, name="graph")
    for mode in FUSION_MODES:
        fused = QueryFusionRetriever(
            [bench.dense, bench.graph],
            llm=MockLLM(),
            num_queries=1,
            mode=mode,
            similarity_top_k=TOP_K,
            use_async=False,
        )
        name = f"fused, {mode.value}"
        reports[name] = evaluate(fused, bench.dataset, baseline=dense, name=name)
    return reports


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.fusion", description=__doc__)
    parser.add_argument("--data", required=True, help="data set: a folder or NAME.json")
    parser.add_argument("--embed-model", default="minilm", help="minilm|e5|import.path:factory")
    parser.add_argument("--cache", help="folder that keeps the vectors")
    parser.add_argument("--json", help="file to write the figures to")
    options = parser.parse_args(arguments)
    dataset = load_dataset(options.data)
    embed_model = make_embedder(options.embed_model, cache=options.cache)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        reports = run(Bench(dataset, embed_model, Path(folder)))
    print(f"{dataset.name}, {len(dataset.questions)} questions, {embed_model.model_name}")
    print(table(reports))
    if options.json:
        figures = summary(dataset, embed_model.model_name, reports)
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
