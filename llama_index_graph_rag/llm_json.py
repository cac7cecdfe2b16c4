"""One question to an LLM that answers in JSON; a failure is a reason to read, not an error."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.settings import Settings

from llama_index_graph_rag.extractors.retry import describe, status_code
from llama_index_graph_rag.llm_output import JSON, read_json
from llama_index_graph_rag.steps import Process, Step, perform

logger = logging.getLogger("llama_index_graph_rag")


@dataclass(frozen=True, slots=True)
class JSONAnswer:
    """What an LLM answered.

    Attributes
    ----------
    value
        Plain Python values; None if there are none.
    reason
        Why there is no value; empty if there is one.
    raw
        The answer as it came.
    llm_calls, prompt_tokens, completion_tokens
        What it cost; tokens are 0 where the LLM does not report them.
    """

    value: JSON = None
    reason: str = ""
    raw: str = ""
    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


def ask_json(
    llm: LLM | None,
    prompt: BasePromptTemplate,
    *,
    wanted: Sequence[str],
    json_mode: bool | None = None,
    **values: object,
) -> Process[JSONAnswer]:
    """Ask once and read the answer; run it with `steps.drive` or `steps.adrive`.

    Nothing that the LLM, its client or its answer does wrong is raised; cancellation and
    KeyboardInterrupt are. Retries are the client's business.

    Parameters
    ----------
    llm
        None takes `Settings.llm`, now.
    prompt
        Formatted with `values`.
    wanted
        The keys that the answer should have.
    json_mode
        Whether to ask for ``response_format={"type": "json_object"}``. None (the default) means:
        where the LLM is of LlamaIndex's OpenAI classes. An endpoint that refuses it is asked once
        more without.
    """
    calls = 0
    try:
        llm = llm or Settings.llm
        messages = prompt.format_messages(llm=llm, **values)
        options: dict[str, object] = {}
        if json_mode or (json_mode is None and has_json_mode(llm)):
            options["response_format"] = {"type": "json_object"}
        calls = 1
        try:
            response = yield from perform(_chat(llm, messages, options))
        except Exception as error:
            if not options or status_code(error) not in (400, 422):
                raise
            logger.warning(
                "the LLM refused JSON mode and is asked again without; json_mode=False saves this "
                "call (%s)",
                _without_key(describe(error), llm),
            )
            calls = 2
            response = yield from perform(_chat(llm, messages, {}))
    except Exception as error:
        return JSONAnswer(reason=_failure(error, llm), llm_calls=calls)
    raw = response.message.content or ""
    read = read_json(raw, wanted=wanted)
    prompt_tokens = _tokens(response, "prompt_tokens", "input_tokens")
    completion_tokens = _tokens(response, "completion_tokens", "output_tokens")
    return JSONAnswer(read.value, read.reason, raw, calls, prompt_tokens, completion_tokens)


def has_json_mode(llm: LLM) -> bool:
    """Tell whether `llm` is a chat model of LlamaIndex's OpenAI classes, which have JSON mode."""
    try:
        from llama_index.llms.openai import OpenAI
    except ImportError:
        return False
    return isinstance(llm, OpenAI) and llm.metadata.is_chat_model


def _chat(llm: LLM, messages: list[ChatMessage], options: dict[str, object]) -> Step[ChatResponse]:
    return Step(
        run=lambda: llm.chat(messages, **options), arun=lambda: llm.achat(messages, **options)
    )


def _failure(error: Exception, llm: LLM | None) -> str:
    if isinstance(error, (IndexError, KeyError)):
        return f"the LLM's response holds no answer ({describe(error)})"
    return f"the LLM failed: {_without_key(describe(error), llm)}"


def _without_key(text: str, llm: LLM | None) -> str:
    key = getattr(llm, "api_key", None)
    return text.replace(key, "***") if isinstance(key, str) and key else text


def _tokens(response: ChatResponse, *names: str) -> int:
    # Providers put the counts into additional_kwargs, or leave them in the raw response.
    raw: object = response.raw
    usage: object = raw.get("usage") if isinstance(raw, Mapping) else getattr(raw, "usage", None)
    for source in (response.additional_kwargs, usage):
        for name in names:
            value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
            if isinstance(value, int):
                return value
    return 0
