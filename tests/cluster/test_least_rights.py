"""Each use that docs/security.md names, by a user who has the rights of its row alone; without one it is refused.

The table's column for RocketMQ 5 is read, so that guide and broker cannot drift apart.
"""

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import trio
from tests.support.clients import open_admin, open_client, open_consumer, open_producer
from tests.support.further import every_other
from tests.support.secured_broker import (
    INNER,
    SECRET,
    Secured,
    acl,
    name_server_access,
    secured,
)
from tests.support.waiting import eventually

from rocketrio import (
    ConsumeLater,
    Credentials,
    Message,
    MessageExt,
    MessageQueue,
    NotAuthorizedError,
    RouteNotFoundError,
    TransactionState,
)
from rocketrio.admin import Admin
from rocketrio.admin.declared import BROKER, DeclaredPlace, Field
from rocketrio.admin.message_status import Track
from rocketrio.admin.reset_plan import Target
from rocketrio_broker.access.control import AccessControl
from rocketrio_protocol.commands.admin import (
    CleanExpiredQueuesRequestHeader,
    CleanUnusedTopicsRequestHeader,
    DeleteExpiredLogRequestHeader,
)
from rocketrio_protocol.errors import Error

PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
TOPIC, GROUP = "orders", "billing"
NAMES: Final = {
    "T": TOPIC,
    "G": GROUP,
    "NAME": "lab",
    "%DLQ%G": f"%DLQ%{GROUP}",
    "CLUSTER_REPLY_TOPIC": "lab_REPLY_TOPIC",
}
USER: Final = Credentials("user", SECRET)
Use = Callable[[Secured, Credentials], Awaitable[None]]
ELSEWHERE: Final = {"read with Spark", "write with Spark", "`rocketrio exporter`"}
"""Spark's are those of consumers and producers; the exporter leaves out what it may not see."""


def told() -> dict[str, dict[str, list[str]]]:
    """Return the rights that the guide gives to each use."""
    section = PAGE.read_text().partition("## Least rights for each use")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return {use.strip(): rights_in(cell) for use, _, cell in rows[2:]}


def rights_in(cell: str) -> dict[str, list[str]]:
    """Return the rights that a cell names: a resource in backquotes, then its actions."""
    found = {}
    for kind, name, actions in re.findall(r"`(\w+):([^`]+)`((?: (?:and )?[A-Z][a-z]+,?)+)", cell):
        found[f"{kind}:{NAMES.get(name, name)}"] = re.findall("[A-Z][a-z]+", actions)
    return found


async def send(here: Secured, account: Credentials) -> None:
    async def check(message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    async with open_producer(
        group="paying", check_transaction=check, **here.options(account)
    ) as producer:
        await producer.send(Message(TOPIC, b"x"))
        await producer.send(Message(TOPIC, b"x"), sharding_key="one")
        await producer.send(producer.delayed(Message(TOPIC, b"x"), timedelta(seconds=1)))
        await producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"y")])
        async with producer.transaction(Message(TOPIC, b"x")):
            pass
        async with producer.pipeline() as pipeline:
            await pipeline.send(Message(TOPIC, b"x"))


async def consume(here: Secured, account: Credentials) -> None:
    """One message fails once, and one becomes a dead letter."""
    seen: dict[bytes, list[int]] = {b"again": [], b"bad": []}
    handled = trio.Event()

    async def handle(message: MessageExt) -> None:
        if message.body not in seen:
            return
        seen[message.body].append(message.reconsume_times)
        if message.body == b"bad" or not message.reconsume_times:
            raise ConsumeLater(timedelta(seconds=1))
        handled.set()

    async def has_dead_letter(admin: Admin) -> bool:
        try:
            return [one.body for one in await admin.dead_letters(GROUP).messages()] == [b"bad"]
        except RouteNotFoundError:
            return False

    async with (
        open_consumer(
            TOPIC,
            group=GROUP,
            start_from="earliest",
            max_reconsume_times=1,
            **here.options(account),
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, handle)
        async with open_producer(**here.options(INNER)) as producer:
            await producer.send(Message(TOPIC, b"again"))
            await producer.send(Message(TOPIC, b"bad"))
        with trio.fail_after(120):
            await handled.wait()
        async with open_admin(**here.options(INNER)) as admin:
            await eventually(lambda: has_dead_letter(admin), 120)
        nursery.cancel_scope.cancel()
    assert seen == {b"again": [0, 1], b"bad": [0, 1]}


async def see_lag(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        offsets = await admin.offsets(TOPIC, GROUP)
        assert offsets
        await admin.consume_stats(GROUP)


async def find(here: Secured, account: Credentials) -> None:
    async with open_producer(**here.options(INNER)) as producer:
        sent = await producer.send(Message(TOPIC, b"x", keys="k"))
    async with open_admin(**here.options(account)) as admin:
        assert await admin.query_message(TOPIC, "k")
        assert await admin.query_message(TOPIC, sent.message_id, is_unique_id=True)
        assert await admin.view_message(sent.offset_message_id)


async def read_dead_letters(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(INNER)) as admin:
        await admin.create_topic(f"%DLQ%{GROUP}", queues=1)
    async with open_producer(**here.options(INNER)) as producer:
        await producer.send(Message(f"%DLQ%{GROUP}", b"letter"))
    async with open_admin(**here.options(account)) as admin:
        [letter] = await admin.dead_letters(GROUP).messages()
        assert letter.body == b"letter"


async def ask(here: Secured, account: Credentials, answering: Credentials = INNER) -> None:
    async with (
        open_producer(**here.options(account)) as producer,
        open_client(**here.options(answering)) as other,
        open_producer(client=other, group="answers") as replies,
        open_consumer(TOPIC, group=GROUP, client=other) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def answer() -> None:
            await replies.reply(await consumer.receive(), b"answer")

        nursery.start_soon(answer)
        reply = await producer.request(Message(TOPIC, b"question"), timeout=10)
        assert reply.body == b"answer"


async def answer(here: Secured, account: Credentials) -> None:
    await ask(here, INNER, account)


async def trace(here: Secured, account: Credentials) -> None:
    await here.grant(account.access_key, {f"Topic:{TOPIC}": ["Pub"]})
    async with open_producer(**here.options(account, trace=True)) as producer:
        sent = await producer.send(Message(TOPIC, b"x"))
    async with open_admin(**here.options(INNER)) as admin:
        assert await admin.query_message("RMQ_SYS_TRACE_TOPIC", sent.message_id)


async def change_topics(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        await admin.create_topic(TOPIC, queues=3)
        assert (await admin.topic(TOPIC)).topic == TOPIC
        await admin.delete_topic(TOPIC)
        await admin.create_topic(TOPIC, queues=1)


async def change_groups(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        await admin.create_group(GROUP, retry_max_times=3)
        assert await admin.group(GROUP)
        await admin.delete_group(GROUP, with_offsets=False)


async def change_users(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        access = admin.access(plain_passwords=True)
        await access.create_user("another", "another-secret")
        await access.grant("another", [f"Topic:{TOPIC}"], ["Pub"])
        assert await access.rights_of("another")
        await access.delete_user("another")


async def see_status(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        [status] = await admin.status()
        assert status.problem is None


async def see_all_lag(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        lag = await admin.lag()
        assert lag.rows
        assert not lag.silent


async def see_health(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        health = await admin.health()
        assert not health.silent, health.silent
        assert health.is_well


async def see_events(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        feed = admin.events()
        await feed.poll()
        assert not feed.silent
        assert not feed.without


async def diagnose(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        found = await admin.diagnose(seconds=0)
        for what, why in found.unknown.items():
            assert f"account {account.access_key} was refused" in why, what
            assert "without a right on" in why, what
        assert not {one.code for one in found.findings} & {"R02", "R05", "G09"}
        assert not found.unknown, found.unknown


async def export(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        state = await admin.read_state(("topics", "groups", "settings"))
        assert {one.kind for one in state} == {"topics", "groups", "settings"}


async def list_topics(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        found, silent = await admin.topic_overviews()
        assert [one.topic for one in found] == [TOPIC]
        assert not silent, silent


async def list_clients(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        groups, silent = await admin.group_overviews()
        assert [one.group for one in groups] == [GROUP]
        assert not silent, silent
        clients = await admin.connected_clients()
        assert not clients.silent, clients.silent


async def see_producers(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        found = await admin.producers_of(TOPIC)
        assert not found.silent, found.silent


async def see_broker(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        assert await admin.calls.runtime_info(here.broker.address)


async def see_trace(here: Secured, account: Credentials) -> None:
    async with open_producer(**here.options(INNER, trace=True)) as producer:
        sent = await producer.send(Message(TOPIC, b"x"))
    async with open_admin(**here.options(INNER)) as admin:
        await admin.create_topic(f"%DLQ%{GROUP}", queues=1)
        await admin.reset_offsets(GROUP, {MessageQueue(TOPIC, "broker-a", 0): 0})
    async with open_admin(**here.options(account)) as admin:
        found = await admin.message_trace(sent.message_id, topic=TOPIC)
        assert found.steps
        assert not found.problems, found.problems


async def see_message_status(here: Secured, account: Credentials) -> None:
    async with open_producer(**here.options(INNER)) as producer:
        sent = await producer.send(Message(TOPIC, b"x"))
    async with open_admin(**here.options(INNER)) as admin:
        await admin.reset_offsets(GROUP, {MessageQueue(TOPIC, "broker-a", 0): 0})
    async with open_admin(**here.options(account)) as admin:
        message = await admin.view_message(sent.offset_message_id)
        [track] = await admin.message_status(message)
        assert track.status is not Track.UNKNOWN, track.why


async def deliver_message(here: Secured, account: Credentials) -> None:
    handled: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        handled.append(message.body)

    async with (
        open_consumer(TOPIC, group=GROUP, start_from="latest", **here.options(INNER)) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, handle)
        async with open_producer(**here.options(INNER)) as producer:
            sent = await producer.send(Message(TOPIC, b"x"))
        await trio.sleep(1)
        async with open_admin(**here.options(INNER)) as admin:
            [member] = (await admin.consumer_connections(GROUP)).connection_set
        async with open_admin(**here.options(account)) as admin:
            message = await admin.view_message(sent.offset_message_id)
            before = len(handled)
            await admin.deliver(message, GROUP, member.client_id)
        assert len(handled) == before + 1
        nursery.cancel_scope.cancel()


async def reset_offsets(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        plan = await admin.plan_reset(GROUP, [TOPIC], Target(from_last=0))
        await admin.apply_reset(plan)


async def resend_dead_letters(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(INNER)) as admin:
        await admin.create_topic(f"%DLQ%{GROUP}", queues=1)
    async with open_producer(**here.options(INNER)) as producer:
        letter = Message(f"%DLQ%{GROUP}", b"letter", properties={"RETRY_TOPIC": TOPIC})
        await producer.send(letter)
    async with open_admin(**here.options(account)) as admin:
        letters = admin.dead_letters(GROUP)
        assert await letters.resend(await letters.messages(), to="topic")


async def apply(here: Secured, account: Credentials) -> None:
    wanted: dict[DeclaredPlace, dict[str, Field]] = {
        DeclaredPlace("topics", TOPIC, "broker-a"): {"writeQueueNums": 3, "readQueueNums": 3},
        DeclaredPlace("groups", GROUP, "broker-a"): {"retryMaxTimes": 3},
        DeclaredPlace("settings", BROKER, "broker-a/0"): {"fileReservedTime": "48"},
    }
    async with open_admin(**here.options(account)) as admin:
        failed = await admin.apply_state(await admin.plan_state(wanted))
        for why in failed.values():
            assert f"account {account.access_key} was refused" in why
        assert not failed, failed


async def clean_broker(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        for header in (
            CleanExpiredQueuesRequestHeader(),
            CleanUnusedTopicsRequestHeader(),
            DeleteExpiredLogRequestHeader(),
        ):
            await admin.calls.ask(here.broker.address, header, "not cleaned")


async def drain(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        assert (await admin.drain("broker-a")).topics
        assert (await admin.undrain("broker-a")).topics


async def change_name_servers(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        for failures in (
            await admin.put_name_server_text("NAMES", "key", "text"),
            await admin.delete_name_server_text("NAMES", "key"),
        ):
            for error in failures.values():
                raise error
        for settings in (await admin.name_server_settings()).values():
            if isinstance(settings, Error):
                raise settings


async def change_brokers(here: Secured, account: Credentials) -> None:
    async with open_admin(**here.options(account)) as admin:
        address = here.broker.address
        await admin.change_settings(address, {"brokerPermission": "6"})
        await admin.change_role(address, "async-master", 0)


USES: Final[dict[str, Use]] = {
    "send, also delayed, in order and in transactions": send,
    "consume, with retries": consume,
    "see how far behind a group is": see_lag,
    "find messages by key or id": find,
    "read the dead letters of G": read_dead_letters,
    "send requests and wait for replies": ask,
    "answer requests": answer,
    "send traces": trace,
    "create, change, delete topics": change_topics,
    "create, change, delete groups": change_groups,
    "administer users": change_users,
    "`rocketrio cluster status`": see_status,
    "`rocketrio lag` of all groups": see_all_lag,
    "settings of brokers, hand-over, roles": change_brokers,
    "`rocketrio cluster health`": see_health,
    "`rocketrio cluster events`, of rocketrio's brokers": see_events,
    "`rocketrio doctor`": diagnose,
    "`rocketrio export` of topics, groups and settings": export,
    "`rocketrio topic list --long`": list_topics,
    "`rocketrio group list --long`, `clients`": list_clients,
    "`rocketrio producers`": see_producers,
    "`rocketrio broker show`, `broker stats`": see_broker,
    "trace a message, also through retries and dead letters": see_trace,
    "see which groups have consumed a message": see_message_status,
    "have a member handle a message: `message deliver`": deliver_message,
    "reset offsets of a group without members": reset_offsets,
    "send the dead letters of G to T again": resend_dead_letters,
    "change topics, groups and settings: `rocketrio apply`": apply,
    "clean a broker: `broker clean`": clean_broker,
    "drain a broker, at a name server with access control": drain,
    "change texts and settings of such name servers: `namesrv kv`": change_name_servers,
}


def test_guide_gives_rights_to_each_use_that_is_tried() -> None:
    assert set(told()) == USES.keys() | ELSEWHERE


def name_server_users(folder: Path, rights: dict[str, list[str]]) -> AccessControl:
    """Return the access control of a name server that knows the user, with the rights that brokers give it too."""
    user = {"username": USER.access_key, "secretKeys": [SECRET]}
    acls = [msgspec.to_builtins(acl(USER.access_key, rights))] if rights else []
    return name_server_access(folder, json.dumps({"users": [user], "acls": acls}))


@asynccontextmanager
async def running(folder: Path, rights: dict[str, list[str]]) -> Any:
    async with secured(folder, name_server_access=name_server_users(folder, rights)) as here:
        await trio.sleep(1)
        async with open_admin(**here.options(INNER)) as admin:
            await admin.create_topic(TOPIC, queues=2)
            await admin.create_group(GROUP)
        async with open_consumer(TOPIC, group=GROUP, **here.options(INNER)) as consumer:
            await consumer.commit()
        await here.add_user(USER.access_key, rights)
        yield here


@pytest.mark.parametrize("use", USES)
async def test_rights_of_the_guide_suffice(use: str, tmp_path: Path) -> None:
    async with running(tmp_path, told()[use]) as here:
        await USES[use](here, USER)


@pytest.mark.parametrize("use", every_other(use for use in USES if use != "send traces"))
async def test_without_one_of_them_the_use_is_refused(use: str, tmp_path: Path) -> None:
    rights = told()[use]
    for missing in rights:
        rest = {name: actions for name, actions in rights.items() if name != missing}
        async with running(tmp_path, rest) as here:
            try:
                await USES[use](here, USER)
            except (NotAuthorizedError, AssertionError):
                continue
            raise AssertionError(f"{use} works without {missing}")
