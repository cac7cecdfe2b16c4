"""The console script ``llama-graph-rag``."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence

from llama_index_graph_rag.cli import commands, demo, indexing
from llama_index_graph_rag.errors import GraphRAGError

DEFAULT_URI = "./graph_rag.db"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code: 0, or 1 with a message on standard error.

    Examples
    --------
    >>> main(["stats", "--uri", "nowhere.txt"])
    1
    """
    arguments = _parser().parse_args(argv)
    logger = logging.getLogger("llama_index_graph_rag")
    level = logger.level
    logger.setLevel(logging.INFO if arguments.verbose else logging.ERROR)
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
    finally:
        logger.setLevel(level)  # a caller in the same process has one of its own
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llama-graph-rag", description="Graph RAG over your documents, with LlamaIndex."
    )
    parser.add_argument("--verbose", action="store_true", help="say what is going on")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], None], text: str
    ) -> argparse.ArgumentParser:
        added = subparsers.add_parser(name, help=text, description=text)
        added.add_argument("--json", action="store_true", help="print JSON")
        added.set_defaults(run=run)
        return added

    shown = command(
        "demo", demo.demo, "show plain and graph retrieval side by side on a corpus of 24 passages"
    )
    shown.add_argument("--question", help="a question of your own to the demo corpus")
    shown.add_argument("--top-k", type=int, default=3, help="passages to show (default 3)")

    index = command("index", indexing.index, "index files and folders; resumes by itself")
    index.add_argument(
        "paths", nargs="+", metavar="PATH", help="a file, or a folder with its files"
    )
    index.add_argument(
        "--extractor",
        choices=("llm", "spacy"),
        default="llm",
        help="what finds triplets: an LLM, or spaCy's parser for English (extra spacy)",
    )
    index.add_argument("--workers", type=int, default=4, help="LLM calls in flight (default 4)")
    index.add_argument("--estimate", action="store_true", help="only say what it would cost")
    index.add_argument(
        "--prune", action="store_true", help="delete documents whose files are gone from a folder"
    )
    for kind in ("input", "output", "embedding"):
        index.add_argument(f"--price-{kind}", type=float, help="per million tokens, for --estimate")
    _store_options(index)
    _model_options(index)

    query = command("query", commands.query, "passages, and with --answer an answer")
    query.add_argument("question", help="in quotes")
    query.add_argument("--top-k", type=int, default=5, help="passages to return (default 5)")
    query.add_argument("--answer", action="store_true", help="let an LLM choose and answer")
    query.add_argument("--whole", action="store_true", help="print passages whole, however long")
    query.add_argument("--explain", metavar="FILE", help="write a page that shows why (.html)")
    _store_options(query)
    _model_options(query)

    connect = command("connect", commands.connect, "how two or more entities are connected")
    connect.add_argument("names", nargs="+", metavar="NAME", help="of an entity, in quotes")
    connect.add_argument("--paths", type=int, default=5, help="paths to show (default 5)")
    _store_options(connect, default="")

    _store_options(command("stats", commands.stats, "how much is in an index"))

    delete = command("delete", commands.delete, "delete documents, or passages with --passages")
    delete.add_argument("ids", nargs="+", metavar="ID", help="a file or an exported id")
    delete.add_argument("--passages", action="store_true", help="the ids are those of passages")
    _store_options(delete)

    _store_options(command("vacuum", commands.vacuum, "remove what no passage holds any more"))
    _store_options(command("export", commands.export, "passages and triplets as JSON lines"))

    evaluate = command("eval", commands.evaluate, "measure retrieval on a data set of questions")
    evaluate.add_argument("data", metavar="DIR", help="with passages.jsonl and questions.jsonl")
    _model_options(evaluate)
    return parser


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
        help="'local' or a model name (default: that of the index, or local for a new one)",
    )
    parser.add_argument(
        "--api-base", help="of an OpenAI-compatible server (default: OPENAI_BASE_URL)"
    )
