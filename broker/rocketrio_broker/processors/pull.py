"""Pulling: PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).

Checks, read, and answer are done without an await; a pull that finds no message and may wait is added to `HeldPulls`.

Invariant: checks come in Java's order, each refusal with Java's code.
Invariant: a pull that is executed again neither waits again nor commits again.
Invariant: a pull that has waited gets no message if its user has lost the right to it.
Invariant: a slave moves no reader because the slave is behind: it returns the offset it was asked for.
Invariant: a master that has not taken over moves no reader either: an offset beyond its bounds may come from a slave.
Invariant: a reader is never moved past a message that its group has not committed: if the log became shorter, or a
reader lies beyond the end, it is sent back to what its group committed (docs/decisions/0036).
Invariant: a slave sends a caught-up reader back to the group's preferred broker, and a slave that must not be read from
sends every reader to the master.
Answers to: PullMessageProcessor; RocketMQ reference, sections 8.1 to 8.6.
Unlike Java: a reader whose newer tags are not known yet is not refused (25) until its next heartbeat, up to 30 s, but
receives every message: clients filter by tag themselves as well, as the hashes here are not exact.
Unlike Java: a reader whose offset moved is logged, not stored as a message in OFFSET_MOVED_EVENT (5.x does not store it
either): reading should not write.
Unlike Java: a master there suggests the named slave whether or not it exists, and sends every group without a setting
to slave 1. Its tools write the 1 with every change of a group, so the value does not express a preference.
Unlike Java: a commit that comes with a pull and lies beyond the end of its queue is not stored; that of a rocketrio
client, which names its claim and generation, only if it raises the offset of the queue's present owner.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

import trio

from rocketrio_broker.access.needs import ADDRESS, SUB, Facts, Need, group_need, topic_need
from rocketrio_broker.clients.connected import BROADCASTING
from rocketrio_broker.offsets.version import Commit
from rocketrio_broker.processors.answers import pull_answer_frame
from rocketrio_broker.processors.tag_expression import ALL, is_tag_type, tags_codes
from rocketrio_broker.requests.declaration import answers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.role.answering import SERVING, refuse_beside_a_master
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.read import GetResult, GetStatus
from rocketrio_broker.store.record_filter import PropertiesFilter
from rocketrio_broker.waiting.long_polling import SUSPEND_LIMIT, HeldPull
from rocketrio_protocol.bodies.topics import Permission, SubscriptionGroupConfig
from rocketrio_protocol.codes import MASTER_ID, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.pull import (
    LitePullMessageRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    PullSysFlag,
)
from rocketrio_protocol.frame import BODY_SIZE_LIMIT
from rocketrio_protocol.reader_place import epoch_of
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import answer_of
from rocketrio_protocol.rendezvous import weight

logger = logging.getLogger("rocketrio_broker.pull")

ANY_SLAVE: Final = SubscriptionGroupConfig("").which_broker_when_consume_slowly
"""The setting of a group without a preference: any slave, once the group is behind memory."""

# Plain numbers, because every pull uses them: IntFlag arithmetic takes a microsecond.
_COMMIT_OFFSET: Final = int(PullSysFlag.COMMIT_OFFSET)
_SUSPEND: Final = int(PullSysFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullSysFlag.SUBSCRIPTION)
_READ: Final = int(Permission.READ)

_RETRY: Final = ResponseCode.PULL_RETRY_IMMEDIATELY
_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND
_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED

_CODE_BY_STATUS: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: _RETRY,
    GetStatus.MESSAGE_WAS_REMOVING: _RETRY,
    GetStatus.OFFSET_FOUND_NULL: _NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: _NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: _MOVED,
    GetStatus.OFFSET_TOO_SMALL: _MOVED,
}


def code_of_status(status: GetStatus, requested_offset: int) -> ResponseCode:
    """Return the code of a pull's answer; an empty queue is not an error for a reader that starts at 0."""
    code = _CODE_BY_STATUS.get(status)
    if code is not None:
        return code
    return _MOVED if requested_offset != 0 else _NOT_FOUND


def _needs_of(header: PullMessageRequestHeader) -> Sequence[Need]:
    """Return what a pull needs, now and while it waits for a message."""
    return topic_need(header.topic, SUB), group_need(header.consumer_group, SUB)


def _needs(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    return _needs_of(request.header(PullMessageRequestHeader))


class PullMessageProcessor:
    """Answers pulls."""

    def __init__(self, broker: BrokerState) -> None:
        self._store = broker.store
        self._config = broker.config
        self._topics = broker.topics
        self._groups = broker.groups
        self._consumers = broker.consumers
        self._offsets = broker.consumer_offsets
        self._held = broker.held_pulls
        self._stats = broker.stats
        self._live_slaves = broker.live_slaves
        self._level_clock = broker.level_clock
        self._pull_offsets = broker.pull_offsets
        self._standing = broker.standing
        self._epochs = broker.reader_epochs
        self._places = broker.reader_places
        self._sql = broker.sql_expressions
        self._guard = broker.guard

    @answers(
        PullMessageRequestHeader,
        LitePullMessageRequestHeader,
        needs=_needs,
        known_by=ADDRESS,
        standing=SERVING,
        on_fast_port=False,
    )
    def pull(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer one pull, now or when there is a message."""
        header = request.header(PullMessageRequestHeader)
        return self._pull(channel, request, header, is_first=True)

    def execute_held(self, pull: HeldPull) -> RemotingCommand | None:
        """Answer a pull that has waited, with whatever there is now; raises the same errors as the first time.

        A peer that does not read what it was sent is answered later, so that the answers to many pulls do not pile up.
        """
        if pull.channel.closed:
            return None
        if pull.channel.is_congested:
            execute = partial(self.execute_held, pull)
            pull.channel.reply_in_turn(partial(answer_of, pull.channel, pull.request, execute))
            return None
        # Both may have changed while the pull waited: whether this broker serves, and what the user may read.
        refuse_beside_a_master(self._standing)
        if self._guard is not None:
            self._guard.check_again(pull.channel, pull.request.user, _needs_of(pull.header))
        return self._pull(pull.channel, pull.request, pull.header, is_first=False)

    def _pull(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        *,
        is_first: bool,
    ) -> RemotingCommand | None:
        broker = self._config.broker
        group = self._check(header, broker)
        codes, matches = self._filter(channel, header, group, broker)
        # Before the read: an offset of a log that was cut exists here too, and is another message's.
        parted, place = None, self._places.current(header.topic)
        if header.epoch is not None and header.epoch != place:
            parted = self._parted(header)
        result = parted or self._store.get_message(
            header.topic,
            header.queue_id,
            header.queue_offset,
            max(1, min(header.max_msg_nums, broker.max_pull_message_size)),
            tags_codes=codes,
            matches=matches,
            max_bytes=min(header.max_msg_bytes or BODY_SIZE_LIMIT, BODY_SIZE_LIMIT),
            limited_by_bytes=bool(header.limited_by_bytes),
        )
        code = code_of_status(result.status, header.queue_offset)
        is_slave = self._store.is_slave
        # The reader stays where it is: a slave may have given it an offset that this log does not have yet.
        if self._standing.stands_aside and code is not ResponseCode.SUCCESS and code is not _RETRY:
            code = _NOT_FOUND
            result.next_begin_offset = header.queue_offset
        if (
            # A commit as old as a pull that has waited could undo a later one. One beyond
            # the end would skip the messages that get those offsets.
            is_first
            and header.sys_flag & _COMMIT_OFFSET
            and not is_slave
            and header.commit_offset >= 0
            and header.commit_offset <= self._store.next_queue_offset(header.topic, header.queue_id)
            and self._offsets.has_room_for(
                header.consumer_group,
                header.topic,
                header.queue_id,
                Commit(header.commit_offset),
            )
        ):
            self._commit(header)
        if (
            code is _NOT_FOUND
            and is_first
            and header.sys_flag & _SUSPEND
            and self._hold(channel, request, header, codes, matches, broker)
        ):
            return None
        suggested = suggest_which_broker_id(
            group,
            slave_read_enable=broker.slave_read_enable,
            is_behind_memory=result.suggest_pulling_from_slave,
            own_id=broker.broker_id,
            live_slaves=self._ids_to_read,
        )
        if code is _MOVED:
            if is_slave and not self._store.config.offset_check_in_slave:
                # A slave that lags must not move its readers: redirect them to the group's preferred broker, or to
                # the master if this broker is the preferred one. This log may also begin later than the master's, and
                # never have what they want.
                is_home = group.broker_id == broker.broker_id
                code, suggested = _RETRY, MASTER_ID if is_home else group.broker_id
            else:
                if result.status is GetStatus.OFFSET_OVERFLOW_BADLY:
                    result.next_begin_offset = self._not_past_the_group(header, result)
                self._log_moved(channel, header, result)
        if result.message_count:
            self._stats.got(
                header.topic, header.consumer_group, result.message_count, result.body_size
            )
        self._pull_offsets.pulled(
            header.consumer_group, header.topic, header.queue_id, result.next_begin_offset
        )
        answer = PullMessageResponseHeader(
            suggested, result.next_begin_offset, result.min_offset, result.max_offset
        )
        if is_slave:
            answer.level_millis = self._level_clock.age_millis()
        # Only a rocketrio client uses the epoch, and only for a position that was checked. With messages comes the one
        # that they count in, also from a log that may still change: the reader's own may have ended before them.
        is_beyond = is_slave and (parted or result.next_begin_offset > result.max_offset)
        is_told_nothing = self._standing.stands_aside and code is not ResponseCode.SUCCESS
        if header.limited_by_bytes and not (is_told_nothing or is_beyond):
            answer.epoch = place
        channel.reply(
            pull_answer_frame(
                request, code, result.status.name, answer, result.buffers, result.body_size
            )
        )
        return None

    def _parted(self, header: PullMessageRequestHeader) -> GetResult | None:
        """Return a result that sends the reader back, if its position lies where its epoch and this log differ.

        None if it does not. A slave sends the reader to its master, which may know epochs that this log has not
        reached, and deletions of the topic.
        """
        topic, queue_id = header.topic, header.queue_id
        assert header.epoch is not None
        low, high = self._store.queue_bounds(topic, queue_id) or (0, 0)
        back_to = low
        if not self._is_of_another_topic(header):
            parting = self._epochs.divergence_offset(
                epoch_of(header.epoch), header.consumer_group, topic, queue_id
            )
            if parting is None or header.queue_offset <= parting:
                return None
            back_to = parting
        if self._store.is_slave:
            back_to = header.queue_offset
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, back_to, low, high)

    def _is_of_another_topic(self, header: PullMessageRequestHeader) -> bool:
        """Return whether the topic was deleted and created again since, or, on a slave, before what it has copied."""
        topic, place = header.topic, header.epoch
        if self._places.is_earlier(topic, place):
            return True
        return self._store.is_slave and self._places.is_later(topic, place)

    def _not_past_the_group(self, header: PullMessageRequestHeader, result: GetResult) -> int:
        """Return where a reader beyond the end continues, without skipping what its group has not committed."""
        committed = self._offsets.query_offset(header.consumer_group, header.topic, header.queue_id)
        if committed < 0:
            return result.next_begin_offset
        return max(result.min_offset, min(committed, result.next_begin_offset))

    def _ids_to_read(self, named: int) -> Collection[int]:
        return self._live_slaves.ids(named, max_physical_offset=self._store.max_physical_offset)

    def _hold(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        codes: frozenset[int] | None,
        matches: PropertiesFilter | None,
        broker: BrokerConfig,
    ) -> bool:
        """Let the pull wait; return False if it may not wait, or if too many wait already."""
        seconds = (
            min(header.suspend_timeout_millis / 1000, SUSPEND_LIMIT)
            if broker.long_polling_enable
            else broker.short_polling_time
        )
        if seconds <= 0:
            return False
        deadline = trio.current_time() + seconds
        pull = HeldPull.of(channel, request, header, codes, matches, deadline=deadline)
        while not self._held.has_room(pull):
            displaced = self._held.displaced_by(pull)
            if displaced is None:
                return False
            self._held.remove(displaced)
            execute = partial(self.execute_held, displaced)
            answer = answer_of(displaced.channel, displaced.request, execute)
            if answer is not None:
                displaced.channel.reply(answer)
        self._held.add(pull)
        return True

    # --------------------------------------------------------------------------------- checks, in order

    def _commit(self, header: PullMessageRequestHeader) -> None:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if header.ownership is None:
            self._offsets.commit_offset(group, topic, queue_id, header.commit_offset)
            return
        # Any other case is left to the client's next separate commit (15): that one is answered, this one is not.
        stands = self._offsets.query_version(group, topic, queue_id)
        if (
            header.commit_offset > stands.offset
            and header.generation == str(stands.generation)
            and header.epoch == self._places.current(topic)
            and self._offsets.is_owner(group, topic, queue_id, header.ownership)
        ):
            progress = Commit(header.commit_offset, stands.generation, is_owner=True)
            epoch = self._epochs.current
            self._offsets.commit_version(group, topic, queue_id, progress, epoch=epoch)

    def _check(
        self, header: PullMessageRequestHeader, broker: BrokerConfig
    ) -> SubscriptionGroupConfig:
        if not broker.broker_permission & _READ:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.broker_name}] pulling message is forbidden",
            )
        group = self._groups.find(header.consumer_group)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist",
            )
        if not group.consume_enable:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {header.consumer_group}",
            )
        topic = self._topics.topic_config_table.get(header.topic)
        if topic is None:
            if self._store.is_slave and self._store.queue_bounds(header.topic, header.queue_id):
                # The log contains messages of a topic that is not copied yet. The next copy of the tables may never
                # come, because the master may be gone by now.
                return group
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        if not int(topic.perm) & _READ:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{header.topic}] pulling message is forbidden",
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        return group

    def _filter(
        self,
        channel: Channel,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        broker: BrokerConfig,
    ) -> tuple[frozenset[int] | None, PropertiesFilter | None]:
        """Return what the reader wants: hashes of tags, or a filter of properties, or neither for every message."""
        if header.sys_flag & _SUBSCRIPTION:
            if not is_tag_type(header.expression_type):
                return None, self._sql.filter(
                    channel, header.expression_type, header.subscription, broker
                )
            return tags_codes(header.subscription), None
        members = self._consumers.group(header.consumer_group)
        if members is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
            )
        if not group.consume_broadcast_enable and members.message_model == BROADCASTING:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        subscription = members.subscription_table.get(header.topic)
        if subscription is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist"
            )
        if subscription.sub_version < header.sub_version:
            if is_tag_type(header.expression_type):
                # Its tags are not known here yet: it receives every message, and filters itself.
                return None, None
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if not is_tag_type(subscription.expression_type):
            return None, self._sql.filter(
                channel,
                subscription.expression_type,
                subscription.sub_string,
                broker,
                wrong=ResponseCode.FILTER_DATA_NOT_EXIST,
            )
        if subscription.sub_string == ALL or not subscription.code_set:
            return None, None
        return frozenset(subscription.code_set), None

    @staticmethod
    def _log_moved(channel: Channel, header: PullMessageRequestHeader, result: GetResult) -> None:
        logger.warning(
            "offset moved group=%s topic=%s queue_id=%d offset=%d next=%d status=%s peer=%s",
            header.consumer_group, header.topic, header.queue_id, header.queue_offset,
            result.next_begin_offset, result.status.name, channel.remote_addr,
        )  # fmt: skip


def suggest_which_broker_id(
    group: SubscriptionGroupConfig,
    *,
    slave_read_enable: bool,
    is_behind_memory: bool,
    own_id: int,
    live_slaves: Callable[[int], Collection[int]],
) -> int:
    """Return the id of the broker that a reader should pull from next; the broker's half of read/write splitting.

        slave_read_enable   behind memory   the group names
        no                  either          0, the master, whatever its settings say
        yes                 yes             which_broker_when_consume_slowly; 1, the default, is any slave
        yes                 no              broker_id (0)

        named       asked broker   suggested
        0           either         0
        any slave   master         a live one; without one 0
        any slave   slave          its own id: it keeps the readers that were sent to it
        one slave   master         that id while it is live; otherwise as any slave
        one slave   slave          that id

    Of several slaves each group gets one, by rendezvous hash: groups are spread, all members of a group get the same
    one, and when a slave connects or leaves, only the groups that must move do.

    `is_behind_memory` is the store's `suggest_pulling_from_slave`. `live_slaves`, called with the named id, returns
    which slaves can be read from; it is only called if needed.
    """
    if not slave_read_enable:
        return MASTER_ID
    named = group.which_broker_when_consume_slowly if is_behind_memory else group.broker_id
    if named == MASTER_ID:
        return MASTER_ID
    is_any = is_behind_memory and named == ANY_SLAVE
    if own_id != MASTER_ID:
        return own_id if is_any else named
    live = live_slaves(named)
    if named in live and not is_any:
        return named
    return max(live, key=lambda id_: weight(group.group_name, id_), default=MASTER_ID)
