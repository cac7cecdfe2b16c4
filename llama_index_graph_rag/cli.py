"""The console script ``llama-graph-rag``."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llama_index_graph_rag.errors import GraphRAGError

if TYPE_CHECKING:
    from llama_index.core.schema import NodeWithScore

    from llama_index_graph_rag.demo import Comparison, DemoResult


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code: 0, or 1 with a message on standard error.

    Examples
    --------
    >>> main(["stats", "--uri", "nowhere.db"])
    1
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    logging.getLogger("llama_index_graph_rag").setLevel(
        logging.INFO if arguments.verbose else logging.ERROR
    )
    try:
        return int(arguments.run(arguments))
    except GraphRAGError as error:
        print(f"llama-graph-rag: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llama-graph-rag", description="Graph RAG over your documents, with LlamaIndex."
    )
    parser.add_argument("--verbose", action="store_true", help="say what is going on")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="plain retrieval beside the graph's, without a key")
    demo.add_argument("--question", help="a question of your own to the demo corpus")
    demo.add_argument("--top-k", type=int, default=3, help="passages to show (default 3)")
    demo.add_argument("--json", action="store_true", help="print JSON")
    demo.set_defaults(run=_demo)
    return parser


# --- demo ---------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> int:
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
        print(json.dumps(answer, ensure_ascii=False, indent=2))
        return 0
    _show(first)
    _summary(result)
    return 0


def _show(comparison: Comparison) -> None:
    print(f"Question: {comparison.question}\n")
    print("Plain vector retrieval found")
    _passages(comparison.vector)
    print("The graph found")
    _passages(comparison.graph, comparison.relations)
    if comparison.graph_answer:
        print(f"Answer from plain retrieval: {comparison.vector_answer}")
        print(f"Answer from the graph: {comparison.graph_answer}\n")


def _passages(nodes: Sequence[NodeWithScore], relations: Sequence[Sequence[str]] = ()) -> None:
    for place, node in enumerate(nodes):
        print(textwrap.indent(textwrap.fill(f"{place + 1}. {node.text}", 92), "  "))
        for text in relations[place] if place < len(relations) else ():
            print(f"       by: {text}")
    print()


def _summary(result: DemoResult) -> None:
    if result.questions > 1:
        print(
            "All passages that the answer needs are among the first 3, "
            f"of {result.questions} questions:"
        )
        print(
            f"  plain vector retrieval {result.vector_complete}, the graph {result.graph_complete}"
        )
    print(f"{result.seconds:.1f} s, no key and no network needed.")
