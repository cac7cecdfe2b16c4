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

# --- triplet extraction ---------------------------------------------------------------------------

TRIPLET_EXTRACTION_PROMPT = PromptTemplate(
    """\
Read the passage and write down the facts that it states as triplets of subject, predicate and
object: at most {max_triplets}, the most informative first.

Rules
- Each triplet must make sense to someone who has not seen the passage. Give people, places,
  works and things their full specific name; put the name in place of "he", "it", "this company",
  "the former" or "the city". Leave a fact out if you cannot tell whom or what it is about.
- Subject and object are short noun phrases, one thing each: three founders make three triplets.
  The predicate is a short verb phrase that reads well between them.
- Keep dates, numbers and units as they are written.
- Write in the language of the passage; translate nothing. Add nothing that it does not say.
- Answer with JSON only, of the form {"triplets": [["subject", "predicate", "object"], ...]}.
  If the passage states no fact, answer {"triplets": []}.

Example passage
The lighthouse on Skerry Point was drawn by Ada Holm in 1871. She had learnt her trade from her
uncle Piet, and her sketches are kept in the Harbour Museum.

Example answer
{"triplets": [["Skerry Point lighthouse", "was drawn by", "Ada Holm"], \
["Skerry Point lighthouse", "was drawn in", "1871"], \
["Ada Holm", "learnt her trade from", "Piet Holm"], \
["Piet Holm", "is uncle of", "Ada Holm"], \
["Ada Holm's sketches", "are kept in", "Harbour Museum"]]}

Passage
{text}

Answer
"""
)
"""Asks for the triplets of ``text``, at most ``max_triplets``, as JSON."""

# --- keywords of a question -----------------------------------------------------------------------

KEYWORD_PROMPT = PromptTemplate(
    """\
A question will be looked up in a knowledge graph by the names of things in it. Write down the
names to look up: people, places, works, products, dates and other things that the question is
about, at most {max_keywords}, the most important first. Take them from the question as they are
written, in its language, a name of several words as one. Leave out question words and words that
any question could hold.

Answer with one line and nothing else:
KEYWORDS: name, name, ...

Example question: Which boats did the Mara yard in Ostby build for Lena Falk?
KEYWORDS: Lena Falk, Mara yard, Ostby, boats

Question: {question}
"""
)
"""Variables: max_keywords, question."""

SYNONYM_PROMPT = PromptTemplate(
    """\
These names are to be looked up in a knowledge graph, which may spell them otherwise:
{keywords}

Write down other forms under which the same things may be found, at most {max_synonyms} in all,
the likeliest first: full and short names, abbreviations, other capitals, singular and plural,
other tenses, synonyms. Keep their language. Do not name different things.

Answer with one line and nothing else:
SYNONYMS: form, form, ...
"""
)
"""Variables: keywords, max_synonyms."""

KEYWORD_SYNONYM_PROMPT = PromptTemplate(
    """\
A question will be looked up in a knowledge graph by the names of things in it. Write down two
lists.

1. The names to look up: people, places, works, products, dates and other things that the question
is about, at most {max_keywords}, the most important first. Take them from the question as they are
written, in its language, a name of several words as one. Leave out question words and words that
any question could hold.
2. Other forms under which the same things may be found, at most {max_synonyms} in all, the
likeliest first: full and short names, abbreviations, other capitals, singular and plural, other
tenses, synonyms. Do not name different things.

Answer with two lines and nothing else:
KEYWORDS: name, name, ...
SYNONYMS: form, form, ...

Example question: Which boats did the Mara yard in Ostby build for Lena Falk?
KEYWORDS: Lena Falk, Mara yard, Ostby, boats
SYNONYMS: Falk, Mara shipyard, Mara, boat, ships

Question: {question}
"""
)
"""Variables: max_keywords, max_synonyms, question."""
