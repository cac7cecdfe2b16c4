"""Options and servers that tests of several folders share."""

from __future__ import annotations

import os

import pytest


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
