"""Requests about the broker itself: settings (25, 26), statistics (28), deletion of expired files (306, 329).

Answers to: AdminBrokerProcessor; RocketMQ reference, section 2.11.
"""

from collections.abc import Sequence
from typing import Final

from rocketrio_broker.access.needs import ADDRESS, ANYONE, GET, SIGNATURE, UPDATE, VALID_USER, C
from rocketrio_broker.ha.exchange import REPLICATION_KEY
from rocketrio_broker.requests.audit import named_settings, nothing_named
from rocketrio_broker.requests.declaration import Audited, answers
from rocketrio_broker.settings.java import changed_config, java_properties
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.java_properties import format_properties, parse_properties
from rocketrio_protocol.bodies.route import KVTable
from rocketrio_protocol.codes import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_NAME,
    ResponseCode,
)
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import admin
from rocketrio_protocol.ha.exchange import EXCHANGE_VERSION
from rocketrio_protocol.names import SCHEDULE_TOPIC
from rocketrio_protocol.remoting.channel import Channel

_STATUS_NAMES: Final = {
    ResponseCode.SUCCESS: "PutOk",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FlushDiskTimeout",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FlushSlaveTimeout",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SlaveNotAvailable",
}

_POOLS: Final = ("send", "pull", "litePull", "query", "ack")


class BrokerAdminProcessor:
    """Answers administrators' requests about the broker itself."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    def _settings(self, names: Sequence[str]) -> dict[str, str | None]:
        shown = self._shown()
        return {name: shown.get(name) for name in names}

    def _log_begin(self, names: object) -> dict[str, int]:
        return {"min_physical_offset": self._broker.store.min_physical_offset}

    @answers(
        admin.UpdateBrokerConfigRequestHeader,
        needs=C(UPDATE),
        known_by=SIGNATURE,
        audit=Audited(names=named_settings, state=_settings),
    )
    def update_broker_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        before = self._broker.config.broker
        after = changed_config(before, parse_properties(request.body))
        self._broker.config.replace(after)
        if after.store != before.store:
            self._broker.store.reconfigure(after.store_settings)
        if after.broker_permission != before.broker_permission:
            self._broker.topics.register_again()
        return request.response()

    @answers(admin.GetBrokerConfigRequestHeader, needs=C(GET), known_by=ADDRESS)
    def broker_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        text = format_properties({**self._shown(), REPLICATION_KEY: str(EXCHANGE_VERSION)})
        version = fastjson.dumps(self._broker.config.data_version).decode()
        return request.response(admin.GetBrokerConfigResponseHeader(version), text)

    def _shown(self) -> dict[str, str]:
        return java_properties(
            self._broker.config.broker,
            broker_addr=self._broker.address,
            ha_addr=self._broker.ha_address,
            configured=self._broker.config.configured,
        )

    @answers(admin.GetIdentityRequestHeader, needs=VALID_USER, known_by=ANYONE)
    def identity(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        broker = self._broker
        config = broker.config.broker
        return request.response(
            admin.GetIdentityResponseHeader(
                broker_name=config.broker_name,
                broker_id=config.broker_id,
                ha_address=broker.ha_address,
                replication=EXCHANGE_VERSION,
                log_end_offset=broker.store.max_physical_offset,
                role=config.role,
                claims=None if config.is_slave else broker.standing.claims,
            )
        )

    @answers(admin.GetBrokerRuntimeInfoRequestHeader, needs=C(GET), known_by=ADDRESS)
    def runtime_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=KVTable(self._runtime_table()).to_json())

    @answers(
        admin.DeleteExpiredLogRequestHeader,
        admin.CleanExpiredQueuesRequestHeader,
        needs=C(UPDATE),
        known_by=ADDRESS,
        audit=Audited(names=nothing_named, state=_log_begin),
    )
    async def delete_expired_files(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        """Delete the log's expired files, and with them the entries for them in queues and index."""
        await self._broker.store.delete_old_files()
        return request.response()

    def _runtime_table(self) -> dict[str, str]:
        table = {
            "brokerVersionDesc": PROTOCOL_VERSION_NAME,
            "brokerVersion": str(PROTOCOL_VERSION),
            "startAcceptSendRequestTimeStamp": "0",
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "0",
            "brokerActive": "false" if self._broker.store.is_slave else "true",
        }
        # Requests are executed as they arrive, without the thread pools of Java.
        for pool in _POOLS:
            table[f"{pool}ThreadPoolQueueSize"] = "0"
            table[f"{pool}ThreadPoolQueueCapacity"] = "0"
            table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        table |= self._broker.store.runtime_info() | self._delay_table()
        table |= {
            "rocketrioMessagesCut": str(self._broker.consumer_offsets.messages_cut),
            "rocketrioOffsetsCut": str(self._broker.consumer_offsets.offsets_cut),
        }
        return table | self._waits_table() | self._slave_table()

    def _delay_table(self) -> dict[str, str]:
        """Return how many messages of each delay level were delivered, and how many there are."""
        wrapper, _ = self._broker.delay_offsets.answer()
        end_of = self._broker.store.next_queue_offset
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{end_of(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in wrapper.offset_table.items()
        }

    def _slave_table(self) -> dict[str, str]:
        """Return rocketrio's keys about how a slave follows, and how far a long copy is."""
        slave = self._broker.slave_statistics()
        if slave is None:
            return {}
        table = {
            "rocketrioReplicationState": slave.log.state.text,
            "rocketrioReplicationProblem": slave.log.last_problem or "",
        }
        if (copy := slave.copy) is not None:
            left = copy.seconds_left
            table |= {
                "rocketrioCopiedBytes": str(copy.copied),
                "rocketrioCopyBytes": str(copy.total),
                "rocketrioCopyRate": str(round(copy.rate)),
                "rocketrioCopySecondsLeft": "" if left is None else str(round(left)),
            }
        return table

    def _waits_table(self) -> dict[str, str]:
        """Return rocketrio's keys about what sends have waited for, and about the slaves that they wait for."""
        waits, slaves = (
            self._broker.waiting_answers.statistics(),
            self._broker.group_transfer.statistics(),
        )
        table = {
            f"rocketrio{_STATUS_NAMES[code]}": str(count) for code, count in waits.answered.items()
        }
        table["rocketrioWaitingAnswers"] = str(waits.waiting_count)
        table["rocketrioLastWait"] = "" if waits.last_wait is None else str(waits.last_wait)
        if slaves.is_required:
            table["rocketrioInSyncSlaves"] = str(slaves.in_sync_slaves)
            table["rocketrioLiveSlaves"] = str(slaves.live_slaves)
            table["rocketrioReplicatedOffset"] = str(slaves.replicated_offset)
        return table
