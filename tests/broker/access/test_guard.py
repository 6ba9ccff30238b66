import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from tests.support.caller import accepted
from tests.support.clients import open_consumer, open_producer
from tests.support.clocks import SteppedClock
from tests.support.secured_broker import INNER, SECRET, message, refused, secured
from trio.testing import MockClock

from rocketrio import Message
from rocketrio_broker.access import guard
from rocketrio_broker.access.failures import KINDS_LIMIT
from rocketrio_broker.access.guard import REFUSALS_LIMIT
from rocketrio_broker.embedded import fast_address
from rocketrio_protocol.bodies.access import UserInfo
from rocketrio_protocol.codes import RequestCode, ResponseCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import access, admin
from rocketrio_protocol.commands.offset import GetMaxOffsetRequestHeader
from rocketrio_protocol.commands.query import QueryMessageRequestHeader
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.signature import Signer, signature

NOT_SIGNED = "check signature failed."


async def test_user_with_the_right_may_and_another_may_not(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("writer", {"Topic:orders": ["Pub", "Create"]})
        await here.add_user("other", {"Topic:payments": ["Pub", "Create"]})
        async with here.client("writer") as writer, here.client("other") as other:
            accepted(await writer.send("orders"))
            remark = refused(await other.send("orders"))
    assert remark == (
        "User:other has no permission to access Topic:orders from 10.0.0.100, no matched policies."
    )


async def test_denied_user_is_answered_that_the_decision_is_deny(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("writer", {"Topic:*": ["All"]})
        await here.grant("writer", {"Topic:orders": ["Pub"]}, "Deny")
        async with here.client("writer") as writer:
            assert refused(await writer.send("orders")).endswith("the decision is deny.")
            accepted(await writer.send("others"))


@pytest.mark.parametrize("serialize_type", SerializeType)
async def test_signature_is_accepted_in_every_encoding(
    tmp_path: Path, serialize_type: SerializeType
) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("writer", {"Topic:orders": ["Pub", "Create"]})
        async with here.client("writer", serialize_type=serialize_type) as writer:
            for _ in range(3):
                accepted(await writer.send("orders"))


@pytest.mark.slow
async def test_request_without_a_user_is_refused_on_both_ports_before_every_code(
    tmp_path: Path,
) -> None:
    async with secured(tmp_path) as here, here.client() as stranger:
        for addr in (here.broker.address, fast_address(here.broker.address)):
            for code in {*RequestCode, 999_999} - {RequestCode.GET_IDENTITY}:
                answer = await stranger.ask(RemotingCommand(code), addr=addr)
                assert refused(answer) == "username cannot be null."
                stranger.pool.drop(addr)


@pytest.mark.slow
@pytest.mark.parametrize("days", [-2, 2])
async def test_clock_of_a_server_that_is_days_off_changes_nothing(
    tmp_path: Path, autojump_clock: MockClock, days: int
) -> None:
    clock = SteppedClock()
    clock.step_ms = days * 86_400_000
    async with secured(tmp_path, slaves=1, wall_clock=clock) as here:
        await here.add_user("user", {"Topic:orders": ["Pub", "Sub", "Create"], "Group:g": ["Sub"]})
        user = Credentials("user", SECRET)
        names = {"name_servers": here.cluster.name_servers, "dial": here.cluster.dial}
        async with open_producer(**names, credentials=user) as producer:
            await producer.send(Message("orders", b"x"))
        async with open_consumer(
            "orders", group="g", start_from="earliest", **names, credentials=user
        ) as consumer:
            assert (await consumer.receive()).body == b"x"
        await trio.sleep(20)
        slave = here.cluster.slaves[0].broker.state.access
        assert slave is not None
        assert "user" in slave.table.users


async def test_unknown_user_and_wrong_secret_get_the_same_text(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("writer", {"Topic:*": ["All"]})
        for name, secret in (("writer", "wrong"), ("stranger", SECRET), (INNER.access_key, SECRET)):
            async with here.client(name, secret) as client:
                assert refused(await client.send("orders")) == NOT_SIGNED


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.QUERY_MESSAGE])
async def test_refusal_takes_as_many_signatures_for_an_unknown_user_as_for_a_wrong_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    made: list[bytes] = []

    def counted(secret: bytes, fields: Mapping[str, str], body: Body) -> str:
        made.append(secret)
        return signature(secret, fields, body)

    async with secured(tmp_path) as here:
        await here.add_user("one-key")
        await here.add_user("two-keys")
        async with here.operator() as operator:
            body = UserInfo(password="marker-second").to_json()
            accepted(await operator.ask(access.UpdateUserRequestHeader("two-keys"), body))
        monkeypatch.setattr(guard, "signature", counted)
        counts = set()
        for name in ("one-key", "two-keys", "unknown"):
            made.clear()
            async with here.client(name, "wrong") as client:
                request = RemotingCommand(code, ext_fields={"_UNIQUE_KEY_QUERY": "true"})
                assert refused(await client.ask(request)) == NOT_SIGNED
            counts.add(len(made))
        assert counts == {4 if code == RequestCode.QUERY_MESSAGE else 2}


async def test_fields_that_other_clients_add_are_signed_like_all_others(tmp_path: Path) -> None:
    fields = message("orders").to_ext_fields() | {"OnsChannel": "ALIYUN", "ReqT": "", "ns": "x"}
    async with secured(tmp_path) as here, here.client("writer") as writer:
        await here.add_user("writer", {"Topic:orders": ["Pub", "Create"]})
        accepted(await writer.ask(RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields)))


async def test_disabled_user_learns_it_only_with_the_right_secret(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("writer", user_status="disable")
        async with here.client("writer") as writer, here.client("writer", "wrong") as other:
            assert refused(await writer.send("orders")) == "User:writer is disabled."
            assert refused(await other.send("orders")) == NOT_SIGNED


async def test_changed_field_or_body_breaks_the_signature(tmp_path: Path) -> None:
    signer = Signer(Credentials("writer", SECRET))
    fields = signer.signed(message("orders").to_ext_fields(), b"hello")
    async with secured(tmp_path) as here:
        await here.add_user("writer", {"Topic:*": ["All"]})
        async with here.client() as client:

            def request(fields: dict[str, str], body: bytes = b"hello") -> RemotingCommand:
                return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=body)

            accepted(await client.ask(request(fields)))
            assert refused(await client.ask(request(fields, b"hallo"))) == NOT_SIGNED
            for change in ({"b": "payments"}, {"z": "1"}, {"Signature": "ä"}, {"Signature": ""}):
                assert refused(await client.ask(request(fields | change))) == NOT_SIGNED


@pytest.mark.parametrize("is_signed", [True, False])
async def test_field_of_a_query_by_unique_id_may_be_signed_or_not(
    tmp_path: Path, *, is_signed: bool
) -> None:
    fields = QueryMessageRequestHeader(
        "orders", "k", 32, 0, 2**60, unique_key_query=True
    ).to_ext_fields()
    fields["AccessKey"] = "reader"
    signed = {n: v for n, v in fields.items() if is_signed or n != "_UNIQUE_KEY_QUERY"}
    fields["Signature"] = signature(SECRET.encode(), signed, b"")
    async with secured(tmp_path) as here:
        await here.add_user("reader", {"Topic:orders": ["Sub"]})
        async with here.client() as client:
            request = RemotingCommand(RequestCode.QUERY_MESSAGE, ext_fields=fields)
            assert (await client.ask(request)).code == ResponseCode.QUERY_NOT_FOUND


async def test_both_secrets_are_valid_while_a_password_changes(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("writer", {"Topic:*": ["All"]})
        async with (
            here.operator() as operator,
            here.client("writer") as old,
            here.client("writer", "marker-second") as new,
        ):
            header = access.UpdateUserRequestHeader("writer")
            body = UserInfo(password="marker-second").to_json()
            accepted(await operator.ask(header, body))
            accepted(await old.send("orders"))
            accepted(await new.send("orders"))
            accepted(await operator.ask(header, body))
            accepted(await new.send("orders"))
            assert refused(await old.send("orders")) == NOT_SIGNED


async def test_unreadable_header_is_refused_as_unreadable(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("writer", {"Topic:*": ["All"]})
        async with here.client("writer") as writer:
            for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT):
                answer = await writer.ask(RemotingCommand(code, ext_fields={"x": "1"}))
                assert refused(answer) == "parse authorization context error."


async def test_code_without_a_rule_is_refused_to_all_but_super_users(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("user-1", {"*": ["All"]})
        async with here.client("user-1") as client, here.operator() as operator:
            unknown = RemotingCommand(999_999)
            assert "request code 999999" in refused(await client.ask(unknown))
            not_supported = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert (await operator.ask(unknown)).code == not_supported
            shows_secrets = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
            assert (await client.ask(shows_secrets)).code == not_supported


async def test_ten_refusals_in_a_row_close_the_connection(tmp_path: Path) -> None:
    async with secured(tmp_path) as here, here.client("stranger") as stranger:
        for _ in range(REFUSALS_LIMIT - 1):
            refused(await stranger.send("orders"))
        channel = stranger.pool.open_channel(here.broker.address)
        assert channel is not None
        refused(await stranger.send("orders"))
        await channel.over.wait()
        refused(await stranger.send("orders"))  # A new connection begins to count again.


async def test_success_between_refusals_keeps_the_connection(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("writer", {"Topic:orders": ["Pub", "Create"]})
        async with here.client("writer") as writer:
            for _ in range(3 * REFUSALS_LIMIT):
                refused(await writer.send("others"))
                accepted(await writer.send("orders"))
            channel = writer.pool.open_channel(here.broker.address)
            assert channel is not None
            assert not channel.closed


async def test_requests_that_follow_a_tenth_refusal_at_once_are_not_executed(
    tmp_path: Path,
) -> None:
    async with secured(tmp_path) as here, here.client("stranger") as stranger:
        await stranger.pool.channel(here.broker.address)
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                with suppress(NotReachableError):
                    refused(await stranger.send("orders"))

            for _ in range(100):
                nursery.start_soon(send)
        assert here.broker.store.max_physical_offset == 0


async def test_each_kind_of_refusal_is_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level(logging.WARNING, "rocketrio_broker.access")
    async with secured(tmp_path) as here, here.client("stranger") as stranger:
        await trio.sleep(1)  # The broker has warned of its open name server.
        caplog.clear()
        for _ in range(5):
            refused(await stranger.send("orders"))
        refused(await stranger.ask(GetMaxOffsetRequestHeader("orders", 0)))
        lines = [record.getMessage() for record in caplog.records]
        assert lines == [
            f"refused user=stranger from=10.0.0.100 request={request} reason={NOT_SIGNED}"
            for request in ("SEND_MESSAGE_V2 (310)", "GET_MAX_OFFSET (30)")
        ]
        await trio.sleep(61)
        refused(await stranger.send("orders"))
        assert "repeated=4" in caplog.text
        assert len(caplog.records) == 4


@pytest.mark.slow
async def test_invented_users_cannot_fill_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path) as here:
        caplog.clear()
        for number in range(120):
            async with here.client(f"stranger-{number}") as stranger:
                refused(await stranger.send("orders"))
        assert (
            len([each for each in caplog.records if "refused user=" in each.getMessage()])
            == KINDS_LIMIT
        )


async def test_broker_without_access_control_accepts_signed_and_unsigned_requests(
    tmp_path: Path,
) -> None:
    async with (
        secured(tmp_path, acl_enable=False) as here,
        here.client() as plain,
        here.client("writer") as writer,
    ):
        accepted(await plain.send("orders"))
        accepted(await writer.send("orders"))
        answer = await plain.ask(access.ListUsersRequestHeader())
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        shown = accepted(await plain.ask(admin.GetBrokerConfigRequestHeader())).body
        assert b"aclEnable=false" in bytes(shown)


async def test_settings_show_access_control_without_secrets(tmp_path: Path) -> None:
    async with secured(tmp_path) as here, here.operator() as operator:
        shown = bytes(accepted(await operator.ask(admin.GetBrokerConfigRequestHeader())).body)
        assert b"aclEnable=true" in shown
        assert b"marker" not in shown
