"""What is wrong with the members of a group, by what they answered."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio
from tests.client.admin.group_members import member, state
from tests.support.clients import client_of

from rocketrio import ClientInstance, Consumer, Message, open_admin, open_consumer, open_producer
from rocketrio.admin.diagnosis import group_findings
from rocketrio.admin.diagnosis.snapshot import GroupMembers
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.running_info import ConsumerRunningInfo
from rocketrio_protocol.errors import ConsumerNotOnlineError, GroupNotExistError
from rocketrio_protocol.message import MessageQueue

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]


def dropping(count: int) -> ConsumerRunningInfo:
    """Return the state of a member whose commits of the first queue are dropped."""
    info = state(QUEUES[0])
    info.mq_table[QUEUES[0]].rocketrio_dropped_commits = count
    return info


def group(running: Mapping[str, ConsumerRunningInfo], **changes: Any) -> GroupMembers:
    members = {client_id: member(client_id) for client_id in running}
    whole = GroupMembers("g", "CLUSTERING", members, running, {}, {"orders": QUEUES})
    return attrs.evolve(whole, **changes)


WELL = group({"a": state(QUEUES[0]), "b": state(QUEUES[1])})


def codes(answers: GroupMembers) -> list[str]:
    return [one.code for one in group_findings(answers)]


def test_members_that_share_all_queues_are_well() -> None:
    assert codes(WELL) == []


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (group({"a": state(QUEUES[0]), "b": state(QUEUES[1], tags="paid")}), ["G01"]),
        (group({"a": state(QUEUES[0]), "b": state(QUEUES[1], topic="bills")}), ["G01", "G01"]),
        (group({"a": state(QUEUES[0]), "b": state(QUEUES[1]), "c": state()}), ["G02"]),
        (group({"a": state(QUEUES[0]), "b": state()}), ["G07"]),
        (group({"a": state(*QUEUES), "b": state(QUEUES[1])}), ["G08"]),
        (group({}, model=None), ["G10"]),
        (attrs.evolve(WELL, silent={"h:1": "no answer"}), ["G09"]),
        (group({"a": dropping(1), "b": state(QUEUES[1])}), []),
        (group({"a": dropping(2), "b": state(QUEUES[1])}), ["G13"]),
        (attrs.evolve(WELL, members={"a": member("a"), "b": member("b", 500)}), ["G05"]),
        (attrs.evolve(WELL, shared_ids={"a": ["10.0.0.1:1", "10.0.0.2:2"]}), ["G06"]),
    ],
)
def test_findings(answers: GroupMembers, expected: list[str]) -> None:
    assert codes(answers) == expected


def test_owners_are_not_judged_while_a_member_is_silent_or_does_not_share() -> None:
    lacking = group({"a": state(QUEUES[0]), "b": state()})
    assert codes(attrs.evolve(lacking, silent={"c": "no answer"})) == ["G09"]
    assert codes(attrs.evolve(lacking, model="BROADCASTING")) == []
    assert codes(group({"a": state(), "b": state()})) == []


def test_queue_that_is_wrong_for_a_moment_while_members_join_is_no_finding() -> None:
    lacking = group({"a": state(QUEUES[0]), "b": state()})
    doubled = group({"a": state(*QUEUES), "b": state(QUEUES[1])})
    for wrong, code in ((lacking, "G07"), (doubled, "G08")):
        assert codes(attrs.evolve(wrong, again=wrong)) == [code]
        assert codes(attrs.evolve(wrong, again=WELL)) == []
        assert codes(attrs.evolve(wrong, again=attrs.evolve(WELL, silent={"c": "away"}))) == []
    assert codes(attrs.evolve(lacking, again=doubled)) == []


async def test_members_of_a_cluster_in_memory(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        await admin.create_topic("orders", queues=4)
        await producer.send(Message("orders", b"1"))
        with pytest.raises(GroupNotExistError):
            await admin.check_group("billing")
        async with (
            client_of(cluster) as other,
            open_consumer("orders", group="billing", client=client) as first,
            open_consumer("orders", group="billing", client=other) as second,
        ):
            await receive_once(first, second)
            found = await admin.check_group("billing")
            assert (found.findings, len(found.answers.members)) == ([], 2)
            text = await admin.member_stacks("billing", sorted(found.answers.members)[0])
            assert "open_consumer" in text or "task" in text.lower()
            with pytest.raises(ConsumerNotOnlineError, match="no master knows a member"):
                await admin.member_stacks("billing", "nobody")
        found = await admin.check_group("billing")
        assert [one.code for one in found.findings] == ["G10"]


async def test_members_whose_commits_are_dropped_are_found(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        await admin.create_topic("orders", queues=1)
        queue = MessageQueue("orders", "broker-a", 0)
        async with open_consumer("orders", group="billing", client=client) as consumer:
            for number in range(8):
                await producer.send(Message("orders", b"%d" % number))
            await consumer.receive()
            await consumer.commit()
            await admin.reset_offsets("billing", {queue: 0})
            for _ in range(4):
                await consumer.receive()
                await trio.sleep(6)
            (found,) = (await admin.check_group("billing")).findings
            assert (found.code, found.where) == ("G13", f"billing: {client.client_id}")
            assert f"in a row of {queue}" in found.what
            consumer.seek(queue, 6)
            await consumer.receive()
            await trio.sleep(6)
            assert (await admin.check_group("billing")).findings == []


async def receive_once(*consumers: Consumer) -> None:
    await trio.sleep(40)
    async with trio.open_nursery() as nursery:
        done = trio.Event()

        async def receive(consumer: Consumer) -> None:
            await consumer.receive()
            done.set()

        for consumer in consumers:
            nursery.start_soon(receive, consumer)
        await done.wait()
        nursery.cancel_scope.cancel()
