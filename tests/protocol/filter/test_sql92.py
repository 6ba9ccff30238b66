"""SQL92 expressions: which messages they choose, and which texts are none. Compared with Java in tests/interop."""

import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.filter import sql92
from rocketrio_protocol.filter.sql92 import (
    DEPTH_LIMIT,
    EXPRESSION_SIZE_LIMIT,
    ExpressionError,
    compile_sql92,
    is_compiled,
)
from rocketrio_protocol.record.properties import encode_properties


def chooses(text: str, **properties: str) -> bool:
    return compile_sql92(text)(encode_properties(properties).encode())


@pytest.mark.parametrize(
    "text",
    [
        "a = 5",
        "a = '5'",
        "a <> 6 AND a > 4 AND a >= 5 AND a < 6 AND a <= 5",
        "a = 6 or a = 5",
        "a = 5 OR missing = 5 AND a = 6",
        "NOT (a = 6)",
        "a BETWEEN 2 AND 10",
        "a between -2 and +10 AND a not between 6 and 9",
        "a IN ('4', '5')",
        "a not in ('6')",
        "missing IS NULL",
        "a is not null",
        "region = 'eu'",
        "region = 'eu' = TRUE",
        "flag = TRUE",
        "region contains 'u' and region startswith 'e' and region endswith 'u'",
        "region not contains 'x' and region not startswith 'u' and region not endswith 'e'",
        "TRUE",
        "missing = 'x' OR TRUE",
        "5 = 5.0",
        "5 <= a",
        "- 5 < a",
        "a > 4.5",
        "a = 5. AND a > .5 AND a < 5E1",
        "'it''s' = quoted",
        "missing = other_missing",
        "'x' <> missing",
        "a /* five */ = 5 -- or so\n",
        "a = 5 -- it's\n AND 'a--b' <> a /* ' -- */",
        "----5 /* four signs, as no line ends here */ = a",
        "a = -- five\r --5",
        "$odd = '1' AND _under = '2'",
        "a = 5 AND INDEX is null",
    ],
)
def test_a_message_is_chosen(text: str) -> None:
    properties = {
        "a": "5",
        "region": "eu",
        "flag": "True",
        "quoted": "it's",
        "$odd": "1",
        "_under": "2",
    }
    assert chooses(text, **properties)


@pytest.mark.parametrize(
    "text",
    [
        "a = 6",
        "a <> 5",
        "missing = 'x'",
        "missing <> 'x'",
        "'x' = missing",
        "NOT (missing = 'x')",
        "missing > 5 OR missing < 6",
        "missing IN ('5')",
        "missing NOT IN ('5')",
        "missing not contains 'x'",
        "a contains ''",
        "a not contains ''",
        "a",
        "NOT a = 5",
        "NULL",
        "FALSE OR NULL",
        "region = 5",
        "region > 5",
        "region <> 5",
        "region = 5 OR a = '5'",
        "a = '05'",
        "decimal = 5",
        "decimal > 5",
        "TRUE = flag",
        "a = TRUE",
        "- a < 0",
        "a IS NULL",
        "a > region",
    ],
)
def test_a_message_is_passed_over(text: str) -> None:
    assert not chooses(text, a="5", region="eu", flag="true", decimal="5.0")


@pytest.mark.parametrize("text", ["a = '5' OR region > 5", "a = 6 AND region > 5 OR TRUE"])
def test_operand_that_is_not_evaluated_cannot_fail(text: str) -> None:
    assert chooses(text, a="5", region="eu")


def test_unknown_left_side_evaluates_the_right_which_may_fail() -> None:
    assert not chooses("missing = 'x' AND region > 5 OR TRUE", region="eu")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "its end"),
        ("a >", "its end"),
        ("a b", "character 3"),
        ("a = 5 5", "character 7"),
        ("a != 5", "character 3"),
        ("a LIKE 'x'", "character 3"),
        ("a and between 2 and 10", "character 7"),
        ("in = 5", "character 1"),
        ("a contains x", "character 12"),
        ("a in (5)", "character 7"),
        ("a in ()", "character 7"),
        ("a = 'x", "character 5"),
        ("a + 5 > 6", "character 3"),
        ("5", "condition is needed"),
        ("'x' OR TRUE", "condition is needed"),
        ("NOT 5", "condition is needed"),
        ("a = NULL", "IS NULL"),
        ("a > 'x'", "numbers and properties"),
        ("a > TRUE", "numbers and properties"),
        ("(a = 5) > 5", "numbers and properties"),
        ("a between 'a' and 'b'", "numbers and properties"),
        ("a between 10 and 0", "fall"),
        ("a between NULL and 0", "NULL as a bound"),
        ("TRUE = 'x'", "cannot be compared"),
        ("5 in ('5')", "only a property"),
        ("a > 9223372036854775808", "64 bits"),
        ("a > " + "9" * 5000, "64 bits"),
        ("a > 1e999", "too large"),
        ("a = 5 OR " * 4000 + "TRUE", f"{EXPRESSION_SIZE_LIMIT} is the limit"),
        ("NOT " * DEPTH_LIMIT + "a = 5", "are nested"),
    ],
)
def test_invalid_expression_is_refused_with_place_or_reason(text: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=why):
        compile_sql92(text)


def test_long_expressions_of_few_levels_are_judged() -> None:
    text = " OR ".join(f"a = {number}" for number in range(700))
    assert chooses(text, a="699")
    assert not chooses("(" * 2000 + "a = 5" + ")" * 2000, a="6")


def test_a_wrong_expression_is_read_once_and_shown_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a = 5 OR " * 900
    with pytest.raises(ExpressionError, match="its end") as caught:
        compile_sql92(text)
    assert len(str(caught.value)) < 300
    monkeypatch.setattr(sql92, "_parser", pytest.fail)
    with pytest.raises(ExpressionError, match="its end"):
        compile_sql92(text)


def test_expressions_that_were_used_last_are_kept_up_to_a_size() -> None:
    texts = [f"a = {number}".rjust(7000) for number in range(30)]
    for text in texts:
        compile_sql92(text)
        compile_sql92(texts[0])
    assert is_compiled(texts[0])
    assert is_compiled(texts[-1])
    assert not is_compiled(texts[1])
    assert sql92._kept.size <= 150_000


@pytest.mark.slow
def test_compiled_expressions_take_memory_in_proportion() -> None:
    texts = [" OR ".join(f"a = {start + each}" for each in range(600)) for start in range(8)]
    compile_sql92("a = 5")  # Now the parser is made.
    tracemalloc.start()
    try:
        compiled = [sql92._compile(text) for text in texts]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(compiled) == len(texts)
    assert taken / sum(map(len, texts)) * sql92._KEPT_SIZE < 24 << 20


_WORDS = (
    *("a", "b", "5", "5.5", "'x'", "''", "NULL", "TRUE", "FALSE", "AND", "OR", "NOT", "IS", "IN"),
    *("BETWEEN", "CONTAINS", "=", "<>", "<", ">", "(", ")", ",", "+", "-"),
)


@given(
    st.lists(st.sampled_from(_WORDS), max_size=12).map(" ".join),
    st.dictionaries(st.sampled_from("ab"), st.text(min_size=1).filter(lambda t: t.isprintable())),
)
def test_any_text_is_refused_or_judges(text: str, properties: dict[str, str]) -> None:
    try:
        matches = compile_sql92(text)
    except ExpressionError:
        return
    assert matches(encode_properties(properties).encode()) in (True, False)


@pytest.mark.parametrize("text", ["a = 5 /* open", "a = 5 /*/", "a BETWEEN 5 AND 'x'"])
def test_compile_sql92_with_a_wrong_comment_or_bound_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        compile_sql92(text)


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize(
    "piece", ["-", "-- ", "/*", "'", "(", "1", "1 ", "1.", "a", " ", "\n", "''"]
)
@pytest.mark.parametrize("frame", ["{}1 > 0", "\n{}1 > 0", "'{}", "/*{}", "--{}", "a = {}"])
def test_compiling_a_hostile_expression_is_bounded(frame: str, piece: str) -> None:
    text = frame.format(piece * ((EXPRESSION_SIZE_LIMIT - 10) // len(piece)))
    began = time.process_time()
    with suppress(ExpressionError):
        compile_sql92(text)
    assert time.process_time() - began < 0.5
