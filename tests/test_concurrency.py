"""Writers and readers at once on one index, against a sequential model (benchmarks.concurrency)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.concurrency import URL_VARIABLE, differences, run_processes, run_threads
from benchmarks.zipf_triplets import StubEmbedding
from llama_index_graph_rag import GraphRAGIndex


def test_threads_on_milvus_lite(tmp_path: Path) -> None:
    outcome = run_threads(str(tmp_path / "threads.db"), seconds=3, seed=1)
    assert outcome["faults"] == []
    assert outcome["writes"] > 8
    assert outcome["reads"] > 8


@pytest.mark.skipif(URL_VARIABLE not in os.environ, reason=f"needs {URL_VARIABLE}")
def test_processes_on_a_server(tmp_path: Path) -> None:
    outcome = run_processes(os.environ[URL_VARIABLE], tmp_path, seconds=5, processes=2, seed=1)
    assert outcome["faults"] == []
    assert outcome["writes"] > 2


def test_the_check_finds_what_is_lost(tmp_path: Path) -> None:
    from llama_index.core.schema import TextNode

    index = GraphRAGIndex.from_triplets(
        [TextNode(id_="p", text="A knows B.")],
        [[("A", "knows", "B")]],
        uri=str(tmp_path / "one.db"),
        embed_model=StubEmbedding(),
    )
    [key] = [key for page in index.store.scan_relations() for key in page]
    assert differences(index, {"p": frozenset([key.id])}) == []
    assert differences(index, {})[0] == "passages that differ: ['p'] instead of []"
    assert differences(index, {"p": frozenset(["0" * 32])})
    index.close()
