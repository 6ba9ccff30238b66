"""Delayed messages, transactions, order, retries and static members under faults: what is broken on purpose is seen."""

from typing import get_args

import attrs
import pytest
from tests.cluster.histories.chosen import broken_promises, schedule_of
from tests.cluster.histories.schedule import Fault, Schedule, Switch, Use, Visit
from tests.cluster.histories.uses.names import RECONSUME_LIMIT
from tests.support.further import every_other

from rocketrio.consuming.local_offset_store import OffsetFile
from rocketrio.consuming.process_queue import Unit
from rocketrio.consuming.running import HandlerRun, Worker
from rocketrio.consuming.send_back import Delivery
from rocketrio_broker.clients.queue_locks import QueueLocks
from rocketrio_broker.clients.static_members import AwayMembers
from rocketrio_broker.delay.delayed_puts import DelayedPuts
from rocketrio_broker.delay.schedule import ScheduleMessageService
from rocketrio_broker.offsets.delayed import DelayOffsets
from rocketrio_broker.store.put_message import PutMessage
from rocketrio_broker.transaction.check import TransactionCheckService
from rocketrio_broker.transaction.decisions import TransactionDecisions
from rocketrio_protocol.bodies.queues import QueueName
from rocketrio_protocol.message import MessageExt, MessageQueue

pytestmark = pytest.mark.slow

STAYS = (
    (
        Visit(0.0, 9.0, crashes=True, auto_commit=True),
        Visit(11.0, 17.0, crashes=False, auto_commit=True),
        Visit(18.0, 100.0, crashes=False, auto_commit=True),
    ),
    (Visit(4.0, 100.0, crashes=False, auto_commit=True),),
)


def using(use: Use, *faults: Fault, switches: tuple[Switch, ...] = ()) -> Schedule:
    """One use, two members, and chosen faults."""
    plain = schedule_of(*faults)
    return attrs.evolve(plain, uses=(use,), consumers=STAYS, switches=switches)


SWITCH = Switch(12.0, "slave-1", is_careful=True)
KILL = Fault(10.0, 3.0, "kill", "master")
POWER_CUT = Fault(14.0, 2.0, "power cut", "master")


@pytest.mark.parametrize("use", every_other(get_args(Use)))
def test_chosen_faults_break_nothing(use: Use) -> None:
    assert broken_promises(using(use)) == set()
    assert broken_promises(using(use, KILL, POWER_CUT, switches=(SWITCH,))) == set()


def test_delayed_messages_that_a_switch_forgets_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    switched = using("delayed", switches=(SWITCH,))
    begin = DelayOffsets.begin

    def at_the_end(offsets: DelayOffsets) -> None:
        begin(offsets)
        offsets.offset_table = dict.fromkeys(range(1, 19), 1000)

    def from_the_end(service: ScheduleMessageService) -> None:
        for queue in service._queues():
            service._offsets.advance(queue.key[1] + 1, queue.max_offset, 0)

    monkeypatch.setattr(DelayOffsets, "begin", at_the_end)
    monkeypatch.setattr(ScheduleMessageService, "_check_progress", from_the_end)
    assert broken_promises(switched) == {"delayed and lost"}


def test_delayed_message_that_comes_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    delayed = DelayedPuts.delayed

    def sooner(
        puts: DelayedPuts, put: PutMessage, properties: dict[str, str], level: int
    ) -> PutMessage:
        return delayed(puts, put, properties, max(1, level - 1))

    monkeypatch.setattr(DelayedPuts, "delayed", sooner)
    assert broken_promises(using("delayed")) == {"delivered before its time"}
    assert broken_promises(using("retries")) == {"tried again too early"}


def test_message_that_is_delivered_again_and_again_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advance = DelayOffsets.advance

    def forgetful(offsets: DelayOffsets, level: int, queue_offset: int, log_end: int) -> None:
        advance(offsets, level, queue_offset - 1, log_end)

    monkeypatch.setattr(DelayOffsets, "advance", forgetful)
    assert "delivered too often" in broken_promises(using("delayed"))


def test_rolled_back_message_that_is_delivered_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionDecisions, "roll_back", TransactionDecisions.commit)
    assert broken_promises(using("transactions")) == {"not done and delivered"}


def test_committed_message_that_is_not_delivered_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionDecisions, "commit", TransactionDecisions.roll_back)
    assert broken_promises(using("transactions")) == {"done and not delivered"}


def test_transactions_that_no_producer_is_asked_about_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def asks_nobody(_: TransactionCheckService) -> None:
        pass

    monkeypatch.setattr(TransactionCheckService, "check", asks_nobody)
    assert broken_promises(using("transactions")) == {"no rest", "done and not delivered"}


def test_locks_that_all_members_get_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def grants_all(
        _: QueueLocks, group: str, queues: list[QueueName], client_id: str, **__: object
    ) -> list[QueueName]:
        return list(queues)

    monkeypatch.setattr(QueueLocks, "lock", grants_all)
    # With each that comes queues change hands, some of them in the middle of a message.
    coming = tuple((Visit(4.0 + at, 100.0, crashes=False, auto_commit=True),) for at in range(8))
    crowd = attrs.evolve(using("ledger"), consumers=(*STAYS, *coming))
    assert "two owners" in broken_promises(crowd)


def test_failure_that_is_passed_over_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pass_over(_: HandlerRun, hand: Worker, unit: Unit, failure: Exception) -> None:
        unit.done()

    monkeypatch.setattr(HandlerRun, "_try_again", pass_over)
    broken = broken_promises(using("ledger"))
    assert broken == {"handled out of order", "neither done nor a dead letter"}


def test_message_that_is_handed_back_into_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: MessageExt, level: int) -> None:
        pass

    of = Delivery.of
    monkeypatch.setattr(
        Delivery, "of", lambda *arguments: attrs.evolve(of(*arguments), hand_back=nothing)
    )
    assert broken_promises(using("retries")) == {"neither done nor a dead letter"}


def test_message_that_is_given_up_too_soon_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    of = Delivery.of
    monkeypatch.setattr(
        Delivery,
        "of",
        lambda client, member, _, levels: of(client, member, RECONSUME_LIMIT - 1, levels),
    )
    assert broken_promises(using("retries")) == {"dead too soon"}


def test_place_that_is_not_kept_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: AwayMembers, group: str, client_id: str, *, until: float) -> bool:
        return False

    monkeypatch.setattr(AwayMembers, "leave", gone)
    assert broken_promises(using("static")) == {"a static member was forgotten"}


def test_reader_that_forgets_where_it_was_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    read = OffsetFile.read_all

    def further(file: OffsetFile) -> tuple[dict[MessageQueue, int], dict[MessageQueue, str]]:
        offsets, epochs = read(file)
        return {queue: offset + 1 for queue, offset in offsets.items()}, epochs

    monkeypatch.setattr(OffsetFile, "read_all", further)
    assert "a reader was left out" in broken_promises(using("broadcast"))
