"""An LLM that chooses given facts where it is asked to choose, and else gives an answer."""

from __future__ import annotations

import json
import re

from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

ANSWER = "Bernoulli's principle."
WAY = (
    "Johann Bernoulli was the teacher of Leonhard Euler",
    "Daniel Bernoulli wrote Hydrodynamica",
)
"""The facts that lead to the answer of the first question."""


def choosing_llm(*facts: str) -> ScriptedLLM:
    """Return an LLM that chooses these facts, as far as they are shown."""
    return ScriptedLLM(lambda prompt: _choice(prompt, facts) if is_rerank(prompt) else ANSWER)


def is_rerank(prompt: str) -> bool:
    """Tell whether the prompt is that of the relation rerank."""
    return "You decide which facts" in prompt


def shown(prompt: str) -> dict[str, int]:
    """Return the labels of the facts that a rerank prompt shows."""
    facts = re.findall(r"^\[(\d+)\] (.*)$", prompt.rpartition("Facts:")[2], re.M)
    return {text: int(label) for label, text in facts}


def _choice(prompt: str, facts: tuple[str, ...]) -> str:
    labels = shown(prompt)
    relations = [{"label": labels[fact], "text": fact} for fact in facts if fact in labels]
    return json.dumps({"reasoning": "Step by step.", "relations": relations})
