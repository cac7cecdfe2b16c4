"""The launcher's refusals, and a round trip where it has started the server."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("milvus.py")
spec = importlib.util.spec_from_file_location("milvus_launcher", SCRIPT)
milvus = importlib.util.module_from_spec(spec)
spec.loader.exec_module(milvus)
URL = os.environ.get(milvus.URL_VARIABLE)


@pytest.mark.parametrize(("optional", "code"), [(["--optional"], 0), ([], milvus.UNAVAILABLE)])
def test_another_platform_is_refused_with_the_reason(monkeypatch, capsys, optional, code):
    monkeypatch.setattr(milvus.platform, "machine", lambda: "arm64")
    assert milvus.main([*optional, "--", "false"]) == code
    assert "the server is built for Linux on x86_64" in capsys.readouterr().err


def test_missing_unshare_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(milvus.sys, "platform", "linux")
    monkeypatch.setattr(milvus.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(milvus.shutil, "which", lambda _: None)
    with pytest.raises(milvus.CannotRunHereError, match="install util-linux"):
        milvus.check_machine()


@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")
def test_the_server_does_not_start_beside_another_interface(monkeypatch):
    monkeypatch.setattr(milvus.socket, "if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    monkeypatch.setattr(milvus, "_flags", lambda _: 1)
    with pytest.raises(RuntimeError, match="eth0"):
        milvus.raise_loopback()


@pytest.mark.skipif(URL is None, reason="needs `python tests/servers/milvus.py -- pytest ...`")
class TestServer:
    def test_nothing_but_loopback_is_up(self):
        assert milvus.interfaces_up() == ["lo"]

    def test_round_trip(self):
        from pymilvus import DataType, MilvusClient

        client = MilvusClient(URL)
        schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=100)
        schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=2)
        client.create_collection("round_trip", schema=schema, consistency_level="Session")
        index = client.prepare_index_params()
        index.add_index("embedding", index_type="FLAT", metric_type="COSINE")
        client.create_index("round_trip", index)
        client.load_collection("round_trip")
        rows = [{"id": f"{i:03}", "embedding": [1.0, float(i)], "n": i} for i in range(250)]
        for _ in range(2):
            client.upsert("round_trip", rows)
        hits = client.search("round_trip", data=[[1.0, 0.0]], limit=2, output_fields=["n"])[0]
        pages = client.query_iterator("round_trip", batch_size=100, output_fields=["n"])
        found = []
        while page := pages.next():
            found += [row["n"] for row in page]
        pages.close()
        client.drop_collection("round_trip")
        assert [hit["entity"]["n"] for hit in hits] == [0, 1]
        assert sorted(found) == list(range(250))


def test_a_stray_option_is_refused():
    done = subprocess.run([sys.executable, SCRIPT, "--nonsense"], capture_output=True, text=True)
    assert done.returncode == 2
