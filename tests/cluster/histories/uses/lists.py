"""Who belongs to the group of static members, as each broker tells those that ask, with those that are away."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps

from tests.cluster.histories.events import History, now
from tests.cluster.histories.uses.events import Listed
from tests.cluster.histories.uses.names import REGULARS

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.processors.client_manage import ClientManageProcessor
from rocketrio_protocol.bodies.heartbeat import HeartbeatData
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.client import GetConsumerListByGroupRequestHeader
from rocketrio_protocol.remoting.channel import Channel


@contextmanager
def note_lists(cluster: EmbeddedCluster, history: History) -> Iterator[None]:
    """In this block note each answer about the group that is another one than that broker's last.

    To be entered before the brokers begin, which look up what answers each request only then.
    """
    answer_list = ClientManageProcessor.consumer_list_by_group
    heart_beat = ClientManageProcessor.heart_beat
    # By process: one that starts again knows no member, and may answer what the one before it answered last.
    last: dict[ClientManageProcessor, tuple[str, ...]] = {}
    heard: dict[tuple[int, str], float] = {}

    def number_of(processor: ClientManageProcessor) -> int | None:
        root = processor._broker.store.directory.root
        roots = [member.config.data for member in cluster.members]
        return roots.index(root) if root in roots else None

    @wraps(heart_beat)  # With what it declares.
    def heard_of(
        processor: ClientManageProcessor, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        answer = heart_beat(processor, channel, request)
        if (broker := number_of(processor)) is not None:
            name = request.json_body(HeartbeatData, what="heartbeat").client_id
            heard[broker, name] = now()
        return answer

    @wraps(answer_list)
    def noted(
        processor: ClientManageProcessor, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        answer = answer_list(processor, channel, request)
        header = request.header(GetConsumerListByGroupRequestHeader)
        broker = number_of(processor)
        if header.consumer_group == REGULARS and broker is not None:
            members = tuple(sorted(processor._broker.consumers.client_ids(REGULARS)))
            if last.get(processor) != members:
                gone = [name for name in last.get(processor, ()) if name not in members]
                silent = tuple((name, round(now() - heard[broker, name], 6)) for name in gone)
                last[processor] = members
                history.add(Listed(at=now(), broker=broker, members=members, silent=silent))
        return answer

    ClientManageProcessor.heart_beat = heard_of  # type: ignore[method-assign]
    ClientManageProcessor.consumer_list_by_group = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        ClientManageProcessor.heart_beat = heart_beat  # type: ignore[method-assign]
        ClientManageProcessor.consumer_list_by_group = answer_list  # type: ignore[method-assign]
