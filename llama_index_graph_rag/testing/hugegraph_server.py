"""A local stand-in for a HugeGraph server, for tests without a JVM.

It runs Gremlin for real, on the in-process engine `graphersal`, behind HugeGraph's REST paths,
and answers mistakes as HugeGraph 1.5 does: an unknown property or label, a missing index, a wrong
graph, a script that does not parse, a body that is too long, a wrong password.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from llama_index_graph_rag.errors import MissingExtraError

MAX_BODY_BYTES = 65_536
MAX_ID_BYTES = 128

_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NO_INDEX = (
    "Don't accept query based on properties [{}] that are not indexed in {}, "
    "may not match secondary condition"
)
_IMPORTED = frozenset({"key", "value", "keys", "values", "id", "label", "asc", "desc", "single"})


class _Refusal(Exception):
    """An answer other than 2xx: status, exception class and message."""

    def __init__(self, status: int, exception: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"exception": exception, "message": message, "cause": f"[{exception}]"}


def _bad(message: str, exception: str = "java.lang.IllegalArgumentException") -> _Refusal:
    return _Refusal(400, exception, message)


class HugeGraphTestServer:
    """Serves one empty graph on the loopback interface while it is open.

    Parameters
    ----------
    version
        Which HugeGraph it says it is, default ``1.5.0``; from 1.7 on it speaks of graphspaces.
    username, password
        Demand HTTP Basic authentication.

    Attributes
    ----------
    url
        Its address.
    requests
        Method, path and decoded body of every request, in order.
    faults
        Answers to give before serving on: a status each, or a ``threading.Event`` to wait for
        before the answer, which a client's time-out does not do.

    Raises
    ------
    MissingExtraError
        If graphersal is not installed.

    Examples
    --------
    >>> with HugeGraphTestServer() as server:  # doctest: +SKIP
    ...     store = HugeGraphStore(server.url)
    """

    def __init__(
        self,
        version: str = "1.5.0",
        *,
        username: str | None = None,
        password: str | None = None,
    ) -> None:
        try:
            import graphersal
        except ImportError as error:
            raise MissingExtraError("graphersal", "test") from error
        self.version = version
        self.requests: list[tuple[str, str, Any]] = []
        self.faults: deque[int | threading.Event] = deque()
        self._new_graph = graphersal.Graph
        self._engine_error: type[Exception] = graphersal.GraphersalError
        self._vertex_type, self._edge_type = graphersal.Vertex, graphersal.Edge
        token = base64.b64encode(f"{username}:{password}".encode()).decode()
        self._authorization = None if username is None else f"Basic {token}"
        new = [int(part) for part in version.split(".")[:2]] >= [1, 7]
        self._name = "DEFAULT-hugegraph" if new else "hugegraph"
        self._path = "/graphspaces/DEFAULT/graphs/hugegraph" if new else "/graphs/hugegraph"
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget graph, schema, faults and requests."""
        self.requests.clear()
        self.faults.clear()
        self._graph = self._new_graph()
        self._schema: dict[str, dict[str, dict[str, Any]]] = {
            kind: {} for kind in ("propertykeys", "vertexlabels", "edgelabels", "indexlabels")
        }

    def __enter__(self) -> HugeGraphTestServer:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body are two writes: without this each answer waits 40 ms for an ACK.
            disable_nagle_algorithm = True

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length)
                status, body = owner._answer(
                    self.command, self.path, raw, self.headers.get("Authorization")
                )
                payload = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = do_PUT = do_DELETE = _serve

            def log_message(self, format: str, *args: object) -> None:
                """Stay quiet: `requests` holds all."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """Stay quiet about a client that hung up: time-out tests do it on purpose."""

        self._http = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _answer(
        self, method: str, target: str, raw: bytes, authorization: str | None
    ) -> tuple[int, Any]:
        url = urlsplit(target)
        path, query = unquote(url.path), parse_qs(url.query)
        body = json.loads(raw) if raw else None
        self.requests.append((method, path, body))
        try:
            if self.faults:
                fault = self.faults.popleft()
                if isinstance(fault, int):
                    raise _Refusal(fault, "java.lang.RuntimeException", f"injected {fault}")
                fault.wait(30)
            if self._authorization not in (None, authorization):
                raise _Refusal(401, "jakarta.ws.rs.NotAuthorizedException", "Authentication failed")
            if path == "/gremlin" and len(raw) > MAX_BODY_BYTES:
                raise _Refusal(413, "", "")
            with self._lock:
                return self._route(method, path, query, body)
        except _Refusal as refusal:
            return refusal.status, refusal.body
        except (KeyError, TypeError, AttributeError) as error:
            return 400, _bad(f"malformed request: {error!r}").body

    def _route(
        self, method: str, path: str, query: Mapping[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        if path == "/versions":
            core = self.version
            return 200, {"versions": {"version": "v1", "core": core, "gremlin": "3.5.1", "api": ""}}
        if path == "/gremlin":
            return 200, self._gremlin(body)
        if not path.startswith(self._path + "/"):
            raise _Refusal(404, "jakarta.ws.rs.NotFoundException", "HTTP 404 Not Found")
        part = path[len(self._path) + 1 :]
        if part == "clear" and method == "DELETE":
            self._graph, kinds = self._new_graph(), list(self._schema)
            self._schema = {kind: {} for kind in kinds}
            return 204, None
        if part == "schema":
            return 200, {kind: list(rows.values()) for kind, rows in self._schema.items()}
        kind = part.removeprefix("schema/")
        if kind in self._schema:
            if method == "GET":
                return 200, {kind: list(self._schema[kind].values())}
            return self._define(kind, body)
        if part == "graph/vertices/batch":
            return 201, [self._add_vertex(row) for row in body]
        if part == "graph/vertices":
            return 201, {**body, "id": self._add_vertex(body)}
        if part == "graph/edges/batch":
            return 201, [self._add_edge(row) for row in body]
        if part == "graph/edges":
            return 201, {**body, "id": self._add_edge(body)}
        raise _Refusal(404, "jakarta.ws.rs.NotFoundException", "HTTP 404 Not Found")

    # --- schema and data ------------------------------------------------------------------------

    def _define(self, kind: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        rows, name = self._schema[kind], body["name"]
        if name in rows:
            exception = "class org.apache.hugegraph.exception.ExistedException"
            raise _bad(f"The {kind[:-6]} label '{name}' has existed", exception)
        for key in (*body.get("properties", ()), *body.get("fields", ())):
            if key not in self._schema["propertykeys"]:
                raise _bad(f"Undefined property key: '{key}'")
        defaults: dict[str, Any] = {"id": len(rows) + 1, "status": "CREATED"}
        if kind == "vertexlabels":
            defaults.update(id_strategy="DEFAULT", primary_keys=[], properties=[], nullable_keys=[])
        elif kind == "edgelabels":
            defaults.update(frequency="SINGLE", sort_keys=[], properties=[], nullable_keys=[])
        rows[name] = {**defaults, **body}
        if kind == "indexlabels":
            return 202, {"index_label": {**rows[name], "status": "CREATING"}, "task_id": 1}
        if kind == "propertykeys":
            return 202, {"property_key": rows[name], "task_id": 0}
        return 201, rows[name]

    def _add_vertex(self, row: Mapping[str, Any]) -> Any:
        label = self._label("vertexlabels", row["label"])
        properties = self._properties(label, row.get("properties", {}))
        if label["id_strategy"] == "PRIMARY_KEY":
            keys = (str(properties[key]) for key in label["primary_keys"])
            joined = "!".join(key.replace("!", "`!") for key in keys)
            id: Any = f"{label['id']}:{joined.replace(':', '`:')}"
        else:
            id = row["id"]
        if id == "":
            raise _bad("The id can't be empty")
        if not self._execute("g.V(id).count()", {"id": id})[0]:
            self._execute("g.addV(label).property(T.id, id)", {"label": row["label"], "id": id})
        for key, value in properties.items():
            self._execute("g.V(id).property(k, v)", {"id": id, "k": key, "v": value})
        return id

    def _add_edge(self, row: Mapping[str, Any]) -> str:
        label = self._label("edgelabels", row["label"])
        properties = self._properties(label, row.get("properties", {}))
        ends = {"a": row["outV"], "b": row["inV"]}
        for end in ends.values():
            if not self._execute("g.V(id).count()", {"id": end})[0]:
                raise _bad(f"Vertex '{end}' does not exist")
        sort = "!".join(str(properties[key]) for key in label["sort_keys"])
        id = f"S{row['outV']}>{label['id']}>{label['id']}>{sort}>S{row['inV']}"
        if not self._execute("g.E(id).count()", {"id": id})[0]:
            self._execute(
                "g.V(a).as('x').V(b).addE(label).from('x').property(T.id, id)",
                {**ends, "label": row["label"], "id": id},
            )
        for key, value in properties.items():
            self._execute("g.E(id).property(k, v)", {"id": id, "k": key, "v": value})
        return id

    def _label(self, kind: str, name: str) -> dict[str, Any]:
        if name not in self._schema[kind]:
            raise _bad(f"Undefined {kind[:-6]} label: '{name}'")
        return self._schema[kind][name]

    def _properties(
        self, label: Mapping[str, Any], properties: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        for key in properties:
            if key not in label["properties"]:
                raise _bad(f"Invalid property '{key}' for label '{label['name']}'")
        for key in label["properties"]:
            if key not in properties and key not in label["nullable_keys"]:
                raise _bad(f"All non-null property keys must be set, but '{key}' is missing")
        return properties

    # --- Gremlin --------------------------------------------------------------------------------

    def _gremlin(self, body: Mapping[str, Any]) -> dict[str, Any]:
        aliases = body.get("aliases") or {}
        for alias, name in aliases.items():
            if name not in (self._name, f"__g_{self._name}"):
                raise _bad(
                    f"Could not rebind [{alias}] to [{name}] as [{name}] not in the Graph or "
                    "TraversalSource global bindings"
                )
        script, bindings = body["gremlin"], body.get("bindings") or {}
        if "g" not in aliases:
            script = script.replace("hugegraph.traversal()", "g")
        self._check(script, bindings)
        data = [self._wire(value) for value in self._execute(script, bindings, top=True)]
        status = {"message": "", "code": 200, "attributes": {}}
        return {"requestId": "0", "status": status, "result": {"data": data, "meta": {}}}

    def _check(self, script: str, bindings: Mapping[str, Any]) -> None:
        """Refuse what HugeGraph refuses and the engine does not: it checks against no schema."""
        for name in bindings:
            if name in _IMPORTED:
                # HugeGraph takes the import in silence, which no test should have to find out.
                raise _bad(f"the binding [{name}] is hidden by an import of that name")
        for step in re.finditer(r"\.(?:bothE|outE|inE|both|out|in)\(([^()]*)\)", script):
            for label in self._values(step[1], bindings):
                if isinstance(label, list):
                    raise _bad(
                        "No signature of method: bothE() is applicable for argument types: "
                        "(ArrayList)",
                        "groovy.lang.MissingMethodException",
                    )
                self._label("edgelabels", label)
        for ids in re.findall(r"hasId\(within\((\w+)\)\)", script):
            for id in bindings.get(ids, ()):
                if isinstance(id, str) and len(id.encode(errors="replace")) > MAX_ID_BYTES:
                    raise _bad(f"Id max length is {MAX_ID_BYTES}, but got {len(id.encode())}")
            if len({type(id) for id in bindings.get(ids, ())}) > 1:
                raise _bad(
                    "Has comparisons on a collection of ids require ids to all be of the same type"
                )
        for labels, has in re.findall(
            r"g\.V\(\)(?:\.hasLabel\(([^()]*)\))?\.has\(\s*([\w\"']+)\s*,", script
        ):
            (name,) = self._values(has, bindings)
            if name not in self._schema["propertykeys"]:
                raise _bad(f"Undefined property key: '{name}'")
            self._check_index(name, self._values(labels, bindings))

    def _check_index(self, name: str, labels: Sequence[str]) -> None:
        indexed = {
            row["base_value"]
            for row in self._schema["indexlabels"].values()
            if name in row["fields"]
        }
        for label in labels:
            if label not in indexed:
                message = _NO_INDEX.format(name, f"label '{label}'")
                raise _bad(message, "org.apache.hugegraph.exception.NoIndexException")
        if not indexed:
            message = _NO_INDEX.format(name, "any label")
            raise _bad(message, "org.apache.hugegraph.exception.NoIndexException")

    @staticmethod
    def _values(arguments: str, bindings: Mapping[str, Any]) -> list[Any]:
        parts = [part.strip() for part in arguments.split(",") if part.strip()]
        return [part[1:-1] if part[0] in "\"'" else bindings.get(part) for part in parts]

    def _execute(self, script: str, bindings: Mapping[str, Any], top: bool = False) -> list[Any]:
        """Run a script; the engine takes scalars only, so a list becomes a literal of scalars."""
        scalars: dict[str, Any] = {}
        lists: dict[str, str] = {}
        for name, value in bindings.items():
            if isinstance(value, list):
                names = [f"{name}__{number}" for number in range(len(value))]
                scalars.update(zip(names, value))
                lists[name] = f"[{', '.join(names)}]"
            else:
                scalars[name] = value
        pieces, last = [], 0
        for literal in _STRING.finditer(script):
            pieces += [_spelled(script[last : literal.start()], lists), _double_quoted(literal[0])]
            last = literal.end()
        pieces.append(_spelled(script[last:], lists))
        try:
            result = self._graph.execute("".join(pieces), scalars)
        except self._engine_error as error:
            exception = "org.codehaus.groovy.control.MultipleCompilationErrorsException"
            raise _bad(f"startup failed: {error}", exception) from error
        if result is None:
            return []
        return list(result) if isinstance(result, list) else [result]

    def _wire(self, value: Any) -> Any:
        if isinstance(value, self._vertex_type):
            return {
                "id": value.id,
                "label": value.label,
                "type": "vertex",
                "properties": dict(value.properties),
            }
        if isinstance(value, self._edge_type):
            return {
                "id": value.id,
                "label": value.label,
                "type": "edge",
                "outV": value.out_v.id,
                "inV": value.in_v.id,
                "properties": dict(value.properties),
            }
        if isinstance(value, list):
            return {"labels": [[] for _ in value], "objects": [self._projected(v) for v in value]}
        return self._projected(value)

    def _projected(self, value: Any) -> Any:
        if isinstance(value, dict) and {"out", "in", "props"} <= value.keys():
            # valueMap() of an edge has plain values in HugeGraph, lists of one in the engine.
            props = {
                key: item[0] if isinstance(item, list) and len(item) == 1 else item
                for key, item in value["props"].items()
            }
            return {**value, "props": props}
        if isinstance(value, (self._vertex_type, self._edge_type)):
            return self._wire(value)
        return value


def _double_quoted(literal: str) -> str:
    # The engine takes 'a' for a character, as Java does; Groovy takes it for a string.
    if literal[0] == '"':
        return literal
    inner = literal[1:-1].replace("\\'", "'")
    return '"' + re.sub(r'(?<!\\)"', r"\"", inner) + '"'


def _spelled(code: str, lists: Mapping[str, str]) -> str:
    if not lists:
        return code
    names = "|".join(map(re.escape, lists))
    return re.sub(rf"\b(?:{names})\b", lambda match: lists[match[0]], code)
