"""Replays what real clients and slaves asked a real Apache master, against a rocketrio broker in memory.

Requests go out in the recorded order, each answer is awaited before anything that was recorded after it. The broker
has the recorded master's address and lives at the recorded time. What Apache stored by features that are not built
(delayed and half messages, retries, events) is put into the store from Apache's own commit log when its time comes, so
that offsets stay the recorded ones.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import attrs
import trio
import trio.testing
from tests.golden.golden import RecordedFrame, remoting_frames, unpack_store
from tests.support.clocks import SettableClock
from tests.support.raw_frames import command_of, is_answer

from rocketrio_broker.broker import Broker, open_broker
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.put_message import PutMessage
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.frame import FrameDecoder
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.decode import RecordStatus, scan_record
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.remoting.ports import Transport

ANSWER_TIMEOUT = 60.0
PARKING_TOPICS = (
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
)
NOT_BUILT_TOPIC = "OFFSET_MOVED_EVENT"
MASTER_PORT = {"4.9.7": 38911, "5.3.3": 36911}
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
NOT_PLAYED = {
    # 4.x resets no offsets of a group without connected members; 5.x does, and so do we.
    "4.9.7": (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,),
    # These name positions, which differ as 5.x stores longer properties: what comes of them is from Apache's log.
    "5.3.3": (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION),
}
BYTE_BY_BYTE = "4.9.7"
"""The run that is played whole, delayed messages and transactions too: our log is then Apache's to the byte."""
LOOK = 1.1
"""Seconds within which our services look for what is due."""
CHECK_INTERVAL = 1.0
TRANSACTION_TIMEOUT = 6.4
"""Seconds after which Apache asked about the transaction of the recording."""


@attrs.frozen
class Exchange:
    """One request, Apache's answer and ours."""

    request: RemotingCommand
    theirs: RemotingCommand
    ours: RemotingCommand

    def __str__(self) -> str:
        return f"{self.request.code} {self.request.ext_fields}"


@attrs.define
class Replayed:
    """What came of a replay."""

    exchanges: list[Exchange] = attrs.Factory(list)
    oneways: set[int] = attrs.Factory(set)
    their_calls: list[tuple[int, dict[str, str]]] = attrs.Factory(list)
    """What Apache's broker asked its clients, in order."""
    our_calls: list[tuple[int, dict[str, str]]] = attrs.Factory(list)


def golden_records(run: str, into: Path) -> list[MessageExt]:
    """Every message of the killed master's commit log, in order."""
    records = []
    for path in sorted((unpack_store(run, "master", into) / "commitlog").iterdir()):
        data, position = path.read_bytes(), 0
        while (found := scan_record(data, position, len(data))).status is RecordStatus.RECORD:
            records.append(MessageExt(data, position, found.size))
            position += found.size
    return records


def put_of(record: MessageExt) -> PutMessage:
    """What a broker was given to store this."""
    return PutMessage(
        topic=record.topic,
        queue_id=record.queue_id,
        body=record.stored_body,
        properties=record.stored_properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_time_ms=record.born_time_ms,
        born_host=pack_host(*record.born_host),
        store_host=pack_host(*record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


def comes_from_apaches_log(record: MessageExt, run: str) -> bool:
    """Stored by Apache without a request that is played."""
    if run == BYTE_BY_BYTE:
        return record.topic == NOT_BUILT_TOPIC
    if record.topic == NOT_BUILT_TOPIC or record.topic.startswith("%RETRY%"):
        return True
    return bool({"TRAN_MSG", "DELAY"} & record.properties.keys())


def is_by_our_services(record: MessageExt, run: str) -> bool:
    """Stored when its time has come, and not by a request."""
    if run != BYTE_BY_BYTE:
        return False
    is_delivered = "DELAY" in record.properties and record.topic not in PARKING_TOPICS
    is_copy = record.topic in PARKING_TOPICS and "TRANSACTION_CHECK_TIMES" in record.properties
    return is_delivered or is_copy


def is_played(request: RemotingCommand, run: str) -> bool:
    """Whether our broker is asked this."""
    if request.code in NOT_PLAYED[run]:
        return False
    properties = request.ext_fields.get("i", "") if request.code in SENDS else ""
    return run == BYTE_BY_BYTE or not ("TRAN_MSG\x01" in properties or "DELAY\x01" in properties)


class _Connection:
    """One recorded connection, dialled to our broker."""

    def __init__(self, transport: Transport, replayed: Replayed) -> None:
        self._transport = transport
        self._replayed = replayed
        self._answers: dict[int, RemotingCommand] = {}
        self._asked: dict[int, int] = {}
        self._changed = trio.lowlevel.ParkingLot()

    async def read(self) -> None:
        decoder, buffer = FrameDecoder(), memoryview(bytearray(1 << 20))
        while size := await self._transport.receive_into(buffer):
            for frame in decoder.feed(buffer[:size]):
                command = RemotingCommand.decode(frame)
                command.body = bytes(command.body)
                if is_answer(command):
                    self._answers[command.opaque] = command
                    continue
                self._replayed.our_calls.append((command.code, command.ext_fields))
                if not command.is_oneway:
                    self._asked[command.code] = command.opaque
            self._changed.unpark_all()

    async def send(self, data: bytes) -> None:
        await self._transport.send_all(data)

    async def answer_as_recorded(self, code: int, answer: RemotingCommand) -> None:
        """What the client answered to Apache's question it answers to ours."""
        opaque = self._asked.pop(code)
        await self.send(attrs.evolve(answer, opaque=opaque).encode())

    async def answer(self, opaque: int) -> RemotingCommand:
        with trio.fail_after(ANSWER_TIMEOUT):
            while opaque not in self._answers:
                await self._changed.park()
        return self._answers.pop(opaque)


class _Replay:
    def __init__(
        self, broker: Broker, records: list[MessageExt], clock: SettableClock, run: str
    ) -> None:
        self.result = Replayed()
        self._store = broker.store
        # What only services and answers need of Apache 5.x, with positions of its own, is left out.
        self._records = [
            record
            for record in records
            if run == BYTE_BY_BYTE or record.topic not in PARKING_TOPICS
        ]
        self._clock = clock
        self._run = run
        self._store._appender._now_ms = self._store_time_ms

    def _store_time_ms(self) -> int:
        """Every message is stored when Apache stored the one in its place."""
        place = self._store._appender.counters.messages
        if place < len(self._records):
            return self._records[place].store_time_ms
        return self._clock.now

    def _next_record(self) -> MessageExt | None:
        place = self._store._appender.counters.messages
        return self._records[place] if place < len(self._records) else None

    async def play(
        self, frames: list[RecordedFrame], network: MemoryNetwork, nursery: trio.Nursery
    ) -> None:
        connections: dict[int, _Connection] = {}
        waiting: dict[tuple[int, int], RemotingCommand] = {}
        asked: dict[tuple[int, int], int] = {}
        for frame in frames:
            await self._catch_up(frame.time_ms)
            self._clock.now = max(self._clock.now, frame.time_ms)
            command = command_of(frame.data)
            where = frame.connection, command.opaque
            if frame.from_dialer and not is_answer(command):
                if not is_played(command, self._run):
                    continue
                connection = connections.get(frame.connection)
                if connection is None:
                    host = network.host(f"10.1.0.{frame.connection}")
                    transport = await host.dial(f"127.0.0.1:{frame.port}")
                    connection = _Connection(transport, self.result)
                    connections[frame.connection] = connection
                    nursery.start_soon(connection.read)
                self._expect(command)
                await connection.send(frame.data)
                await trio.testing.wait_all_tasks_blocked()
                if command.is_oneway:
                    self.result.oneways.add(command.code)
                else:
                    waiting[where] = command
            elif frame.from_dialer:
                if where in asked:
                    connection = connections[frame.connection]
                    await connection.answer_as_recorded(asked.pop(where), command)
                    await trio.testing.wait_all_tasks_blocked()
            elif is_answer(command):
                request = waiting.pop(where, None)
                if request is not None:
                    ours = await connections[frame.connection].answer(command.opaque)
                    self.result.exchanges.append(Exchange(request, command, ours))
            else:
                if not command.is_oneway:
                    asked[where] = command.code
                self.result.their_calls.append((command.code, command.ext_fields))

    async def _catch_up(self, time_ms: int) -> None:
        """Have stored what Apache had stored by this time without a request that we get."""
        while (record := self._next_record()) is not None and record.store_time_ms <= time_ms:
            if comes_from_apaches_log(record, self._run):
                self._store.append(put_of(record))
            elif is_by_our_services(record, self._run):
                self._clock.now = record.store_time_ms
                await trio.sleep(LOOK)
                assert self._next_record() is not record, record.properties
            else:
                return

    def _expect(self, request: RemotingCommand) -> None:
        """Act at the time at which Apache did."""
        record = self._next_record()
        if record is None:
            return
        if request.code in SENDS:
            properties = request.ext_fields["i"]
            key = (record.property_value("UNIQ_KEY") or "").encode()
            if key in properties.encode() or request.code == RequestCode.SEND_BATCH_MESSAGE:
                self._clock.now = record.store_time_ms
        elif request.code == RequestCode.END_TRANSACTION:
            place = self._store._appender.counters.messages
            (operation, *_) = (
                each for each in self._records[place:] if each.topic == PARKING_TOPICS[2]
            )
            self._clock.now = operation.born_time_ms


@asynccontextmanager
async def recorded_broker(
    run: str, clock: SettableClock
) -> AsyncGenerator[tuple[Broker, MemoryNetwork]]:
    """A rocketrio broker where the recorded master was."""
    network = MemoryNetwork()
    host = network.host("127.0.0.1")
    config = BrokerConfig(
        cluster_name="lab",
        broker_name="broker-a",
        listen=f"127.0.0.1:{MASTER_PORT[run]}",
        data=Path("/store"),
        default_topic_queue_nums=4,
        transaction_timeout=TRANSACTION_TIMEOUT,
        transaction_check_interval=CHECK_INTERVAL,
        store=StoreConfig(
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=6000,
            max_hash_slot_num=997,
            max_index_num=4000,
        ),
    )
    async with open_broker(
        config, disk=MemoryDisk(), dial=host.dial, listen=host.listen, wall_clock=clock
    ) as broker:
        yield broker, network


async def replay(run: str, into: Path) -> tuple[Replayed, list[bytes], list[MessageExt]]:
    """Play one recording: what came of it, our log record by record, and Apache's."""
    records = golden_records(run, into)
    port = MASTER_PORT[run]
    frames = [
        frame
        for frame in remoting_frames(run)
        if frame.server == "broker" and frame.port in (port, port - 2)
    ]
    clock = SettableClock(frames[0].time_ms)
    async with recorded_broker(run, clock) as (broker, network), trio.open_nursery() as nursery:
        played = _Replay(broker, records, clock, run)
        await played.play(_as_raced(frames), network, nursery)
        ours = _log_records(broker)
        nursery.cancel_scope.cancel()
    return played.result, ours, records


def _as_raced(frames: list[RecordedFrame]) -> list[RecordedFrame]:
    """Once a pull and the heartbeat it needs came in one millisecond, and Apache's threads took the heartbeat first.

    A broker of one thread acts on requests as they come, so they are put into the order Apache acted in.
    """
    frames = list(frames)
    for at, (first, second) in enumerate(pairwise(frames)):
        if (
            (first.time_ms, first.connection) == (second.time_ms, second.connection)
            and command_of(first.data).code == RequestCode.PULL_MESSAGE
            and command_of(second.data).code == RequestCode.HEART_BEAT
        ):
            frames[at], frames[at + 1] = second, first
    return frames


def _log_records(broker: Broker) -> list[bytes]:
    store, records = broker.store, []
    position = store.min_physical_offset
    while (record := store.commit_log.record_at(position)) is not None:
        records.append(bytes(record))
        position += len(record)
    return records
