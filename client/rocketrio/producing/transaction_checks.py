"""Answers brokers that ask for the outcome of a transaction: CHECK_TRANSACTION_STATE (39).

A broker asks any producer of the group, repeatedly until one knows the outcome, including producers that were started
after the message's producer died. Therefore the group registers with all masters, not only with those it has sent to.

Invariant: a transaction is not checked here from its send to the end of its block: open work is not rolled back.
Invariant: a check that fails, takes too long, or is not answered decides nothing: the broker asks again.
Invariant: each message has only one check at a time; the answer goes to the latest question, because a half message may
move when it is checked.
Answers to: TransactionMQProducer, ClientRemotingProcessor.checkTransactionState, TransactionListener.
Unlike Java: several checks run concurrently; and a producer that has sent nothing yet is asked too.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from enum import Enum
from typing import Final, TypeAlias

import attrs
import trio

from rocketrio.callables import NotAwaitableError
from rocketrio.client import ClientInstance
from rocketrio.hooks import Reader
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.transaction import (
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    TRANSACTION_UNKNOWN,
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from rocketrio_protocol.errors import ConfigError, Error, RemoteProtocolError
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.record.properties import PROPERTY_PRODUCER_GROUP
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.tasks import background_nursery


class TransactionState(Enum):
    """The outcome of a transaction's local work."""

    COMMIT = TRANSACTION_COMMIT
    """The work is done: the message is delivered."""
    ROLLBACK = TRANSACTION_ROLLBACK
    """The work is not done, and never will be: the message is dropped."""
    UNKNOWN = TRANSACTION_UNKNOWN
    """The outcome is not known yet: the broker asks again later."""


CheckTransaction: TypeAlias = Callable[[MessageExt], Awaitable[TransactionState]]

CHECKS_AT_ONCE: Final = 8
"""The number of concurrent calls of `check_transaction`; each usually queries a database."""
CHECKS_WAITING_LIMIT: Final = 2000
"""The number of questions that may wait (checkRequestHoldMax); brokers repeat dropped ones."""
CHECK_TIMEOUT: Final = 60.0
"""Seconds that one call of `check_transaction` may take: two of the broker's rounds. Then it is cancelled, and the
broker asks again."""
KNOWN_RETRY: Final = 5.0
"""Seconds between attempts to find the brokers while no name server answers."""

logger = logging.getLogger("rocketrio.producer")


@attrs.frozen
class _Question:
    channel: Channel
    header: CheckTransactionStateRequestHeader
    message: MessageExt


@attrs.define
class _Group:
    """The questions to one producer group."""

    to_check: trio.MemorySendChannel[str]
    """Message ids, each once."""
    newest: dict[str, _Question] = attrs.Factory(dict)
    """The latest question for each message that is being checked, or waits for it."""


class TransactionChecks:
    """The checks of one client, by producer group; `ClientInstance.shared` makes them."""

    def __init__(self, client: ClientInstance) -> None:
        self.groups: dict[str, _Group] = {}
        """Each group's questions, by the name that brokers know."""
        self._namespace = client.namespace
        self._in_work: set[str] = set()
        client.on_request(RequestCode.CHECK_TRANSACTION_STATE, self.asked)

    @contextmanager
    def working(self, message_id: str) -> Iterator[None]:
        """Mark a transaction as being sent or worked on here: `check_transaction` is not called for it."""
        self._in_work.add(message_id)
        try:
            yield
        finally:
            self._in_work.discard(message_id)

    def asked(self, channel: Channel, request: RemotingCommand) -> None:
        """Queue a broker's question; synchronous, and never answered here."""
        header = request.header(CheckTransactionStateRequestHeader)
        messages = decode_messages(bytes(request.body), header.broker_name or "")
        if len(messages) != 1:
            raise RemoteProtocolError(f"a check of a transaction holds {len(messages)} messages")
        name = messages[0].property_value(PROPERTY_PRODUCER_GROUP)
        group = self.groups.get(name or "")
        if group is None:
            logger.info(
                "check of a transaction of another group group=%s peer=%s",
                name,
                channel.remote_addr,
            )
            return
        message = self._namespace.message(messages[0])
        message_id = message.message_id
        # Its work is under way here: the application's check would find nothing yet, and say rollback.
        if message_id in self._in_work:
            logger.info("check of a transaction that is under way message=%r", message)
            return
        # One check at a time for each message; a further question only replaces what is answered.
        if message_id not in group.newest:
            try:
                group.to_check.send_nowait(message_id)
            except trio.WouldBlock:
                logger.warning("too many transactions to check, question dropped group=%s", name)
                return
        group.newest[message_id] = _Question(channel, header, message)


@asynccontextmanager
async def checking_transactions(
    client: ClientInstance, group: str, check: CheckTransaction
) -> AsyncGenerator[TransactionChecks]:
    """Answer for a producer group while the block runs. Raises ConfigError if another producer already does."""
    checks = client.shared(TransactionChecks)
    groups = checks.groups
    wire_group = client.namespace.wrapped(group)
    if wire_group in groups:
        raise ConfigError(
            f"this client has a producer of group {group} with check_transaction already; share it"
        )
    send, receive = trio.open_memory_channel[str](CHECKS_WAITING_LIMIT)
    asked = groups[wire_group] = _Group(send)
    async with background_nursery() as nursery:
        nursery.start_soon(_announce, client, group)
        for _ in range(CHECKS_AT_ONCE):
            nursery.start_soon(_answer_all, client, wire_group, check, receive, asked.newest)
        try:
            yield checks
        finally:
            del groups[wire_group]


async def _announce(client: ClientInstance, group: str) -> None:
    while True:
        try:
            await client.announce_producer(group)
        except Error as error:
            logger.info("no brokers found yet, trying again error=%s", error)
            await trio.sleep(KNOWN_RETRY)
        else:
            return  # From now on the route is kept fresh, and each new broker gets a heartbeat.


async def _answer_all(
    client: ClientInstance,
    wire_group: str,
    check: CheckTransaction,
    to_check: trio.MemoryReceiveChannel[str],
    newest: dict[str, _Question],
) -> None:
    async for message_id in to_check:
        asked = newest[message_id].message
        checking = (
            nullcontext()
            if client.hooks is None
            else client.hooks.checking(
                Reader(client, client.namespace.unwrapped(wire_group)), asked
            )
        )
        with checking:
            state = await _checked(check, asked)
        # The latest one: while it was checked the broker may have copied the half message, and asked about the copy.
        question = newest.pop(message_id)
        if state is TransactionState.UNKNOWN:
            continue
        header, message = question.header, question.message
        answer = EndTransactionRequestHeader(
            wire_group,
            header.tran_state_table_offset,
            header.commit_log_offset,
            state.value,
            message.message_id,
            from_transaction_check=True,
            transaction_id=header.transaction_id or message.message_id,
            topic=header.topic,
            broker_name=header.broker_name,
        )
        try:
            question.channel.send_oneway(answer)
        except Error as error:
            logger.info(
                "decision not delivered, the broker will ask again message=%r error=%s",
                message,
                error,
            )
            continue
        if client.traces is not None:
            client.traces.decided(
                message,
                message.message_id,
                group=client.namespace.unwrapped(wire_group),
                addr=question.channel.remote_addr,
                transaction_id=answer.transaction_id or message.message_id,
                state=state.name,
                by_check=True,
            )


async def _checked(check: CheckTransaction, message: MessageExt) -> TransactionState:
    state: object = None
    try:
        with trio.move_on_after(CHECK_TIMEOUT) as scope:
            state = await check(message)
    except NotAwaitableError:  # Every call would fail like this.
        raise
    except Exception:  # The application's exception: the broker asks again, which may help.
        logger.warning("check_transaction failed message=%r", message, exc_info=True)
        return TransactionState.UNKNOWN
    if scope.cancelled_caught:
        logger.warning(
            "check_transaction took too long seconds=%g message=%r", CHECK_TIMEOUT, message
        )
        return TransactionState.UNKNOWN
    if not isinstance(state, TransactionState):
        logger.warning("check_transaction did not return a TransactionState returned=%r", state)
        return TransactionState.UNKNOWN
    return state
