import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Settings
from llama_index.core.prompts import PromptTemplate

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.extractors.keywords import LLMKeywordExtractor, PhraseKeywordExtractor
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

QUESTION = "Tell me about Peter Quill and Gamora."
BOTH = "KEYWORDS: Peter Quill, Gamora\nSYNONYMS: Star-Lord, gamora, Guardians of the Galaxy"
both = pytest.mark.parametrize("how", ["sync", "async"])


async def run(extractor, question, how):
    return extractor.extract(question) if how == "sync" else await extractor.aextract(question)


@both
async def test_one_call(how):
    llm = ScriptedLLM(BOTH)
    found = await run(LLMKeywordExtractor(llm=llm), QUESTION, how)
    assert found.keywords == ("Peter Quill", "Gamora")
    assert found.synonyms == ("Star-Lord", "Guardians of the Galaxy")
    assert found.names == ["Peter Quill", "Gamora", "Star-Lord", "Guardians of the Galaxy"]
    assert found.raw == (BOTH,)
    assert found.reason is None
    assert found.usage.calls == len(llm.calls) == 1
    assert QUESTION in llm.calls[0].prompt


@both
async def test_two_calls(how):
    llm = ScriptedLLM(["KEYWORDS: Peter Quill", "Star-Lord, Peter Quill, Quill"])
    found = await run(LLMKeywordExtractor(llm=llm, expand="two_calls"), QUESTION, how)
    assert found.names == ["Peter Quill", "Star-Lord", "Quill"]
    assert "Peter Quill" in llm.calls[1].prompt
    assert QUESTION not in llm.calls[1].prompt
    assert found.usage.calls == 2


@both
async def test_without_synonyms(how):
    for options in ({"expand": None}, {"max_synonyms": 0}):
        llm = ScriptedLLM(BOTH)
        found = await run(LLMKeywordExtractor(llm=llm, **options), QUESTION, how)
        assert (found.synonyms, len(llm.calls)) == ((), 1)
        assert "SYNONYMS" not in llm.calls[0].prompt


def test_limits_and_order():
    llm = ScriptedLLM("KEYWORDS: a1, b1, A1, c1, d1\nSYNONYMS: x1, y1, z1")
    found = LLMKeywordExtractor(llm=llm, max_keywords=3, max_synonyms=2).extract(QUESTION)
    assert found.keywords == ("a1", "b1", "c1")
    assert found.synonyms == ("x1", "y1")


def test_single_words_always_as_a_fallback_or_never():
    def make(choice):
        return LLMKeywordExtractor(llm=ScriptedLLM(BOTH), split_phrases=choice).extract(QUESTION)

    fallback = make("fallback")
    assert "Peter" not in fallback.names
    assert fallback.fallback_words([]) == []
    assert fallback.fallback_words(["Peter Quill", "Gamora"]) == ["Peter", "Quill"]
    assert fallback.fallback_words(["Guardians of the Galaxy"]) == ["Guardians", "Galaxy"]
    always = make("always")
    assert always.names[-4:] == ["Peter", "Quill", "Guardians", "Galaxy"]
    assert always.fallback_words(["Peter Quill"]) == []
    never = make("never")
    assert never.names == fallback.names
    assert never.fallback_words(["Peter Quill"]) == []


@both
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RuntimeError("the model is down"), "RuntimeError: the model is down"),
        ("", "the LLM's answer holds no keyword"),
        ("I'm sorry, I cannot help with that question at all.", "holds no keyword"),
    ],
)
async def test_the_fallback_stands_in_and_says_why(how, answer, reason, caplog):
    found = await run(LLMKeywordExtractor(llm=ScriptedLLM(answer)), QUESTION, how)
    assert found.keywords == ("Peter Quill", "Gamora")
    assert reason in found.reason
    assert reason in caplog.text
    alone = LLMKeywordExtractor(llm=ScriptedLLM(answer), fallback=None)
    found = await run(alone, QUESTION, how)
    assert (found.names, reason in found.reason) == ([], True)


@both
async def test_nothing_is_an_answer(how):
    found = await run(LLMKeywordExtractor(llm=ScriptedLLM("KEYWORDS: none")), QUESTION, how)
    assert found.names == []
    assert found.reason == "the LLM says that the question holds no keyword"
    llm = ScriptedLLM(BOTH)
    found = await run(LLMKeywordExtractor(llm=llm), "  ", how)
    assert (found.names, found.reason, llm.calls) == ([], "the question is empty", [])


@both
async def test_synonyms_that_fail_cost_only_themselves(how):
    llm = ScriptedLLM(["KEYWORDS: Gamora", TimeoutError("slow")])
    found = await run(LLMKeywordExtractor(llm=llm, expand="two_calls"), QUESTION, how)
    assert found.names == ["Gamora"]
    assert found.reason == "no synonyms: TimeoutError: slow"


def test_prompts_and_the_late_default(monkeypatch):
    llm = ScriptedLLM(BOTH)
    extractor = LLMKeywordExtractor()
    assert set(extractor.get_prompts()) == {
        "keyword_prompt",
        "synonym_prompt",
        "keyword_synonym_prompt",
    }
    extractor.update_prompts({"keyword_synonym_prompt": PromptTemplate("Mine: {question}")})
    monkeypatch.setattr(Settings, "_llm", llm)
    extractor.extract(QUESTION)
    assert llm.calls[0].prompt == f"user: Mine: {QUESTION}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_keywords": 0}, "max_keywords=0"),
        ({"max_synonyms": -1}, "max_synonyms=-1"),
        ({"split_phrases": "maybe"}, "split_phrases='maybe'"),
        ({"expand": "thrice"}, "expand='thrice'"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(GraphRAGValueError, match=message):
        LLMKeywordExtractor(**options)


PHRASES = {
    "Tell me about Peter Quill.": ["Peter Quill"],
    "Who founded Microsoft and in which year?": ["Microsoft", "founded", "year"],
    'In which country was "Abbey Road" by The Beatles recorded?': ["Abbey Road", "The Beatles"],
    "Is C++ older than C# and .NET?": ["C++", "C#"],
    "Wer war der Lehrer von Leonhard Euler?": ["Leonhard Euler", "Lehrer"],
    "Кто был учителем Эйлера?": ["Эйлера", "учителем"],
    "Quel est le maître d'Euler ?": ["Euler", "maître"],
    "欧拉的老师是谁？": ["欧拉", "老师"],
    "《红楼梦》的作者是谁？": ["红楼梦", "作者"],
    "レオンハルト・オイラーの先生は誰ですか": ["レオンハルト・オイラー", "先生"],
    "오일러의 스승은 누구인가": ["오일러", "스승"],
    "WHO WAS THE TEACHER OF EULER": ["TEACHER", "EULER"],
}


@pytest.mark.parametrize("question", PHRASES)
def test_phrases_without_an_llm(question):
    found = PhraseKeywordExtractor().extract(question)
    assert found.reason is None
    assert list(found.keywords)[: len(PHRASES[question])] == PHRASES[question]


@pytest.mark.parametrize("question", ["", "who is it?", "?!", "这是什么"])
def test_a_question_without_keywords_says_so(question):
    found = PhraseKeywordExtractor().extract(question)
    assert found.names == []
    assert "no keyword" in found.reason


def test_unknown_language():
    with pytest.raises(GraphRAGValueError, match="'xx'"):
        PhraseKeywordExtractor(language="xx")


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=80))
def test_any_question_and_any_answer(text):
    for split in ("always", "fallback", "never"):
        found = PhraseKeywordExtractor(split_phrases=split, max_keywords=3).extract(text)
        assert len(found.keywords) <= 3
        found.fallback_words(found.names)
    found = LLMKeywordExtractor(llm=ScriptedLLM(text)).extract("Euler?")
    assert found.keywords or "says" in found.reason
