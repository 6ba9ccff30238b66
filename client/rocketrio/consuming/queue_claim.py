"""What brokers told us when we took a queue over, by which they know our commits from late ones and from a reset.

A broker of ours answers a claim with an ownership, which counts there until another member claims the queue, and with
the generation of the group's offset. Commits carry both. An Apache broker answers without: then it is an Apache one.

Invariant: generation and epoch are those that our position comes from, wherever we claim later: a reset is noticed, and
that the log became shorter (docs/decisions/0036).
Unlike Java: its commits say nothing of who sent them, and a late one lowers what the next owner stored.
"""

import attrs

from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue


class CommitRefused(Error):
    """A commit that is out of date: an operator reset the group's offset, another member has the queue now, or the log
    became shorter than what was read.

    It was not stored, and the position in the queue is as it was. After a reset commits of the queue are dropped until
    it is taken over again, which starts at the reset offset, or until `seek` says where to go on. After the log became
    shorter the next pull goes back to where the group is.
    """


def lock_lost(queue: MessageQueue) -> CommitRefused:
    """The error for a commit of a queue that is kept for another member now."""
    return CommitRefused(
        f"{queue} is not committed: its lock has run out or went to another member",
        topic=queue.topic,
        remedy="Its messages come again, to the member that has the lock",
    )


def lost_meanwhile(queue: MessageQueue) -> CommitRefused:
    """What a commit ends with whose queue went to another member before it was through."""
    return CommitRefused(
        f"another member got {queue} during the commit, and whether it was stored is open",
        topic=queue.topic,
        remedy="Its new owner goes on from what is stored: messages since then are delivered again",
    )


@attrs.frozen
class StandingOffset:
    """What a broker of ours says of the group's offset."""

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
    """One queue, for as long as we own it."""

    generation: str | None = None
    """Of the offset that we started from, or committed last; None until a broker of ours told it."""
    ownerships: dict[str, str | None] = attrs.Factory(dict)
    """By address of the broker; None for one that knows no claims."""
    is_lost: bool = False
    """Another member owns the queue: only a broker that can tell late commits is told anything."""
    overruled: StandingOffset | None = None
    """What an operator's reset has put there; ours is dropped."""

    epoch: str | None = None
    """Of the log that our position comes from; None until a broker of ours told it, and after a seek."""
    times_forgotten: int = 0

    def took(self, addr: str, ownership: str | None, generation: str | None) -> None:
        """A broker answered our claim."""
        self.ownerships[addr] = ownership
        if self.generation is None:
            self.generation = generation

    def forget(self) -> None:
        """As at the start, so that the next commit claims the queue as it is then."""
        self.generation, self.epoch, self.overruled = None, None, None
        self.ownerships.clear()
        self.times_forgotten += 1

    def seek(self) -> None:
        """The user went elsewhere, and after what happened until now."""
        self.epoch = None
        if self.overruled is not None:
            self.generation, self.overruled = self.overruled.generation, None
