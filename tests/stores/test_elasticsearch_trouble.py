"""ElasticsearchStore when the engine is down, slow or refuses, and when it is misused."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from llama_index.core.schema import TextNode

from llama_index_graph_rag.errors import GraphRAGValueError, StoreError
from llama_index_graph_rag.stores.elasticsearch import ElasticsearchStore


class Refusing(ThreadingHTTPServer):
    """Answers each request with the next of a list of statuses, then with an empty result."""

    def __init__(self, statuses, hang=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses, self.hang, self.requests = list(statuses), hang, []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(self.headers.get("Authorization"))
        if self.server.hang is not None:
            self.server.hang.wait()
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        empty = {"each": {"buckets": []}}
        body = {"hits": {"hits": []}, "aggregations": {"source": empty, "target": empty}}
        data = json.dumps(body if status == 200 else {"error": {"type": "busy"}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Length", str(len(data)))
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class TestTrouble:
    SECRET = "c2VjcmV0LWtleQ=="

    def store(self, url, **options):
        return ElasticsearchStore(url, retry_backoff=0, **options)

    def test_429_is_tried_again(self):
        with (
            Refusing([429, 503]) as server,
            self.store(server.url) as store,
            store.count_calls() as calls,
        ):
            assert store.match_entities(["A"]) == [[]]
        assert calls["elasticsearch.search"] == len(server.requests) == 3

    async def test_429_is_tried_again_by_async_code(self):
        with Refusing([429]) as server, self.store(server.url) as store:
            assert await store.amatch_entities(["A"]) == [[]]
        assert len(server.requests) == 2

    async def test_429_for_too_long_names_the_remedy(self):
        with Refusing([429] * 4) as server, self.store(server.url, max_retries=1) as store:
            with pytest.raises(StoreError, match=r"overloaded.*2 tries.*raise max_retries"):
                store.match_entities(["A"])
            with pytest.raises(StoreError, match="overloaded"):
                await store.amatch_entities(["A"])

    def test_refused_rows_are_written_again(self, elasticsearch_store, monkeypatch):
        store = elasticsearch_store
        perform, refused = store._connection.perform_sync, []

        def crowded(method, arguments):
            answer = perform(method, arguments)
            if method == "bulk" and len(refused) < 2:
                item = next(iter(answer["items"][0].values()))
                refused.append(item["_id"])
                item |= {"status": 429, "error": {"type": "es_rejected_execution_exception"}}
            return answer

        monkeypatch.setattr(store._connection, "perform_sync", crowded)
        store.add([TextNode(text="1")], [[("A", "r", "B")]])
        assert refused[0] == refused[1]
        assert store.stats() == {"passages": 1, "statements": 1, "pairs": 1}

    async def test_down(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with self.store(f"http://127.0.0.1:{port}", max_retries=1) as store:
            with pytest.raises(StoreError, match=r"cannot be reached.*2 tries.*start it"):
                store.match_entities(["A"])
            with pytest.raises(StoreError, match="cannot be reached"):
                await store.amatch_entities(["A"])

    def test_slow(self):
        go_on = threading.Event()
        with Refusing([], hang=go_on) as server:
            store = self.store(server.url, request_timeout=0.2, max_retries=0)
            with pytest.raises(StoreError, match=r"within 0.2 s in 1 try.*request_timeout"):
                store.match_entities(["A"])
            store.close()
            go_on.set()

    @pytest.mark.parametrize("status", [401, 403])
    def test_refused_credentials_do_not_show(self, status):
        with Refusing([status]) as server, self.store(server.url, api_key=self.SECRET) as store:
            with pytest.raises(StoreError, match="pass api_key or basic_auth") as caught:
                store.match_entities(["A"])
            assert server.requests == [f"ApiKey {self.SECRET}"]
        shown = repr(store) + repr(store._connection) + str(caught.value) + repr(caught.value)
        assert self.SECRET not in shown
        assert self.SECRET not in str(caught.value.__cause__)

    def test_credentials_in_the_url_do_not_show(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        store = self.store(f"http://euler:{self.SECRET}@127.0.0.1:{port}", max_retries=0)
        with pytest.raises(StoreError) as caught:
            store.match_entities(["A"])
        assert self.SECRET not in f"{store!r} {caught.value} {caught.value.__cause__}"

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"index_prefix": "Upper"}, "index_prefix='Upper'"),
            ({"index_prefix": "*"}, "lower-case letters"),
            ({"evidence_per_fact": 0}, "evidence_per_fact=0"),
            ({"max_retries": -1}, "max_retries=-1"),
            ({"vector_index": "ivf"}, "vector_index='ivf'"),
        ],
    )
    def test_bad_options(self, options, match):
        with pytest.raises(GraphRAGValueError, match=match):
            ElasticsearchStore(**options)

    @pytest.mark.parametrize(
        ("call", "match"),
        [
            (lambda store: store.neighbors(["a"], limit_per_entity=0), "limit_per_entity=0"),
            (lambda store: store.links(["a"], ["b"], limit=10_001), "limit=10001"),
            (lambda store: store.links(map(str, range(65_537)), ["b"]), "65,537 entities"),
            (lambda store: store.facts([("a", "b")], per_pair=0), "per_pair=0"),
        ],
    )
    def test_bad_arguments(self, call, match):
        with pytest.raises(GraphRAGValueError, match=match):
            call(ElasticsearchStore("http://127.0.0.1:9"))
