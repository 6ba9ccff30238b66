"""Names of topics and groups: the system names, and the rules for valid names.

Answers to: TopicValidator, MixAll (retry and dead-letter names); RocketMQ reference, sections 2.2, 4.9 and 5.8.
"""

import re
from collections.abc import Collection
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
"""The group whose offsets on TRANS_HALF_TOPIC and TRANS_OP_HALF_TOPIC say up to where transactions are decided."""
LEDGER_END_ID: Final = 1
"""A queue id that these two topics do not have: under it our broker commits for TRANSACTION_GROUP where they ended when
that progress was made, because operations beyond it have decided half messages before it."""
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
"""Topics that no request may create or change."""

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
_SYSTEM_GROUPS: Final = frozenset(SYSTEM_GROUPS)
CLIENT_INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
"""The producer group that every Java client has in addition to its own, to send messages back."""

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
_SYSTEM_PREFIXES: Final = (
    RETRY_PREFIX,
    DEAD_LETTER_PREFIX,
    "%SYS%",
    "RMQ_SYS_",
    SYSTEM_TOPIC_PREFIX,
)
MAX_TOPIC_LENGTH: Final = 127  # A stored message has one byte for the length.
MAX_GROUP_LENGTH: Final = 255
MAX_CONSUMER_GROUP_LENGTH: Final = MAX_TOPIC_LENGTH - len(RETRY_PREFIX)
"""120: messages that the group cannot handle are stored under its retry topic, whose name is longer than that of its
dead-letter topic."""

_SHOWN: Final = 40
"""Characters that an error shows of a name that is too long."""

_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")

MAX_REGISTERED_LENGTH: Final = len(RETRY_PREFIX) + MAX_GROUP_LENGTH
"""Characters of a name that a broker may register: the longest is the retry topic of a group."""

# The default name of an Apache broker is its host name, so dots are common; they may not come first.
_REGISTERED: Final = re.compile(r"[%|a-zA-Z0-9_@-][%|a-zA-Z0-9_@.-]*+")


def retry_topic(group: str) -> str:
    """Return the topic for messages that the group failed to consume and will receive again."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic for messages that the group failed to consume in every attempt."""
    return DEAD_LETTER_PREFIX + group


def is_system_group(group: str) -> bool:
    """Return True if the group belongs to RocketMQ's own tools."""
    return group in _SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_system_topic(topic: str, owners: Collection[str] = ()) -> bool:
    """Return True if RocketMQ itself, or a group's retries, use the topic.

    Each cluster and each broker has a topic of its own name, and each cluster one for replies. Only the name server
    knows those names: the caller passes them as `owners`.
    """
    return (
        topic in SYSTEM_TOPICS
        or topic.startswith(_SYSTEM_PREFIXES)
        or topic.removesuffix(f"_{REPLY_TOPIC_POSTFIX}") in owners
    )


def topic_name_problem(topic: str) -> str | None:
    """Return why this is not a valid topic name; None if it is."""
    return _problem(topic, "topic", MAX_TOPIC_LENGTH)


def group_name_problem(group: str) -> str | None:
    """Return why this is not a valid group name; None if it is."""
    return _problem(group, "group", MAX_GROUP_LENGTH)


def consumer_group_problem(group: str) -> str | None:
    """Return why consumers cannot read in this group; None if they can.

    They can if messages can be stored under the group's retry and dead-letter topics.
    """
    problem = group_name_problem(group)
    if problem is None and len(group) > MAX_CONSUMER_GROUP_LENGTH:
        shown = f"{group[:_SHOWN]}..."
        problem = (
            f"The consumer group {shown} has {len(group)} characters, its namespace included. "
            f"{MAX_CONSUMER_GROUP_LENGTH} are allowed, because messages are stored again under "
            f"{retry_topic(shown)}, and a topic has {MAX_TOPIC_LENGTH} at most. Choose a shorter name."
        )
    return problem


def tag_problem(tag: str) -> str | None:
    """Return why no subscription by tags could select messages of this tag; None if one could."""
    if "||" in tag or tag == "*":
        return f"the tag {tag!r} is one for subscriptions; a message has one tag, without `||`"
    return None


def kept_topic_problem(topic: str) -> str | None:
    """Return why no table may contain a topic of this name, or None.

    The retry and dead-letter topics of a group may be longer than other topics: Apache's brokers of 5.x can store
    messages under such topics, and their tables are copied. This broker serves what is there and stores nothing new.
    """
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return group_name_problem(topic.removeprefix(prefix))
    return topic_name_problem(topic)


def registered_name_problem(name: str, kind: str) -> str | None:
    """Return why a peer's name of a topic, broker or cluster is refused; None if it is accepted.

    The rule is more lenient than for new names, because Apache's brokers check few of theirs. An accepted name is a
    single word and not a path.
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
