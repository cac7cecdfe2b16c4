"""Prompts of the extractors."""

from __future__ import annotations

from llama_index.core.prompts import PromptTemplate

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
