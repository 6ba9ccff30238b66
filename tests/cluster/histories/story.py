"""One run of one seed: the cluster breaks by its schedule, is mended, comes to rest, and is looked at.

until sending_ends   producers, consumers, an operator and the faults
then                 everything is mended; consumers read to the end; brokers become alike
at last              what every broker holds (`FinalState`), for the checker
"""

import traceback
from contextlib import AsyncExitStack
from typing import Final

import attrs
import trio
from tests.cluster.histories.commits import note_commits
from tests.cluster.histories.deterministic import run_deterministically
from tests.cluster.histories.early_answers import note_early_answers
from tests.cluster.histories.events import History, Note, now
from tests.cluster.histories.injector import inject_faults
from tests.cluster.histories.passing_topic import (
    PASSERS,
    PASSING,
    PASSING_QUEUES,
    live_and_die,
    look_at_passing,
)
from tests.cluster.histories.readers import audit
from tests.cluster.histories.reports import note_reports
from tests.cluster.histories.rival import RivalMaster
from tests.cluster.histories.roles import switch_masters
from tests.cluster.histories.schedule import QUEUES, Schedule
from tests.cluster.histories.standings import note_standings
from tests.cluster.histories.stranger import knock
from tests.cluster.histories.tails import decide_about_tails, note_cuts
from tests.cluster.histories.uses.events import Finished
from tests.cluster.histories.uses.lists import note_lists
from tests.cluster.histories.uses.playing import (
    SENDERS,
    STAYERS,
    Stored,
    is_all_done,
    make_topics_of_uses,
    progress_of_groups,
    stored_messages,
)
from tests.cluster.histories.workload import make_topics, operate, produce, visit
from tests.cluster.histories.world import (
    FILL,
    SLAVE_SYNC_PERIOD,
    TOPIC,
    World,
    open_cluster,
    whole_log,
)
from tests.support.stores import body_of, read_all

from rocketrio_broker.embedded import Member
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.ha.exchange import Epoch

REST_LIMIT: Final = 120.0
"""Virtual seconds after the last fault within which everything must have come right, except for what is handled yet."""
REST: Final = 2 * SLAVE_SYNC_PERIOD + 2.0
"""Seconds of rest before the last look: two rounds of the slaves' copying, and a little."""
HANDLING: Final = 20.0
"""Seconds within which another message is handled, as long as there are any: an orderly queue may have many."""
_LOOK_AGAIN: Final = 1.0


@attrs.frozen
class BrokerState:
    """What a broker holds at the end."""

    broker: int
    log_begin: int
    log: bytes
    queues: tuple[tuple[tuple[int, bytes], ...], ...]
    """By queue id: queue offset and body of each message."""
    offsets: tuple[tuple[int, int], ...]
    passing: tuple[tuple[tuple[int, bytes], ...], ...]
    """The same of the passing topic."""
    passing_offsets: tuple[tuple[int, int], ...]
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    replication: str
    """On a slave, how it follows and why it does not."""
    used: tuple[Stored, ...] = ()
    """What the uses left in their queues."""
    used_offsets: tuple[tuple[str, str, int, int], ...] = ()
    """Group, topic, queue id and offset."""
    epochs: tuple[Epoch, ...] = ()
    """Whose writes its log holds."""

    @property
    def log_end(self) -> int:
        return self.log_begin + len(self.log)


@attrs.frozen
class FinalState:
    """All brokers at the end, the master first."""

    brokers: tuple[BrokerState, ...]
    came_to_rest: bool
    """Slaves were level and all was consumed within the limit."""


@attrs.frozen
class Story:
    """What a seed did."""

    schedule: Schedule
    history: History
    final: FinalState
    crash: str | None = None
    """How the run ended before its time, which none should."""


def run_story(schedule: Schedule, history: History | None = None) -> Story:
    """Run a schedule; two runs give equal stories. The history can be looked at while it grows."""
    history = history or History(schedule.seed)
    try:
        final = run_deterministically(_run, schedule, history, seed=schedule.seed)
    except Exception:  # Whatever it is, the history has to be printed with it.
        return Story(schedule, history, FinalState((), came_to_rest=False), traceback.format_exc())
    return Story(schedule, history, final)


async def _run(schedule: Schedule, history: History) -> FinalState:
    async with AsyncExitStack() as stack:
        cluster = open_cluster(schedule)
        stack.enter_context(note_lists(cluster, history))
        await stack.enter_async_context(cluster)
        world = World(schedule, cluster, history)
        stack.enter_context(note_cuts(world))
        stack.enter_context(note_reports(world))
        stack.enter_context(note_early_answers(world))
        stack.enter_context(note_commits(world))
        stack.enter_context(note_standings(world))
        rival = RivalMaster(world)
        await world.create_topic()
        await make_topics_of_uses(world)
        async with trio.open_nursery() as nursery:
            if schedule.mode.divergent_tail == "refuse":
                nursery.start_soon(decide_about_tails, world)
            nursery.start_soon(world.watch_offsets)
            nursery.start_soon(audit, world)
            nursery.start_soon(knock, world)
            nursery.start_soon(look_at_passing, world)
            async with trio.open_nursery() as consumers:
                for number, visits in enumerate(schedule.consumers):
                    consumers.start_soon(visit, world, number, visits)
                for use in schedule.uses:
                    if use in STAYERS:
                        consumers.start_soon(STAYERS[use], world)
                async with trio.open_nursery() as broken:
                    broken.start_soon(inject_faults, world, rival)
                    broken.start_soon(operate, world)
                    broken.start_soon(make_topics, world)
                    broken.start_soon(live_and_die, world)
                    broken.start_soon(switch_masters, world, rival)
                    for number in range(schedule.producers):
                        broken.start_soon(produce, world, number)
                    for use in schedule.uses:
                        if use in SENDERS:
                            broken.start_soon(SENDERS[use], world)
                world.is_ending = True
                history.add(Note(at=now(), who="schedule", text="all faults are over"))
                came_to_rest = await _rest(world)
                consumers.cancel_scope.cancel()
            await trio.sleep(REST)
            world.look_at_offsets()
            nursery.cancel_scope.cancel()
        world.settle_reign()
        history.add(Note(at=now(), who="schedule", text="the last look"))
        members = sorted(cluster.members, key=lambda member: member is not world.master)
        return FinalState(tuple(_state(world, member) for member in members), came_to_rest)


async def _rest(world: World) -> bool:
    """Wait until slaves are level and the group has committed everything; False when that never comes."""
    limit = now() + REST_LIMIT
    while not (_is_at_rest(world) and is_all_done(world)):
        if now() > limit and now() > _last_handled(world.history) + HANDLING:
            return False
        await trio.sleep(_LOOK_AGAIN)
    return True


def _last_handled(history: History) -> float:
    """Return when the last call of a handler ended."""
    handled = (event.at for event in reversed(history.events) if isinstance(event, Finished))
    return next(handled, 0.0)


def _is_at_rest(world: World) -> bool:
    master = world.master.broker.store
    # What readers are not shown yet is in no queue that they could have read to its end.
    is_shown = master.read_gate.end.value >= master.max_physical_offset
    is_level = is_shown and all(
        member.broker.store.dispatched.value == master.max_physical_offset
        for member in world.cluster.members
    )
    committed = dict(world.offsets(world.master))
    ends = (master.queue_bounds(TOPIC, queue_id) or (0, 0) for queue_id in range(QUEUES))
    return is_level and all(
        committed.get(queue_id, 0) == end for queue_id, (_, end) in enumerate(ends)
    )


def _state(world: World, member: Member) -> BrokerState:
    broker = member.broker
    store, state = broker.store, broker.state
    log_begin, log = whole_log(store)
    slave = broker.statistics().slave
    return BrokerState(
        broker=world.number(member.host),
        log_begin=log_begin,
        log=log,
        queues=_queues(store, TOPIC, QUEUES),
        offsets=world.offsets(member),
        passing=_queues(store, PASSING, PASSING_QUEUES),
        passing_offsets=world.offsets(member, group=PASSERS, topic=PASSING),
        topics=tuple(sorted(map(_topic_text, state.topics.topic_config_table.values()))),
        groups=tuple(sorted(map(str, state.groups.subscription_group_table.values()))),
        replication="" if slave is None else f"{slave.log.state.text}; {slave.log.last_problem}",
        used=stored_messages(world, member),
        used_offsets=progress_of_groups(world, member),
        epochs=tuple(store.epochs.to_send()),
    )


def _queues(
    store: MessageStore, topic: str, count: int
) -> tuple[tuple[tuple[int, bytes], ...], ...]:
    return tuple(
        tuple(
            (int.from_bytes(record[20:28]), body_of(record).rstrip(FILL))
            for record in read_all(store, topic, queue_id)
        )
        for queue_id in range(count)
    )


def _topic_text(topic: TopicConfig) -> str:
    return f"{topic.topic_name} {topic.read_queue_nums}/{topic.write_queue_nums} {int(topic.perm)}"
