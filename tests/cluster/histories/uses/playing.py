"""The uses of one run together: their topics, who sends, who stays until all is done, and when all is done."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import attrs
from tests.cluster.histories.events import Event
from tests.cluster.histories.readers import client_at
from tests.cluster.histories.schedule import Use
from tests.cluster.histories.uses.events import Noticed
from tests.cluster.histories.uses.members import (
    give_tasks,
    post_notices,
    write_ledger,
)
from tests.cluster.histories.uses.names import NOTICES, TOPICS, Kept, kept_of
from tests.cluster.histories.uses.payments import pay_in_lives
from tests.cluster.histories.uses.regulars import (
    all_have_their_share,
    be_regulars,
    make_rounds,
)
from tests.cluster.histories.uses.reminders import remind
from tests.cluster.histories.world import World
from tests.support.stores import read_all

from rocketrio import open_admin
from rocketrio_broker.embedded import Member
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC

Actor = Callable[[World], Awaitable[None]]

SENDERS: Final[dict[Use, Actor]] = {
    "delayed": remind,
    "ledger": write_ledger,
    "retries": give_tasks,
    "static": make_rounds,
    "broadcast": post_notices,
}
"""They end when sending ends."""
STAYERS: Final[dict[Use, Actor]] = {"transactions": pay_in_lives, "static": be_regulars}
"""They go on until all is done."""
HOST: Final = "10.0.3.7"


@attrs.frozen
class Stored:
    """One message of a queue that a use fills."""

    topic: str
    queue_id: int
    queue_offset: int
    stored_at: float
    """Seconds since the run began."""
    times: int
    body: bytes


async def make_topics_of_uses(world: World) -> None:
    """Before anything breaks."""
    if not world.schedule.uses:
        return
    async with (
        client_at(world, HOST, "uses") as client,
        open_admin(client=client) as admin,
    ):
        for use in world.schedule.uses:
            await admin.create_topic(TOPICS[use], queues=kept_of((use,))[0].queues)


def is_all_done(world: World) -> bool:
    """Whether nothing waits any more: delayed messages, transactions, what groups have not read."""
    return (
        _is_all_delivered(world.master)
        and _is_all_decided(world.master)
        and all(_is_read(world.master, kept) for kept in kept_of(world.schedule.uses))
        and ("static" not in world.schedule.uses or _is_gone(world) or all_have_their_share(world))
        and is_read_by_all(
            world.history.events,
            stored_messages(world, world.master),
            readers=len(world.schedule.consumers),
        )
    )


def is_read_by_all(events: Iterable[Event], stored: Iterable[Stored], *, readers: int) -> bool:
    """Return whether every reader was handed each notice that is stored."""
    # With its body: after a loss another message has the place of one that was read.
    handed = {
        (event.who, event.queue_id, event.queue_offset, event.body)
        for event in events
        if isinstance(event, Noticed)
    }
    return all(
        (f"consumer-{number}", notice.queue_id, notice.queue_offset, notice.body) in handed
        for notice in stored
        if notice.topic == NOTICES
        for number in range(readers)
    )


def _is_gone(world: World) -> bool:
    """Return whether the topic of the static members was lost with an empty disk."""
    return TOPICS["static"] not in world.master.broker.state.topics.topic_config_table and any(
        fault.kind == "wiped" for fault in world.schedule.faults
    )


def _is_all_delivered(master: Member) -> bool:
    queues = master.broker.store.queues().get(SCHEDULE_TOPIC, {})
    delivered = master.broker.state.delay_offsets.offset_table
    return all(
        delivered.get(queue_id + 1, 0) == queue.max_offset for queue_id, queue in queues.items()
    )


def _is_all_decided(master: Member) -> bool:
    _, end = master.broker.store.queue_bounds(TRANS_HALF_TOPIC, 0) or (0, 0)
    return master.broker.state.ledger.progress()[0] == end


def _is_read(master: Member, kept: Kept) -> bool:
    if not kept.group:
        return True
    committed = master.broker.state.consumer_offsets.query_offsets(kept.group, kept.topic)
    return all(
        committed.get(queue_id, 0)
        == (master.broker.store.queue_bounds(kept.topic, queue_id) or (0, 0))[1]
        for queue_id in range(kept.queues)
    )


def stored_messages(world: World, member: Member) -> tuple[Stored, ...]:
    """All that the uses left in a broker's queues."""
    return tuple(
        _stored(world, MessageExt(record, 0, len(record)))
        for kept in kept_of(world.schedule.uses)
        for queue_id in range(kept.queues)
        for record in read_all(member.broker.store, kept.topic, queue_id)
    )


def _stored(world: World, message: MessageExt) -> Stored:
    return Stored(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        stored_at=world.time_of(message.store_time_ms),
        times=message.reconsume_times,
        body=message.body,
    )


def progress_of_groups(world: World, member: Member) -> tuple[tuple[str, str, int, int], ...]:
    """Group, topic, queue id and offset, as a broker has them."""
    table = member.broker.state.consumer_offsets
    return tuple(
        (kept.group, kept.topic, queue_id, offset)
        for kept in kept_of(world.schedule.uses)
        if kept.group
        for queue_id, offset in sorted(table.query_offsets(kept.group, kept.topic).items())
    )
