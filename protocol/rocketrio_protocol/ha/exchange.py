"""What two rocketrio brokers say to each other before the log flows: who they are, and whose writes their logs hold.

    slave  -> master   magic (8) | size u32 | Greeting as JSON
    master -> slave    magic (8) | size u32 | Welcome as JSON
    slave  -> master   reports as in stream.py
    master -> slave    | physical offset i64 | size i32 | confirmed i64 | bytes of the log ... |

Fields are named, so that a later version may add some: what is not known is skipped.

Invariant: the magic is a negative number to a master that expects a report, so Apache's masters take it for nothing.
Invariant: no message is longer than `EXCHANGE_SIZE_LIMIT`; nothing is allocated for a size that was claimed.
Answers to: AutoSwitchHAConnection's handshake with its epoch list (5.x controller mode), on another stream.
Unlike Java: an epoch has an id beside its number, as no controller makes numbers unique here.
"""

import struct
from typing import Annotated, Final, TypeVar

import msgspec

from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha.stream import LARGEST_OFFSET

EXCHANGE_MAGIC: Final = b"\x8arktrix\x01"
EXCHANGE_VERSION: Final = 1
EXCHANGE_HEAD_SIZE: Final = len(EXCHANGE_MAGIC) + 4
EXCHANGE_SIZE_LIMIT: Final = 1 << 20
EPOCHS_LIMIT: Final = 1000
"""Epochs of one log that are kept and sent; older ones are forgotten, and what they wrote is of no known epoch."""

EPOCH_NUMBER_LIMIT: Final = 1 << 62
NAME_SIZE_LIMIT: Final = 64
"""Characters of a member's name, or an epoch's id: ours have 16."""

ASK_AGAIN: Final = -1
"""`confirmed` of the last heartbeat of a connection whose slave has to hear of other epochs: it comes back at once."""

_SIZE: Final = struct.Struct(">I")
_REMEDY: Final = "Are both ends rocketrio brokers of one version?"

UNREADABLE_JSON: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What the decoder raises for text that is not what it should be."""

Address = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_OFFSET)]
EpochNumber = Annotated[int, msgspec.Meta(ge=0, le=EPOCH_NUMBER_LIMIT)]
BrokerId = Annotated[int, msgspec.Meta(ge=-1, le=LARGEST_OFFSET)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_SIZE_LIMIT)]

T = TypeVar("T")


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of a log: what one master wrote from `start` on, until the next epoch begins."""

    number: EpochNumber
    id: Name
    """Random: two epochs of one number are two histories."""
    start: Address
    member: Name = ""
    """The data directory that its master wrote to."""
    mode: str = "async"
    """`sync`: nothing was answered PUT_OK before `in_sync_slaves` slaves had it."""
    in_sync_slaves: int = 1
    covers: dict[Name, EpochNumber] = {}
    """Members whose whole logs the opener had, itself among them; with each the number of the last epoch of which it
    may have lost something that it had reported."""
    joined: dict[Name, EpochNumber] = {}
    """Slaves that counted, with the greatest number each knew when it came; "" for slaves that do not say who they are.
    Complete in the opener's own file alone, and not sent."""
    answered_early: bool = False
    """Something was answered as stored before slaves had it, as it was asked for so (WAIT=false)."""

    @property
    def key(self) -> tuple[int, str, int]:
        """What makes it the same epoch elsewhere."""
        return self.number, self.id, self.start


class Greeting(msgspec.Struct, kw_only=True):
    """What the asking end says first."""

    version: int = EXCHANGE_VERSION
    member: Name
    broker_id: BrokerId = -1
    begin: Address
    end: Address
    highest: EpochNumber
    """The greatest epoch number it knows of."""
    epochs: list[Epoch] = []
    opens: EpochNumber = 0
    """It is about to open an epoch of this number, asks only, and takes no log."""
    asks_only: bool = False
    """It asks, opens nothing, and takes no log."""
    is_reader: bool = False
    """It reads a part of the log to compare it with its own, and is no slave: what it reports counts for nothing."""


class Welcome(msgspec.Struct, kw_only=True):
    """What the other end answers."""

    version: int = EXCHANGE_VERSION
    member: Name
    broker_id: BrokerId = -1
    begin: Address
    end: Address
    highest: EpochNumber
    whole_above: EpochNumber = 0
    """Of epochs up to this number it may have lost what it had reported."""
    epochs: list[Epoch] = []
    refusal: str = ""
    """Why no log follows; empty when it does."""


def encode_exchange(message: Greeting | Welcome) -> bytes:
    """A message with its magic and size."""
    body = msgspec.json.encode(message)
    return EXCHANGE_MAGIC + _SIZE.pack(len(body)) + body


def exchange_size(head: bytes) -> int:
    """How many bytes follow the first `EXCHANGE_HEAD_SIZE`. Raises RemoteProtocolError."""
    if not head.startswith(EXCHANGE_MAGIC):
        raise RemoteProtocolError("The other end does not speak of epochs", remedy=_REMEDY)
    (size,) = _SIZE.unpack_from(head, len(EXCHANGE_MAGIC))
    if size > EXCHANGE_SIZE_LIMIT:
        raise RemoteProtocolError(
            f"The other end announces {size} bytes about its epochs;"
            f" {EXCHANGE_SIZE_LIMIT} are allowed",
            remedy=_REMEDY,
        )
    return int(size)


def decode_exchange(body: bytes, kind: type[T]) -> T:
    """A message without its head. Raises RemoteProtocolError."""
    try:
        message = msgspec.json.decode(body, type=kind)
    except UNREADABLE_JSON as error:
        raise RemoteProtocolError(
            f"What the other end says of its epochs cannot be read: {error}", remedy=_REMEDY
        ) from error
    assert isinstance(message, Greeting | Welcome)
    if len(message.epochs) > EPOCHS_LIMIT:
        raise RemoteProtocolError(
            f"The other end names {len(message.epochs)} epochs; {EPOCHS_LIMIT} are allowed",
            remedy=_REMEDY,
        )
    return message
