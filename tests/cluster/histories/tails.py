"""What brokers give up of their logs to follow another one, on whose word, and the operator of those that wait.

    Resync._cut, where it is proven     the broker's own word: noted with all messages that it gives up
    a slave that waits                  noted with the messages that it keeps; once all faults are over the operator
                                        tells it to cut them, as docs/operations.md says

Invariant: looking changes nothing: `note_cuts` calls what it replaces.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio
from tests.cluster.histories.events import Note, TailCut, TailWaits, now
from tests.cluster.histories.readers import client_at
from tests.cluster.histories.world import FILL, TOPIC, World
from tests.support.stores import body_of

from rocketrio import Error, open_admin
from rocketrio_broker.embedded import Member
from rocketrio_broker.ha.errors import BeyondBoundaryError, DivergedHistoryError
from rocketrio_broker.ha.resync import Resync
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_broker.store.message_store import MessageStore

HOST: Final = "10.0.3.6"
_LOOK_AGAIN: Final = 1.0


@contextmanager
def note_cuts(world: World) -> Iterator[None]:
    """In this block note each end that a broker cuts off by its own proof."""
    cut = Resync._cut

    async def noted(resync: Resync, problem: DivergedHistoryError, *, is_proven: bool) -> None:
        store = resync._store
        event = TailCut(
            at=now(),
            broker=world.number_of(store),
            start=problem.cut_at,
            end=store.max_physical_offset,
            is_proven=is_proven,
            bodies=_bodies_from(store, problem.cut_at),
            why=(isinstance(problem, BeyondBoundaryError) and problem.why_kept) or "",
        )
        await cut(resync, problem, is_proven=is_proven)
        world.history.add(event)

    Resync._cut = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Resync._cut = cut  # type: ignore[method-assign]


async def decide_about_tails(world: World) -> None:
    """Note the slaves that wait for an operator; once all is mended let each cut its end. A task of the run."""
    noted: set[tuple[int, int, int]] = set()
    async with client_at(world, HOST, "tails") as client, open_admin(client=client) as admin:
        while True:
            for number, member in enumerate(world.cluster.members):
                if not _waits(member):
                    continue
                _note_waiting(world, number, member, noted)
                if world.is_ending:
                    addr = f"{member.host}:10911"
                    text = f"{member.host} shall give up what only it has"
                    try:
                        await admin.change_settings(addr, {"haDivergentTail": "cut"})
                    except Error as error:
                        text = f"{text}: {error}"
                    world.history.add(Note(at=now(), who="operator", text=text))
            await trio.sleep(_LOOK_AGAIN)


def _waits(member: Member) -> bool:
    if not member.is_running or member.broker.config.ha_divergent_tail == "cut":
        return False
    slave = member.broker.slave
    return slave is not None and isinstance(slave.client.problem, DivergedHistoryError)


def _note_waiting(
    world: World, number: int, member: Member, noted: set[tuple[int, int, int]]
) -> None:
    slave = member.broker.statistics().slave
    beyond = None if slave is None else slave.log.beyond
    if beyond is None or (number, beyond.start, beyond.end) in noted:
        return
    noted.add((number, beyond.start, beyond.end))
    world.history.add(
        TailWaits(
            at=now(),
            broker=number,
            start=beyond.start,
            end=beyond.end,
            why=beyond.why_kept or "",
            bodies=_bodies_from(member.broker.store, beyond.start),
        )
    )


def _bodies_from(store: MessageStore, start: int) -> tuple[tuple[int, bytes], ...]:
    """Return queue ids and bodies of the plain topic's messages from an address to the log's end."""
    log = store.commit_log
    walk = LogWalk(log, start, stop_at_damage=True)
    found = []
    for address, size, topic, *_ in walk.records(log.max_offset - start):
        if topic == TOPIC.encode():
            record = bytes(log.read(address, size) or b"")
            found.append((int.from_bytes(record[12:16]), body_of(record).rstrip(FILL)))
    return tuple(found)
