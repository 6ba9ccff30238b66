"""Converts a tag expression to the set of hashes by which queue entries name their tags.

Invariant: None means every message. Tags are compared by hash here; the client compares them by string.
Answers to: FilterAPI.buildSubscriptionData, ExpressionMessageFilter.
"""

from functools import lru_cache
from typing import Final

from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.record.java_hash import tags_code

TAG: Final = "TAG"
ALL: Final = "*"
_SEPARATOR: Final = "||"
EXPRESSION_SIZE_LIMIT: Final = 64 << 10
"""The most characters of an expression: twice as many as a message's properties may have, parsed in a few
milliseconds."""
_SHORT_SIZE: Final = 1000
_CACHE_SIZE: Final = 1024  # short expressions, one per pull; a long one is parsed each time


def is_tag_type(expression_type: str | None) -> bool:
    """Return whether the expression is one of tags: the type says so, or is missing."""
    return expression_type is None or expression_type == "" or expression_type == TAG


def tags_codes(expression: str | None) -> frozenset[int] | None:
    """Return the hashes of the tags in `a || b`; None for all messages.

    Raises RefusedError (23) if it contains no tag, or is longer than EXPRESSION_SIZE_LIMIT.
    """
    if not expression or expression == ALL:
        return None
    if len(expression) <= _SHORT_SIZE:
        return _kept_codes(expression)
    if len(expression) > EXPRESSION_SIZE_LIMIT:
        raise RefusedError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: it has {len(expression)} characters; "
            f"{EXPRESSION_SIZE_LIMIT} is the limit",
        )
    return _codes(expression)


def _codes(expression: str) -> frozenset[int]:
    tags = [tag for part in expression.split(_SEPARATOR) if (tag := part.strip())]
    if not tags:
        raise RefusedError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: {expression[:100]!r} contains no tag",
        )
    return frozenset(map(tags_code, tags))


_kept_codes: Final = lru_cache(_CACHE_SIZE)(_codes)
