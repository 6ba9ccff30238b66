"""The messages that two rocketrio brokers exchange before replication: their names, and the epochs of their logs.

    slave  -> master   magic (8) | size u32 | Greeting as JSON
    master -> slave    magic (8) | size u32 | Welcome as JSON
    slave  -> master   reports as in stream.py
    master -> slave    | physical offset i64 | size i32 | confirmed i64 | bytes of the log ... |

Fields are named, so that a later version may add some; unknown fields are ignored.

Invariant: to a master that expects a report the magic is a negative offset, so Apache's masters ignore it.
Invariant: no message is longer than `EXCHANGE_SIZE_LIMIT`, and a claimed size allocates nothing.
Answers to: AutoSwitchHAConnection's handshake with its epoch list (5.x controller mode), on another stream.
Unlike Java: an epoch has an id besides its number, because no controller makes numbers unique.
"""

import struct
from typing import Annotated, Final, TypeVar

import msgspec

from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha.stream import LARGEST_OFFSET
from rocketrio_protocol.nesting import NestedTooDeeplyError, check_depth

EXCHANGE_MAGIC: Final = b"\x8arktrix\x01"
EXCHANGE_VERSION: Final = 1
EXCHANGE_HEAD_SIZE: Final = len(EXCHANGE_MAGIC) + 4
EXCHANGE_SIZE_LIMIT: Final = 1 << 20
EPOCHS_LIMIT: Final = 1000
"""Epochs of one log that are kept and sent; the log before the oldest of them belongs to no known epoch."""

EPOCH_NUMBER_LIMIT: Final = 1 << 62
NAME_SIZE_LIMIT: Final = 64
"""Characters of a member's name or an epoch's id; rocketrio's have 16."""
ADDRESS_SIZE_LIMIT: Final = 300
"""Characters of a broker's `host:port`; a host's name has 253 at most."""

ASK_AGAIN: Final = -1
"""`confirmed` of a connection's last heartbeat when the slave must learn of new epochs: it reconnects at once."""

_SIZE: Final = struct.Struct(">I")
_REMEDY: Final = "Are both ends rocketrio brokers of one version?"

UNREADABLE_JSON: Final = (msgspec.MsgspecError, UnicodeDecodeError, NestedTooDeeplyError)
"""The errors of `check_depth` and of the decoder for invalid text."""

Address = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_OFFSET)]
EpochNumber = Annotated[int, msgspec.Meta(ge=0, le=EPOCH_NUMBER_LIMIT)]
BrokerId = Annotated[int, msgspec.Meta(ge=-1, le=LARGEST_OFFSET)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_SIZE_LIMIT)]
BrokerAddr = Annotated[str, msgspec.Meta(max_length=ADDRESS_SIZE_LIMIT)]

T = TypeVar("T")


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a log: the bytes that one master wrote from `start` until the next epoch."""

    number: EpochNumber
    id: Name
    """A random id, because two masters may open different epochs with one number."""
    start: Address
    member: Name = ""
    """The name of the data directory of the master that wrote it."""
    mode: str = "async"
    """`sync`: no send was answered PUT_OK before `in_sync_slaves` slaves had the message."""
    in_sync_slaves: int = 1
    covers: dict[Name, EpochNumber] = {}
    """The members whose whole logs the opener had, including itself; for each the number of the last epoch of which it
    may have lost bytes that it had reported."""
    joined: dict[Name, EpochNumber] = {}
    """The slaves whose reports counted, with the greatest epoch number each knew when it connected; "" stands for
    slaves that do not send a name. Only complete in the opener's own file, and not sent."""
    answered_early: bool = False
    """True if a send was answered before slaves had the message, because it asked for that (WAIT=false)."""

    @property
    def key(self) -> tuple[int, str, int]:
        """The number and id, which are equal for the same epoch in every log."""
        return self.number, self.id, self.start


class Greeting(msgspec.Struct, kw_only=True):
    """The first message, from the end that dialled."""

    version: int = EXCHANGE_VERSION
    member: Name
    broker_id: BrokerId = -1
    begin: Address
    end: Address
    highest: EpochNumber
    """The greatest epoch number that the sender knows."""
    epochs: list[Epoch] = []
    opens: EpochNumber = 0
    """The number of the epoch that the sender is about to open; it then only asks, and does not receive the log."""
    asks_only: bool = False
    """True if the sender only asks, and neither opens an epoch nor receives the log."""
    address: BrokerAddr = ""
    """Where the sender answers requests; empty if it does not say."""
    is_reader: bool = False
    """True if the sender reads a part of the log to compare it: it is not a slave, and its reports do not count."""

    @property
    def is_follower(self) -> bool:
        """Whether the sender is a slave; a new master that fetches what it lacks gives no id."""
        return self.broker_id >= 0 and not self.is_reader


class Welcome(msgspec.Struct, kw_only=True):
    """The answer to a greeting."""

    version: int = EXCHANGE_VERSION
    member: Name
    broker_id: BrokerId = -1
    begin: Address
    end: Address
    highest: EpochNumber
    whole_above: EpochNumber = 0
    """The sender may have lost bytes that it had reported, of epochs up to this number."""
    epochs: list[Epoch] = []
    refusal: str = ""
    """Why no slave may follow the log of the sender now; empty if one may."""


def encode_exchange(message: Greeting | Welcome) -> bytes:
    """Encode a message with its magic and size."""
    body = msgspec.json.encode(message)
    return EXCHANGE_MAGIC + _SIZE.pack(len(body)) + body


def exchange_size(head: bytes) -> int:
    """Return how many bytes follow the first `EXCHANGE_HEAD_SIZE`. Raises RemoteProtocolError."""
    if not head.startswith(EXCHANGE_MAGIC):
        raise RemoteProtocolError("The other end did not send its epochs", remedy=_REMEDY)
    (size,) = _SIZE.unpack_from(head, len(EXCHANGE_MAGIC))
    if size > EXCHANGE_SIZE_LIMIT:
        raise RemoteProtocolError(
            f"The other end announces {size} bytes about its epochs;"
            f" {EXCHANGE_SIZE_LIMIT} is the limit",
            remedy=_REMEDY,
        )
    return int(size)


def decode_exchange(body: bytes, kind: type[T]) -> T:
    """Decode a message without its head. Raises RemoteProtocolError."""
    try:
        check_depth(body)
        message = msgspec.json.decode(body, type=kind)
    except UNREADABLE_JSON as error:
        raise RemoteProtocolError(
            f"The epochs that the other end sent cannot be decoded: {error}", remedy=_REMEDY
        ) from error
    assert isinstance(message, Greeting | Welcome)
    if len(message.epochs) > EPOCHS_LIMIT:
        raise RemoteProtocolError(
            f"The other end names {len(message.epochs)} epochs; {EPOCHS_LIMIT} is the limit",
            remedy=_REMEDY,
        )
    return message
