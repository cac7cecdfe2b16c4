"""Triplets out of passages by an LLM."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any

from llama_index.core import Settings
from llama_index.core.bridge.pydantic import Field, field_serializer
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType, PromptMixin, PromptMixinType
from llama_index.core.schema import BaseNode
from pydantic import BaseModel, SerializeAsAny

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.extractors.base import Extraction, TripletExtractor, passage_text
from llama_index_graph_rag.extractors.llm_calls import (
    Answer,
    LLMUsage,
    aask,
    ask,
    calls_functions,
)
from llama_index_graph_rag.extractors.node_triplets import valid_triplets
from llama_index_graph_rag.extractors.retry import (
    Breaker,
    RejectedRequestError,
    RetryPolicy,
    describe,
    is_transient,
    status_code,
)
from llama_index_graph_rag.extractors.triplet_answers import parse_triplets
from llama_index_graph_rag.prompts import TRIPLET_EXTRACTION_PROMPT

_WINDOW = 4
"""Passages in flight or done and not yet taken, for each worker: what bounds the memory."""


class Triplets(BaseModel):
    """Record the facts that the passage states."""

    triplets: list[TripletFields]


class TripletFields(BaseModel):
    """One fact."""

    subject: str
    predicate: str
    object: str


Triplets.model_rebuild()


class LLMTripletExtractor(TripletExtractor, PromptMixin):
    """Extracts triplets with an LLM, several passages at a time.

    Where the LLM has function calling, the first attempt at a passage uses it; any later one, or
    the first where it has not, asks for JSON in plain text and reads the answer tolerantly. A call
    that fails for a reason that may pass, or an answer that cannot be understood, is repeated with
    back-off. A passage that fails in the end is marked with the reason and never ends the run.

    Parameters
    ----------
    llm
        The LLM; None means ``Settings.llm``, looked up at the first call.
    num_workers
        Calls in flight.
    max_triplets_per_passage
        Triplets asked for at most; those over it are left out and listed as invalid.
    prompt
        A template with ``{text}`` and ``{max_triplets}``; also reached as ``triplet_prompt`` by
        `get_prompts` and `update_prompts`.
    structured
        Whether to use function calling; None means where the LLM says that it has it.
    retry
        Attempts and waits. They come on top of those of the LLM's client: give it few of its own,
        such as ``OpenAI(max_retries=0)``.
    give_up_after
        Passages in a row on which the LLM refuses or cannot be reached, after which the others of
        the run are not asked about; None asks about all. Default 8.

    Raises
    ------
    GraphRAGValueError
        If `num_workers`, `max_triplets_per_passage` or `give_up_after` is under 1.

    Notes
    -----
    The text given to the LLM is the node's content with the metadata that LLMs may see
    (``MetadataMode.LLM``), so a title there tells whom "she" means. `extraction_report` lists what
    failed. Within an IngestionPipeline with a cache, failed passages are cached with their reason:
    give the returned nodes to the extractor again to retry them.

    Examples
    --------
    >>> from llama_index.core.llms import MockLLM
    >>> LLMTripletExtractor(llm=MockLLM(), num_workers=8).num_workers
    8
    """

    llm: SerializeAsAny[LLM] | None = Field(default=None, repr=False)
    num_workers: int = 4
    max_triplets_per_passage: int = 20
    prompt: SerializeAsAny[BasePromptTemplate] = TRIPLET_EXTRACTION_PROMPT
    structured: bool | None = None
    retry: RetryPolicy = Field(default_factory=RetryPolicy, exclude=True, repr=False)
    give_up_after: int | None = 8

    def __init__(
        self,
        llm: LLM | None = None,
        *,
        num_workers: int = 4,
        max_triplets_per_passage: int = 20,
        prompt: BasePromptTemplate | None = None,
        structured: bool | None = None,
        retry: RetryPolicy | None = None,
        give_up_after: int | None = 8,
    ) -> None:
        for name, value in (
            ("num_workers", num_workers),
            ("max_triplets_per_passage", max_triplets_per_passage),
            ("give_up_after", give_up_after),
        ):
            if value is not None and value < 1:
                raise GraphRAGValueError(f"{name}={value} must be at least 1")
        fields: dict[str, Any] = {
            "llm": llm,
            "num_workers": num_workers,
            "max_triplets_per_passage": max_triplets_per_passage,
            "prompt": prompt or TRIPLET_EXTRACTION_PROMPT,
            "structured": structured,
            "retry": retry or RetryPolicy(),
            "give_up_after": give_up_after,
        }
        super().__init__(**fields)

    @classmethod
    def class_name(cls) -> str:
        """Name of the class."""
        return "LLMTripletExtractor"

    @field_serializer("llm")
    def _llm_without_its_key(self, llm: LLM | None) -> dict[str, str] | None:
        # to_dict() is hashed by pipelines to tell one set-up from another, and may be printed.
        if llm is None:
            return None
        return {"class_name": llm.class_name(), "model": str(getattr(llm, "model", ""))}

    def extract(self, nodes: Iterable[BaseNode]) -> Iterator[Extraction]:
        """Yield what is found in each node as it is done, calls going on in threads meanwhile.

        Nodes are drawn from the iterable as workers come free, a few for each worker ahead of
        the consumer. Closing the iterator early cancels what has not started.
        """
        llm, breaker = self._llm(), Breaker(self.give_up_after)
        waiting = iter(nodes)
        pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="triplets")
        running: set[Future[Extraction]] = set()
        try:
            while True:
                for node in islice(waiting, _WINDOW * self.num_workers - len(running)):
                    context = contextvars.copy_context()  # keeps traces under the caller's span
                    running.add(pool.submit(context.run, self._extract, llm, node, breaker))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    async def aextract(self, nodes: Iterable[BaseNode]) -> AsyncIterator[Extraction]:
        """Async twin of `extract`: tasks under a semaphore, cancelled if it is closed early."""
        llm, breaker = self._llm(), Breaker(self.give_up_after)
        semaphore = asyncio.Semaphore(self.num_workers)

        async def extract(node: BaseNode) -> Extraction:
            async with semaphore:
                return await self._aextract(llm, node, breaker)

        waiting = iter(nodes)
        running: set[asyncio.Task[Extraction]] = set()
        try:
            while True:
                for node in islice(waiting, _WINDOW * self.num_workers - len(running)):
                    running.add(asyncio.create_task(extract(node)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _llm(self) -> LLM:
        return self.llm or Settings.llm

    def _extract(self, llm: LLM, node: BaseNode, breaker: Breaker) -> Extraction:
        asked = _Passage(self, llm, node)
        if breaker.reason or not asked.text.strip():
            return Extraction(node, failure=breaker.reason)
        try:
            found = self.retry.call(asked.attempt)
        except Exception as error:  # whatever an LLM's client raises costs this passage only
            breaker.failed(error)
            return Extraction(node, failure=describe(error), usage=asked.usage)
        breaker.answered()
        return asked.extraction(found)

    async def _aextract(self, llm: LLM, node: BaseNode, breaker: Breaker) -> Extraction:
        asked = _Passage(self, llm, node)
        if breaker.reason or not asked.text.strip():
            return Extraction(node, failure=breaker.reason)
        try:
            found = await self.retry.acall(asked.aattempt)
        except Exception as error:  # as above
            breaker.failed(error)
            return Extraction(node, failure=describe(error), usage=asked.usage)
        breaker.answered()
        return asked.extraction(found)

    def _get_prompts(self) -> PromptDictType:
        return {"triplet_prompt": self.prompt}

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        if "triplet_prompt" in prompts_dict:
            self.prompt = prompts_dict["triplet_prompt"]


class _Passage:
    """One passage on its way through the attempts; counts what they cost."""

    def __init__(self, extractor: LLMTripletExtractor, llm: LLM, node: BaseNode) -> None:
        self.node, self.llm, self.prompt = node, llm, extractor.prompt
        self.text = passage_text(node)
        self.limit = extractor.max_triplets_per_passage
        self.usage = LLMUsage()
        structured = extractor.structured
        self.structured = calls_functions(llm) if structured is None else structured

    def attempt(self, number: int) -> list[object]:
        schema = self._schema(number)
        try:
            answer = ask(self.llm, self.prompt, schema, **self._values())
        except Exception as error:
            self._count_failed(error, schema)
            raise
        return self._read(answer)

    async def aattempt(self, number: int) -> list[object]:
        schema = self._schema(number)
        try:
            answer = await aask(self.llm, self.prompt, schema, **self._values())
        except Exception as error:
            self._count_failed(error, schema)
            raise
        return self._read(answer)

    def extraction(self, found: list[object]) -> Extraction:
        """Return the result, triplets validated and cut to the limit."""
        valid, invalid = valid_triplets(found, limit=self.limit)
        return Extraction(self.node, tuple(valid), tuple(invalid), usage=self.usage)

    def _values(self) -> dict[str, Any]:
        return {"text": self.text, "max_triplets": self.limit}

    def _schema(self, number: int) -> type[BaseModel] | None:
        return Triplets if self.structured and number == 1 else None

    def _read(self, answer: Answer) -> list[object]:
        self.usage += answer.usage
        return parse_triplets(answer.text)

    def _count_failed(self, error: Exception, schema: type[BaseModel] | None) -> None:
        self.usage += LLMUsage(calls=1)
        if schema is not None and not is_transient(error) and status_code(error) not in (401, 403):
            # Some servers take no function calls whatever the model's name says: ask plainly next.
            raise RejectedRequestError(describe(error)) from error
