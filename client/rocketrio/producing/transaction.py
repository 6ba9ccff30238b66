"""Transactions: a message that consumers get only if the work that belongs to it was done.

    half message ----> broker                  consumers do not see it
    local work
    37 commit or rollback ----> broker         delivered, or dropped
    39 check <---- broker                      only if no 37 arrived: `transaction_checks.py`

Invariant: the work begins only when the half message is as safe as the broker's modes require.
Invariant: an unknown outcome is never decided: after a cancel, or if the process dies, the check decides.
Answers to: DefaultMQProducerImpl.sendMessageInTransaction, endTransaction; RocketMQ reference, section 2.9.
Unlike Java: the decision waits for the broker's answer, while Java's is oneway; a block without a decision commits; and
a delayed transaction is refused, where Java drops the delay.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, nullcontext
from typing import Final, NoReturn

import attrs
import trio

from rocketrio.hooks import SendCall
from rocketrio.live import Live
from rocketrio.producing.observed import observing
from rocketrio.producing.send_result import SendResult, SendStatus
from rocketrio.producing.sender import MessageSender
from rocketrio.producing.transaction_checks import TransactionChecks, TransactionState
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.transaction import (
    EndTransactionRequestHeader,
)
from rocketrio_protocol.errors import (
    BrokerError,
    Error,
    LocalProtocolError,
    NotReachableError,
    RouteNotFoundError,
)
from rocketrio_protocol.message import Message, MessageQueue
from rocketrio_protocol.record.layout import SysFlag
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.record.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_PREPARED,
)

END_TIMEOUT: Final = 3.0
"""Seconds that sending the decision may take, even under a cancel: one ordinary call."""
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)

logger = logging.getLogger("rocketrio.producer")


class TransactionNotBegunError(Error):
    """The half message is not stored safely enough to begin the work; it was rolled back, and no work was done."""

    retryable = True
    remedy = "Begin it again; if it happens often, check the broker's slaves and disk"


@attrs.define(eq=False)
class Transaction(Live):
    """One transaction while its block runs, made by `Producer.transaction`."""

    message: Message
    """The message for the consumers."""
    sent: SendResult
    """Where the half message is stored."""
    state: TransactionState | None = None
    """The decision; None while the block runs, and after a cancel."""
    is_acknowledged: bool = False
    """Whether the broker has confirmed the decision; if not, it asks `check_transaction`."""
    _half: Message = attrs.field(kw_only=True)
    """The half message as it was sent."""

    @property
    def message_id(self) -> str:
        """The id that consumers and `check_transaction` see; use it to find the local work again."""
        return self.sent.message_id

    def rollback(self) -> None:
        """Have the message dropped when the block ends, even without an exception."""
        self.state = TransactionState.ROLLBACK

    def leave_open(self) -> None:
        """Leave the transaction undecided, also if the block raises: the broker asks `check_transaction` later."""
        self.state = TransactionState.UNKNOWN


@asynccontextmanager
async def transaction(
    sender: MessageSender,
    checks: TransactionChecks,
    message: Message,
    *,
    sharding_key: str | None,
    queue: MessageQueue | None,
    timeout: float | None,
) -> AsyncGenerator[Transaction]:
    """Run a transaction as described at `Producer.transaction`."""
    call = SendCall(
        client=sender.client,
        messages=[_half_message(sender, message)],
        sharding_key=sharding_key,
        is_transaction=True,
    )
    with ExitStack() as working:
        with observing(sender, call) as sending:
            half = sending.messages[0]
            outgoing = sender.encode(half)
            outgoing.sys_flag |= _PREPARED
            sending.encoded(outgoing.message_ids)
            # This begins before the answer: a broker that waits for its disk or slaves may ask before it answers.
            working.enter_context(checks.working(outgoing.message_ids[0]))
            sent = await sender.send(outgoing, sharding_key, queue, timeout)
            sending.stored(sent)
            open_one = Transaction(message, sent, half=half)
            # Stored, but not flushed or not at a slave: if the broker is lost now,
            # the work would be done and its message gone.
            if sent.status is not SendStatus.SEND_OK:
                await _give_up(sender, open_one)
        async with _decided(sender, open_one):
            yield open_one


@asynccontextmanager
async def _decided(sender: MessageSender, open_one: Transaction) -> AsyncGenerator[None]:
    """Send the outcome of the block to the broker."""
    try:
        yield
    except Exception:
        if open_one.state is not TransactionState.UNKNOWN:
            open_one.state = TransactionState.ROLLBACK
        try:
            await _end(sender, open_one)
        except Error as error:
            # The exception of the block is more important; the broker will ask.
            logger.warning("rollback refused message_id=%s error=%s", open_one.message_id, error)
        raise
    except BaseException:
        open_one.state = None  # A cancel: it is unknown how far the work got.
        raise
    # Only here, where the block has ended without an exception: a cancel in it leaves the outcome to the check.
    if open_one.state is None:
        open_one.state = TransactionState.COMMIT
    await _end(sender, open_one)


def _half_message(sender: MessageSender, message: Message) -> Message:
    if message.delay_level:
        raise LocalProtocolError(
            "a message of a transaction cannot be delayed as well", topic=message.topic
        )
    wire_group = sender.client.namespace.wrapped(sender.group)
    marks = {PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: wire_group}
    return attrs.evolve(message, properties={**message.properties, **marks})


async def _give_up(sender: MessageSender, unsafe: Transaction) -> NoReturn:
    """Roll a transaction back whose half message is not stored safely enough, and raise TransactionNotBegunError."""
    unsafe.rollback()
    try:
        await _end(sender, unsafe)
    except BrokerError as error:
        logger.warning("rollback refused message_id=%s error=%s", unsafe.message_id, error)
    raise TransactionNotBegunError(
        f"the half message of a transaction is stored as {unsafe.sent.status.name} only",
        topic=unsafe.message.topic,
    )


async def _end(sender: MessageSender, ended: Transaction) -> None:
    """Send the decision. Raises BrokerError if the broker refuses it; a broker that does not answer will ask later."""
    assert ended.state is not None
    if ended.state is TransactionState.UNKNOWN:
        await trio.lowlevel.checkpoint()
        return
    sent = ended.sent
    header = EndTransactionRequestHeader(
        sender.group,
        sent.queue_offset,
        parse_offset_message_id(sent.offset_message_id)[2],
        ended.state.value,
        sent.message_id,
        transaction_id=sent.transaction_id or sent.message_id,
        topic=sent.queue.topic,
        broker_name=sent.queue.broker_name,
    )
    hooks, state = sender.hooks, ended.state.name.lower()
    ending = (
        nullcontext()
        if hooks is None
        else hooks.ending(sender.client, ended._half, sent.message_id, state)
    )
    with ending:
        await _deliver(sender, ended, header)


async def _deliver(
    sender: MessageSender, ended: Transaction, header: EndTransactionRequestHeader
) -> None:
    assert ended.state is not None
    sent = ended.sent
    # The work is over: a cancel that comes now does not change its outcome.
    until = trio.current_time() + END_TIMEOUT
    with trio.CancelScope(shield=True):
        try:
            addr = await sender.master_of(sent.queue, until=until)
            left = until - trio.current_time()
            answer = await sender.client.connections.call(addr, header, timeout=left)
        except (NotReachableError, RouteNotFoundError) as error:
            logger.warning(
                "decision not delivered, the broker will ask message_id=%s state=%s error=%s",
                sent.message_id,
                ended.state.name,
                error,
            )
            return
    if answer.code != ResponseCode.SUCCESS:
        what = f"{ended.state.name.lower()} of transaction {sent.message_id} refused"
        raise answer.error(what, broker_addr=addr, topic=sent.queue.topic)
    ended.is_acknowledged = True
    if sender.traces is not None:
        sender.traces.decided(
            ended.message,
            sent.message_id,
            group=sender.group,
            addr=addr,
            transaction_id=header.transaction_id or sent.message_id,
            state=ended.state.name,
            by_check=False,
        )
