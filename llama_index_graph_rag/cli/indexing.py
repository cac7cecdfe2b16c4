"""The command that indexes files and folders."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from llama_index_graph_rag.cli.opening import is_missing, open_index
from llama_index_graph_rag.cli.output import print_counts
from llama_index_graph_rag.errors import GraphRAGError, GraphRAGValueError

if TYPE_CHECKING:
    from llama_index.core.schema import Document, TransformComponent

    from llama_index_graph_rag.extractors.node_triplets import ExtractionFailure
    from llama_index_graph_rag.index import GraphRAGIndex


_NAMED = 3
"""Files named for one reason of failing."""


class IndexingFailedError(GraphRAGError):
    """Some files or passages failed; all others are indexed."""


def index(arguments: argparse.Namespace) -> None:
    """Index files and folders; what is there already with the same content costs nothing.

    Raises
    ------
    IndexingFailedError
        If files could not be read or the LLM failed on passages; running again retries those.
    """
    documents, unreadable = read_files(arguments.paths)
    if arguments.estimate:
        print_counts(_estimate(arguments, documents), as_json=arguments.json)
        _say_failed(unreadable)
        return
    with _opened(arguments) as opened:
        changed = opened.refresh_ref_docs(documents)
        report = opened.report
        gone = _gone(arguments.paths, opened.ref_doc_info)
        if arguments.prune:
            for id in gone:
                opened.delete_ref_doc(id)
        stats = opened.stats()
    counts = {
        "documents": len(documents),
        "changed": sum(changed),
        "written": report.written,
        "unchanged": report.unchanged,
        "llm_calls": report.usage.calls,
        "prompt_tokens": report.usage.prompt_tokens,
        "completion_tokens": report.usage.completion_tokens,
        "invalid_triplets": len(report.invalid),
        "failed_passages": len(report.failures),
        "unreadable_files": len(unreadable),
        "deleted_documents": len(gone) if arguments.prune else 0,
        **{f"total_{kind}": stats[kind] for kind in ("passages", "entities", "relations")},
    }
    print_counts(counts, as_json=arguments.json)
    for id in () if arguments.prune else gone:
        print(
            f"note: {id} is in the index but no longer on disk; remove it with --prune or "
            "`llama-graph-rag delete`",
            file=sys.stderr,
        )
    _say_failed([*unreadable, *_by_reason(report.failures)])
    if unreadable or report.failures:
        raise IndexingFailedError(
            f"{len(unreadable)} files could not be read, and {len(report.failures)} passages are "
            "indexed without relations, for the reasons above; mend these and run the same command "
            "again, which tries only what failed"
        )


def _by_reason(failures: Sequence[ExtractionFailure]) -> Iterator[str]:
    """Yield a line a reason: how many passages, and of which files."""
    of_reason: dict[str, list[str]] = {}
    for failure in failures:
        of_reason.setdefault(failure.reason, []).append(failure.ref_doc_id or failure.node_id)
    for reason, places in of_reason.items():
        files = sorted(set(places))
        more = f" and {len(files) - _NAMED} more files" if len(files) > _NAMED else ""
        yield f"{len(places)} passages of {', '.join(files[:_NAMED])}{more}: {reason}"


def _say_failed(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"failed: {line}", file=sys.stderr)


def _opened(arguments: argparse.Namespace) -> AbstractContextManager[GraphRAGIndex]:
    return open_index(
        arguments,
        with_model=True,
        create=True,
        triplet_extractor=_extractor(arguments),
        num_workers=arguments.workers,
        show_progress=not arguments.json,
    )


def _estimate(
    arguments: argparse.Namespace, documents: Sequence[Document]
) -> dict[str, float | None]:
    """Return what indexing would cost; where there is no index yet, none is left behind."""
    prices = {
        f"price_per_million_{kind}": value
        for kind in ("input", "output", "embedding")
        if (value := getattr(arguments, f"price_{kind}")) is not None
    }
    with TemporaryDirectory() as folder:
        place = argparse.Namespace(**vars(arguments))
        if is_missing(arguments.uri):
            place.uri = str(Path(folder) / "empty.db")
        with _opened(place) as opened:
            return asdict(opened.estimate(documents, **prices))


def read_files(paths: Sequence[str]) -> tuple[list[Document], list[str]]:
    """Return a document a file (or page), its path as id, and what could not be read and why.

    Folders are read with all they hold, hidden files left out. Text is UTF-8; other kinds of file
    are read where LlamaIndex's readers for them are installed.

    Raises
    ------
    GraphRAGValueError
        If a path does not exist, or there is no file at all.
    """
    from llama_index.core import SimpleDirectoryReader

    documents: list[Document] = []
    unreadable: list[str] = []
    files = list(dict.fromkeys(file for path in paths for file in _files(Path(path))))
    if not files:
        raise GraphRAGValueError(f"there is no file in {', '.join(paths)}; give files or folders")
    for file in files:
        # Absolute, so that the id does not depend on where the command is run.
        name = file.resolve().as_posix()
        try:
            read = SimpleDirectoryReader.load_file(
                input_file=file.resolve(),
                # Not LlamaIndex's own metadata: its dates would make every copy a change.
                file_metadata=lambda path: {"file_path": path, "file_name": Path(path).name},
                file_extractor={},
                filename_as_id=True,
                encoding="utf-8-sig",  # with a byte order mark or without
                errors="strict",
                raise_on_error=True,
            )
            for document in read:
                document.excluded_llm_metadata_keys = ["file_path", "file_name"]
                document.excluded_embed_metadata_keys = ["file_path", "file_name"]
            documents += read
        except Exception as error:  # a reader of any kind of file may raise anything
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            unreadable.append(f"{name}: {reason} (text files must be UTF-8)")
    return documents, unreadable


def _gone(paths: Sequence[str], indexed: Iterable[str]) -> list[str]:
    """Return the documents under these folders that are indexed and no longer on disk."""
    folders = [Path(path).resolve() for path in paths if Path(path).is_dir()]
    return sorted(
        id
        for id in indexed
        if any(folder in Path(_file_of(id)).parents for folder in folders)
        and not Path(_file_of(id)).exists()
    )


def _file_of(id: str) -> str:
    # Readers of pages put "_part_<n>" after the path.
    return re.sub(r"_part_\d+$", "", id)


def _files(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise GraphRAGValueError(f"there is no file or folder {str(path)!r}; check the path")
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.is_file() and not hidden:
            yield file


def _extractor(arguments: argparse.Namespace) -> TransformComponent:
    if arguments.extractor == "spacy":
        from llama_index_graph_rag.extractors.spacy_triplets import DependencyTripletExtractor

        # The shell tells the rest in words of its own.
        logging.getLogger("llama_index_graph_rag.spacy").setLevel(logging.WARNING)
        return DependencyTripletExtractor()
    from llama_index_graph_rag.extractors.triplets import LLMTripletExtractor
    from llama_index_graph_rag.models import llm_named

    if arguments.estimate:  # asks nobody, and needs no key
        return LLMTripletExtractor()
    # The extractor repeats by itself what fails.
    llm = llm_named(arguments.llm, api_base=arguments.api_base, max_retries=0)
    return LLMTripletExtractor(llm, num_workers=arguments.workers)
