"""Every prompt, one section each."""

from __future__ import annotations

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate

# --- relation reranking -------------------------------------------------------------------------

RELATION_RERANK_PROMPT = ChatPromptTemplate(
    [
        ChatMessage(
            role=MessageRole.SYSTEM,
            content="""\
You decide which facts of a knowledge graph are needed to answer a question.

You are given the question and numbered facts. Often no single fact is enough: one fact leads from
something that the question names to something in between, and another leads on from there. Choose
the facts that together form this way to the answer, {top_n} at most, the most helpful first. A
fact that only shares words with the question does not help. Choose from the list alone and change
nothing in it; if no fact is quite right, choose the nearest.

Answer with one JSON object and nothing else, in this form:
{answer_format}""",
        ),
        ChatMessage(
            role=MessageRole.USER,
            content="""\
Question: Which river flows through the town where the inventor of the Larkin loom was born?

Facts:
[1] Larkin loom was patented in 1832
[2] Maud Larkin was born in Ashby Ford
[3] Larkin loom was invented by Maud Larkin
[4] Ashby Ford has a cattle market
[5] Maud Larkin taught Owen Pell
[6] River Wend flows through Ashby Ford
[7] River Sall flows through Larkin Bridge""",
        ),
        ChatMessage(role=MessageRole.ASSISTANT, content="{example_answer}"),
        ChatMessage(
            role=MessageRole.USER,
            content="""\
Question: {question}

Facts:
{relations}""",
        ),
    ]
)
"""Variables: top_n, answer_format, example_answer, question, relations.

What changes with the question stands last, so that a provider can cache what is before it.
"""

RELATION_RERANK_EXAMPLE = (
    "Maud Larkin invented the loom; she was born in Ashby Ford, where the River Wend flows.",
    (
        (3, "Larkin loom was invented by Maud Larkin"),
        (2, "Maud Larkin was born in Ashby Ford"),
        (6, "River Wend flows through Ashby Ford"),
    ),
)
"""Reasoning and chosen facts of the worked example."""

# --- entities of a question ---------------------------------------------------------------------

QUERY_ENTITIES_PROMPT = PromptTemplate(
    """\
List the things that the question names and that an encyclopedia or a knowledge graph could have
an entry for: people, places, organisations, works, events, dates, technical terms. Copy each name
as the question spells it, whole and in its language, without a possessive ending. Leave out
question words, mere descriptions ("the teacher", "which year") and what you only know or guess.
List at most {max_entities}, the most specific first.

Answer with one JSON object and nothing else: {"entities": ["name", ...]}

Question: Did the painter of Harbour at Dusk teach Ines Vidal's brother in Porto before 1890?
Answer: {"entities": ["Harbour at Dusk", "Ines Vidal", "Porto", "1890"]}

Question: {question}
Answer:"""
)
"""Variables: max_entities, question."""
