"""A local HTTP server that speaks the OpenAI API from a script, for tests with the real client."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from llama_index.embeddings.openai import OpenAIEmbedding
    from llama_index.llms.openai import OpenAI

Body = Mapping[str, object]
"""The JSON object of a request."""

_HANG_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """Reply that calls tools: (name, arguments) each."""

    calls: Sequence[tuple[str, Mapping[str, object]]]


@dataclass(frozen=True, slots=True)
class Failure:
    """Reply with an HTTP status other than 200, such as 429 with a Retry-After header."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "scripted failure"


@dataclass(frozen=True, slots=True)
class Hang:
    """No reply at all: the client has to time out. Ends when the server closes."""


@dataclass(frozen=True, slots=True)
class EmptyChoices:
    """A well-formed reply without a choice."""


Fixed = str | ToolCalls | Failure | Hang | EmptyChoices
Reply = Fixed | Callable[[Body], Fixed]
"""What answers one request: a text, one of the classes above, or a function of the body."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that the server got: its path and JSON body (never its headers: a key is there)."""

    path: str
    body: Body


class OpenAIServer:
    """Speaks chat completions and embeddings on 127.0.0.1; a context manager.

    Chat completions come plain or streamed, with JSON mode (nothing is checked) and tool calls.
    Where the request requires a tool and the reply is a text, the first tool is called with the
    text as its arguments, so that a script need not know how structured output is asked for.
    Embeddings are sums of word hashes: deterministic, and near for texts that share words.

    Parameters
    ----------
    script
        One reply for every chat request, or a sequence of replies, one a request in order; a
        request beyond its end gets status 500.
    dimension
        Length of the embeddings where the request names none. Default 64.

    Examples
    --------
    >>> with OpenAIServer("Paris") as server:
    ...     server.llm().complete("The capital of France?").text
    'Paris'
    """

    def __init__(self, script: Reply | Sequence[Reply] = "ok", *, dimension: int = 64) -> None:
        self.dimension = dimension
        self._script = script
        self._requests: list[Request] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def __enter__(self) -> OpenAIServer:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let what hangs go, and stop."""
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def api_base(self) -> str:
        """The URL to give the client as `api_base`."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in order."""
        with self._lock:
            return list(self._requests)

    @property
    def chats(self) -> list[Body]:
        """The bodies of the chat requests so far, in order."""
        return [request.body for request in self.requests if request.path.endswith("completions")]

    def llm(
        self, *, model: str = "gpt-4o-mini", max_retries: int = 0, timeout: float = 10.0
    ) -> OpenAI:
        """Return the real OpenAI LLM of LlamaIndex, talking to this server."""
        from llama_index.llms.openai import OpenAI

        return OpenAI(model=model, max_retries=max_retries, timeout=timeout, **self._connection())

    def embed_model(self, *, max_retries: int = 0, timeout: float = 10.0) -> OpenAIEmbedding:
        """Return the real OpenAI embedding model of LlamaIndex, talking to this server."""
        from llama_index.embeddings.openai import OpenAIEmbedding

        return OpenAIEmbedding(max_retries=max_retries, timeout=timeout, **self._connection())

    def _connection(self) -> dict[str, Any]:
        import httpx

        # No proxy from the environment, and no certificates to load: that takes most of the time.
        return {
            "api_base": self.api_base,
            "api_key": "test",
            "http_client": httpx.Client(trust_env=False, verify=False),
            "async_http_client": httpx.AsyncClient(trust_env=False, verify=False),
        }

    def _record(self, request: Request) -> int:
        with self._lock:
            self._requests.append(request)
            return sum(r.path.endswith("completions") for r in self._requests) - 1

    def _reply(self, body: Body, position: int) -> Fixed:
        script = self._script
        if isinstance(script, Sequence) and not isinstance(script, str):
            if position >= len(script):
                return Failure(500, message=f"the script has only {len(script)} replies")
            script = script[position]
        return script(body) if callable(script) else script


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    owner: OpenAIServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that time out break their connection on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # 40 ms a reply otherwise: headers and body go out apart
    server: _Http

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""

    def do_POST(self) -> None:
        owner = self.server.owner
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        position = owner._record(Request(self.path, body))
        if self.path.endswith("/embeddings"):
            self._send_json(200, _embeddings(body, owner.dimension))
            return
        if not self.path.endswith("/chat/completions"):
            self._send_json(404, {"error": {"message": f"no such path: {self.path}"}})
            return
        reply = owner._reply(body, position)
        if isinstance(reply, Hang):
            owner._closing.wait(_HANG_SECONDS)
            self.close_connection = True
        elif isinstance(reply, Failure):
            error = {"error": {"message": reply.message, "type": "scripted"}}
            self._send_json(reply.status, error, reply.headers)
        elif body.get("stream"):
            self._send_events(_chunks(body, _message(body, reply)))
        else:
            self._send_json(200, _completion(body, _message(body, reply)))

    def _send_json(self, status: int, value: object, headers: Mapping[str, str] = {}) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_events(self, values: Iterator[object]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for value in values:
            self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def _message(body: Body, reply: Fixed) -> dict[str, object] | None:
    """Return the assistant's message, or None for a reply without a choice."""
    tools = body.get("tools")
    calls: list[tuple[str, str]] = []
    if isinstance(reply, ToolCalls):
        calls = [(name, json.dumps(arguments)) for name, arguments in reply.calls]
    elif isinstance(reply, str) and isinstance(tools, list) and tools:
        if body.get("tool_choice") not in (None, "auto", "none"):
            calls = [(tools[0]["function"]["name"], reply)]
    elif isinstance(reply, EmptyChoices):
        return None
    if not calls:
        return {"role": "assistant", "content": reply}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{i}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for i, (name, arguments) in enumerate(calls)
        ],
    }


def _head(body: Body, kind: str) -> dict[str, object]:
    return {"id": "chatcmpl-1", "object": kind, "created": 0, "model": body.get("model", "test")}


def _finish(message: Mapping[str, object]) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"


def _completion(body: Body, message: dict[str, object] | None) -> dict[str, object]:
    choices: list[object] = []
    if message is not None:
        choices = [{"index": 0, "message": message, "finish_reason": _finish(message)}]
    prompt, completion = len(json.dumps(body.get("messages"))) // 4, len(json.dumps(message)) // 4
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    return {**_head(body, "chat.completion"), "choices": choices, "usage": usage}


def _chunks(body: Body, message: dict[str, object] | None) -> Iterator[object]:
    head = _head(body, "chat.completion.chunk")
    if message is None:
        yield {**head, "choices": []}
        return
    deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        deltas += [{"tool_calls": [{"index": i, **call}]} for i, call in enumerate(calls)]
    else:
        words = str(message["content"]).split(" ")
        deltas += [{"content": ("" if i == 0 else " ") + word} for i, word in enumerate(words)]
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(message)}]}


def _embeddings(body: Body, dimension: int) -> dict[str, object]:
    asked, given = body.get("dimensions"), body.get("input")
    length = asked if isinstance(asked, int) else dimension
    texts = given if isinstance(given, list) and not _are_tokens(given) else [given]
    rows: list[dict[str, object]] = []
    for i, text in enumerate(texts):
        vector = hash_embedding(text if isinstance(text, str) else str(text), length)
        as_base64 = body.get("encoding_format") == "base64"
        data = base64.b64encode(vector.tobytes()).decode() if as_base64 else vector.tolist()
        rows.append({"object": "embedding", "index": i, "embedding": data})
    usage = {"prompt_tokens": 0, "total_tokens": 0}
    return {"object": "list", "data": rows, "model": body.get("model"), "usage": usage}


def _are_tokens(values: list[object]) -> bool:
    return all(isinstance(value, int) for value in values)


def hash_embedding(text: str, dimension: int = 64) -> NDArray[np.float32]:
    """Return a vector of unit length made from the words of `text` by hashing.

    Deterministic across processes; texts that share words are near. No model stands behind it.

    Parameters
    ----------
    text
        Any text.
    dimension
        Length of the vector. Default 64.

    Returns
    -------
    ndarray
        Shape (dimension,), float32, L2-normalised.

    Examples
    --------
    >>> a, b = hash_embedding("Euler studied"), hash_embedding("Euler taught")
    >>> float(a @ a) > 0.99, 0.2 < float(a @ b) < 0.8
    (True, True)
    """
    vector: NDArray[np.float64] = np.zeros(dimension)
    for word in text.casefold().split() or [""]:
        seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
        vector += np.random.default_rng(seed).standard_normal(dimension)
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)
