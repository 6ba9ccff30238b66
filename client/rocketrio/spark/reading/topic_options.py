"""The options that choose what is read: topics and queues, and a filter for their messages. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rocketrio.consuming.subscription import (
    SQL92_EXPRESSION_TYPE,
    TAG_EXPRESSION_TYPE,
    Subscription,
    odd_tag,
    parse_subscription,
    parse_where,
)
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import choice, shown, words_of
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue

MAX_INT: Final = 2**31 - 1
"""The largest queue id and the largest number of Spark partitions."""


def parse_topics(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the field of ReadOptions that names what is read. Raises OptionError unless exactly one option does."""
    ways = [name for name in ("subscribe", "topic", "subscribePattern", "assign") if name in texts]
    if len(ways) != 1:
        said = f"{' and '.join(ways)} are given" if ways else "none is given"
        raise OptionError(f"give one of subscribe, subscribePattern and assign; {said}")
    (way,) = ways
    text = texts[way]
    if way == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(
                f"subscribePattern={text!r} is no regular expression: {error}"
            ) from error
        return {"topic_pattern": text}
    if way == "assign":
        return {"assigned": _assigned(text)}
    return {"topics": words_of(text, option=way)}


def _assigned(text: str) -> tuple[MessageQueue, ...]:
    try:
        ids = msgspec.json.decode(text, type=dict[str, dict[str, list[int]]])
    except msgspec.DecodeError as error:
        raise OptionError(
            f'assign={shown(text)} is not JSON like {{"orders":{{"broker-a":[0,1]}}}}: {error}'
        ) from error
    queues = {
        MessageQueue(topic, broker_name, queue_id)
        for topic, brokers in ids.items()
        for broker_name, queue_ids in brokers.items()
        for queue_id in queue_ids
    }
    if not queues or not all(0 <= queue.queue_id <= MAX_INT for queue in queues):
        raise OptionError(f"assign={shown(text)} names no queue, or one below 0 or above {MAX_INT}")
    return tuple(sorted(queues))


def parse_filter(texts: Mapping[str, str]) -> Subscription:
    """Return the filter for messages; only brokers can check an SQL92 expression. Raises OptionError."""
    text = texts.get("subExpression")
    kind = TAG_EXPRESSION_TYPE
    if "subExpressionType" in texts:
        words = (TAG_EXPRESSION_TYPE.lower(), SQL92_EXPRESSION_TYPE.lower())
        kind = choice(texts["subExpressionType"], option="subExpressionType", words=words).upper()
    if text is None:
        if kind == SQL92_EXPRESSION_TYPE:
            raise OptionError("subExpressionType=SQL92 wants subExpression, the expression")
        return Subscription()
    if not text.strip():
        raise OptionError("subExpression is blank; leave it away to read every message")
    if kind == SQL92_EXPRESSION_TYPE:
        return parse_where(text)
    try:
        subscription = parse_subscription(text)
    except ConfigError as error:
        raise OptionError(
            f"subExpression={shown(text)} is no list of tags like `a || b`, and not `*`"
        ) from error
    odd = odd_tag(subscription)
    if odd is not None and "subExpressionType" not in texts:
        raise OptionError(
            f"subExpression={shown(text)} would look for the tag {shown(odd)}; several tags are separated by ||,"
            " an expression wants subExpressionType=SQL92, and a tag like this one subExpressionType=TAG"
        )
    return subscription
