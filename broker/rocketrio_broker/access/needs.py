"""What the sender of a request needs: the words in which a handler declares it (`declaration.py`).

    needs=(T(SUB), G(SUB))      the topic and the group that the header names, each with one of these actions
    needs=C(UPDATE)             the cluster
    needs=VALID_USER            no right
    known_by=ADDRESS            how the server knows who asks; the default is the most, a proof

A retry topic is its group: to send to it or to read it needs SUB on the group, whatever other group the header names.
Requests that name a message by its address need rights on the topic that the message is stored in.

Invariant: a code without a declaration is refused; only a Super user gets the answer "not supported".
Invariant: a rule changes nothing, and reads bodies with the parsers that their handlers use.
Answers to: the @RocketMQAction annotations and DefaultAuthorizationContextBuilder.
Unlike Java: every code that is answered has a rule, and a message by its address needs the rights on its stored topic.
"""

from collections.abc import Callable, Iterable, Sequence, Sized
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, TypeAlias

import attrs

from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_protocol.access.model import NAME_LENGTH_LIMIT, Action, ResourceKind
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.record.message_id import parse_offset_message_id

PUB: Final = int(Action.PUB)
SUB: Final = int(Action.SUB)
CREATE: Final = int(Action.CREATE)
UPDATE: Final = int(Action.UPDATE)
DELETE: Final = int(Action.DELETE)
GET: Final = int(Action.GET)
ONLY_SUPER: Final = 0
"""No action suffices: only a Super user may do it."""

NAMES_LIMIT: Final = 1000
"""The most topics, or groups in a list, that the body of one request may name: each is a decision."""

_NEEDS_KEPT: Final = 4096
"""Remembered needs for topics: every send and pull has one."""


class KnownBy(Enum):
    """What suffices for a server to know who sent a request."""

    ANYONE = auto()
    """Nothing: the request shows what a name server lists of a broker, to peers that know no more of each other."""
    ADDRESS = auto()
    """An address that needs no signature: the request changes no user, setting or role, and shows no secret."""
    SIGNATURE = auto()
    """Apache's signature, which a thief can use for every request of this kind."""
    PROOF = auto()
    """A proof beside the signature."""


ANYONE: Final = KnownBy.ANYONE
ADDRESS: Final = KnownBy.ADDRESS
SIGNATURE: Final = KnownBy.SIGNATURE
PROOF: Final = KnownBy.PROOF


class Need(NamedTuple):
    """A right that a request needs: one of the actions on this resource."""

    kind: ResourceKind
    name: str
    actions: int


class Facts(Protocol):
    """What rules ask about a server."""

    @property
    def cluster_name(self) -> str: ...
    @property
    def creates_topics(self) -> bool:
        """Whether a message to an unknown topic creates it."""

    def has_topic(self, name: str) -> bool: ...
    def topics_of_group(self, group: str) -> Iterable[str]:
        """Return the topics on which a group has offsets."""

    def stored_topic(self, address: int) -> str | None:
        """Return the topic of the message at an address of the log, or None if no message is there."""

    def stored_message(self, address: int) -> MessageExt | None:
        """Return the message at an address of the log, or None if no message is there."""


Rule: TypeAlias = Callable[[RemotingCommand, Facts], Sequence[Need]]


@attrs.frozen
class FieldNeed:
    """A need for what a field of the header names."""

    need: Callable[[str, int], Need]
    attribute: str
    actions: int


Needs: TypeAlias = Rule | FieldNeed | tuple[FieldNeed, ...]


def topic_need(name: str, actions: int) -> Need:
    """Return the need for a topic; a retry topic is its group."""
    # Longer names, which no topic has, would fill the memory of needs.
    known = _topic_need if len(name) <= NAME_LENGTH_LIMIT else _topic_need.__wrapped__
    return known(name, actions)


@lru_cache(_NEEDS_KEPT)
def _topic_need(name: str, actions: int) -> Need:
    if not name.startswith(RETRY_PREFIX):
        return Need(ResourceKind.TOPIC, name, actions)
    if actions & (PUB | SUB):
        actions = actions & ~PUB | SUB
    # A retry topic holds messages of other topics: it belongs to its group, whatever right one has on topics.
    return Need(ResourceKind.GROUP, name.removeprefix(RETRY_PREFIX), actions)


def group_need(name: str, actions: int) -> Need:
    """Return the need for a group."""
    return Need(ResourceKind.GROUP, name, actions)


def T(actions: int, attribute: str = "topic") -> FieldNeed:  # noqa: N802 - as the specification writes it
    """Return the need for the topic in a field."""
    return FieldNeed(topic_need, attribute, actions)


def G(actions: int, attribute: str = "consumer_group") -> FieldNeed:  # noqa: N802
    """Return the need for the group in a field."""
    return FieldNeed(group_need, attribute, actions)


def C(actions: int) -> Rule:  # noqa: N802
    """Return the rule of requests that need the server's cluster."""
    return lambda request, facts: (Need(ResourceKind.CLUSTER, facts.cluster_name, actions),)


def rule_of(needs: Needs, header_class: type[RequestHeader] | None) -> Rule:
    """Return the rule that a handler declares; a field of the header that is not given needs nothing."""
    if not isinstance(needs, FieldNeed | tuple):
        return needs
    assert header_class is not None, "fields belong to a header"
    read, parts = header_class, needs if isinstance(needs, tuple) else (needs,)

    def rule(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
        header = request.header(read)
        return [
            part.need(name, part.actions)
            for part in parts
            if (name := getattr(header, part.attribute)) is not None
        ]

    return rule


def VALID_USER(request: RemotingCommand, facts: Facts) -> Sequence[Need]:  # noqa: N802
    """Need nothing but a user."""
    return ()


def stored_topic(facts: Facts, address: int, missing: str) -> str:
    """Return the topic of a stored message. Raises RefusedError, with the remark `missing`, if it is not there."""
    # RefusedError here and not by the handler, which may run later, when there is a message.
    topic = facts.stored_topic(address)
    if topic is None:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, missing)
    return topic


def address_of(message_id: str | None) -> int:
    """Return the address in a message's id. Raises RefusedError."""
    try:
        return parse_offset_message_id(message_id or "")[2]
    except LocalProtocolError as error:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, error.what) from error


def refuse_many(names: Sized) -> None:
    """Raise RefusedError for more names than one request may need rights on."""
    if len(names) > NAMES_LIMIT:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"with access control a request names {NAMES_LIMIT} topics or groups at most, not {len(names)}: ask in "
            "several requests",
        )
