"""Answers requests for the state of replication (907): for `rocketrio cluster status` and Java's `mqadmin haStatus`.

Invariant: an unknown value is omitted, never 0.
Answers to: AdminBrokerProcessor.getBrokerHAStatus, DefaultHAService.getRuntimeInfo (5.x).
Unlike Java: a slave's lag is also given in seconds, and there are rocketrio fields (`ha/status.py`).
"""

import attrs

from rocketrio_broker.access.needs import ADDRESS, GET, C
from rocketrio_broker.ha.connection import HAConnectionStatistics
from rocketrio_broker.ha.slave import SlaveStatistics
from rocketrio_broker.ha.tail_count import Beyond
from rocketrio_broker.requests.declaration import answers
from rocketrio_broker.role.service import alarm
from rocketrio_broker.role.shared_id import shared_id_problems
from rocketrio_broker.role.standing import UNRESOLVED
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.query import store_timestamp_from
from rocketrio_broker.waiting.answers import WaitingStatistics
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import GetBrokerHAStatusRequestHeader
from rocketrio_protocol.ha.status import (
    BeyondBoundary,
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
    LastWait,
    OwnStatus,
)
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.times import age_ms

PUT_OK = "PUT_OK"
"""The name here of a send that got all it waited for, as in RocketMQ's PutMessageStatus."""


class HAStatusProcessor:
    """Combines the statistics of the parts of replication."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker
        self._rates = _Rates()

    @answers(GetBrokerHAStatusRequestHeader, needs=C(GET), known_by=ADDRESS)
    def ha_status(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=self.status().to_json())

    def status(self) -> HARuntimeInfo:
        """Return the body of the answer."""
        slave = self._broker.slave_statistics()
        end = self._broker.store.max_physical_offset
        connections = [
            self._connection(one, end) for one in self._broker.ha_service.statistics().connections
        ]
        if slave is not None:
            client = self._client(slave)
            self._rates.forget_others({_MASTER, *(one.addr for one in connections)})
            return HARuntimeInfo(
                ha_connection_info=connections,
                ha_client_runtime_info=client,
                rocketrio=self._own(
                    client.rocketrio_last_problem or client.rocketrio_tables_problem
                ),
            )
        self._rates.forget_others({one.addr for one in connections})
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(one.in_sync for one in connections),
            ha_connection_info=connections,
            rocketrio=self._own(self._broker.ha_service.statistics().last_refusal),
        )

    def _own(self, last_problem: str | None) -> OwnStatus:
        config, store = self._broker.config.broker, self._broker.store
        transfer = self._broker.ha_service.group_transfer.statistics()
        gate = self._broker.gate_keeper.statistics()
        waits = self._broker.waiting_answers.statistics()
        epoch = store.epochs.lines[-1] if store.epochs.lines else None
        slave = self._broker.slave_statistics()
        return OwnStatus(
            role=config.role,
            broker_id=config.broker_id,
            claims=None if config.is_slave else self._broker.standing.claims,
            configured_role=self._broker.config.configured.role,
            configured_broker_id=self._broker.config.configured.broker_id,
            refusal=None if config.is_slave else store.refusal or None,
            standing=self._broker.standing.now.label,
            stands_aside_for=self._broker.standing.other,
            flushed_offset=store.flushed.value,
            min_offset=store.min_physical_offset,
            max_offset=store.max_physical_offset,
            shown_offset=gate.end if gate.is_gating else None,
            shown_by=gate.by if gate.is_gating else None,
            in_sync_slaves=transfer.in_sync_slaves if transfer.is_required else None,
            live_slaves=transfer.live_slaves,
            waiting_answers=waits.waiting_count,
            answered={status_name(code): count for code, count in waits.answered.items()},
            last_wait=_last_wait(waits),
            last_problem=last_problem,
            member=store.epochs.member or None,
            epoch=None if epoch is None else epoch.number,
            epoch_id=None if epoch is None else epoch.id,
            epoch_start=None if epoch is None else epoch.start,
            beyond=None if slave is None else _beyond(slave.log.beyond),
            problems=self._problems(),
            now=self._broker.wall_clock.now_ms(),
        )

    def _problems(self) -> list[str]:
        """Return what checks found: in the log here and at slaves, and about other brokers of the same name."""
        broker = self._broker
        return [
            *broker.store.problems(),
            *broker.log_check.problems(),
            *broker.second_history.problems(),
            *self._other_masters(),
            *filter(None, [broker.standing.problem]),
            *shared_id_problems(broker.config, broker.registration),
        ]

    def _other_masters(self) -> list[str]:
        """Return which masters name servers list instead of this one, which leads."""
        broker = self._broker
        others = broker.registration.other_masters if broker.standing.leads else {}
        return [alarm(other) for other in sorted(set(others.values()))]

    def _unresolved(self) -> str:
        standing = self._broker.standing
        return standing.reason if standing.now is UNRESOLVED else ""

    def _connection(self, one: HAConnectionStatistics, end: int) -> HAConnectionRuntimeInfo:
        # A slave cannot lack bytes that are deleted here: an empty one is sent the log from its first byte.
        behind = end - max(one.slave_ack_offset, self._broker.store.min_physical_offset)
        return HAConnectionRuntimeInfo(
            addr=one.addr,
            slave_ack_offset=one.slave_ack_offset,
            diff=behind,
            in_sync=one.slave_request_offset is not None
            and behind < self._broker.config.broker.ha_slave_fallbehind_max,
            transferred_byte_in_second=self._rate(one.addr, one.bytes_sent, one.connected_since_ms),
            transfer_from_where=one.transfer_offset,
            rocketrio_broker_id=self._broker.live_slaves.id_of(one.addr),
            rocketrio_seconds_behind=self._seconds_behind(one.slave_ack_offset, end),
            rocketrio_report_age=round(one.last_report_age, 3),
            rocketrio_connected_since=one.connected_since_ms,
            rocketrio_bytes_sent=one.bytes_sent,
        )

    def _seconds_behind(self, ack_offset: int, end: int) -> float | None:
        if ack_offset >= end:
            return 0.0
        stored_ms = store_timestamp_from(
            self._broker.store.read_log, max(ack_offset, self._broker.store.min_physical_offset)
        )
        if stored_ms is None:
            return None
        return age_ms(stored_ms, self._broker.wall_clock.now_ms()) / 1000

    def _client(self, slave: SlaveStatistics) -> HAClientRuntimeInfo:
        log, tables = slave.log, slave.tables
        since, level = log.connected_since_ms, self._broker.level_clock.age_millis()
        return HAClientRuntimeInfo(
            master_addr=log.master_ha_addr,
            transferred_byte_in_second=self._rate(_MASTER, log.bytes_received, since),
            max_offset=log.max_physical_offset,
            last_read_timestamp=self._time_of(log.last_transfer_age),
            last_write_timestamp=self._time_of(log.last_report_age),
            rocketrio_state=log.state.text,
            rocketrio_state_id=log.state.value,
            rocketrio_local_addr=log.local_addr,
            rocketrio_acknowledges=self._broker.config.broker.ha_acknowledge,
            rocketrio_master_offset=log.master_offset,
            rocketrio_verified_offset=log.verified_offset,
            rocketrio_level_age=None if level is None else level / 1000,
            rocketrio_bytes_received=log.bytes_received,
            rocketrio_last_problem=self._unresolved() or log.last_problem,
            rocketrio_copied_bytes=None if slave.copy is None else slave.copy.copied,
            rocketrio_copy_bytes=None if slave.copy is None else slave.copy.total,
            rocketrio_copy_rate=None if slave.copy is None else round(slave.copy.rate),
            rocketrio_copy_seconds_left=None if slave.copy is None else slave.copy.seconds_left,
            rocketrio_tables_age=_rounded(tables.last_round_age),
            rocketrio_tables_problem=tables.last_problem,
        )

    def _rate(self, addr: str, total: int, since_ms: int | None) -> int:
        now_ms = self._broker.wall_clock.now_ms()
        return self._rates.rate(addr, total, now_ms, since_ms if since_ms is not None else now_ms)

    def _time_of(self, age: float | None) -> int:
        return 0 if age is None else self._broker.wall_clock.now_ms() - round(age * 1000)


_MASTER = "the master"
_RATE_INTERVAL_MS = 1000


@attrs.frozen
class _Sample:
    """A counter at one time, and its rate until then."""

    at_ms: int
    total: int
    rate: int


@attrs.define
class _Rates:
    """Computes bytes per second between two requests at least a second apart, first since the connection began."""

    _samples: dict[str, _Sample] = attrs.Factory(dict)

    def rate(self, key: str, total: int, now_ms: int, since_ms: int) -> int:
        before = self._samples.get(key)
        if before is None or total < before.total or now_ms < before.at_ms:
            before = _Sample(since_ms, 0, 0)
        elif now_ms - before.at_ms < _RATE_INTERVAL_MS:
            return before.rate
        elapsed_ms = max(now_ms - before.at_ms, 1)
        rate = (total - before.total) * 1000 // elapsed_ms
        self._samples[key] = _Sample(now_ms, total, rate)
        return rate

    def forget_others(self, keys: set[str]) -> None:
        """Drop the counters of all other keys."""
        for key in self._samples.keys() - keys:
            del self._samples[key]


def status_name(code: ResponseCode) -> str:
    """Return the name of a send's status for people."""
    return PUT_OK if code == ResponseCode.SUCCESS else code.name


def _beyond(beyond: Beyond | None) -> BeyondBoundary | None:
    if beyond is None:
        return None
    return BeyondBoundary(
        start=beyond.start,
        end=beyond.end,
        messages=beyond.messages,
        topics=beyond.topics,
        is_counted_whole=beyond.is_counted_whole,
        why_kept=beyond.why_kept,
    )


def _last_wait(waits: WaitingStatistics) -> LastWait | None:
    last = waits.last_wait
    if last is None:
        return None
    return LastWait(
        status=status_name(last.code),
        end_offset=last.end_offset,
        flush_seconds=_rounded(last.flush_seconds),
        slave_seconds=_rounded(last.slave_seconds),
        slave=last.slave,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
