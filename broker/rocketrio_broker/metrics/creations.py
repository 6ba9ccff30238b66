"""Times the requests that create or change one topic or one group.

Answers to: topicCreateExecuteTime and consumerGroupCreateExecuteTime of BrokerMetricsManager.
"""

from collections.abc import Callable, Coroutine, Mapping
from time import perf_counter

from rocketrio_broker.metrics.counts import CREATION_MS, CountedStats
from rocketrio_protocol import names
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import CreateTopicRequestHeader
from rocketrio_protocol.histogram import Histogram
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Answer, Processor


def timed_creations(table: Mapping[int, Processor], stats: CountedStats) -> dict[int, Processor]:
    """Return the same table with processors whose times the statistics get."""

    def topic_created(request: RemotingCommand, status: str) -> Histogram:
        topic = request.header(CreateTopicRequestHeader).topic
        key = status, topic in names.SYSTEM_TOPICS
        return stats.topic_creations.setdefault(key, Histogram(CREATION_MS))

    def group_created(request: RemotingCommand, status: str) -> Histogram:
        return stats.group_creations.setdefault(status, Histogram(CREATION_MS))

    timed = {
        RequestCode.UPDATE_AND_CREATE_TOPIC: topic_created,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: group_created,
    }
    return {**table, **{code: _timed(table[code], where) for code, where in timed.items()}}


def _timed(processor: Processor, where: Callable[[RemotingCommand, str], Histogram]) -> Processor:
    async def process(channel: Channel, request: RemotingCommand) -> Answer:
        begin, status = perf_counter(), "failure"
        try:
            answer = processor(channel, request)
            if isinstance(answer, Coroutine):
                answer = await answer
            if answer is None or answer.code == ResponseCode.SUCCESS:
                status = "success"
            return answer
        finally:
            where(request, status).add(1000 * (perf_counter() - begin))

    return process
