"""Keywords of a question by an LLM: the names to look up in a graph, and other forms of them."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Any, Literal

from llama_index.core import Settings
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType, PromptMixin, PromptMixinType

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.extractors.keyword_answers import parse_keywords, unique_names
from llama_index_graph_rag.extractors.llm_calls import Answer, aask, ask
from llama_index_graph_rag.extractors.phrases import (
    KeywordExtractor,
    Keywords,
    PhraseKeywordExtractor,
    SplitPhrases,
    check_choices,
    language_of,
    with_words,
)
from llama_index_graph_rag.extractors.retry import describe
from llama_index_graph_rag.prompts import KEYWORD_PROMPT, KEYWORD_SYNONYM_PROMPT, SYNONYM_PROMPT

__all__ = [
    "Expand",
    "KeywordExtractor",
    "Keywords",
    "LLMKeywordExtractor",
    "PhraseKeywordExtractor",
    "SplitPhrases",
]

logger = logging.getLogger("llama_index_graph_rag")

Expand = Literal["one_call", "two_calls"]


class LLMKeywordExtractor(KeywordExtractor, PromptMixin):
    r"""Finds keywords with an LLM, then synonyms and other forms of them.

    An LLM that fails or whose answer holds no keyword costs quality, not the answer: `fallback`
    stands in and `Keywords.reason` says why. An LLM that says that there are none is believed.

    Parameters
    ----------
    max_keywords, max_synonyms
        At most so many are asked for and kept. Defaults 5 and 10; 0 synonyms asks for none.
    split_phrases
        When a phrase's single words are to be looked up: "always", "fallback" (only where the
        phrase matches nothing; the default) or "never". A word of a name is not that name: the
        "Peter" of Peter Quill finds other Peters.
    expand
        "one_call" asks for keywords and synonyms together (the default), "two_calls" for one
        after the other, which small models do better; None asks for no synonyms.
    llm
        The LLM; None means ``Settings.llm``, looked up at the first call.
    fallback
        What stands in for the LLM; None for nothing.

    Raises
    ------
    GraphRAGValueError
        If a number or a choice is out of range.

    Notes
    -----
    Prompts, for `get_prompts` and `update_prompts`: ``keyword_prompt`` (``{question}``,
    ``{max_keywords}``), ``synonym_prompt`` (``{keywords}``, ``{max_synonyms}``) and
    ``keyword_synonym_prompt`` (``{question}`` and both numbers), the one of "one_call".

    Examples
    --------
    >>> from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
    >>> llm = ScriptedLLM("KEYWORDS: Peter Quill\nSYNONYMS: Star-Lord")
    >>> found = LLMKeywordExtractor(llm=llm).extract("Tell me about Peter Quill.")
    >>> found.names, found.words["Peter Quill"]
    (['Peter Quill', 'Star-Lord'], ('Peter', 'Quill'))
    """

    def __init__(
        self,
        *,
        max_keywords: int = 5,
        max_synonyms: int = 10,
        split_phrases: SplitPhrases = "fallback",
        expand: Expand | None = "one_call",
        llm: LLM | None = None,
        fallback: KeywordExtractor | None = PhraseKeywordExtractor(),  # noqa: B008
        keyword_prompt: BasePromptTemplate = KEYWORD_PROMPT,
        synonym_prompt: BasePromptTemplate = SYNONYM_PROMPT,
        keyword_synonym_prompt: BasePromptTemplate = KEYWORD_SYNONYM_PROMPT,
    ) -> None:
        check_choices(max_keywords=max_keywords, split_phrases=split_phrases)
        if max_synonyms < 0:
            raise GraphRAGValueError(f"max_synonyms={max_synonyms} cannot be negative")
        if expand not in ("one_call", "two_calls", None):
            raise GraphRAGValueError(f"expand={expand!r} is not 'one_call', 'two_calls' or None")
        self.max_keywords = max_keywords
        self.max_synonyms = max_synonyms
        self.split_phrases = split_phrases
        self.expand = expand if max_synonyms else None
        self.fallback = fallback
        self._llm = llm
        self._prompts: PromptDictType = {
            "keyword_prompt": keyword_prompt,
            "synonym_prompt": synonym_prompt,
            "keyword_synonym_prompt": keyword_synonym_prompt,
        }

    def extract(self, question: str) -> Keywords:
        """Return the keywords of `question`; never raises for what the LLM does."""
        llm = self._llm or Settings.llm
        question = question.strip()
        if not question:
            return Keywords(split_phrases=self.split_phrases, reason="the question is empty")
        try:
            found = self._read(ask(llm, self._first_prompt(), **self._values(question)))
        except Exception as error:  # any client, any error: the fallback answers
            return self._stand_in(question, Keywords(), describe(error))
        if not found.keywords:
            return self._nothing(question, found)
        if self.expand == "two_calls":
            try:
                answer = ask(llm, self._prompts["synonym_prompt"], **self._synonym_values(found))
            except Exception as error:  # the keywords are there all the same
                return self._finish(question, replace(found, reason=_no_synonyms(error)))
            found = self._add_synonyms(found, answer)
        return self._finish(question, found)

    async def aextract(self, question: str) -> Keywords:
        """Async twin of `extract`."""
        llm = self._llm or Settings.llm
        question = question.strip()
        if not question:
            return Keywords(split_phrases=self.split_phrases, reason="the question is empty")
        try:
            found = self._read(await aask(llm, self._first_prompt(), **self._values(question)))
        except Exception as error:  # as in extract
            return self._stand_in(question, Keywords(), describe(error))
        if not found.keywords:
            return self._nothing(question, found)
        if self.expand == "two_calls":
            values = self._synonym_values(found)
            try:
                answer = await aask(llm, self._prompts["synonym_prompt"], **values)
            except Exception as error:  # as in extract
                return self._finish(question, replace(found, reason=_no_synonyms(error)))
            found = self._add_synonyms(found, answer)
        return self._finish(question, found)

    def _first_prompt(self) -> BasePromptTemplate:
        one = self.expand == "one_call"
        return self._prompts["keyword_synonym_prompt" if one else "keyword_prompt"]

    def _values(self, question: str) -> dict[str, Any]:
        return {
            "question": question,
            "max_keywords": self.max_keywords,
            "max_synonyms": self.max_synonyms,
        }

    def _synonym_values(self, found: Keywords) -> dict[str, Any]:
        return {"keywords": ", ".join(found.keywords), "max_synonyms": self.max_synonyms}

    def _read(self, answer: Answer) -> Keywords:
        parsed = parse_keywords(answer.text)
        keywords = parsed.keywords[: self.max_keywords]
        synonyms = parsed.synonyms if self.expand == "one_call" else []
        synonyms = unique_names(synonyms, seen=keywords)[: self.max_synonyms]
        return Keywords(tuple(keywords), tuple(synonyms), raw=(answer.text,), usage=answer.usage)

    def _add_synonyms(self, found: Keywords, answer: Answer) -> Keywords:
        parsed = parse_keywords(answer.text)
        synonyms = unique_names(parsed.synonyms or parsed.keywords, seen=found.keywords)
        return replace(
            found,
            synonyms=tuple(synonyms[: self.max_synonyms]),
            raw=(*found.raw, answer.text),
            usage=found.usage + answer.usage,
        )

    def _nothing(self, question: str, found: Keywords) -> Keywords:
        if found.raw and re.search(r"\b(?:none|n/a)\b|\u65e0\s*$|\u6ca1\u6709", found.raw[0], re.I):
            reason = "the LLM says that the question holds no keyword"
            return replace(found, split_phrases=self.split_phrases, reason=reason)
        return self._stand_in(question, found, "the LLM's answer holds no keyword")

    def _stand_in(self, question: str, found: Keywords, reason: str) -> Keywords:
        logger.warning("keywords without the LLM: %s", reason)
        if self.fallback is None:
            return replace(found, split_phrases=self.split_phrases, reason=reason)
        other = self.fallback.extract(question)
        if other.reason:
            reason += f"; then {other.reason}"
        return self._finish(
            question, replace(other, raw=found.raw, reason=reason, usage=found.usage)
        )

    def _finish(self, question: str, found: Keywords) -> Keywords:
        return with_words(replace(found, split_phrases=self.split_phrases), language_of(question))

    def _get_prompts(self) -> PromptDictType:
        return dict(self._prompts)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        self._prompts.update(
            {name: prompt for name, prompt in prompts_dict.items() if name in self._prompts}
        )


def _no_synonyms(error: Exception) -> str:
    reason = f"no synonyms: {describe(error)}"
    logger.warning("%s", reason)
    return reason
