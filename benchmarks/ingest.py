"""20,000 passages and 100,000 triplets: indexing, a question and opening, against yardsticks.

``python -m benchmarks.ingest [--json OUT]`` prints

- index_vs_raw: seconds to index, over those that a bare MilvusClient takes to upsert the same rows
  into the same collections of a fresh Milvus Lite file. Vectors come from a stub. Both flush; in
  turn; the median of the pairs. ``without_evidence``: without looking for evidence sentences.
- query_vs_vgr: seconds of vector-graph-rag 0.4.0 over ours for one question at degree 1, apart from
  the models, which are stubs on both sides: each has an LLM to choose relations. In turn. It needs
  a virtual environment of its own, made here by uv or venv unless ``--vgr-python`` names one.
- open_s: seconds to open the index in a new process (its imports apart).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from pymilvus import MilvusClient

from benchmarks.stub_vectors import DIMENSION
from benchmarks.zipf_triplets import Corpus, StubEmbedding, zipf_corpus
from llama_index_graph_rag import GraphRAGIndex, GraphRAGRetriever, writing
from llama_index_graph_rag.stores import milvus_layout as layout
from llama_index_graph_rag.stores.milvus_columns import Columns, Row
from llama_index_graph_rag.stores.milvus_connection import MilvusConnection
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
from llama_index_graph_rag.triplets import Mention

VGR = "vector-graph-rag==0.4.0"
TOP_K = 5
PREFIX = "graph_rag"
EMBEDDING = StubEmbedding()
"""Remembers what it embedded: from the second build on it costs nothing, as for raw rows."""

Requests = list[tuple[str, list[Row]]]
Figures = dict[str, float]


# --- indexing ---------------------------------------------------------------------------------


def build(corpus: Corpus, uri: str) -> float:
    """Index the corpus into a fresh file and return the seconds."""
    start = time.perf_counter()
    index = GraphRAGIndex.from_triplets(
        corpus.nodes, corpus.triplets, uri=uri, embed_model=EMBEDDING
    )
    seconds = time.perf_counter() - start
    index.close()
    return seconds


def requests_written(corpus: Corpus, folder: Path) -> Requests:
    """Return the requests by which the corpus is written, less those that only count writers."""
    requests: Requests = []
    write = MilvusConnection.write
    names = layout.Collections(PREFIX).with_vectors

    def record(self: MilvusConnection, collection: str, columns: Columns) -> None:
        if collection in names:
            requests.extend((collection, part.rows()) for part in columns.requests())
        write(self, collection, columns)

    with mock.patch.object(MilvusConnection, "write", record):
        build(corpus, str(folder / "recorded.db"))
    return requests


def write_raw(requests: Requests, uri: str) -> float:
    """Upsert the same rows in the same requests by a bare client; return the seconds."""
    names = layout.Collections(PREFIX)
    start = time.perf_counter()
    client = MilvusClient(uri)
    for name in names.with_vectors:
        layout.create_collection(
            client,
            name,
            names.fields[name],
            dimension=DIMENSION,
            dynamic=name == names.passages,
        )
        layout.create_index(client, name, metric="COSINE", index={"index_type": "FLAT"})
        client.load_collection(name)
    for name, rows in requests:
        client.upsert(name, rows)
    for name in names.with_vectors:
        client.flush(name)
    seconds = time.perf_counter() - start
    client.close()
    _release(uri)
    return seconds


def _release(uri: str) -> None:
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(uri)


def without_evidence(text: str, triplets: Sequence[object]) -> list[Mention]:
    """Stand for `locate`: no sentence is looked for."""
    return [Mention(triplet) for triplet in triplets]  # type: ignore[arg-type]


def index_vs_raw(corpus: Corpus, folder: Path, repeats: int) -> Figures:
    """Index and write raw in turn, into a fresh file each time."""
    requests = requests_written(corpus, folder)
    seconds: dict[str, list[float]] = {"index": [], "bare": [], "raw": []}
    # What is kept here (rows, and the lists of nine million floats that the stub remembers) is
    # nobody's to look through for garbage.
    gc.collect()
    gc.freeze()
    for turn in range(repeats):
        place = folder / f"turn{turn}"
        place.mkdir()
        seconds["raw"].append(write_raw(requests, str(place / "raw.db")))
        seconds["index"].append(build(corpus, str(place / "index.db")))
        with mock.patch.object(writing, "locate", without_evidence):
            seconds["bare"].append(build(corpus, str(place / "bare.db")))
        shutil.rmtree(place)
    gc.unfreeze()

    def ratio(name: str) -> float:
        pairs = zip(seconds[name], seconds["raw"])
        return statistics.median(ours / raw for ours, raw in pairs)

    return {
        "index_vs_raw": ratio("index"),
        "index_vs_raw_without_evidence": ratio("bare"),
        "index_s": statistics.median(seconds["index"]),
        "raw_s": statistics.median(seconds["raw"]),
        "rows": float(sum(len(rows) for _, rows in requests)),
    }


# --- questions ----------------------------------------------------------------------------------


@contextmanager
def vgr(python: str, corpus: Corpus, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run vector-graph-rag over the corpus behind JSON lines until the block ends."""
    documents = folder / "documents.jsonl"
    with documents.open("w", encoding="utf-8") as file:
        for node, triplets in zip(corpus.nodes, corpus.triplets):
            line = {"id": node.node_id, "passage": node.text, "triplets": triplets}
            file.write(json.dumps(line) + "\n")
    worker = Path(__file__).with_name("vgr_worker.py")
    process = subprocess.Popen(
        [python, str(worker)],
        cwd=folder,  # it reads a .env file where it runs
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ask(process: subprocess.Popen[str], order: object) -> Figures:
    """Send one line to the worker and return its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the vector-graph-rag worker ended with code {process.wait()}")
    answer: Figures = json.loads(line)
    return answer


class Ours:
    """Our retriever over an index, with stubs for its models."""

    def __init__(self, index: GraphRAGIndex) -> None:
        self.embedding = StubEmbedding()
        self.with_llm = GraphRAGRetriever(
            index.store,
            llm=ScriptedLLM("[1, 2, 3, 4, 5]"),
            embed_model=self.embedding,
            similarity_top_k=TOP_K,
            rerank_top_n=5,
        )
        self.without_llm = GraphRAGRetriever(
            index.store, embed_model=self.embedding, similarity_top_k=TOP_K
        )

    def seconds(self, retriever: GraphRAGRetriever, question: str) -> float:
        """Return the seconds of a question apart from the embedding model's."""
        before, start = self.embedding.seconds, time.perf_counter()
        nodes = retriever.retrieve(question)
        seconds = time.perf_counter() - start - (self.embedding.seconds - before)
        assert len(nodes) == TOP_K
        return seconds


def query_vs_vgr(corpus: Corpus, index: GraphRAGIndex, python: str, folder: Path) -> Figures:
    """Ask both the same questions in turn."""
    ours = Ours(index)
    seconds: dict[str, list[float]] = {"vgr": [], "ours": [], "ours_without_llm": []}
    relations = []
    with vgr(python, corpus, folder) as process:
        order = {"uri": "vgr.db", "documents": "documents.jsonl", "top_k": TOP_K}
        built = ask(process, order)
        for number, (question, entities) in enumerate(corpus.questions):
            theirs = ask(process, {"question": question, "entities": entities})
            with_llm = ours.seconds(ours.with_llm, question)
            without_llm = ours.seconds(ours.without_llm, question)
            if number < len(corpus.questions) // 5:  # both warm up
                continue
            relations.append(theirs["relations"])
            seconds["vgr"].append(theirs["seconds"])
            seconds["ours"].append(with_llm)
            seconds["ours_without_llm"].append(without_llm)
    medians = {f"query_{name}_s": statistics.median(of_one) for name, of_one in seconds.items()}

    def ratio(name: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds["vgr"], seconds[name]))

    return {
        "query_vs_vgr": ratio("ours"),
        "query_vs_vgr_without_llm": ratio("ours_without_llm"),
        **medians,
        "vgr_relations": statistics.median(relations),
        "vgr_index_s": built["index_s"],
    }


def vgr_python(given: str | None, folder: Path) -> str | None:
    """Return a Python that has vector-graph-rag, or None where it cannot be installed."""
    if given:
        return given
    place = folder / "vgr"
    uv = shutil.which("uv")
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    steps = (
        [[uv, "venv", "-q", str(place)], [uv, "pip", "install", "-q", "--python", python, VGR]]
        if uv
        else [[sys.executable, "-m", "venv", place], [python, "-m", "pip", "install", "-q", VGR]]
    )
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, text=True)
        except OSError as error:
            print(f"query_vs_vgr is left out, {VGR} cannot be installed: {error}")
            return None
        if done.returncode:
            print(f"query_vs_vgr is left out, {VGR} cannot be installed: {done.stderr[-500:]}")
            return None
    return str(python)


# --- opening ------------------------------------------------------------------------------------

_OPEN = """
import sys, time
start = time.perf_counter()
from llama_index_graph_rag import GraphRAGIndex
imported = time.perf_counter()
index = GraphRAGIndex.from_existing(sys.argv[1])
assert index.stats()["passages"]
print(imported - start, time.perf_counter() - imported)
"""


def open_seconds(uri: str, repeats: int) -> Figures:
    """Open the index in new processes."""
    runs = []
    for _ in range(repeats):
        command = [sys.executable, "-c", _OPEN, uri]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        runs.append([float(number) for number in done.stdout.split()])
    imports, opens = zip(*runs)
    return {"open_s": statistics.median(opens), "import_s": statistics.median(imports)}


def measure(
    corpus: Corpus, folder: Path, *, repeats: int = 3, vgr_from: str | None = None
) -> Figures:
    """Return all figures; those of vector-graph-rag only where `vgr_from`, a Python, is given."""
    figures = index_vs_raw(corpus, folder, repeats)
    uri = str(folder / "recorded.db")
    figures |= open_seconds(uri, repeats)
    if vgr_from:
        index = GraphRAGIndex.from_existing(uri, embed_model=StubEmbedding())
        figures |= query_vs_vgr(corpus, index, vgr_from, folder)
        index.close()
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--vgr-python", help=f"a Python that has {VGR}; default: installed here")
    parser.add_argument("--without-vgr", action="store_true", help="leave query_vs_vgr out")
    parser.add_argument("--passages", type=int, default=20_000, help="default 20,000")
    parser.add_argument("--repeats", type=int, default=3, help="default 3")
    options = parser.parse_args(arguments)
    n = options.passages
    corpus = zipf_corpus(
        n_passages=n, n_triplets=5 * n, n_entities=3 * n // 2, largest_hub=max(n // 4, 2)
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        python = None if options.without_vgr else vgr_python(options.vgr_python, folder)
        figures = measure(corpus, folder, repeats=options.repeats, vgr_from=python)
    for name, value in figures.items():
        print(f"{name:>30} {value:12.3f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
