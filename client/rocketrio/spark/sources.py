"""One broker name as a source of messages: which of its addresses to pull from, retries, and what is lost.

Invariant: a pull ends with progress, or with an error that says why there is none.
Answers to: PullAPIWrapper, for a reader that was given the addresses and never commits.
Unlike Java: addresses come with the task, so that executors need no name server; it is asked only when
all of them have failed.
"""

import logging
from typing import Final

import attrs
import trio

from rocketrio.consuming.pull_result import PullResult
from rocketrio.consuming.subscription import ALL
from rocketrio.instance import ClientInstance
from rocketrio.spark.answers import Again, AskMaster, Lost, Take, judge
from rocketrio.spark.errors import BrokerUnreachable, SparkSourceError, TopicNotFound
from rocketrio.spark.offsets import Bounds, Loss, QueueRange
from rocketrio.spark.options import ReadOptions
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.pull import PullMessageRequestHeader, PullSysFlag
from rocketrio_protocol.errors import BrokerError, NotReachable, TopicNotExist
from rocketrio_protocol.frame import Body
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.message_codec import decode_messages

RETRY_PAUSE: Final = 0.2
"""Seconds before the first repetition, doubled each time (fetchOffset.retryIntervalMs)."""
MAX_RETRY_PAUSE: Final = 5.0

logger = logging.getLogger("rocketrio.spark.sources")


@attrs.frozen
class Answer:
    """Records from the asked offset to before `next_offset`; empty where there are none."""

    next_offset: int
    body: Body = b""


@attrs.define(eq=False)
class BrokerSource:
    """Pulls from the master and slaves of one name."""

    broker_name: str
    addresses: dict[int, str]
    """Broker id to address."""
    options: ReadOptions
    client: ClientInstance
    _suggested: int = MASTER_ID
    _avoided: set[int] = attrs.Factory(set)

    async def pull(self, part: QueueRange, offset: int, end: int) -> Answer:
        """Messages of the range from `offset`, at most up to `end`. Raises SparkSourceError."""
        failures = 0
        ask_master = False
        failure: Exception | None = None
        while failures <= self.options.read_retries:
            if failures:
                await trio.sleep(min(RETRY_PAUSE * 2 ** (failures - 1), MAX_RETRY_PAUSE))
            broker_id = self._chosen(master_first=ask_master)
            if broker_id is None:
                failures += 1
                await self._find_addresses(part.topic)
                continue
            try:
                result = await self._pull_from(broker_id, part, offset, end)
            except NotReachable as error:
                logger.warning("pull failed range=%s offset=%d error=%s", part, offset, error.what)
                failure = error
                self._avoided.add(broker_id)
                continue
            except BrokerError as error:
                failure = error
                if broker_id != MASTER_ID and self._master_is_known:
                    ask_master = True  # A slave may not have heard of a new topic or group yet.
                    continue
                if not error.retryable or isinstance(error, TopicNotExist):
                    raise _refused(part, error) from error
                failures += 1
                continue
            verdict = judge(
                result,
                offset=offset,
                end=end,
                master_known=self._master_is_known,
                is_filtered=self.options.subscription != ALL,
            )
            match verdict:
                case Take(next_offset):
                    return Answer(next_offset, _up_to(end, next_offset, result.body))
                case Lost(next_offset):
                    return self._lost(part, offset, next_offset, result)
                case AskMaster():
                    ask_master = True
                case Again(is_lost_at_last):
                    failures += 1
                    self._avoided.discard(MASTER_ID)  # Only it can tell; it may be back by then.
                    if is_lost_at_last and failures > self.options.read_retries:
                        return self._lost(part, offset, part.end, result)
        raise BrokerUnreachable(
            f"{part} cannot be read at {offset} from {self._addresses_text()}"
            + ("" if failure is None else f": {failure}")
        ) from failure

    @property
    def _master_is_known(self) -> bool:
        return MASTER_ID in self.addresses and MASTER_ID not in self._avoided

    def _chosen(self, *, master_first: bool) -> int | None:
        """The broker id to pull from; None when all that may be asked have failed."""
        read_from = self.options.read_from
        usable = [broker_id for broker_id in self.addresses if broker_id not in self._avoided]
        if read_from == "master":
            return MASTER_ID if MASTER_ID in usable else None
        if not usable:
            return None
        wanted = self._suggested
        if master_first:
            wanted = MASTER_ID
        elif read_from == "slave":
            wanted = min((i for i in self.addresses if i != MASTER_ID), default=MASTER_ID)
        return min(usable, key=lambda i: (i != wanted, i == MASTER_ID and read_from == "slave", i))

    async def _pull_from(
        self, broker_id: int, part: QueueRange, offset: int, end: int
    ) -> PullResult:
        # With every pull: a reader sends no heartbeats, which is where a broker would otherwise have it from.
        subscription = self.options.subscription
        header = PullMessageRequestHeader(
            consumer_group=self.options.consumer_group,
            topic=part.topic,
            queue_id=part.queue_id,
            queue_offset=offset,
            max_msg_nums=min(end - offset, self.options.pull_batch_size, self.options.batch_rows),
            sys_flag=int(PullSysFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=subscription.expression,
            expression_type=subscription.expression_type,
            max_msg_bytes=self.options.batch_size,
            limited_by_bytes=True,
        )
        addr = self.addresses[broker_id]
        result = await self.client.api.pull_message(addr, header, timeout=self.options.pull_timeout)
        result.broker_id = broker_id
        if result.suggest_which_broker_id in self.addresses:
            self._suggested = result.suggest_which_broker_id
        return result

    async def _find_addresses(self, topic: str) -> None:
        """All failed: try them again, and those a name server knows now."""
        self._avoided.clear()
        try:
            route = await self.client.name_servers.topic_route(topic)
        except (NotReachable, BrokerError) as error:
            logger.info("route not found topic=%s error=%s", topic, error.what)
            return
        for broker in [] if route is None else route.broker_datas:
            if broker.broker_name == self.broker_name:
                self.addresses = dict(broker.broker_addrs)

    def _lost(self, part: QueueRange, offset: int, next_offset: int, result: PullResult) -> Answer:
        queue = MessageQueue(part.topic, part.broker_name, part.queue_id)
        bounds = Bounds(result.min_offset, result.max_offset)
        # Of several pulls beyond the end any may be answered first: they all name the same loss.
        if offset > bounds.max_offset:
            offset, next_offset = max(part.start, bounds.max_offset), part.end
        error = Loss(queue, offset, next_offset, bounds).error()
        if self.options.fail_on_data_loss:
            raise error
        logger.warning("data lost and left out error=%s", error)
        return Answer(next_offset)

    def _addresses_text(self) -> str:
        return ", ".join(f"{addr} (id {id_})" for id_, addr in sorted(self.addresses.items()))


def _refused(part: QueueRange, error: BrokerError) -> SparkSourceError:
    kind = TopicNotFound if isinstance(error, TopicNotExist) else SparkSourceError
    return kind(f"{part} cannot be read: {error}")


def _up_to(end: int, next_offset: int, body: Body) -> Body:
    """The records below `end`; brokers give no more than asked, so that this is rarely any work."""
    if next_offset <= end:
        return body
    kept = [message for message in decode_messages(body) if message.queue_offset < end]
    return b"".join(message.record for message in kept)
