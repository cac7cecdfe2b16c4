"""An engine with the API of Elasticsearch 8.15 for the tests of stores (noida-db 0.2.3)."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ENGINE = "0.2.3"
START_SECONDS = 30


@pytest.fixture(scope="session")
def elasticsearch_url(tmp_path_factory):
    """URL of an engine of this test run, on loopback."""
    try:
        version = importlib.metadata.version("noida-db")
    except importlib.metadata.PackageNotFoundError:
        version = None
    if version != ENGINE or not sys.platform.startswith("linux"):
        pytest.skip(f"needs noida-db=={ENGINE} on Linux, found {version} on {sys.platform}")
    # The package's console script would leave its child, the engine, behind when it is killed.
    package = importlib.util.find_spec("noida_db").origin
    command = Path(package).with_name("noida-db")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("elasticsearch")
    port_option = ["--elasticsearch-port", str(port)]
    process = subprocess.Popen(
        [command, "start", "--only", "elasticsearch", *port_option, "--data-dir", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_SECONDS
    try:
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the engine did not start within {START_SECONDS} s")
            time.sleep(0.02)
        yield url
    finally:
        process.kill()
        process.wait()


def _answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


numbers = itertools.count()


@pytest.fixture
def elasticsearch_store(elasticsearch_url):
    """A store with a prefix of its own on that engine."""
    from llama_index_graph_rag.stores.elasticsearch import ElasticsearchStore

    prefix = f"test{next(numbers)}"
    with ElasticsearchStore(
        elasticsearch_url, index_prefix=prefix, retry_backoff=0, vector_index="flat"
    ) as store:
        yield store
