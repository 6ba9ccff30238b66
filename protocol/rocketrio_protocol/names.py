"""Topics and groups with a meaning of their own, and what a name may look like.

Answers to: TopicValidator, MixAll (retry and dead-letter names); RocketMQ reference, sections 2.2, 4.9 and 5.8.
"""

import re
from typing import Final

AUTO_CREATE_TOPIC: Final = "TBW102"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group whose offsets on the first two of these say how far transactions are decided."""
REPLY_TOPIC_POSTFIX: Final = "REPLY_TOPIC"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Topics that nobody may create or change by request."""

NOT_SENDABLE_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Topics that clients may not send to."""

SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
CLIENT_INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
"""The producer group that every Java client has beside its own, for send-back."""

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
MAX_TOPIC_LENGTH: Final = 127  # One byte holds the length in a stored message.
MAX_GROUP_LENGTH: Final = 255

_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")

MAX_REGISTERED_LENGTH: Final = len(RETRY_PREFIX) + MAX_GROUP_LENGTH
"""Characters in a name that a broker registers: the longest is the retry topic of a group."""

# Apache's brokers are called like their host unless told otherwise: dots are usual, and kept out of first place.
_REGISTERED: Final = re.compile(r"[%|a-zA-Z0-9_@-][%|a-zA-Z0-9_@.-]*+")


def retry_topic(group: str) -> str:
    """Where messages go that the group could not consume."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where messages go that the group could not consume for good."""
    return DEAD_LETTER_PREFIX + group


def topic_name_problem(topic: str) -> str | None:
    """Why a topic cannot be called so; None if it can."""
    return _problem(topic, "topic", MAX_TOPIC_LENGTH)


def group_name_problem(group: str) -> str | None:
    """Why a group cannot be called so; None if it can."""
    return _problem(group, "group", MAX_GROUP_LENGTH)


def kept_topic_problem(topic: str) -> str | None:
    """Return why no table can hold a topic of this name; retry topics may be longer than those that take messages."""
    if topic.startswith(RETRY_PREFIX):
        return group_name_problem(topic.removeprefix(RETRY_PREFIX))
    return topic_name_problem(topic)


def registered_name_problem(name: str, kind: str) -> str | None:
    """Why what a peer calls a topic, broker or cluster is no such name; None if it can be one.

    More passes than we would give: Apache's brokers check few of their names. What passes is one word, and no path.
    """
    if len(name) > MAX_REGISTERED_LENGTH:
        return f"The {kind} name has {len(name)} characters, more than {MAX_REGISTERED_LENGTH}."
    if _REGISTERED.fullmatch(name) is None:
        return f"The {kind} name {name!r} is none; letters, digits, % | _ - @ and, not in front, dots can be in it."
    return None


def _problem(name: str, kind: str, limit: int) -> str | None:
    if not name.strip():
        return f"The specified {kind} is blank."
    if _ALLOWED.fullmatch(name) is None:
        return (
            f"The specified {kind} {name!r} contains illegal characters; "
            "allowed are % | a-z A-Z 0-9 _ -"
        )
    if len(name) > limit:
        return f"The specified {kind} is longer than {limit} characters."
    return None
