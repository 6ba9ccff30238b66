"""What is read: topics, patterns, queues, and which of their messages."""

import pytest

from rocketrio.consuming.subscription import Subscription
from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.options import parse_read_options

BASE = {"nameServer": "h:1", "subscribe": "t"}


@pytest.mark.parametrize(
    ("given", "subscription"),
    [
        ({}, Subscription()),
        ({"subExpression": "*"}, Subscription()),
        (
            {"subExpression": "b || a", "subExpressionType": "TAG"},
            Subscription("b || a", frozenset(("a", "b"))),
        ),
        (
            {"subExpression": "a tag, 'odd'", "subExpressionType": "TAG"},
            Subscription("a tag, 'odd'", frozenset(("a tag, 'odd'",))),
        ),
        (
            {"subExpression": "amount > 3", "subExpressionType": "sql92"},
            Subscription("amount > 3", None, "SQL92"),
        ),
    ],
)
def test_filters(given: dict[str, str], subscription: Subscription) -> None:
    assert parse_read_options(BASE | given).subscription == subscription


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"subExpression": "a ||"}, "subExpression='a ||' is no list of tags"),
        ({"subExpression": "* || a"}, "is no list of tags"),
        ({"subExpression": "amount > 3"}, "an expression wants subExpressionType=SQL92"),
        ({"subExpression": "TAGS='a'"}, "would look for the tag \"TAGS='a'\""),
        (
            {"subExpression": "c || a,b"},
            "would look for the tag 'a,b'; several tags are separated by ||",
        ),
        ({"subExpression": " "}, "subExpression is blank"),
        ({"subExpression": " ", "subExpressionType": "SQL92"}, "subExpression is blank"),
        ({"subExpressionType": "SQL92"}, "subExpressionType=SQL92 wants subExpression"),
        ({"subExpression": "a", "subExpressionType": "SQL"}, "none of: tag, sql92"),
    ],
)
def test_filters_that_cannot_be(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_read_options(BASE | given)
    assert why in str(caught.value)
