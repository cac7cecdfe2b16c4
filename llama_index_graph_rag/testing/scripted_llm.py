"""An LLM that answers from a script, for tests without a network."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM

from llama_index_graph_rag.errors import GraphRAGValueError

Answer = str | Exception
"""What one call gives: a text, or an error that it raises."""

Script = Answer | Sequence[Answer] | Mapping[str, Answer] | Callable[[str], Answer]
"""One answer for every call, one a call in order, by the first pattern found, or by a function."""


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A call that a ScriptedLLM got.

    Attributes
    ----------
    prompt
        The prompt, or the messages written out as one text.
    messages
        The messages of a chat call; empty for a completion.
    kwargs
        Further keyword arguments of the call.
    """

    prompt: str
    messages: tuple[ChatMessage, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)


class ScriptedLLM(CustomLLM):
    """An LLM that answers from a script and records every call.

    Sync, async and streaming calls, for chat and completion, all draw on the one script.

    Parameters
    ----------
    script
        One answer for every call; a sequence of answers, one a call in order; a mapping from a
        regular expression to the answer for prompts in which it is found (the first that fits);
        or a function of the prompt. An answer that is an Exception is raised.
    is_chat_model
        What `metadata.is_chat_model` says. Default True.
    model
        What `metadata.model_name` says. Default "scripted".

    Raises
    ------
    GraphRAGValueError
        On a call that the script has no answer for.

    Examples
    --------
    >>> llm = ScriptedLLM({"capital of France": "Paris", "": "I do not know."})
    >>> llm.complete("What is the capital of France?").text
    'Paris'
    >>> llm.calls[0].prompt
    'What is the capital of France?'
    """

    is_chat_model: bool = True
    model: str = "scripted"

    _script: Script = PrivateAttr()
    _calls: list[ScriptedCall] = PrivateAttr(default_factory=list)

    def __init__(
        self, script: Script, *, is_chat_model: bool = True, model: str = "scripted"
    ) -> None:
        super().__init__(is_chat_model=is_chat_model, model=model)
        self._script = script

    @classmethod
    def class_name(cls) -> str:
        """Name of the class."""
        return "ScriptedLLM"

    @property
    def calls(self) -> list[ScriptedCall]:
        """The calls so far, in order."""
        return self._calls

    @property
    def metadata(self) -> LLMMetadata:
        """What this LLM says about itself."""
        return LLMMetadata(is_chat_model=self.is_chat_model, model_name=self.model)

    def _answer(self, call: ScriptedCall) -> str:
        self._calls.append(call)
        answer = _look_up(self._script, call.prompt, len(self._calls) - 1)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer_chat(self, messages: Sequence[ChatMessage], kwargs: Mapping[str, object]) -> str:
        prompt = "\n".join(f"{message.role.value}: {message.content}" for message in messages)
        return self._answer(ScriptedCall(prompt, tuple(messages), kwargs))

    @llm_completion_callback()
    def complete(
        self, prompt: str, formatted: bool = False, **kwargs: object
    ) -> CompletionResponse:
        """Answer a prompt."""
        return CompletionResponse(text=self._answer(ScriptedCall(prompt, kwargs=kwargs)))

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: object
    ) -> Generator[CompletionResponse, None, None]:
        """Answer a prompt word by word."""
        return _stream_completion(self._answer(ScriptedCall(prompt, kwargs=kwargs)))

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponse:
        """Answer messages."""
        return _chat_response(self._answer_chat(messages, kwargs))

    @llm_chat_callback()
    def stream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: object
    ) -> Generator[ChatResponse, None, None]:
        """Answer messages word by word."""
        return _stream_chat(self._answer_chat(messages, kwargs))

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: object
    ) -> AsyncGenerator[CompletionResponse, None]:
        """Answer a prompt word by word; the call itself happens now."""
        answer = self._answer(ScriptedCall(prompt, kwargs=kwargs))

        async def stream() -> AsyncGenerator[CompletionResponse, None]:
            for response in _stream_completion(answer):
                yield response

        return stream()

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: object
    ) -> AsyncGenerator[ChatResponse, None]:
        """Answer messages word by word; the call itself happens now."""
        answer = self._answer_chat(messages, kwargs)

        async def stream() -> AsyncGenerator[ChatResponse, None]:
            for response in _stream_chat(answer):
                yield response

        return stream()


def _look_up(script: Script, prompt: str, position: int) -> Answer:
    if isinstance(script, (str, Exception)):
        return script
    if isinstance(script, Mapping):
        for pattern, answer in script.items():
            if re.search(pattern, prompt):
                return answer
        raise GraphRAGValueError(
            f"no pattern of the script fits the prompt {prompt[:200]!r}; add one, or '' for any"
        )
    if isinstance(script, Sequence):
        if position >= len(script):
            raise GraphRAGValueError(
                f"call {position + 1} of an LLM whose script has {len(script)} answers; add more"
            )
        return script[position]
    return script(prompt)


def _deltas(answer: str) -> list[tuple[str, str]]:
    parts = re.findall(r"\s*\S+|\s+$", answer) or [""]
    return list(zip(accumulate(parts), parts))


def _chat_response(answer: str, delta: str | None = None) -> ChatResponse:
    message = ChatMessage(role=MessageRole.ASSISTANT, content=answer)
    return ChatResponse(message=message, delta=delta)


def _stream_completion(answer: str) -> Generator[CompletionResponse, None, None]:
    for text, delta in _deltas(answer):
        yield CompletionResponse(text=text, delta=delta)


def _stream_chat(answer: str) -> Generator[ChatResponse, None, None]:
    for text, delta in _deltas(answer):
        yield _chat_response(text, delta)
