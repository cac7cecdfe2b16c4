"""Choosing the relations that answer a question, with one LLM call."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from llama_index.core.bridge.pydantic import Field, PrivateAttr, SerializeAsAny
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType, PromptMixin, PromptMixinType
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.utils import get_tokenizer
from llama_index_instrumentation import get_dispatcher

from llama_index_graph_rag.checks import instance, whole_number
from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.llm_json import ask_json
from llama_index_graph_rag.postprocessors.relation_choice import (
    RELATION_KEYS,
    RelationChoice,
    read_choice,
    reasoning_of,
)
from llama_index_graph_rag.prompts import RELATION_RERANK_EXAMPLE, RELATION_RERANK_PROMPT
from llama_index_graph_rag.query_state import RelationNodeWithScore
from llama_index_graph_rag.steps import Process, adrive, drive

__all__ = ["LLMRelationRerank", "RelationChoice", "RelationReranker"]

logger = logging.getLogger("llama_index_graph_rag")
dispatcher = get_dispatcher(__name__)


@runtime_checkable
class RelationReranker(Protocol):
    """Chooses, from relations as sentences, those that a question needs.

    A failure is a choice without indices and with its reason, never an exception.
    """

    def choose(self, question: str, candidates: Sequence[str]) -> RelationChoice:
        """Return the places of the chosen candidates, best first, or the reason for none."""

    async def achoose(self, question: str, candidates: Sequence[str]) -> RelationChoice:
        """Async twin of `choose`."""


class LLMRelationRerank(BaseNodePostprocessor, PromptMixin):
    """Lets an LLM choose the relations that a question needs: one chat call.

    Works on relation nodes (a TextNode whose text is the relation) as a postprocessor, and on
    plain texts by `choose` and `achoose`. Whatever goes wrong with the LLM costs quality only: the
    first `rerank_top_n` nodes are passed on as they came, and the reason is logged.

    Parameters
    ----------
    llm
        Default None: `Settings.llm`, looked up at each question.
    rerank_top_n
        Relations that are chosen at most. Default 3.
    with_reasoning
        Ask for a short reasoning before the choice. Default True.
    with_echo
        Ask for each chosen relation's text as a check of its number. Default True; False saves
        tokens, and a wrong number can no longer be noticed.
    max_prompt_tokens
        Tokens of candidates that are shown at most, by LlamaIndex's tokenizer. What does not fit
        is not shown, and said. Default 1500.
    json_mode
        Whether to ask the LLM's endpoint for JSON mode. Default None: where the LLM is of
        LlamaIndex's OpenAI classes.
    prompt
        Default `prompts.RELATION_RERANK_PROMPT`. Also by
        ``update_prompts({"relation_rerank_prompt": ...})``.

    Raises
    ------
    GraphRAGValueError
        If a number is less than 1, or no whole number.
    GraphRAGTypeError
        If `llm` is no LLM.

    Examples
    --------
    >>> from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
    >>> answer = '{"relations": [{"label": 2, "text": "Johann Bernoulli taught Euler"}]}'
    >>> rerank = LLMRelationRerank(llm=ScriptedLLM(answer))
    >>> facts = ["Euler lived in Berlin", "Johann Bernoulli taught Euler"]
    >>> rerank.choose("Who taught Euler?", facts).indices
    (1,)
    """

    llm: SerializeAsAny[LLM] | None = Field(default=None, exclude=True, repr=False)
    rerank_top_n: int = 3
    with_reasoning: bool = True
    with_echo: bool = True
    max_prompt_tokens: int = 1_500
    json_mode: bool | None = None

    _prompt: BasePromptTemplate = PrivateAttr()

    def __init__(
        self,
        *,
        llm: LLM | None = None,
        rerank_top_n: int = 3,
        with_reasoning: bool = True,
        with_echo: bool = True,
        max_prompt_tokens: int = 1_500,
        json_mode: bool | None = None,
        prompt: BasePromptTemplate | None = None,
    ) -> None:
        instance("llm", llm, LLM, "give an LLM object, such as OpenAI(model=...)")
        fields: dict[str, Any] = {
            "llm": llm,
            "rerank_top_n": whole_number("rerank_top_n", rerank_top_n),
            "with_reasoning": with_reasoning,
            "with_echo": with_echo,
            "max_prompt_tokens": whole_number("max_prompt_tokens", max_prompt_tokens),
            "json_mode": json_mode,
        }
        super().__init__(**fields)
        self._prompt = prompt or RELATION_RERANK_PROMPT

    @classmethod
    def class_name(cls) -> str:
        """Name of the class."""
        return "LLMRelationRerank"

    # --- on texts ---

    def choose(self, question: str, candidates: Sequence[str]) -> RelationChoice:
        """Return the places of the chosen candidates, best first, or the reason for none.

        Parameters
        ----------
        question
            The question.
        candidates
            Relations as sentences, the most relevant first: the end is cut where they are too many.
        """
        return drive(self._choosing(question, candidates))

    async def achoose(self, question: str, candidates: Sequence[str]) -> RelationChoice:
        """Async twin of `choose`."""
        return await adrive(self._choosing(question, candidates))

    def _choosing(self, question: str, candidates: Sequence[str]) -> Process[RelationChoice]:
        question = question.strip()
        if not question or not candidates:
            missing = "there are no candidates" if question else "the question is empty"
            return RelationChoice(reason=missing)
        lines, places, cut = _within(candidates, self.max_prompt_tokens)
        if not places:
            return RelationChoice(dropped=cut, reason="no candidate fits max_prompt_tokens")
        answer = yield from ask_json(
            self.llm,
            self._prompt,
            wanted=RELATION_KEYS,
            json_mode=self.json_mode,
            question=question,
            relations="\n".join(f"[{i}] {line}" for i, line in enumerate(lines, 1)),
            top_n=self.rerank_top_n,
            answer_format=self._answer_format(),
            example_answer=self._example_answer(),
        )
        chosen, dropped = read_choice(answer.value, lines, limit=self.rerank_top_n)
        reason = answer.reason
        if not reason and not chosen:
            reason = "the LLM chose no relation that was shown"
        return RelationChoice(
            indices=tuple(places[i] for i in chosen),
            reasoning=reasoning_of(answer.value),
            raw=answer.raw,
            dropped=(*cut, *dropped),
            reason=reason,
            llm_calls=answer.llm_calls,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
        )

    def _answer_format(self) -> str:
        item = '{"label": number, "text": "the fact, copied"}' if self.with_echo else "number"
        reasoning = '"reasoning": "one or two short sentences", ' if self.with_reasoning else ""
        return f'{{{reasoning}"relations": [{item}, ...]}}'

    def _example_answer(self) -> str:
        reasoning, chosen = RELATION_RERANK_EXAMPLE
        answer: dict[str, object] = {"reasoning": reasoning} if self.with_reasoning else {}
        answer["relations"] = [
            {"label": label, "text": text} if self.with_echo else label
            for label, text in chosen[: self.rerank_top_n]
        ]
        return json.dumps(answer)

    # --- on nodes ---

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return drive(self._postprocessing(nodes, query_bundle))

    @dispatcher.span
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return await adrive(self._postprocessing(nodes, query_bundle))

    def _postprocessing(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None
    ) -> Process[list[NodeWithScore]]:
        if query_bundle is None:
            raise GraphRAGValueError(
                "LLMRelationRerank needs the question; pass query_bundle or query_str"
            )
        dispatcher.event(
            ReRankStartEvent(
                query=query_bundle,
                nodes=nodes,
                top_n=self.rerank_top_n,
                model_name=self.llm.metadata.model_name if self.llm else "Settings.llm",
            )
        )
        texts = [node.node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
        choice = yield from self._choosing(query_bundle.query_str, texts)
        for dropped in choice.dropped:
            logger.info("relation rerank: %s", dropped)
        if choice.reason and nodes:
            logger.warning(
                "relation rerank: %s; the first %d relations are passed on as they came",
                choice.reason,
                min(self.rerank_top_n, len(nodes)),
            )
        kept = _kept(nodes, choice, self.rerank_top_n)
        dispatcher.event(ReRankEndEvent(nodes=kept))
        return kept

    # --- prompts ---

    def _get_prompts(self) -> PromptDictType:
        return {"relation_rerank_prompt": self._prompt}

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        self._prompt = prompts.get("relation_rerank_prompt", self._prompt)


def _kept(nodes: list[NodeWithScore], choice: RelationChoice, top_n: int) -> list[NodeWithScore]:
    state = next((node.state for node in nodes if isinstance(node, RelationNodeWithScore)), None)
    if state is not None:
        state.record(choice, [node.node.node_id for node in nodes])
    if choice.indices:
        return [nodes[place] for place in choice.indices]
    # The question's ranking may stand in later: nodes that carry its state say that none decided.
    return [
        node.model_copy(update={"undecided": True})
        if isinstance(node, RelationNodeWithScore)
        else node
        for node in nodes[:top_n]
    ]


def _within(candidates: Sequence[str], budget: int) -> tuple[list[str], list[int], tuple[str, ...]]:
    """Return the candidates that fit, each on one line, their places, and what was cut."""
    count = get_tokenizer()
    lines: list[str] = []
    places: list[int] = []
    spent = 0
    for place, candidate in enumerate(candidates):
        line = " ".join(candidate.split())
        # Four more for the label. A giant is over any budget without being counted.
        cost = len(line) if len(line) > 20 * budget else len(count(line)) + 4
        if line and spent + cost <= budget:
            lines.append(line)
            places.append(place)
            spent += cost
    n_cut = len(candidates) - len(places)
    cut = f"{n_cut} of {len(candidates)} candidates were not shown: max_prompt_tokens={budget}"
    return lines, places, (cut,) if n_cut else ()
