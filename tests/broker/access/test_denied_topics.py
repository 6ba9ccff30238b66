"""A user without the right to a topic gets nothing of it, whichever request it tries."""

from pathlib import Path

import pytest
import trio
from tests.support.caller import accepted
from tests.support.secured_broker import SECRET, Account, Secured, message, refused, secured
from trio.testing import MockClock

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import access, client, consumer, pull, query, send, transaction
from rocketrio_protocol.commands.send import SendMessageResponseHeader
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.remoting.dispatch import Processor

OWNER = {"Topic:secret": ["Pub", "Sub", "Create"], "Group:own": ["Sub"]}
STRANGER = {"Topic:public": ["All"], "Group:mine": ["All"], "Cluster:lab": ["Get"]}
HOLD = pull.PullSysFlag.SUSPEND | pull.PullSysFlag.SUBSCRIPTION


def pulling(
    group: str, topic: str, *, lite: bool = False, offset: int = 0
) -> pull.PullMessageRequestHeader:
    kind = pull.LitePullMessageRequestHeader if lite else pull.PullMessageRequestHeader
    return kind(group, topic, 0, offset, 32, HOLD, 0, 20_000, 1, "*", "TAG")


async def stored(account: Account, topic: str = "secret", properties: str = "") -> tuple[str, int]:
    """Send a message; return its id, and its address in the log."""
    header = message(topic)
    header.properties = properties
    answer = accepted(await account.ask(header, b"for the owner"))
    message_id = answer.header(SendMessageResponseHeader).msg_id
    return message_id, parse_offset_message_id(message_id)[2]


async def test_denied_topic_is_refused_in_every_way(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("owner", OWNER)
        await here.add_user("stranger", STRANGER)
        async with here.client("owner") as owner, here.client("stranger") as stranger:
            message_id, address = await stored(owner)
            half_id, half = await stored(owner, properties="TRAN_MSG\x01true\x02PGROUP\x01PG")
            accepted(await stranger.send("public"))
            common = ("PG", "secret", "TBW102", 4, 0, 0, 1000, 0)
            retry = message("%RETRY%own")
            retry.producer_group = "mine"
            attempts: list[RemotingCommand] = [
                RemotingCommand.request(header)
                for header in (
                    send.SendMessageRequestHeader(*common),
                    send.SendMessageRequestHeaderV2(*common),
                    send.SendReplyMessageRequestHeader(*common),
                    send.SendReplyMessageRequestHeaderV2(*common),
                    retry,
                    pulling("mine", "secret"),
                    pulling("mine", "secret", lite=True),
                    pulling("own", "public"),
                    query.QueryMessageRequestHeader("secret", "k", 1, 0, 2**60),
                    query.ViewMessageRequestHeader(address, topic="public"),
                    query.ViewMessageRequestHeader(half, topic="public"),
                    consumer.ConsumerSendMsgBackRequestHeader(
                        address, "mine", 0, origin_topic="public"
                    ),
                    consumer.ConsumeMessageDirectlyRequestHeader(
                        "mine", "id", message_id, topic="public"
                    ),
                    transaction.EndTransactionRequestHeader(
                        "PG", 0, half, 8, half_id, topic="public"
                    ),
                )
            ]
            batch = RemotingCommand.request(send.SendBatchMessageRequestHeader(*common), b"entries")
            end = here.broker.store.max_physical_offset
            for attempt in (*attempts, batch):
                assert "no permission to access" in refused(await stranger.ask(attempt))
                accepted(await stranger.ask(pulling_bounds()))
            assert here.broker.store.max_physical_offset == end
            assert "own" not in here.broker.state.groups.subscription_group_table
            assert "mine" not in here.broker.state.groups.subscription_group_table


def pulling_bounds() -> RemotingCommand:
    """Return a request that the stranger may send."""
    return RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)


async def test_owner_reads_views_sends_back_and_commits(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("owner", OWNER)
        async with here.client("owner") as owner:
            message_id, address = await stored(owner)
            assert b"for the owner" in bytes(
                accepted(await owner.ask(pulling("own", "secret"))).body
            )
            accepted(await owner.ask(query.ViewMessageRequestHeader(address)))
            accepted(await owner.ask(consumer.ConsumerSendMsgBackRequestHeader(address, "own", 0)))
            half_id, half = await stored(owner, properties="TRAN_MSG\x01true\x02PGROUP\x01PG")
            accepted(
                await owner.ask(transaction.EndTransactionRequestHeader("PG", 0, half, 8, half_id))
            )
            # A half message itself is of a system topic, which the owner has no right to.
            assert "HALF" in refused(await owner.ask(query.ViewMessageRequestHeader(half)))
            missing = await owner.ask(query.ViewMessageRequestHeader(address + 1))
            assert missing.code == ResponseCode.SYSTEM_ERROR
            asked = consumer.ConsumeMessageDirectlyRequestHeader("own", "id", message_id)
            assert "not online" in ((await owner.ask(asked)).remark or "")


async def test_heartbeat_with_a_denied_topic_is_refused_as_a_whole_and_names_it(
    tmp_path: Path,
) -> None:
    data = HeartbeatData(
        "id",
        [
            ConsumerData(
                "mine",
                subscription_data_set=[SubscriptionData("public"), SubscriptionData("secret")],
            )
        ],
        [ProducerData("any")],
    )
    async with secured(tmp_path) as here:
        await here.add_user("stranger", STRANGER)
        async with here.client("stranger") as stranger:
            answer = await stranger.ask(client.HeartBeatRequestHeader(), fastjson.dumps(data))
            assert "Topic:secret" in refused(answer)
            assert here.broker.state.consumers.group("mine") is None
            assert not here.broker.state.producers.group_channel_table


@pytest.mark.parametrize("lost", ["rights", "status", "user"])
async def test_pull_that_waits_gets_no_message_after_its_user_lost_the_right(
    tmp_path: Path, autojump_clock: MockClock, lost: str
) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("owner", OWNER)
        await here.add_user("writer", {"Topic:secret": ["Pub", "Create"]})
        async with here.client("owner") as owner, here.client("writer") as writer:
            accepted(await writer.send("secret"))
            await owner.pool.channel(here.broker.address)
            async with trio.open_nursery() as nursery:
                answers: list[RemotingCommand] = []

                async def wait() -> None:
                    header = pulling("own", "secret", offset=1)
                    answers.append(await owner.pool.call(owner.addr, header, timeout=30))

                nursery.start_soon(wait)
                await trio.sleep(1)
                assert len(here.broker.state.held_pulls) == 1
                await lose(here, lost)
                await trio.sleep(1)
                accepted(await writer.send("secret", b"for others"))
            refused(answers[0])
            assert answers[0].body == b""


async def lose(here: Secured, what: str) -> None:
    async with here.operator() as operator:
        if what == "rights":
            await here.revoke("owner", "Topic:secret")
        elif what == "status":
            body = b'{"userStatus":"disable"}'
            accepted(await operator.ask(access.UpdateUserRequestHeader("owner"), body))
        else:
            accepted(await operator.ask(access.DeleteUserRequestHeader("owner")))


async def test_pull_that_waits_gets_its_message_if_its_user_keeps_the_right(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("owner", OWNER)
        async with here.client("owner") as owner:
            accepted(await owner.send("secret"))
            async with trio.open_nursery() as nursery:
                answers: list[RemotingCommand] = []

                async def wait() -> None:
                    header = pulling("own", "secret", offset=1)
                    answers.append(await owner.pool.call(owner.addr, header, timeout=30))

                nursery.start_soon(wait)
                await trio.sleep(1)
                await here.grant("owner", {"Topic:more": ["Pub"]})
                accepted(await owner.send("secret", b"second"))
            assert b"second" in bytes(accepted(answers[0]).body)


async def test_forwarded_request_carries_no_credentials_of_its_sender(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("owner", {**OWNER, "Group:own": ["Sub", "Get"]})
        forwarded: list[dict[str, str]] = []

        def answer(channel: object, request: RemotingCommand) -> RemotingCommand:
            forwarded.append(dict(request.ext_fields))
            return request.response()

        member = HeartbeatData(
            "id", [ConsumerData("own", subscription_data_set=[SubscriptionData("secret")])]
        )
        processors = dict.fromkeys(
            (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY), answer
        )
        async with here.client("owner", processors=processors) as owner:
            message_id, _ = await stored(owner)
            beat = RemotingCommand.request(client.HeartBeatRequestHeader(), fastjson.dumps(member))
            beat.version = 407
            accepted(await owner.ask(beat))
            accepted(await owner.ask(consumer.GetConsumerRunningInfoRequestHeader("own", "id")))
            accepted(
                await owner.ask(
                    consumer.ConsumeMessageDirectlyRequestHeader("own", "id", message_id)
                )
            )
        assert len(forwarded) == 2
        for fields in forwarded:
            assert not {"AccessKey", "Signature", "SecurityToken"} & fields.keys()
            assert SECRET not in fields.values()


async def test_producer_is_asked_about_a_transaction_only_if_its_user_may_send_to_the_topic(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    asked: dict[str, int] = {"owner": 0, "stranger": 0}

    def asking(name: str) -> dict[int, Processor]:
        def note(channel: object, request: RemotingCommand) -> None:
            asked[name] += 1

        return {RequestCode.CHECK_TRANSACTION_STATE: note}

    async def join(account: Account, client_id: str) -> None:
        data = HeartbeatData(client_id, [], [ProducerData("PG")])
        accepted(await account.ask(client.HeartBeatRequestHeader(), fastjson.dumps(data)))

    async with secured(tmp_path, transaction_timeout=1, transaction_check_interval=1) as here:
        await here.add_user("owner", OWNER)
        await here.add_user("stranger", STRANGER)
        async with (
            here.client("owner", processors=asking("owner")) as owner,
            here.client("stranger", processors=asking("stranger")) as stranger,
        ):
            await join(stranger, "stranger-1")
            half = message("secret")
            half.properties = "TRAN_MSG\x01true\x02PGROUP\x01PG"
            half.born_timestamp = here.cluster.wall_clock.now_ms()
            accepted(await owner.ask(half, b"for the owner"))
            await trio.sleep(5)
            assert asked == {"owner": 0, "stranger": 0}
            await join(owner, "owner-1")
            await trio.sleep(5)
            assert asked["owner"] > 2
            assert asked["stranger"] == 0
