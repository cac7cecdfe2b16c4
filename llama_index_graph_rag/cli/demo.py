"""The demo: plain vector retrieval and the graph, side by side, without a key."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from llama_index_graph_rag.cli.output import print_json, print_passages

if TYPE_CHECKING:
    from llama_index_graph_rag.demo import Comparison, DemoResult


def demo(arguments: argparse.Namespace) -> None:
    """Index the corpus that ships with the package in a temporary Milvus Lite, and ask it."""
    from llama_index_graph_rag.demo import demo_llm, run_demo

    result = run_demo(arguments.question, top_k=arguments.top_k, llm=demo_llm())
    first = result.comparisons[0]
    if arguments.json:
        answer: dict[str, object] = {
            "question": first.question,
            "vector": [node.text for node in first.vector],
            "graph": [node.text for node in first.graph],
            "seconds": round(result.seconds, 2),
        }
        if first.graph_answer:
            answer |= {"vector_answer": first.vector_answer, "graph_answer": first.graph_answer}
        print_json(answer)
        return
    _show(first)
    _summary(result, arguments.top_k)


def _show(comparison: Comparison) -> None:
    print(f"Question: {comparison.question}\n")
    print("Plain vector retrieval found")
    print_passages(comparison.vector)
    print("The graph found")
    print_passages(comparison.graph, comparison.relations)
    if comparison.graph_answer:
        print(f"Answer from plain retrieval: {comparison.vector_answer}")
        print(f"Answer from the graph: {comparison.graph_answer}\n")


def _summary(result: DemoResult, top_k: int) -> None:
    if result.questions > 1:
        print(
            f"All passages that the answer needs are among the first {min(top_k, 3)}, "
            f"of {result.questions} questions:"
        )
        print(
            f"  plain vector retrieval {result.vector_complete}, the graph {result.graph_complete}"
        )
    print(f"{result.seconds:.1f} s")
