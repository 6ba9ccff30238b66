"""Questions for transactions, put as a broker puts them: who is asked, and what failing answers do."""

import logging

import pytest
import trio
import trio.lowlevel
from tests.golden.golden import VERSIONS, remoting_frames
from tests.support.records import plain_record
from trio.testing import MockClock

from rocketrio import ClientInstance, MessageExt, TransactionState, open_producer
from rocketrio.producing.transaction_checks import CHECK_TIMEOUT, CHECKS_WAITING_LIMIT
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from rocketrio_protocol.errors import ConfigError, RemoteProtocolError
from rocketrio_protocol.frame import FrameDecoder
from rocketrio_protocol.record.layout import pack_host

HOST = pack_host("127.0.0.1", 10911)


class Asker:
    """The broker's end of a connection: keeps what the client says."""

    remote_addr = "127.0.0.1:10911"

    def __init__(self) -> None:
        self.answers: list[EndTransactionRequestHeader] = []

    def send_oneway(self, request: EndTransactionRequestHeader) -> None:
        self.answers.append(request)


def half_message(group: str, number: int = 0) -> bytes:
    properties = f"PGROUP\x01{group}\x02UNIQ_KEY\x01ID-{number}\x02TRAN_MSG\x01true\x02"
    return plain_record(
        queue_offset=number,
        physical_offset=1000 + number,
        body=b"paid",
        properties=properties.encode(),
    )


def ask(
    client: ClientInstance, asker: Asker, group: str, number: int = 0, moved_to: int = 0
) -> object:
    header = CheckTransactionStateRequestHeader(
        number, 1000 + (moved_to or number), msg_id=f"ID-{number}", transaction_id=f"ID-{number}"
    )
    request = RemotingCommand.request(header, half_message(group, number))
    processor = client.processors[int(RequestCode.CHECK_TRANSACTION_STATE)]
    return processor(asker, request)  # type: ignore[arg-type]


async def committed(message: MessageExt) -> TransactionState:
    await trio.lowlevel.checkpoint()
    return TransactionState.COMMIT


async def test_question_is_answered_with_the_offsets_it_named(client: ClientInstance) -> None:
    asker = Asker()
    async with open_producer(client=client, group="shop", check_transaction=committed):
        assert ask(client, asker, "shop", 3) is None
        await trio.sleep(0.1)
    [answer] = asker.answers
    assert answer == EndTransactionRequestHeader(
        "shop", 3, 1003, 8, "ID-3", from_transaction_check=True, transaction_id="ID-3"
    )


async def test_each_group_is_asked_for_its_own(client: ClientInstance) -> None:
    asker = Asker()
    seen: list[str] = []

    async def check(message: MessageExt) -> TransactionState:
        await trio.lowlevel.checkpoint()
        seen.append(message.message_id)
        return TransactionState.ROLLBACK

    async with (
        open_producer(client=client, group="shop", check_transaction=check),
        open_producer(client=client, group="bank", check_transaction=committed),
    ):
        ask(client, asker, "shop", 1)
        ask(client, asker, "bank", 2)
        ask(client, asker, "stranger", 3)
        await trio.sleep(0.1)
    assert seen == ["ID-1"]
    states = {answer.producer_group: answer.commit_or_rollback for answer in asker.answers}
    assert states == {"shop": 12, "bank": 8}


async def test_failing_check_is_logged_and_decides_nothing(
    client: ClientInstance, caplog: pytest.LogCaptureFixture
) -> None:
    asker = Asker()

    async def broken(message: MessageExt) -> TransactionState:
        await trio.lowlevel.checkpoint()
        if message.message_id == "ID-0":
            raise OSError("database gone")
        if message.message_id == "ID-1":
            return "COMMIT"  # type: ignore[return-value]
        return TransactionState.COMMIT

    with caplog.at_level(logging.WARNING, "rocketrio.producer"):
        async with open_producer(client=client, group="shop", check_transaction=broken):
            for number in range(3):
                ask(client, asker, "shop", number)
            await trio.sleep(0.1)
    assert [answer.msg_id for answer in asker.answers] == ["ID-2"]
    assert "database gone" in caplog.text
    assert "did not return a TransactionState" in caplog.text


async def test_too_many_questions_wait_at_the_broker(
    client: ClientInstance, caplog: pytest.LogCaptureFixture
) -> None:
    asker = Asker()
    with caplog.at_level(logging.WARNING, "rocketrio.producer"):
        async with open_producer(client=client, group="shop", check_transaction=committed):
            for number in range(CHECKS_WAITING_LIMIT + 5):
                ask(client, asker, "shop", number)
            await trio.sleep(1)
    assert len(asker.answers) == CHECKS_WAITING_LIMIT
    assert caplog.text.count("too many transactions") == 5


async def test_hanging_check_holds_up_no_other(client: ClientInstance) -> None:
    asker = Asker()

    async def check(message: MessageExt) -> TransactionState:
        if message.message_id == "ID-0":
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return TransactionState.COMMIT

    async with open_producer(client=client, group="shop", check_transaction=check):
        for number in range(20):
            ask(client, asker, "shop", number)
        await trio.sleep(0.1)
    assert len(asker.answers) == 19


async def test_message_is_checked_once_at_a_time_and_the_last_asker_gets_the_answer(
    client: ClientInstance, autojump_clock: MockClock
) -> None:
    asker = Asker()
    calls: list[str] = []

    async def slow(message: MessageExt) -> TransactionState:
        calls.append(message.message_id)
        await trio.sleep(50)
        return TransactionState.COMMIT

    async with open_producer(client=client, group="shop", check_transaction=slow):
        # As often as there are checks at once, and its half message moves.
        for moved_to in range(10):
            ask(client, asker, "shop", 0, moved_to=moved_to)
            await trio.sleep(1)
        ask(client, asker, "shop", 1)
        await trio.sleep(60)
        ask(client, asker, "shop", 0)
        await trio.sleep(60)
    assert calls == ["ID-0", "ID-1", "ID-0"]
    assert [answer.commit_log_offset for answer in asker.answers] == [1009, 1001, 1000]


async def test_check_that_never_ends_is_given_up(
    client: ClientInstance, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    asker = Asker()

    async def hanging_once(message: MessageExt) -> TransactionState:
        if "took too long seconds=60" not in caplog.text:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return TransactionState.COMMIT

    with caplog.at_level(logging.WARNING, "rocketrio.producer"):
        async with open_producer(client=client, group="shop", check_transaction=hanging_once):
            for number in range(9):
                ask(client, asker, "shop", number)
            await trio.sleep(CHECK_TIMEOUT + 1)
    assert [answer.msg_id for answer in asker.answers] == ["ID-8"]


async def test_question_without_one_whole_message_is_refused(client: ClientInstance) -> None:
    async with open_producer(client=client, group="shop", check_transaction=committed):
        processor = client.processors[int(RequestCode.CHECK_TRANSACTION_STATE)]
        request = RemotingCommand.request(CheckTransactionStateRequestHeader(0, 0), b"")
        with pytest.raises(RemoteProtocolError, match="0 messages"):
            processor(Asker(), request)  # type: ignore[arg-type]


async def test_group_is_checked_by_one_producer_of_a_client(client: ClientInstance) -> None:
    async with open_producer(client=client, group="shop", check_transaction=committed):
        with pytest.raises(ConfigError, match="already"):
            async with open_producer(client=client, group="shop", check_transaction=committed):
                pass
    async with open_producer(client=client, group="shop", check_transaction=committed):
        pass  # The name is free again.


@pytest.mark.parametrize("run", VERSIONS)
async def test_apaches_questions_are_answered_as_javas_client_did(
    client: ClientInstance, run: str
) -> None:
    recorded = [
        RemotingCommand.decode(frame)
        for each in remoting_frames(run)
        for frame in FrameDecoder().feed(each.data)
    ]
    questions = [each for each in recorded if each.code == RequestCode.CHECK_TRANSACTION_STATE]
    decisions = [
        each.ext_fields
        for each in recorded
        if each.code == RequestCode.END_TRANSACTION
        and each.ext_fields["fromTransactionCheck"] == "true"
    ]
    asker = Asker()
    async with open_producer(client=client, group="producers", check_transaction=committed):
        for question in questions:
            client.processors[question.code](asker, question)  # type: ignore[arg-type]
        await trio.sleep(0.1)
    assert len(decisions) >= 1
    answers = [answer.to_ext_fields() for answer in asker.answers]
    assert sorted(answers, key=_offset) == sorted(decisions, key=_offset)


def _offset(fields: dict[str, str]) -> int:
    return int(fields["tranStateTableOffset"])
