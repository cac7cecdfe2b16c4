"""One question to an LLM, by function call where it has them, with what it cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    MessageRole,
)
from llama_index.core.llms import LLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.prompts import BasePromptTemplate
from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class LLMUsage:
    """Calls of an LLM and their tokens; tokens are 0 where the LLM does not report them.

    Examples
    --------
    >>> LLMUsage(calls=1, prompt_tokens=10) + LLMUsage(calls=1, completion_tokens=2)
    LLMUsage(calls=2, prompt_tokens=10, completion_tokens=2)
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: LLMUsage) -> LLMUsage:
        """Return the sum."""
        return LLMUsage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of an answer (JSON if it came as a function call) and what it cost."""

    text: str
    usage: LLMUsage


def calls_functions(llm: LLM) -> bool:
    """Tell whether `llm` takes function calls."""
    return isinstance(llm, FunctionCallingLLM) and llm.metadata.is_function_calling_model


def ask(
    llm: LLM, prompt: BasePromptTemplate, schema: type[BaseModel] | None = None, **values: Any
) -> Answer:
    """Ask `llm`; with a `schema`, by a function call of that shape.

    A model that answers such a call in plain text is taken at its word: the text is returned.
    """
    if schema is not None and isinstance(llm, FunctionCallingLLM):
        tool = get_function_tool(schema)
        response = llm.chat_with_tools(
            [tool], chat_history=_messages(llm, prompt, values), tool_required=True
        )
        return _tool_answer(llm, response)
    if llm.metadata.is_chat_model:
        return _chat_answer(llm.chat(_messages(llm, prompt, values)))
    return _text_answer(llm.complete(prompt.format(llm=llm, **values), formatted=True))


async def aask(
    llm: LLM, prompt: BasePromptTemplate, schema: type[BaseModel] | None = None, **values: Any
) -> Answer:
    """Async twin of `ask`."""
    if schema is not None and isinstance(llm, FunctionCallingLLM):
        tool = get_function_tool(schema)
        response = await llm.achat_with_tools(
            [tool], chat_history=_messages(llm, prompt, values), tool_required=True
        )
        return _tool_answer(llm, response)
    if llm.metadata.is_chat_model:
        return _chat_answer(await llm.achat(_messages(llm, prompt, values)))
    return _text_answer(await llm.acomplete(prompt.format(llm=llm, **values), formatted=True))


def _messages(
    llm: LLM, prompt: BasePromptTemplate, values: Mapping[str, object]
) -> list[ChatMessage]:
    messages = prompt.format_messages(llm=llm, **values)
    if llm.system_prompt and messages[0].role != MessageRole.SYSTEM:
        messages.insert(0, ChatMessage(role=MessageRole.SYSTEM, content=llm.system_prompt))
    return messages


def _tool_answer(llm: FunctionCallingLLM, response: ChatResponse) -> Answer:
    calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
    if calls and calls[0].tool_kwargs:
        text = json.dumps(calls[0].tool_kwargs, ensure_ascii=False)
    else:
        # Arguments that the client could not decode are still there as text.
        raw = [getattr(block, "tool_kwargs", None) for block in response.message.blocks]
        spoken = response.message.content or ""
        text = next((item for item in raw if isinstance(item, str) and item), spoken)
    return Answer(text, _usage(response))


def _chat_answer(response: ChatResponse) -> Answer:
    return Answer(response.message.content or "", _usage(response))


def _text_answer(response: CompletionResponse) -> Answer:
    return Answer(response.text or "", _usage(response))


def _usage(response: ChatResponse | CompletionResponse) -> LLMUsage:
    # Providers put the counts into additional_kwargs, or leave them in the raw response.
    raw: object = response.raw
    usage: object = raw.get("usage") if isinstance(raw, Mapping) else getattr(raw, "usage", None)
    sources = (response.additional_kwargs, usage)
    return LLMUsage(
        calls=1,
        prompt_tokens=_count(sources, "prompt_tokens", "input_tokens"),
        completion_tokens=_count(sources, "completion_tokens", "output_tokens"),
    )


def _count(sources: tuple[object, ...], *names: str) -> int:
    for source in sources:
        for name in names:
            value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
            if isinstance(value, int):
                return value
    return 0
