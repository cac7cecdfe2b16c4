import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_graph_rag.extractors.evidence import locate, sentences
from llama_index_graph_rag.triplets import Triplet


def evidence(text, *triplets, **options):
    mentions = locate(text, [Triplet(*triplet) for triplet in triplets], **options)
    return [None if m.start is None else text[m.start : m.end] for m in mentions]


CASES = {
    "english": (
        "Dr. Euler was born in Basel. His teacher was Johann B. He moved to St. Petersburg!",
        [
            (("Euler", "was born in", "Basel"), "Dr. Euler was born in Basel."),
            (("Euler", "had as teacher", "Johann"), "His teacher was Johann B."),
            (("Euler", "moved to", "St. Petersburg"), "He moved to St. Petersburg!"),
        ],
    ),
    "german": (
        "Am 3. Mai kam Dr. Müller z. B. nach Berlin. Dort traf er Anna Weiß. Sie malte.",
        [
            (("Müller", "kam nach", "BERLIN"), "Am 3. Mai kam Dr. Müller z. B. nach Berlin."),
            (("Müller", "traf", "Anna WEISS"), "Dort traf er Anna Weiß."),
        ],
    ),
    "chinese": (
        "欧拉出生于巴塞尔。他的老师是约翰·伯努利！后来他去了圣彼得堡？",
        [
            (("欧拉", "的老师是", "约翰·伯努利"), "他的老师是约翰·伯努利！"),
            (("欧拉", "去了", "圣彼得堡"), "后来他去了圣彼得堡？"),
        ],
    ),
    "japanese": (
        "吾輩は猫である。名前はまだ無い。書生は珈琲を飲んだ。",
        [(("書生", "飲んだ", "珈琲"), "書生は珈琲を飲んだ。")],
    ),
    "russian": (
        "Эйлер родился в Базеле. Его учителем был Бернулли.",
        [(("Бернулли", "был учителем", "Эйлера"), "Его учителем был Бернулли.")],
    ),
    "arabic": (
        "ولد أويلر في بازل. هل كان عالما؟ نعم.",
        [(("أويلر", "ولد في", "بازل"), "ولد أويلر في بازل.")],
    ),
    "hindi": (
        "यूलर बासेल में पैदा हुए। वह गणितज्ञ थे।",
        [(("यूलर", "थे", "गणितज्ञ"), "वह गणितज्ञ थे।")],
    ),
    "emoji": (
        "😀😀 Ada sang. 😀 Bo drew a cat. 😀",
        [(("Bo", "drew", "cat"), "😀 Bo drew a cat.")],
    ),
    "surrogate": ("Ada \ud800 sang. Bo drew a cat.", [(("Bo", "drew", "cat"), "Bo drew a cat.")]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_stating_sentence(name):
    text, cases = CASES[name]
    found = evidence(text, *(triplet for triplet, _ in cases))
    assert found == [sentence for _, sentence in cases]


def test_the_language_can_be_given():
    text = "Am 3. Mai kam Anna. Sie malte."
    assert len(sentences(text, language="de")) == len(sentences(text)) == 2
    assert len(sentences(text, language="en")) == 3


def test_nothing_fits():
    text = "Ada sang in the garden. Bo drew a cat."
    assert (
        evidence(text, ("Cyril", "sold", "umbrellas"), ("Ada", "sold", "umbrellas")) == [None] * 2
    )
    assert evidence("", ("a", "b", "c")) == [None]
    assert locate(text, []) == []


def test_the_first_of_equal_sentences_and_short_evidence_in_tables():
    assert locate("Ada met Bo. Ada met Bo.", [Triplet("Ada", "met", "Bo")])[0].start == 0
    table = "\n".join(f"row {i} name{i} value{i}" for i in range(200))
    assert evidence(table, ("name77", "has", "value77")) == ["row 77 name77 value77"]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.sampled_from(["en", "zh", "de", "xx"]))
def test_offsets_are_in_order_and_hold_all_that_is_not_white_space(text, language):
    spans = sentences(text, language=language)
    at = 0
    for start, end in spans:
        assert at <= start < end <= len(text)
        assert not text[at:start].strip()
        assert text[start:end] == text[start:end].strip()
        at = end
    assert not text[at:].strip()


@pytest.mark.parametrize("space", list("\x85\u2028\u2029\u00a0\u2003\u3000"))
def test_a_rare_space_after_an_initial(space):
    text = f"He met K{space}. Bernoulli. Then he left."
    spans = sentences(text)
    assert "".join(text[start:end] for start, end in spans).replace(" ", "") == text.replace(
        " ", ""
    )
    assert locate(text, [Triplet("He", "met", "Bernoulli")])[0].start == 0


def test_what_cannot_be_split_is_one_sentence(monkeypatch, caplog):
    class PanicException(BaseException):
        pass

    def panic(*_):
        raise PanicException("byte index 1 is not a char boundary")

    monkeypatch.setattr("sentencex.segment", panic)
    assert sentences("One. Two.") == [(0, 9)]
    assert "was not split" in caplog.text
    monkeypatch.setattr("sentencex.segment", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        sentences("One. Two.")
