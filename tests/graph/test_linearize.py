"""Paths and entities as text."""

from __future__ import annotations

import pytest

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.linearize import (
    Arrow,
    Quote,
    Statement,
    entity_document,
    path_document,
    path_line,
    statement_lines,
)


def test_arrows_show_the_direction():
    arrows = [Arrow("r"), Arrow("s", forward=False), Arrow("t")]
    assert path_line(["A", "X", "Y", "B"], arrows) == "A -[r]-> X <-[s]- Y -[t]-> B"
    assert path_line(["A"], []) == "A"


def test_names_cannot_break_a_line():
    statement = Statement("A\nB", " r\t s ", "C", (Quote("One\n\ntwo.", "p\n1"),))
    assert statement_lines([statement]) == ['- A B r s C. "One two." [p 1]']
    assert path_line(["A\nB", "C"], [Arrow("r\ns")]) == "A B -[r s]-> C"


def test_a_quote_comes_once_and_its_source_each_time():
    quote, other = Quote("A met B and C.", "p1"), Quote("A met B and C.", "p2")
    lines = statement_lines(
        [
            Statement("A", "met", "B", (quote,)),
            Statement("A", "met", "C", (quote, other)),
            Statement("A", "met", "D", (Quote("", "p3"),)),
            Statement("A", "met", "E", (Quote("Seen."),)),
            Statement("A", "met", "F"),
        ]
    )
    assert lines == [
        '- A met B. "A met B and C." [p1]',
        '- A met C. [p1] "A met B and C." [p2]',
        "- A met D. [p3]",
        '- A met E. "Seen."',
        "- A met F.",
    ]


def test_documents():
    statements = [Statement("B", "likes", "A", (Quote("B likes A.", "p1"),))]
    assert path_document(["A", "B"], [Arrow("likes", forward=False)], statements) == (
        'A <-[likes]- B\n- B likes A. "B likes A." [p1]'
    )
    assert entity_document("A", statements) == 'A\n- B likes A. "B likes A." [p1]'
    assert entity_document("A", []) == "A"


@pytest.mark.parametrize(("names", "arrows"), [([], []), (["A"], [Arrow("r")]), (["A", "B"], [])])
def test_numbers_that_do_not_fit(names, arrows):
    with pytest.raises(GraphRAGValueError, match="names has"):
        path_line(names, arrows)
