"""A tag expression as the set of hashes that queue entries hold of their tags.

Invariant: None means every message. Tags are compared by hash here; the client compares them by string.
Answers to: FilterAPI.buildSubscriptionData, ExpressionMessageFilter.
"""

from functools import lru_cache
from typing import Final

from rocketrio_broker.processor.refusal import Refused
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.properties import tags_code

TAG: Final = "TAG"
ALL: Final = "*"
_SEPARATOR: Final = "||"
_CACHE_SIZE: Final = 1024  # expressions in use at once; each pull names its own


def is_tag_type(expression_type: str | None) -> bool:
    """Whether the expression is one of tags: the type is named so, or not named."""
    return expression_type is None or expression_type == "" or expression_type == TAG


@lru_cache(_CACHE_SIZE)
def tags_codes(expression: str | None) -> frozenset[int] | None:
    """The hashes that `a || b` lets through; None for all. Raises Refused (23) where there is no tag in it."""
    if not expression or expression == ALL:
        return None
    tags = [tag for part in expression.split(_SEPARATOR) if (tag := part.strip())]
    if not tags:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: {expression!r} names no tag",
        )
    return frozenset(map(tags_code, tags))
