"""What happens in the uses of a run beside the plain topic: see `names.py`."""

import attrs
from tests.cluster.histories.events import Event


@attrs.frozen(kw_only=True)
class Offered(Event):
    """A message of a use is about to be sent, or the half message of a transaction."""

    topic: str
    body: bytes
    delay: float = 0.0
    """Seconds for which no member may see it."""


@attrs.frozen(kw_only=True)
class Accepted(Event):
    """A master has stored it, as safely as the status says."""

    topic: str
    body: bytes
    started: float
    broker: int
    status: str
    end_offset: int
    """An address inside the record that was stored: of the parked one, where it is parked first."""


@attrs.frozen(kw_only=True)
class Worked(Event):
    """The work of a transaction is done: its message must come."""

    body: bytes


@attrs.frozen(kw_only=True)
class Checked(Event):
    """A broker asked what became of a transaction, and gets the answer."""

    body: bytes
    state: str


@attrs.frozen(kw_only=True)
class Began(Event):
    """A handler has a message."""

    who: str
    """A member's life, from when it comes to its end."""
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    times: int
    """How often it was tried before, as the message says."""
    address: int = 0
    """Where it lies in the log that it was read from."""


@attrs.frozen(kw_only=True)
class Finished(Began):
    """It has it no more."""

    outcome: str
    """`done`, `failed`, or `cancelled`."""
    level: int = 0
    """Of the delay that a failure asks for; 0 leaves it to the broker, -1 makes it a dead letter."""


@attrs.frozen(kw_only=True)
class Owns(Event):
    """The queues of a static member are others now."""

    who: str
    queue_ids: tuple[int, ...]


@attrs.frozen(kw_only=True)
class Listed(Event):
    """A broker tells who the static members of the group are, and says something else than before."""

    broker: int
    members: tuple[str, ...]
    silent: tuple[tuple[str, float], ...] = ()
    """Those that it names no more, and for how long it has not heard from each."""


@attrs.frozen(kw_only=True)
class Away(Event):
    """A static member ended, and will be back within its grace time."""

    who: str


@attrs.frozen(kw_only=True)
class Noticed(Event):
    """A reader for whom everything is sent was handed a message."""

    who: str
    """The reader, in whichever life."""
    queue_id: int
    queue_offset: int
    body: bytes
