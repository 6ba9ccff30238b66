"""Offsets of groups (14, 15) and of queues (29, 30, 31, 32).

Answers to: ConsumerManageProcessor, AdminBrokerProcessor; RocketMQ reference, section 2.4.
Unlike Java: a commit that cannot be a group's progress is refused, where 4.x stores all and 5.x those for a known topic
and group: a negative offset would later read as no offset, a name with `@` could not be read from the file of offsets,
and offsets of queues that a topic does not have would fill the table.
Unlike Java: rocketrio clients claim a queue with 14 and name their claim and generation with 15 (docs/decisions/0014);
other clients get the answers and the rule of Apache's brokers, where the last commit wins.
"""

from collections.abc import Coroutine, Mapping, Sequence
from math import inf
from typing import Any, Final

import trio

from rocketrio_broker.access.needs import (
    ADDRESS,
    GET,
    PUB,
    SUB,
    UPDATE,
    Facts,
    G,
    Need,
    T,
    group_need,
    topic_need,
)
from rocketrio_broker.offsets.version import NO_OFFSET, Commit, Generation, Version
from rocketrio_broker.requests.declaration import Audited, answers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.role.answering import SERVING
from rocketrio_broker.role.standing import CLAIMING
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.query import Boundary
from rocketrio_protocol.codes import VERSION_5, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import offset
from rocketrio_protocol.errors import BrokerSystemError
from rocketrio_protocol.names import RETRY_PREFIX, group_name_problem, kept_topic_problem
from rocketrio_protocol.reader_place import epoch_of
from rocketrio_protocol.remoting.channel import Channel

CLAIM_LIMIT: Final = 2.0
"""Seconds for which a query waits while this broker claims to lead, less than the 3 s for which clients wait."""
_BOUNDARIES: Final[dict[str | None, Boundary]] = {"LOWER": "LOWER", "UPPER": "UPPER"}


def usual_boundary(version: int) -> Boundary:
    """Return what a time means in a request without a boundary.

    In 4.x that is the message nearest to the time, in 5.x the first one that is not before it.
    """
    return "LOWER" if version >= VERSION_5 else "4.x"


def _needs_of_commit(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(offset.UpdateConsumerOffsetRequestHeader)
    group = group_need(header.consumer_group, UPDATE if header.reset else SUB)
    return topic_need(header.topic, SUB), group


def _is_reset(request: RemotingCommand) -> bool:
    return bool(request.header(offset.UpdateConsumerOffsetRequestHeader).reset)


_OF_QUEUE: Final = T(SUB | GET | PUB)


class OffsetProcessor:
    """Answers requests for the offsets of groups and queues."""

    def __init__(self, broker: BrokerState) -> None:
        self._store = broker.store
        self._topics = broker.topics
        self._groups = broker.groups
        self._consumers = broker.consumers
        self._consumer_offsets = broker.consumer_offsets
        self._level_clock = broker.level_clock
        self._absence = broker.absence
        self._standing = broker.standing
        self._epochs = broker.reader_epochs
        self._places = broker.reader_places

    @answers(
        offset.QueryConsumerOffsetRequestHeader,
        needs=(T(SUB | GET), G(SUB | GET)),
        known_by=ADDRESS,
        standing=SERVING,
    )
    def query_consumer_offset(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        must_wait = self._standing.now is CLAIMING or self._absence.must_ask
        return self._query_late(request) if must_wait else self._query(request)

    async def _query_late(self, request: RemotingCommand) -> RemotingCommand:
        with trio.move_on_after(CLAIM_LIMIT):
            while self._standing.now is CLAIMING:
                await self._standing.changes.wait_past(self._standing.changes.value)
        if self._absence.must_ask:
            await self._absence.slaves_asked()
        return self._query(request)

    def _query(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(offset.QueryConsumerOffsetRequestHeader)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        known, epoch = self._known(group, topic, queue_id)
        if known < 0 and self._starts_at_zero(header):
            known = 0
        answer = offset.QueryConsumerOffsetResponseHeader(known if known >= 0 else None)
        if header.claim is not None:
            answer.ownership = self._consumer_offsets.claim(group, topic, queue_id, header.claim)
        if header.with_epoch or header.claim is not None:
            version = self._consumer_offsets.query_version(group, topic, queue_id)
            answer.generation = str(version.generation)
            answer.epoch = self._places.of_epoch(epoch, topic)
        if known < 0:
            return request.response(
                answer,
                code=ResponseCode.QUERY_NOT_FOUND,
                remark=f"Not found, the group {group} has committed nothing on "
                f"queue {queue_id} of {topic}",
            )
        return request.response(answer)

    def _known(self, group: str, topic: str, queue_id: int) -> tuple[int, str | None]:
        """Return what the group committed, or -1, and the epoch whose messages that counts.

        A slave that has not copied the offset from its master yet returns at most what is in both logs: beyond that the
        offset may count messages that are lost.
        """
        known = self._consumer_offsets.query_offset(group, topic, queue_id)
        epoch = self._consumer_offsets.epoch_of((topic, group), queue_id)
        current = self._epochs.current
        if not self._store.is_slave or epoch is None or epoch == current:
            return known, current
        if epoch != self._consumer_offsets.known_in and not self._epochs.is_over(epoch):
            return known, epoch  # Members may know the next master's epoch before this slave does.
        parting = self._epochs.divergence_offset(epoch, group, topic, queue_id)
        return known if parting is None else min(known, parting), current

    def _committed(self, names: Mapping[str, str]) -> dict[int, int]:
        return self._consumer_offsets.query_offsets(names["consumer_group"], names["topic"])

    @answers(
        offset.UpdateConsumerOffsetRequestHeader,
        needs=_needs_of_commit,
        known_by=ADDRESS,
        standing=SERVING,
        audit=Audited(applies=_is_reset, state=_committed),
    )
    def update_consumer_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(offset.UpdateConsumerOffsetRequestHeader)
        problem = _commit_problem(header)
        if problem is not None:
            raise BrokerSystemError(f"The offset is not stored: {problem}")
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        # A member's heartbeat has created its group, so only a tool of 5.x can send an unknown name.
        is_5 = request.version >= VERSION_5
        if not (self._is_known(group) if is_5 else self._groups.find(group)):
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!"
            )
        self._refuse_unknown_queue(header.topic, header.queue_id)
        if self._standing.stands_aside:
            self._refuse_beyond_the_end(header)
        commit = self._versioned_commit(header)
        kept = commit or Commit(header.commit_offset)
        if not self._consumer_offsets.has_room_for(group, topic, queue_id, kept):
            raise BrokerSystemError(
                f"The offset of {group} on queue {queue_id} of {topic} is not stored: the table of offsets is full; "
                "delete unused groups, with their offsets"
            )
        if commit is None:
            self._consumer_offsets.commit_offset(group, topic, queue_id, header.commit_offset)
            return request.response()
        dropped = self._dropped(header)
        if dropped is not None:
            outcome = dropped
            self._consumer_offsets.count_refused(group)
            stands = self._consumer_offsets.query_version(group, topic, queue_id)
        else:
            epoch = None if header.epoch is None else epoch_of(header.epoch)
            outcome, stands = self._consumer_offsets.commit_version(
                group, topic, queue_id, commit, epoch=epoch
            )
        return request.response(
            offset.UpdateConsumerOffsetResponseHeader(
                outcome.value,
                str(stands.generation),
                stands.offset if stands.offset >= 0 else None,
            )
        )

    def _is_known(self, group: str) -> bool:
        """Return whether the group is in the table, or has members although the table was full."""
        is_kept = group in self._groups.subscription_group_table
        return is_kept or self._consumers.group(group) is not None

    def _refuse_unknown_queue(self, topic: str, queue_id: int) -> None:
        """Raise RefusedError for an unknown topic, as 5.x does, and for a queue that the topic does not have."""
        if (topic, queue_id) in self._store.queue_table.by_key:
            return  # It has messages; perhaps the topic has fewer queues now, or is not copied yet.
        config = self._topics.topic_config(topic)
        retried = topic.removeprefix(RETRY_PREFIX)
        if config is not None:
            queues = max(config.read_queue_nums, config.write_queue_nums)
        elif retried != topic and self._is_known(retried):
            settings = self._groups.find(retried)
            queues = 0 if settings is None else settings.retry_queue_nums
        else:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if queue_id >= queues:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] has {queues} queues",
            )

    def _refuse_beyond_the_end(self, header: offset.UpdateConsumerOffsetRequestHeader) -> None:
        """Raise RefusedError (14: the client repeats the request later) for a commit beyond the end of its queue.

        The log may have lost its end, and has no new epoch yet by which such a commit could be recognized.
        """
        end = self._store.next_queue_offset(header.topic, header.queue_id)
        if header.commit_offset > end:
            raise RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"{self._standing.reason}, and queue {header.queue_id} of {header.topic} ends at {end}",
            )

    def _refuse_reset_beyond_the_end(
        self, header: offset.UpdateConsumerOffsetRequestHeader
    ) -> None:
        """Raise RefusedError for a reset that skips messages which are not there yet.

        Its number may come from a log that was longer. A slave may not have all messages yet, and takes it.
        """
        end = self._store.next_queue_offset(header.topic, header.queue_id)
        if header.commit_offset > end and not self._store.is_slave:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The offset is not reset: queue {header.queue_id} of {header.topic} ends at {end}, so the group would "
                f"skip the messages up to {header.commit_offset}. Reset it to {end} at most",
            )

    def _dropped(
        self, header: offset.UpdateConsumerOffsetRequestHeader
    ) -> offset.CommitOutcome | None:
        """Return why a member's position means nothing in this log; None if it may be committed.

        It is from before the topic was deleted, or from another epoch, and lies where this log continued differently.
        """
        if header.ownership is None:
            return None
        if self._places.is_earlier(header.topic, header.epoch):
            return offset.CommitOutcome.RESET
        parting = self._parting(header)
        is_parted = parting is not None and header.commit_offset > parting
        return offset.CommitOutcome.CUT if is_parted else None

    def _parting(self, header: offset.UpdateConsumerOffsetRequestHeader) -> int | None:
        """Return the offset up to which the sender knows this log, by the epoch that it names.

        None if it names no epoch, the last one, or, on a slave, one that this slave does not know to be over.
        """
        epoch = None if header.epoch is None else epoch_of(header.epoch)
        if epoch is None or epoch == self._epochs.current:
            return None
        if self._store.is_slave and not self._epochs.is_over(epoch):
            return None
        return self._epochs.divergence_offset(
            epoch, header.consumer_group, header.topic, header.queue_id
        )

    def _versioned_commit(self, header: offset.UpdateConsumerOffsetRequestHeader) -> Commit | None:
        """Return the commit of a rocketrio client, an operator or a slave; None for a plain one."""
        if header.reset:
            self._refuse_reset_beyond_the_end(header)
            # A slave may not have all messages, nor what members committed at its master a moment before it died.
            end = self._store.next_queue_offset(header.topic, header.queue_id)
            return Commit(
                header.commit_offset,
                is_reset=True,
                may_stand_at=inf if self._store.is_slave else end,
            )
        if header.generation is None:
            return None
        generation = Generation.parse(header.generation)
        stands = self._consumer_offsets.query_version(
            header.consumer_group, header.topic, header.queue_id
        )
        if generation.is_far_ahead_of(stands.generation):
            raise BrokerSystemError(
                f"The offset is not stored: no broker opened the generation {generation}, "
                f"the last one here is {stands.generation}"
            )
        if header.ownership is None:
            return self._commit_of_slave(header, generation, stands)
        offsets = self._consumer_offsets
        is_owner = (offsets.may_seek if header.seek else offsets.is_owner)(
            header.consumer_group, header.topic, header.queue_id, header.ownership
        )
        return Commit(
            header.commit_offset, generation, is_owner=is_owner, is_seek=bool(header.seek)
        )

    def _commit_of_slave(
        self,
        header: offset.UpdateConsumerOffsetRequestHeader,
        generation: Generation,
        stands: Version,
    ) -> Commit:
        """Return a slave's offset as a commit: it is progress, up to where the slave's log and this one part.

        Beyond that it counts messages that were lost here, or of another topic. The commit then opens a generation, so
        that the slave does not send the same offset again when this queue has become as long. A slave, which a former
        master is for its followers until they find the next one, does not decide: its own log may lack what was read.
        """
        parting = self._parting(header)
        if self._store.is_slave:
            is_progress = parting is None or header.commit_offset <= parting
            return Commit(header.commit_offset if is_progress else NO_OFFSET, generation)
        end = self._store.next_queue_offset(header.topic, header.queue_id)
        if not end and header.commit_offset > 0 and stands.offset < 0:
            return Commit(NO_OFFSET, generation)  # The group has read nothing of this empty queue.
        limit = end if parting is None else min(parting, end)
        if header.commit_offset <= limit:
            return Commit(header.commit_offset, generation)
        newest = max(stands.generation, generation)
        return Commit(max(limit, stands.offset), newest.lowered())

    @answers(offset.SearchOffsetRequestHeader, needs=_OF_QUEUE, known_by=ADDRESS, standing=SERVING)
    def search_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(offset.SearchOffsetRequestHeader)
        found = self._store.offset_by_time(
            header.topic,
            header.queue_id,
            header.timestamp,
            _BOUNDARIES.get(header.boundary_type, usual_boundary(request.version)),
        )
        return request.response(offset.OffsetResponseHeader(found))

    @answers(offset.GetMaxOffsetRequestHeader, needs=_OF_QUEUE, known_by=ADDRESS, standing=SERVING)
    def max_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(offset.GetMaxOffsetRequestHeader)
        bounds = self._store.queue_bounds(header.topic, header.queue_id)
        answer = offset.OffsetResponseHeader(0 if bounds is None else bounds[1])
        if self._store.is_slave:
            answer.level_millis = self._level_clock.age_millis()
        end = self._store.next_queue_offset(header.topic, header.queue_id)
        if end > answer.offset:
            answer.stored_offset = end
        if header.with_incarnation:
            answer.incarnation = self._places.incarnation(header.topic)
        return request.response(answer)

    @answers(offset.GetMinOffsetRequestHeader, needs=_OF_QUEUE, known_by=ADDRESS, standing=SERVING)
    def min_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(offset.GetMinOffsetRequestHeader)
        bounds = self._store.queue_bounds(header.topic, header.queue_id)
        if bounds is not None:
            lowest = bounds[0]
        else:
            # A queue without messages begins at 0; one that does not exist has no beginning.
            topic = self._topics.topic_config(header.topic)
            lowest = 0 if topic is not None and 0 <= header.queue_id < topic.read_queue_nums else -1
        return request.response(offset.OffsetResponseHeader(lowest))

    @answers(offset.GetEarliestMsgStoretimeRequestHeader, needs=_OF_QUEUE, known_by=ADDRESS)
    def earliest_store_time(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(offset.GetEarliestMsgStoretimeRequestHeader)
        stored = self._store.earliest_store_time(header.topic, header.queue_id)
        return request.response(offset.TimestampResponseHeader(-1 if stored is None else stored))

    def _starts_at_zero(self, header: offset.QueryConsumerOffsetRequestHeader) -> bool:
        """Return whether a group without an offset starts at the queue's first message, because that is recent.

        A queue without messages counts as recent, as in 4.x; 5.x answers that no offset was found.
        """
        if header.set_zero_if_not_found is False:
            return False
        bounds = self._store.queue_bounds(header.topic, header.queue_id)
        if bounds is None or bounds[1] == 0:
            return True
        if bounds[0] > 0:
            return False
        entry = self._store.queue_table.by_key[header.topic, header.queue_id].entry(0)
        return entry is None or self._store.is_in_memory(entry[0])


def _commit_problem(header: offset.UpdateConsumerOffsetRequestHeader) -> str | None:
    """Return why a commit cannot be a group's progress on any queue; None if it can."""
    topic = header.topic
    problem = kept_topic_problem(topic) or group_name_problem(header.consumer_group)
    if problem is not None:
        return problem
    if header.queue_id < 0:
        return f"queue {header.queue_id} of {topic}; the first queue is 0"
    if header.commit_offset < 0:
        return (
            f"{header.commit_offset} on queue {header.queue_id} of {topic}; the first offset is 0"
        )
    return None
