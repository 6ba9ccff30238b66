"""The brokers' answers to claiming a queue, by which they distinguish current commits from late ones and from resets.

A rocketrio broker answers a claim with an ownership, which is valid there until another member claims the queue, and
with the generation of the group's offset. Commits carry both. A broker that answers without them is an Apache broker.

Invariant: generation and epoch are those that the position comes from, wherever the queue is claimed later: that is how
a reset is noticed, and that the log became shorter (docs/decisions/0036).
Unlike Java: Java's commits do not identify their sender, and a late one lowers what the next owner stored.
"""

import attrs

from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue


class CommitRefused(Error):
    """A commit was out of date: a reset, another member, or a shorter log has overtaken it.

    An operator reset the group's offset, another member has the queue now, or the log became shorter than what was
    read. The commit was not stored, and the position in the queue is unchanged. After a reset, commits of the queue are
    dropped until it is taken over again, which starts at the reset offset, or until `seek` sets a position. After the
    log became shorter, the next pull goes back to the group's offset.
    """


def lock_lost(queue: MessageQueue) -> CommitRefused:
    """Return the error for a commit of a queue that is locked for another member now."""
    return CommitRefused(
        f"{queue} is not committed: its lock has run out or went to another member",
        topic=queue.topic,
        remedy="Its messages come again, to the member that has the lock",
    )


def lost_meanwhile(queue: MessageQueue) -> CommitRefused:
    """Return the error for a commit whose queue went to another member before it was complete."""
    return CommitRefused(
        f"another member got {queue} during the commit, and whether it was stored is open",
        topic=queue.topic,
        remedy="Its new owner goes on from what is stored: messages since then are delivered again",
    )


@attrs.frozen
class StandingOffset:
    """The group's offset at a rocketrio broker."""

    generation: str
    offset: int | None


def reset_meanwhile(group: str, queue: MessageQueue, standing: StandingOffset) -> CommitRefused:
    """Return the error for commits of a queue whose offset an operator has reset."""
    return CommitRefused(
        f"an operator has reset group {group} on {queue} to {standing.offset}",
        topic=queue.topic,
        remedy="Commits of this queue are dropped until it is taken over again; seek() goes on elsewhere",
    )


@attrs.define(eq=False)
class QueueClaim:
    """One queue's claim, for as long as this member owns the queue."""

    generation: str | None = None
    """The generation of the offset that the position started from, or that was committed last; None until a rocketrio
    broker reported one."""
    ownerships: dict[str, str | None] = attrs.Factory(dict)
    """Ownerships by broker address; None for a broker without claims."""
    is_lost: bool = False
    """Whether another member owns the queue: then only brokers that recognise late commits get one."""
    overruled: StandingOffset | None = None
    """The offset that an operator's reset has set; commits of this client are dropped."""

    epoch: str | None = None
    """The epoch of the log that the position comes from; None until a rocketrio broker reported one, and after a
    seek."""
    times_forgotten: int = 0

    def took(self, addr: str, ownership: str | None, generation: str | None) -> None:
        """Note a broker's answer to the claim."""
        self.ownerships[addr] = ownership
        if self.generation is None:
            self.generation = generation

    def forget(self) -> None:
        """Return to the initial state, so that the next commit claims the queue as it is then."""
        self.generation, self.epoch, self.overruled = None, None, None
        self.ownerships.clear()
        self.times_forgotten += 1

    def seek(self) -> None:
        """Note that the user set a new position, which counts as later than a reset."""
        self.epoch = None
        if self.overruled is not None:
            self.generation, self.overruled = self.overruled.generation, None
