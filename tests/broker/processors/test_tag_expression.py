import time

import pytest

from rocketrio_broker.processors.tag_expression import is_tag_type, tags_codes
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.record.java_hash import tags_code


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_expression_for_all_messages_has_no_codes(expression: str | None) -> None:
    assert tags_codes(expression) is None


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", ["TagA"]),
        ("TagB || TagC", ["TagB", "TagC"]),
        ("a||b||", ["a", "b"]),
        ("  a  ||  ", ["a"]),
        ("größe", ["größe"]),
    ],
)
def test_tags_become_their_hashes(expression: str, tags: list[str]) -> None:
    assert tags_codes(expression) == {tags_code(tag) for tag in tags}


@pytest.mark.parametrize("expression", ["||", "   ", " || || "])
def test_an_expression_without_a_tag_is_refused(expression: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        tags_codes(expression)
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("character", ["x", "ß", " ", "|"])
def test_tags_codes_of_a_long_expression_is_refused_quickly(character: str) -> None:
    expression = character * (15 << 20)
    began = time.process_time()
    with pytest.raises(RefusedError) as refusal:
        tags_codes(expression)
    assert time.process_time() - began < 0.05
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert len(str(refusal.value)) < 500


def test_tags_codes_of_an_expression_at_the_limit_are_its_hashes() -> None:
    tag = "t" * 30_000
    assert tags_codes(f"{tag}||b") == {tags_code(tag), tags_code("b")}


def test_only_tag_expressions_are_read() -> None:
    assert is_tag_type(None)
    assert is_tag_type("")
    assert is_tag_type("TAG")
    assert not is_tag_type("SQL92")
