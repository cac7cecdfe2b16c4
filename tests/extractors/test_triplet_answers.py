import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_graph_rag.extractors.node_triplets import valid_triplets
from llama_index_graph_rag.extractors.retry import UnusableAnswerError
from llama_index_graph_rag.extractors.triplet_answers import parse_triplets, read_triplets

AB = [("Ada", "knows", "Bo"), ("Bo", "lives in", "Cork")]


@pytest.mark.parametrize(
    "answer",
    [
        '{"triplets": [["Ada", "knows", "Bo"], ["Bo", "lives in", "Cork"]]}',
        '[["Ada", "knows", "Bo"], ["Bo", "lives in", "Cork"]]',
        'Sure:\n```json\n{"triplets": [["Ada", "knows", "Bo"],\n'
        '["Bo", "lives in", "Cork"],]}\n```\nBye',
        "{'triplets': [['Ada', 'knows', 'Bo'], ['Bo', 'lives in', 'Cork']]}",
        '{"facts": [{"subject": "Ada", "predicate": "knows", "object": "Bo"}, '
        '{"subject": "Bo", "predicate": "lives in", "object": "Cork"}]}',
        '[{"Head": "Ada", "Relation": "knows", "Tail": "Bo"}, '
        '{"Head": "Bo", "Relation": "lives in", "Tail": "Cork"}]',
        '{"triplets": [{"subject": {"name": "Ada"}, "relation": {"type": "knows"}, '
        '"object": {"name": "Bo"}}, {"subject": {"name": "Bo"}, "relation": {"type": "lives in"}, '
        '"object": {"name": "Cork"}}]}',
        '{"triplets": ["Ada | knows | Bo", "(Bo, lives in, Cork)"]}',
        '["Ada", "knows", "Bo"]\n["Bo", "lives in", "Cork"]',
        "(Ada, knows, Bo)\n(Bo, lives in, Cork)",
        "1. (Ada, knows, Bo)\n2. (Bo, lives in, Cork)",
        "- Ada | knows | Bo\n- Bo | lives in | Cork",
        "| Ada | knows | Bo |\n|---|---|---|\n| Bo | lives in | Cork |",
        "Ada -> knows -> Bo\nBo -> lives in -> Cork",
        "Ada -[knows]-> Bo\nBo -[lives in]-> Cork",
        "Ada\tknows\tBo\nBo\tlives in\tCork",
        '{"triplets": [["Ada", "knows", "Bo"], ["Bo", "lives in", "Cork"], ["Cut", "of',
        '<think>Maybe [["x"]]?</think>{"triplets": [["Ada", "knows", "Bo"], '
        '["Bo", "lives in", "Cork"]]}',
    ],
)
def test_forms_of_an_answer(answer):
    valid, _ = valid_triplets(parse_triplets(answer))
    assert [
        tuple(item) for item in valid if tuple(item) != ("subject", "predicate", "object")
    ] == AB


def test_quoted_commas_and_chinese_punctuation():
    assert parse_triplets('("Smith, John", "lives in", "Cork, Ireland")') == [
        ("Smith, John", "lives in", "Cork, Ireland")
    ]
    assert parse_triplets("（欧拉，出生于，巴塞尔）") == [("欧拉", "出生于", "巴塞尔")]
    assert parse_triplets("《红楼梦》| 作者 | 曹雪芹") == [("《红楼梦》", "作者", "曹雪芹")]


@pytest.mark.parametrize("answer", ['{"triplets": []}', "[]", "None.", "```json\n[]\n```"])
def test_an_honest_nothing_is_no_failure(answer):
    assert parse_triplets(answer) == []


@pytest.mark.parametrize("answer", ["", "I cannot do that.", "[", '{"triplets": [', "{}", "42"])
def test_garbage_is_no_honest_nothing(answer):
    with pytest.raises(UnusableAnswerError):
        parse_triplets(answer)


def test_several_objects_and_broken_entries():
    found = read_triplets(
        [{"s": "A", "p": "b", "o": ["C", 7]}, ["A", "b"], "prose", {"subject": "A"}, None, 3]
    )
    valid, invalid = valid_triplets(found)
    assert valid == [("A", "b", "C"), ("A", "b", "7")]
    assert len(invalid) == 5 - 1  # None is nothing at all; the other four are told


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["subject", "relation", "object", "x"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_any_json_is_read_without_an_exception(value):
    valid, _ = valid_triplets(read_triplets(value), limit=3)
    assert len(valid) <= 3


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from('ab,|->[]{}()":\n\t\r\x00欧，、'), max_size=60))
def test_any_text_is_read_or_called_unusable(answer):
    try:
        valid_triplets(parse_triplets(answer))
    except UnusableAnswerError:
        assert answer != "[]"
