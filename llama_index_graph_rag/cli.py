"""The console script ``llama-graph-rag``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llama_index_graph_rag.errors import GraphRAGError, GraphRAGValueError

if TYPE_CHECKING:
    from llama_index.core.schema import NodeWithScore

    from llama_index_graph_rag.demo import Comparison, DemoResult
    from llama_index_graph_rag.index import GraphRAGIndex

DEFAULT_URI = "./graph_rag.db"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code: 0, or 1 with a message on standard error.

    Examples
    --------
    >>> main(["stats", "--uri", "nowhere.txt"])
    1
    """
    arguments = _parser().parse_args(argv)
    logging.getLogger("llama_index_graph_rag").setLevel(
        logging.INFO if arguments.verbose else logging.ERROR
    )
    try:
        arguments.run(arguments)
    except GraphRAGError as error:
        print(f"llama-graph-rag: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("llama-graph-rag: interrupted; what is committed stays", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing more to say, at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
    _finish(demo, _demo)

    query = commands.add_parser("query", help="passages, and with --answer an answer")
    query.add_argument("question")
    query.add_argument("--top-k", type=int, default=5, help="passages to return (default 5)")
    query.add_argument("--answer", action="store_true", help="let an LLM choose and answer")
    _store_options(query)
    _model_options(query)
    _finish(query, _query)

    connect = commands.add_parser("connect", help="how two or more entities are connected")
    connect.add_argument("names", nargs="+", metavar="NAME")
    connect.add_argument("--paths", type=int, default=5, help="paths to show (default 5)")
    _store_options(connect, default="")
    _finish(connect, _connect)

    stats = commands.add_parser("stats", help="how much is in an index")
    _store_options(stats)
    _finish(stats, _stats)

    delete = commands.add_parser("delete", help="delete documents, or passages with --passages")
    delete.add_argument("ids", nargs="+", metavar="ID")
    delete.add_argument("--passages", action="store_true", help="the ids are those of passages")
    _store_options(delete)
    _finish(delete, _delete)

    vacuum = commands.add_parser("vacuum", help="remove what no passage holds any more")
    _store_options(vacuum)
    _finish(vacuum, _vacuum)

    export = commands.add_parser("export", help="passages and triplets as JSON lines")
    _store_options(export)
    _finish(export, _export)
    return parser


def _finish(parser: argparse.ArgumentParser, run: object) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def _store_options(parser: argparse.ArgumentParser, default: str = DEFAULT_URI) -> None:
    parser.add_argument(
        "--uri",
        default=os.environ.get("GRAPH_RAG_URI", default),
        help="a path that ends in .db, or a Milvus server (default: GRAPH_RAG_URI, or "
        f"{default or 'the demo corpus'})",
    )
    parser.add_argument(
        "--token",
        default=os.environ.get("GRAPH_RAG_TOKEN", ""),
        help="for a server; better given as GRAPH_RAG_TOKEN",
    )
    parser.add_argument("--prefix", default="graph_rag", help="of the index's collections")


def _model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--llm", help="model name (default: OPENAI_MODEL, or gpt-4o-mini)")
    parser.add_argument(
        "--embed-model",
        help="'local' or a model name (default: the model that the index was built with)",
    )
    parser.add_argument(
        "--api-base", help="of an OpenAI-compatible server (default: OPENAI_BASE_URL)"
    )


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


# --- an index -----------------------------------------------------------------------------------


def _open(arguments: argparse.Namespace, *, with_model: bool = False) -> GraphRAGIndex:
    from pathlib import Path

    from llama_index_graph_rag.index import GraphRAGIndex
    from llama_index_graph_rag.models import embed_model_named
    from llama_index_graph_rag.stores.milvus import MilvusGraphStore

    if arguments.uri.endswith(".db") and not Path(arguments.uri).exists():
        raise GraphRAGValueError(
            f"there is no index at {arguments.uri}; build one with "
            f"`llama-graph-rag index PATHS --uri {arguments.uri}`, or check --uri"
        )
    store = MilvusGraphStore(
        arguments.uri, token=arguments.token, collection_prefix=arguments.prefix
    )
    if store.about is None:
        store.close()
        raise GraphRAGValueError(
            f"{arguments.uri} holds no index under the prefix {arguments.prefix!r}; check --uri "
            "and --prefix"
        )
    model = None
    if with_model:
        name = arguments.embed_model or store.about.embedding_model
        model = embed_model_named(name, api_base=arguments.api_base)
    return GraphRAGIndex(store, embed_model=model)


def _query(arguments: argparse.Namespace) -> None:
    from llama_index_graph_rag.models import llm_named

    index = _open(arguments, with_model=True)
    try:
        llm = llm_named(arguments.llm, api_base=arguments.api_base) if arguments.answer else None
        retriever = index.as_retriever(similarity_top_k=arguments.top_k, llm=llm)
        nodes, trace = retriever.retrieve_with_trace(arguments.question)
        answer = ""
        if llm is not None:
            from llama_index.core import get_response_synthesizer

            synthesizer = get_response_synthesizer(llm=llm)
            answer = str(synthesizer.synthesize(arguments.question, nodes))
    finally:
        index.close()
    relations = [[use.text for use in result.relations] for result in trace.results]
    if arguments.json:
        _print_json(
            {
                "question": arguments.question,
                "answer": answer,
                "passages": [
                    {
                        "id": node.node.node_id,
                        "score": node.score,
                        "text": node.text,
                        "relations": by,
                    }
                    for node, by in zip(nodes, relations)
                ],
                "fallbacks": trace.fallbacks,
                "calls": dict(trace.calls),
            }
        )
        return
    if answer:
        print(answer + "\n")
    _passages(nodes, relations)
    for line in trace.fallbacks:
        print(f"note: {line}", file=sys.stderr)


def _connect(arguments: argparse.Namespace) -> None:
    from llama_index_graph_rag.demo import demo_index

    index = _open(arguments) if arguments.uri else demo_index()
    try:
        retriever = index.as_connection_retriever(
            mode="paths", max_paths=arguments.paths, entity_extractor=None
        )
        nodes, trace = retriever.connect(arguments.names)
    finally:
        index.close()
    if arguments.json:
        _print_json({"names": arguments.names, "documents": [node.text for node in nodes]})
        return
    print("\n\n".join(node.text for node in nodes) or "No connection was found.")
    for line in trace.fallbacks:
        print(f"note: {line}", file=sys.stderr)


def _stats(arguments: argparse.Namespace) -> None:
    index = _open(arguments)
    counts = index.stats()
    index.close()
    _show_counts(counts, arguments.json)


def _delete(arguments: argparse.Namespace) -> None:
    index = _open(arguments)
    before = index.stats()
    if arguments.passages:
        index.delete_nodes(arguments.ids)
    else:
        for id in arguments.ids:
            index.delete_ref_doc(id)
    after = index.stats()
    index.close()
    _show_counts(
        {f"deleted_{kind}": before[kind] - after[kind] for kind in ("passages", "relations")},
        arguments.json,
    )


def _vacuum(arguments: argparse.Namespace) -> None:
    index = _open(arguments)
    removed = index.store.vacuum()
    index.close()
    _show_counts({f"removed_{kind}": count for kind, count in removed.items()}, arguments.json)


def _show_counts(counts: dict[str, int], as_json: bool) -> None:
    if as_json:
        _print_json(counts)
    else:
        for name, count in counts.items():
            print(f"{name.replace('_', ' '):>20} {count:,}")


def _export(arguments: argparse.Namespace) -> None:
    index = _open(arguments)
    try:
        for page in index.store.scan_passages():
            for passage in index.store.get_passages([key.id for key in page]):
                line = {
                    "id": passage.node.node_id,
                    "ref_doc_id": passage.node.ref_doc_id,
                    "text": passage.node.text,
                    "metadata": passage.node.metadata,
                    "triplets": [list(mention.triplet) for mention in passage.mentions],
                }
                print(json.dumps(line, ensure_ascii=False))
    finally:
        index.close()


# --- demo ---------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> None:
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
        _print_json(answer)
        return
    _show(first)
    _summary(result)


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
    print(f"{result.seconds:.1f} s")
