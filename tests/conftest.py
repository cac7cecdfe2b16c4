"""Options and servers that tests of several folders share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

from llama_index_graph_rag.testing.openai_server import hash_embedding

DATA = Path(os.environ.get("GRAPH_RAG_DATA") or Path(__file__).parents[2] / "shared" / "data")


def pytest_addoption(parser):
    parser.addoption(
        "--hugegraph-url",
        default=os.environ.get("GRAPH_RAG_HUGEGRAPH_URL"),
        help="run the HugeGraph tests against this server, whose graph they empty; "
        "default: an in-process stand-in",
    )


@pytest.fixture(scope="session")
def hugegraph_server_url(request):
    """URL of the HugeGraph given on the command line, else of a stand-in on loopback."""
    url = request.config.getoption("--hugegraph-url")
    if url:
        yield url
        return
    pytest.importorskip("graphersal", reason="needs graphersal, or --hugegraph-url")
    from llama_index_graph_rag.testing.hugegraph_server import HugeGraphTestServer

    with HugeGraphTestServer() as server:
        yield server.url


@pytest.fixture
def hugegraph_url(hugegraph_server_url):
    """The same, with its graph and schema emptied."""
    pytest.importorskip("httpx", reason="needs the extra hugegraph")
    from llama_index_graph_rag.stores.gremlin import GremlinClient, Request

    def clear():
        sure = "I%27m%20sure%20to%20delete%20all%20data"
        yield Request("DELETE", f"{{graph}}/clear?confirm_message={sure}")

    GremlinClient(hugegraph_server_url).run(clear())
    return hugegraph_server_url


class HashEmbedding(BaseEmbedding):
    """Texts that share words are near; no model stands behind it. Keeps the texts it embedded."""

    dimension: int = 32
    _texts: list[str] = PrivateAttr(default_factory=list)

    def __init__(self, dimension: int = 32, model_name: str = "hash") -> None:
        super().__init__(dimension=dimension, model_name=model_name, embed_batch_size=1000)

    @property
    def texts(self) -> list[str]:
        """The texts embedded since this was last cleared."""
        return self._texts

    def _get_text_embedding(self, text: str) -> list[float]:
        self._texts.append(text)
        return [float(value) for value in hash_embedding(text, self.dimension)]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


@pytest.fixture(scope="session")
def make_embedding():
    """The class of an embedding without a model."""
    return HashEmbedding


@pytest.fixture
def embedding():
    return HashEmbedding()


@pytest.fixture
def build_index(tmp_path, embedding):
    """A function that builds an index in a temporary Milvus Lite, closed after the test."""
    from llama_index_graph_rag.index import GraphRAGIndex

    opened = []

    def build(nodes=(), triplets=(), **options):
        options = {"uri": tmp_path / "index.db", "embed_model": embedding, **options}
        index = GraphRAGIndex.from_triplets(list(nodes), list(triplets), **options)
        opened.append(index)
        return index

    yield build
    for index in opened:
        index.close()


@pytest.fixture(scope="session")
def data_folder():
    """The folder of the data sets, in the environment variable GRAPH_RAG_DATA."""
    if not DATA.is_dir():
        pytest.skip("needs the data sets; set GRAPH_RAG_DATA to their folder")
    return DATA
