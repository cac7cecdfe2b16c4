"""The entities of a question by an LLM."""

from __future__ import annotations

import logging
from dataclasses import replace

from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType, PromptMixin, PromptMixinType

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.extractors.query import EntityExtractor, QueryEntities, known_entities
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.llm_json import JSONAnswer, ask_json
from llama_index_graph_rag.llm_output import as_items, as_texts
from llama_index_graph_rag.prompts import QUERY_ENTITIES_PROMPT
from llama_index_graph_rag.steps import Process, adrive, drive

logger = logging.getLogger("llama_index_graph_rag")

_KEYS = ("entities", "named_entities", "entity", "names", "keywords", "answer")
_NAMES = ("name", "entity", "text", "value")


class LLMEntityExtractor(EntityExtractor, PromptMixin):
    """Asks an LLM which entities a question names: one call.

    A failure of the LLM, or an answer that cannot be read, gives no entities and the reason.

    Parameters
    ----------
    llm
        Default None: `Settings.llm`, looked up at each question.
    prompt
        Default `prompts.QUERY_ENTITIES_PROMPT`; its variables are `question` and `max_entities`.
        Also by ``update_prompts({"query_entities_prompt": ...})``.
    max_entities
        Names that are taken at most. Default 10.
    json_mode
        Whether to ask the LLM's endpoint for JSON mode. Default None: where the LLM is of
        LlamaIndex's OpenAI classes.

    Raises
    ------
    GraphRAGValueError
        If `max_entities` is less than 1.

    Examples
    --------
    >>> from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
    >>> extractor = LLMEntityExtractor(ScriptedLLM('{"entities": ["Euler"]}'))
    >>> extractor.extract("Who taught Euler?", GraphSnapshot.empty()).entities[0].name
    'Euler'
    """

    def __init__(
        self,
        llm: LLM | None = None,
        *,
        prompt: BasePromptTemplate | None = None,
        max_entities: int = 10,
        json_mode: bool | None = None,
    ) -> None:
        if max_entities < 1:
            raise GraphRAGValueError(f"max_entities={max_entities} must be at least 1")
        self.llm = llm
        self.prompt = prompt or QUERY_ENTITIES_PROMPT
        self.max_entities = max_entities
        self.json_mode = json_mode

    def extract(self, question: str, graph: GraphSnapshot) -> QueryEntities:
        """Return the entities that the LLM names, with the ids of those that the graph knows."""
        return drive(self._extracting(question, graph))

    async def aextract(self, question: str, graph: GraphSnapshot) -> QueryEntities:
        """Async twin of `extract`."""
        return await adrive(self._extracting(question, graph))

    def _extracting(self, question: str, graph: GraphSnapshot) -> Process[QueryEntities]:
        question = question.strip()
        if not question:
            return QueryEntities(reason="the question is empty")
        answer = yield from ask_json(
            self.llm,
            self.prompt,
            wanted=_KEYS,
            json_mode=self.json_mode,
            question=question,
            max_entities=self.max_entities,
        )
        names = list(dict.fromkeys(as_texts(as_items(answer.value, *_KEYS), *_NAMES)))
        reason = answer.reason or ("" if names else "the LLM named no entity")
        if len(names) > self.max_entities:
            reason = f"the LLM named {len(names)} entities: {self.max_entities} were taken"
        if reason:
            logger.warning("entities of the question: %s", reason)
        return _with_cost(known_entities(names[: self.max_entities], graph), reason, answer)

    def _get_prompts(self) -> PromptDictType:
        return {"query_entities_prompt": self.prompt}

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        self.prompt = prompts.get("query_entities_prompt", self.prompt)


def _with_cost(found: QueryEntities, reason: str, answer: JSONAnswer) -> QueryEntities:
    return replace(
        found,
        reason=reason,
        raw=answer.raw,
        llm_calls=answer.llm_calls,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
    )
