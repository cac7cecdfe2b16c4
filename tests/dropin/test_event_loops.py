"""Running loops without nest_asyncio, several loops one after another, and threads."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from llama_index.core.schema import TextNode

from llama_index_graph_rag import GraphRAGIndex
from llama_index_graph_rag.demo import load_demo


def outline(nodes):
    return [(node.node_id, node.score, node.relations) for node in nodes]


async def test_a_notebook_cell(tmp_path, embed_model, llm) -> None:
    # As in a notebook: a loop is running, and sync functions are called in it.
    assert asyncio.get_running_loop()
    assert not hasattr(asyncio, "_nest_patched")
    index = GraphRAGIndex.from_triplets(
        [TextNode(id_="p", text="Euler was a pupil of Johann.")],
        [[("Euler", "was a pupil of", "Johann")]],
        uri=tmp_path / "cell.db",
        embed_model=embed_model,
    )
    son = TextNode(id_="q", text="Johann's son")
    index.insert_triplets([son], [[("Johann", "had", "son")]])
    assert {n.node_id for n in index.as_retriever().retrieve("Who taught Euler?")} == {"p", "q"}
    assert str(index.as_query_engine(llm).query("Who taught Euler?"))
    assert {n.node_id for n in await index.as_retriever().aretrieve("Who?")} == {"p", "q"}
    index.delete_nodes(["q"])
    await index.adelete_nodes(["p"])
    assert index.stats()["passages"] == 0
    index.close()


def test_two_loops_one_after_the_other(index, retriever, question, llm) -> None:
    expected = outline(retriever.retrieve(question))
    engine = index.as_query_engine(llm)
    for _ in range(2):
        assert outline(asyncio.run(retriever.aretrieve(question))) == expected
        assert len(asyncio.run(engine.aquery(question)).source_nodes) == 5
    assert outline(retriever.retrieve(question)) == expected


@pytest.mark.skipif("nest_asyncio" in sys.modules, reason="something imported nest_asyncio")
def test_nest_asyncio_is_not_imported() -> None:
    import llama_index_graph_rag

    assert llama_index_graph_rag
    assert "nest_asyncio" not in sys.modules


async def test_four_questions_at_once_do_not_block_each_other(
    retriever, index, question, monkeypatch
) -> None:
    # Each search waits for three others: only if none blocks the loop do all get through.
    together = threading.Barrier(4)
    search = index.store.search

    def waiting(**kwargs):
        if kwargs.get("relations") is not None:
            together.wait(timeout=30)
        return search(**kwargs)

    monkeypatch.setattr(index.store, "search", waiting)
    found = await asyncio.gather(*(retriever.aretrieve(question) for _ in range(4)))
    assert len({str(outline(nodes)) for nodes in found}) == 1
    assert not together.broken


async def test_the_loop_runs_on_while_a_store_is_slow(
    retriever, index, question, monkeypatch
) -> None:
    looped = threading.Event()
    search = index.store.search

    def waiting(**kwargs):
        assert looped.wait(timeout=30), "the loop was blocked by the search"
        return search(**kwargs)

    monkeypatch.setattr(index.store, "search", waiting)
    asyncio.get_running_loop().call_later(0.01, looped.set)
    assert await retriever.aretrieve(question)


def test_threads_share_a_retriever_and_no_state(retriever) -> None:
    questions = [q.question for q in load_demo().questions]
    expected = {text: outline(retriever.retrieve(text)) for text in questions}
    before = {key: repr(value) for key, value in vars(retriever).items()}
    with ThreadPoolExecutor(4) as pool:
        asked = questions * 4
        for text, (nodes, trace) in zip(asked, pool.map(retriever.retrieve_with_trace, asked)):
            assert outline(nodes) == expected[text]
            assert trace.question == text
            assert trace.calls["embedding"] == 1
    assert {key: repr(value) for key, value in vars(retriever).items()} == before


async def test_sync_in_a_thread_while_async_runs(retriever, question) -> None:
    one, other = await asyncio.gather(
        asyncio.to_thread(retriever.retrieve, question), retriever.aretrieve(question)
    )
    assert outline(one) == outline(other)
