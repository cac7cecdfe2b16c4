"""Run a command beside a real HugeGraph server on loopback.

    python tests/servers/hugegraph.py [--optional] -- pytest tests/stores/test_hugegraph.py

The server is HugeGraph 1.5.0 from Maven Central, with its memory backend. See README.md beside this
file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

VERSION = "1.5.0"
# The Groovy 2.5.14 that comes with it cannot read the class files of Java 17.
GROOVY = "2.5.23"
URL_VARIABLE = "GRAPH_RAG_HUGEGRAPH_URL"
START_SECONDS = 180
INSTALL_SECONDS = 900
UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits.h


class CannotRunHereError(Exception):
    """This machine cannot run the server; the message says why."""


def check_machine() -> None:
    """Raise CannotRunHereError unless Java 11 to 17 and Maven are here."""
    for program in ("java", "mvn"):
        if not shutil.which(program):
            raise CannotRunHereError(f"{program} is not installed")
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', shown)
    if not version or not 11 <= int(version[1]) <= 17:
        raise CannotRunHereError(f"HugeGraph {VERSION} needs Java 11 to 17, here is: {shown[:80]}")


def cache_folder() -> Path:
    """Return where the server's jars are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "llama_index_graph_rag" / f"hugegraph-{VERSION}"


def install(folder: Path) -> None:
    """Fetch the server and all it needs by Maven, once."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as staging:
        Path(staging, "pom.xml").write_text(_pom())
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        try:
            done = subprocess.run(
                command, cwd=staging, capture_output=True, text=True, timeout=INSTALL_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise CannotRunHereError(f"Maven took over {INSTALL_SECONDS} s") from error
        if done.returncode:
            raise CannotRunHereError(f"Maven cannot fetch it: {done.stdout[-500:]}")
        Path(staging, "jars").rename(folder)


def _pom() -> str:
    groovy = [
        *((f"groovy{part}", "indy") for part in ("", "-groovysh", "-json", "-jsr223")),
        *((f"groovy-{part}", "") for part in ("cli-picocli", "console", "swing")),
        *((f"groovy-{part}", "") for part in ("templates", "xml")),
    ]
    managed = "".join(
        f"<dependency><groupId>org.codehaus.groovy</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{GROOVY}</version>"
        f"{f'<classifier>{classifier}</classifier>' if classifier else ''}</dependency>"
        for artifact, classifier in groovy
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>local</groupId><artifactId>hugegraph-server</artifactId><version>1</version>"
        f"<dependencyManagement><dependencies>{managed}</dependencies></dependencyManagement>"
        "<dependencies><dependency><groupId>org.apache.hugegraph</groupId>"
        f"<artifactId>hugegraph-dist</artifactId><version>{VERSION}</version></dependency>"
        "</dependencies></project>"
    )


@contextmanager
def server(jars: Path) -> Iterator[str]:
    """Run the server over a temporary directory until the block ends; gives its URL."""
    with tempfile.TemporaryDirectory(prefix="hugegraph-") as base:
        rest, gremlin = _free_ports(2)
        url = f"http://127.0.0.1:{rest}"
        _configure(jars, Path(base), rest, gremlin)
        log = Path(base, "server.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    "java",
                    "-Xmx1g",
                    "--add-exports=java.base/jdk.internal.reflect=ALL-UNNAMED",
                    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
                    "-Dlog4j.configurationFile=conf/log4j2.xml",
                    *("-cp", f"conf:{jars}/*"),
                    "org.apache.hugegraph.dist.HugeGraphServer",
                    "conf/gremlin-server.yaml",
                    "conf/rest-server.properties",
                ],
                cwd=base,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait(process, url, log)
            yield url
        finally:
            process.kill()  # its data are in its memory: nothing to save
            process.wait()


def _configure(jars: Path, base: Path, rest: int, gremlin: int) -> None:
    with zipfile.ZipFile(jars / f"hugegraph-dist-{VERSION}.jar") as archive:
        wanted = [n for n in archive.namelist() if n.startswith(("conf/", "scripts/"))]
        archive.extractall(base, wanted)
    _set(
        base / "conf/rest-server.properties",
        {
            "restserver.url": f"http://127.0.0.1:{rest}",
            "gremlinserver.url": f"http://127.0.0.1:{gremlin}",
        },
    )
    _set(
        base / "conf/graphs/hugegraph.properties",
        {
            "backend": "memory",
            "serializer": "text",
            "vertex.cache_type": "l1",
            "edge.cache_type": "l1",
        },
    )
    with (base / "conf/gremlin-server.yaml").open("a") as file:
        file.write(f"\nhost: 127.0.0.1\nport: {gremlin}\n")


def _set(file: Path, values: dict[str, str]) -> None:
    kept = [
        line for line in file.read_text().splitlines() if line.split("=")[0].strip() not in values
    ]
    file.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in values.items())]))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            state = "is not ready yet" if process.poll() is None else "has ended"
            end = log.read_bytes()[-4000:].decode(errors="replace")
            raise RuntimeError(f"the HugeGraph server {state}; its log ends:\n{end}")
        time.sleep(0.2)


def _answers(url: str) -> bool:
    # The REST server is up some seconds before its Gremlin server.
    query = {
        "gremlin": "g.V().count()",
        "bindings": {},
        "language": "gremlin-groovy",
        "aliases": {"graph": "hugegraph", "g": "__g_hugegraph"},
    }
    request = urllib.request.Request(
        f"{url}/gremlin",
        data=json.dumps(query).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the command's exit code passes through."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--optional", action="store_true", help="exit 0 where it cannot run")
    parser.add_argument("command", nargs="+", help=f"is given {URL_VARIABLE}")
    options = parser.parse_args(arguments)
    try:
        check_machine()
        install(cache_folder())
    except CannotRunHereError as reason:
        _say(f"no HugeGraph server here: {reason}")
        return 0 if options.optional else UNAVAILABLE
    start = time.monotonic()
    with server(cache_folder()) as url:
        _say(f"HugeGraph {VERSION} is up after {time.monotonic() - start:.1f} s")
        return subprocess.run(options.command, env={**os.environ, URL_VARIABLE: url}).returncode


if __name__ == "__main__":
    sys.exit(main())
