"""Asks every broker once how far all groups are: one sample of a cluster, in O(brokers) requests.

    43    what was really committed; 317 reports 0 where nothing was
    317   how far all groups are, and where their queues end; the broker walks through all its offsets
    208   the same for one group: if few groups are asked for, or if 317 takes too long
    21    which topics a broker has, and how many queues       once a minute
    201   which groups it knows                               once a minute
    28    how old the first message of its log is             once a minute

Invariant: what a broker did not answer is None, never zero.
Invariant: no broker is asked by 317 twice at the same time.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs
import trio

from rocketrio.admin.admin_calls import WALK_TIMEOUT, AdminCalls
from rocketrio_protocol.bodies.stats import ConsumeStats
from rocketrio_protocol.bodies.topics import Permission
from rocketrio_protocol.errors import AccessRefusedError, BrokerError, Error, RequestTimeoutError
from rocketrio_protocol.record.properties import decimal_value

ASKED_ONE_BY_ONE: Final = 16
"""Up to this number of groups are asked for by 208; more of them by 317."""
PARALLEL_REQUESTS: Final = 8
"""The requests to one broker that are under way at the same time."""

logger = logging.getLogger("rocketrio.admin")


@attrs.frozen
class Progress:
    """How far a group is in one queue, as its broker answered."""

    committed: int | None
    end: int | None
    last_consumed_ms: int | None
    """When the last consumed message was stored."""


@attrs.frozen
class BrokerFacts:
    """What changes rarely at a broker, so that it is asked for once a minute."""

    topics: Mapping[str, int]
    """The number of readable queues by topic."""
    unreadable: Collection[str]
    """The topics that may not be read, such as dead-letter topics of older brokers."""
    groups: Collection[str]
    log_began_ms: int | None
    """When the first message of its log was stored; None if unknown, or if the log never deleted anything."""


GroupTopic = tuple[str, str]
BrokerSample = dict[GroupTopic, dict[int, Progress]]
"""By group and topic, then by queue."""


async def broker_facts(calls: AdminCalls, addr: str) -> BrokerFacts:
    """Ask a broker for what changes rarely. Raises NotReachableError, BrokerError."""
    topics = await calls.topics(addr)
    groups = await calls.groups(addr)
    runtime = await calls.runtime_info(addr)
    readable = {
        name: config.read_queue_nums
        for name, config in topics.items()
        if Permission.READ in Permission(config.perm)
    }
    began = decimal_value(runtime.get("earliestMessageTimeStamp"))
    has_deleted = bool(decimal_value(runtime.get("commitLogMinOffset")))
    return BrokerFacts(
        readable,
        topics.keys() - readable.keys(),
        list(groups),
        (began or None) if has_deleted else None,
    )


async def broker_sample(
    calls: AdminCalls,
    addr: str,
    wanted: Collection[str],
    worst_first: Callable[[Iterable[str]], list[str]],
) -> BrokerSample:
    """Ask a broker how far the wanted groups are, or all groups if none are named.

    Raises NotReachableError, BrokerError.

    If 317 takes too long, the groups are asked for one by one, in the order that `worst_first` gives, until as much
    time has passed again; the ends of the others are unknown then.
    """
    committed = await calls.all_offsets(addr)
    if wanted:
        committed = {key: table for key, table in committed.items() if key[0] in wanted}
    progress: dict[str, list[ConsumeStats]] = {}
    if wanted and len(wanted) <= ASKED_ONE_BY_ONE:
        await _ask_one_by_one(calls, addr, {group for group, _ in committed}, progress)
    else:
        try:
            progress = await calls.all_progress(addr)
        except (RequestTimeoutError, BrokerError) as error:
            logger.info("groups are asked for one by one addr=%s error=%s", addr, error)
            groups = worst_first({group for group, _ in committed})
            with trio.move_on_after(WALK_TIMEOUT):
                await _ask_one_by_one(calls, addr, groups, progress)
    return _combined(committed, progress)


async def _ask_one_by_one(
    calls: AdminCalls,
    addr: str,
    groups: Iterable[str],
    progress: dict[str, list[ConsumeStats]],
) -> None:
    """Ask for each group. Raises AccessRefusedError if each was refused: then nothing is known."""
    waiting = iter(list(groups))
    refused: list[AccessRefusedError] = []

    async def ask() -> None:
        for group in waiting:
            try:
                progress[group] = [await calls.consume_stats(addr, group, None)]
            except Error as error:
                if isinstance(error, AccessRefusedError):
                    refused.append(error)
                logger.info("progress unknown group=%s addr=%s error=%s", group, addr, error)

    async with trio.open_nursery() as nursery:
        for _ in range(PARALLEL_REQUESTS):
            nursery.start_soon(ask)
    if refused and not progress:
        raise refused[0]


def _combined(
    committed: Mapping[GroupTopic, Mapping[int, int]],
    progress: Mapping[str, Iterable[ConsumeStats]],
) -> BrokerSample:
    """Return what both answers say. Offsets of topics that exist no more, or that the group left, are in one only."""
    sample: BrokerSample = {}
    for group, tables in progress.items():
        for table in tables:
            for queue, found in table.offset_table.items():
                key = group, queue.topic
                has_committed = queue.queue_id in committed.get(key, ()) or found.consumer_offset
                sample.setdefault(key, {})[queue.queue_id] = Progress(
                    found.consumer_offset if has_committed else None,
                    found.broker_offset,
                    found.last_timestamp or None,
                )
    for (group, topic), offsets in committed.items():
        if group not in progress:
            sample[group, topic] = {
                queue_id: Progress(offset, None, None) for queue_id, offset in offsets.items()
            }
    return sample
