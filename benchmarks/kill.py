"""Kill the building of an index again and again, and see that nothing is lost or paid twice.

    python -m benchmarks.kill [--passages 500] [--kills 100] [--seed 0] [--json OUT]

A process builds an index on Milvus Lite with the real OpenAI client against a local server, and is
killed (SIGKILL) at random moments; the next one goes on. When an index is complete it is compared
with one built in one go: ids, hashes, counts and the results of questions. Then half of its
documents change, and the process that refreshes it is killed in the same way. After every kill it
is noted which passages are committed: the LLM must not be asked about one of these again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
from llama_index.core import Document
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from llama_index.core.schema import BaseNode

from llama_index_graph_rag.document_nodes import UNREAD
from llama_index_graph_rag.index import GraphRAGIndex
from llama_index_graph_rag.testing.openai_server import Body, OpenAIServer, hash_embedding

PARAGRAPHS = 10
QUESTIONS = 5
NUMBER = re.compile(r"Paragraph (\d+)\.")
FACT = re.compile(r"\b(E\d+) (joins|leaves) (E\d+)\b")


@dataclass(frozen=True)
class Result:
    """What came of it; all but `kills`, `builds` and `seconds` should be 0.

    Attributes
    ----------
    kills, builds
        Processes killed, and indexes that were completed and compared.
    different
        Indexes with other ids, hashes, counts or results than one built in one go.
    repeated
        Calls of the LLM for passages that were committed before a kill.
    orphans
        Relations and entities left without a passage after a vacuum.
    lost_calls
        Calls for passages that a kill prevented from being committed, on average by kill.
    """

    passages: int
    kills: int
    builds: int
    different: int
    repeated: int
    orphans: int
    lost_calls: float
    seconds: float


class Paragraphs(NodeParser):
    """Splits at empty lines."""

    def _parse_nodes(self, nodes, show_progress=False, **kwargs) -> list[BaseNode]:  # type: ignore[no-untyped-def]
        return [
            made
            for node in nodes
            for made in build_nodes_from_splits(node.get_content().split("\n\n"), node)
        ]


class HashEmbedding(BaseEmbedding):
    """Sums of word hashes."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return hash_embedding(text, 16).tolist()

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def paragraph(number: int) -> str:
    shared = number % 37
    return f"Paragraph {number}. E{number + 100} joins E{shared}. E{shared} leaves E{shared + 1}."


def documents(passages: int, version: int) -> list[Document]:
    """In version 1 every second document has its first third replaced."""
    made = []
    for first in range(0, passages, PARAGRAPHS):
        numbers = list(range(first, min(first + PARAGRAPHS, passages)))
        if version and (first // PARAGRAPHS) % 2:
            numbers[: PARAGRAPHS // 3] = [n + 100_000 for n in numbers[: PARAGRAPHS // 3]]
        text = "\n\n".join(map(paragraph, numbers))
        made.append(Document(text=text, id_=f"document {first // PARAGRAPHS}"))
    return made


def reply(body: Body) -> str:
    parts = ("subject", "predicate", "object")
    found = FACT.findall(json.dumps(body["messages"]))
    return json.dumps({"triplets": [dict(zip(parts, fact)) for fact in found]})


def work(uri: str, api_base: str, passages: int, version: int, begun: Event) -> None:
    """Build or refresh an index; the process that is killed."""
    import httpx
    from llama_index.llms.openai import OpenAI

    llm = OpenAI(
        model="gpt-4o-mini",
        api_base=api_base,
        api_key="test",
        max_retries=0,
        http_client=httpx.Client(trust_env=False, verify=False),
    )
    begun.set()
    GraphRAGIndex.from_documents(documents(passages, version), uri=uri, llm=llm, **options())
    # Not closed: a run that ends without it has to be as good.


def options() -> dict:  # type: ignore[type-arg]
    return {"embed_model": HashEmbedding(model_name="hash"), "transformations": [Paragraphs()]}


def opened(uri: Path) -> GraphRAGIndex:
    return GraphRAGIndex.from_existing(uri, embed_model=HashEmbedding(model_name="hash"))


def contents(index: GraphRAGIndex, passages: int) -> tuple[object, ...]:
    """Return everything by which two indexes are compared."""
    store = index.store
    keys = [key for page in store.scan_passages() for key in page]
    retriever = index.as_retriever(similarity_top_k=5)
    step = max(1, passages // QUESTIONS)
    results = [retriever.retrieve(f"E{n + 100} joins") for n in range(0, passages, step)]
    return (
        sorted(
            (key.id, key.ref_doc_id, sorted(key.relation_ids), key.content_hash) for key in keys
        ),
        sorted({(k.ref_doc_id, store.snapshot().document_hash(k.ref_doc_id)) for k in keys}),
        sorted(tuple(key) for page in store.scan_relations() for key in page),
        sorted(key.id for page in store.scan_entities() for key in page),
        index.stats(),
        [[node.node.node_id for node in nodes] for nodes in results],
        [node.score or 0 for nodes in results for node in nodes],
    )


def equal(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Tell whether two contents are the same; Milvus's similarities differ in the last digits."""
    return one[:-1] == other[:-1] and np.allclose(one[-1], other[-1], atol=1e-4)  # type: ignore[arg-type]


def committed(uri: Path) -> set[int]:
    """Return the numbers of the paragraphs that have been read and committed."""
    try:
        index = opened(uri)
    except Exception as error:  # killed before there was an index
        if "holds no index" in str(error) or "there is no" in str(error):
            return set()
        raise
    try:
        ids = [
            key.id
            for page in index.store.scan_passages()
            for key in page
            if not key.content_hash.startswith(UNREAD)
        ]
        texts = [passage.node.text for passage in index.store.get_passages(ids)]
    finally:
        index.close()
    return {int(number) for text in texts for number in NUMBER.findall(text)}


def run(passages: int, kills: int, seed: int, folder: Path, *, log: bool = False) -> Result:
    """Kill `kills` processes and compare what comes of it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "llama_index_graph_rag.index",
            "llama_index.llms.openai",
            "llama_index_graph_rag.stores.milvus",
        ]
    )
    draw = random.Random(seed)
    started = time.monotonic()
    killed = builds = different = repeated = orphans = 0
    asked: list[int] = []
    with OpenAIServer(reply) as server:

        def start(uri: Path, version: int) -> BaseProcess:
            begun = context.Event()
            process = context.Process(
                target=work, args=(str(uri), server.api_base, passages, version, begun)
            )
            process.start()
            begun.wait(60)
            return process

        def finish(process: BaseProcess) -> None:
            process.join()
            if process.exitcode:
                raise RuntimeError(f"a run that was not killed ended with {process.exitcode}")

        whole = []
        for version in (0, 1):
            uri = folder / f"whole{version}.db"
            finish(start(uri, version))
            index = opened(uri)
            whole.append(contents(index, passages))
            index.close()
        calls = len(server.chats)
        needed = 0
        while killed < kills:
            uri = folder / f"killed{builds}.db"
            safe: set[int] = set()
            for version in (0, 1):
                while killed < kills:
                    process = start(uri, version)
                    _wait(process, server, calls + draw.randint(0, max(8, passages // 8)))
                    # Mostly among the calls and the commits, now and then in what comes last.
                    process.join(draw.uniform(0, draw.choice([0.05, 0.05, 1.0])))
                    if process.exitcode is not None:
                        finish(process)
                        break
                    process.kill()
                    process.join()
                    killed += 1
                    asked += (new := _numbers(server, calls))
                    calls += len(new)
                    repeated += sum(number in safe for number in new)
                    safe = committed(uri)
                    if log:
                        print(f"kill {killed}: {len(safe)} passages", file=sys.stderr)
                else:
                    finish(start(uri, version))
                asked += (new := _numbers(server, calls))
                calls += len(new)
                repeated += sum(number in safe for number in new)
                index = opened(uri)
                index.vacuum()
                stats = index.stats()
                orphans += stats["orphan_entities"] + stats["orphan_relations"]
                found = contents(index, passages)
                different += not equal(found, whole[version])
                index.close()
                builds += 1
                safe = committed(uri)
                if log:
                    _say(version, found, whole[version])
                needed += len(safe) if not version else _changed(passages)
    return Result(
        passages,
        killed,
        builds,
        different,
        repeated,
        orphans,
        round((sum(number >= 0 for number in asked) - needed) / max(1, killed), 2),
        round(time.monotonic() - started, 1),
    )


def _wait(process: BaseProcess, server: OpenAIServer, calls: int) -> None:
    """Wait until the server has got so many calls, or nothing more is to come."""
    while len(server.chats) < calls and process.exitcode is None:
        process.join(0.005)


def _say(version: int, found: tuple[object, ...], whole: tuple[object, ...]) -> None:
    equal = [a == b for a, b in zip(found, whole)]
    print(f"version {version} is complete, equal: {equal}", file=sys.stderr)
    for a, b in zip(found, whole):
        if a != b and isinstance(a, list) and isinstance(b, list):
            print(
                *[pair for pair in zip(a, b) if pair[0] != pair[1]][:3], sep="\n", file=sys.stderr
            )


def _numbers(server: OpenAIServer, since: int) -> list[int]:
    """Return the paragraphs that were asked about; -1 for what a kill cut off half sent."""
    texts = [json.dumps(body.get("messages")) for body in server.chats[since:]]
    return [int((NUMBER.findall(text) or [-1])[-1]) for text in texts]


def _changed(passages: int) -> int:
    texts = [set(d.text.split("\n\n")) for v in (0, 1) for d in documents(passages, v)]
    half = len(texts) // 2
    return sum(len(new - old) for old, new in zip(texts[:half], texts[half:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=500)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = run(arguments.passages, arguments.kills, arguments.seed, Path(folder), log=True)
    text = json.dumps(asdict(result), indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
