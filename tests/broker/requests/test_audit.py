"""Audit lines: every change of an operator has one, with who, what, before and after, and no secret."""

import json
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from tests.broker.processors.asking import asking
from tests.support.declared_requests import BROKER, NAME_SERVER
from tests.support.request_headers import COMMANDS

from rocketrio_broker.access.facts import AccessFacts
from rocketrio_broker.access.needs import CREATE, DELETE, UPDATE, Need, Rule
from rocketrio_broker.broker import Broker
from rocketrio_broker.namesrv.processor import NameServerFacts
from rocketrio_broker.processors import broker_handlers, processor_table
from rocketrio_broker.processors.access_admin import AccessAdminProcessor
from rocketrio_broker.requests.audit import STATE_SIZE_LIMIT, Audit, AuditedChange
from rocketrio_broker.requests.declaration import Declaration, changes_of, handlers_of
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.java_properties import format_properties
from rocketrio_protocol.bodies.topics import (
    SubscriptionGroupConfig,
    SubscriptionGroupConfigList,
    TopicConfig,
    TopicConfigList,
)
from rocketrio_protocol.codes import RequestCode as Code
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import access, admin, cluster, offset
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.ports import SystemWallClock

READING = ("GET_", "QUERY_", "VIEW_", "SEARCH_", "AUTH_GET_", "AUTH_LIST_", "CHECK_CLIENT_")
CLIENTS = {
    Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE,
    Code.SEND_REPLY_MESSAGE_V2, Code.CONSUMER_SEND_MSG_BACK, Code.END_TRANSACTION,
    Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.HEART_BEAT, Code.UNREGISTER_CLIENT,
    Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ,
}  # fmt: skip
"""What producers and consumers do all the time."""
BROKERS = {
    Code.CLAIM_SLAVE_ID, Code.TAKE_OVER, Code.REGISTER_BROKER, Code.UNREGISTER_BROKER,
}  # fmt: skip
"""What brokers ask of each other and of name servers."""
ASKING = {Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Code.CONSUME_MESSAGE_DIRECTLY}
"""What operators ask of members by way of a broker, whose state it does not change."""


@pytest.fixture(autouse=True)
def info_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def audited(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The values of the audit lines since the last call."""
    found = []
    for record in caplog.records:
        if record.name == "rocketrio_broker.audit":
            assert isinstance(record.args, tuple)
            client, user, request, names, before, after, result, remark = record.args
            found.append(
                {
                    "client": client, "user": user, "request": request, "result": result,
                    "remark": remark,
                    **{
                        key: json.loads(str(value))
                        for key, value in (("names", names), ("before", before), ("after", after))
                    },
                }
            )  # fmt: skip
    caplog.clear()
    return found


def unclassified(codes: set[int], changes: set[int]) -> set[str]:
    return {
        Code(code).name
        for code in codes
        if code not in changes
        and code not in CLIENTS | BROKERS | ASKING
        and not Code(code).name.startswith(READING)
    }


def audited_codes(declared: Mapping[int, Declaration]) -> set[int]:
    return {code for code, one in declared.items() if one.audit is not None}


def rules_of(declared: Mapping[int, Declaration]) -> dict[int, Rule]:
    return {code: one.rule for code, one in declared.items()}


def audited_table(
    broker: Broker, audit: Audit
) -> tuple[dict[int, Processor], dict[int, AuditedChange]]:
    """The processors of a broker with this audit, and what it writes of them."""
    handlers = broker_handlers(broker.state, broker.roles)
    changes = changes_of(handlers)
    return audit.over(processor_table(broker.state, handlers), changes), changes


async def test_every_request_that_changes_something_is_audited() -> None:
    async with asking() as one:
        assert broker_handlers(one.broker.state, one.broker.roles).keys() < BROKER.keys()
    for declared in (BROKER, NAME_SERVER):
        assert not unclassified(set(declared), audited_codes(declared))


def asked_for(code: int) -> RemotingCommand:
    """A request of this code that names something everywhere."""
    if code not in COMMANDS:
        return RemotingCommand(code, body=BODIES.get(code, b""))
    header_class, _ = COMMANDS[Code(code)]
    kinds: dict[object, object] = {str: "x", int: 1, bool: False}
    values = {
        field.name: kinds.get(field.type, "x")
        for field in msgspec.structs.fields(header_class)
        if field.required
    }
    return RemotingCommand.request(header_class(**values), BODIES.get(code, b""))


BODIES: dict[int, bytes] = {
    Code.UPDATE_AND_CREATE_TOPIC_LIST: fastjson.dumps(TopicConfigList([TopicConfig("x")])),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: fastjson.dumps(SubscriptionGroupConfig("x")),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: fastjson.dumps(
        SubscriptionGroupConfigList([SubscriptionGroupConfig("x")])
    ),
}
MESSAGES = {Code.RESUME_CHECK_HALF_MESSAGE}
"""Its rule reads a stored message."""


async def test_every_request_that_needs_the_right_to_change_something_is_audited() -> None:
    async with asking() as one:
        state = one.broker.state
        facts = AccessFacts(state.config, state.topics, state.consumer_offsets, state.store)
        for rules, changes, known in (
            (rules_of(BROKER), audited_codes(BROKER), facts),
            (rules_of(NAME_SERVER), audited_codes(NAME_SERVER), NameServerFacts()),
        ):
            needing = set(MESSAGES) & set(rules)
            for code in rules.keys() - CLIENTS - MESSAGES - {Code.CHECK_CLIENT_CONFIG}:
                needs: Sequence[Need] = ()
                with suppress(RefusedError):  # It is about a stored message: it reads.
                    needs = rules[code](asked_for(code), known)
                if any(need.actions & (CREATE | UPDATE | DELETE) for need in needs):
                    needing.add(code)
            assert needing - BROKERS - changes - {Code.QUERY_DATA_VERSION} == set()
            assert len(needing) > 5


async def test_request_that_cannot_be_read_leaves_a_line_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with asking() as one:
        table, changes = audited_table(one.broker, one.broker.state.audit)
        sometimes = {Code.UPDATE_CONSUMER_OFFSET, Code.HAND_OVER, Code.CHECK_LOG}
        seen = []
        for code in changes.keys() - sometimes:
            audited(caplog)
            with suppress(Error):
                answer = table[code](Somebody(), RemotingCommand(code, body=b"{"))  # type: ignore[arg-type]
                if isinstance(answer, Coroutine):
                    await answer
            (line,) = audited(caplog)
            seen.append(line["request"])
        assert "DELETE_TOPIC_IN_BROKER" in seen
        assert len(seen) > 10


async def test_topic_is_created_changed_refused_and_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def create(**fields: Any) -> admin.CreateTopicRequestHeader:
        values = {"read_queue_nums": 4, "write_queue_nums": 4, "perm": 6, "order": False, **fields}
        return admin.CreateTopicRequestHeader(
            topic="orders", default_topic="TBW102", topic_filter_type="SINGLE_TAG", **values
        )

    async with asking() as one:
        audited(caplog)
        await one.ask(create())
        (line,) = audited(caplog)
        assert (line["request"], line["result"]) == ("UPDATE_AND_CREATE_TOPIC", "SUCCESS")
        assert line["client"].startswith("10.")
        assert line["user"] is None
        assert line["names"]["topic"] == "orders"
        assert line["before"] is None
        assert line["after"]["readQueueNums"] == 4
        await one.ask(create(read_queue_nums=8))
        (line,) = audited(caplog)
        assert (line["before"]["readQueueNums"], line["after"]["readQueueNums"]) == (4, 8)
        await one.ask(create(perm=99))
        (line,) = audited(caplog)
        assert line["result"] == "SYSTEM_ERROR"
        assert "perm 99" in line["remark"]
        assert line["before"] == line["after"]
        await one.ask(admin.DeleteTopicInBrokerRequestHeader(topic="orders"))
        (line,) = audited(caplog)
        assert (line["request"], line["result"]) == ("DELETE_TOPIC_IN_BROKER", "SUCCESS")
        assert line["before"]["topicName"] == "orders"
        assert line["after"] is None


async def test_groups_settings_roles_and_offsets_have_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with asking() as one:
        audited(caplog)
        group = fastjson.dumps(SubscriptionGroupConfig(group_name="billing"))
        await one.ask(RemotingCommand(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group))
        (line,) = audited(caplog)
        assert line["names"] == ["billing"]
        assert line["before"] == {"billing": None}
        assert line["after"]["billing"]["groupName"] == "billing"

        settings = format_properties({"slaveReadEnable": "true"})
        await one.ask(RemotingCommand(Code.UPDATE_BROKER_CONFIG, body=settings))
        (line,) = audited(caplog)
        assert line["before"] == {"slaveReadEnable": "false"}
        assert line["after"] == {"slaveReadEnable": "true"}

        commit = offset.UpdateConsumerOffsetRequestHeader("billing", "orders", 0, 7)
        await one.ask(commit)
        assert audited(caplog) == []
        reset = offset.UpdateConsumerOffsetRequestHeader("billing", "orders", 0, 3, reset=True)
        await one.ask(reset)
        (line,) = audited(caplog)
        assert line["request"] == "UPDATE_CONSUMER_OFFSET"
        assert line["names"]["reset"] is True

        await one.ask(admin.ChangeBrokerRoleRequestHeader("leader", 0))
        (line,) = audited(caplog)
        assert (line["request"], line["result"]) == ("CHANGE_BROKER_ROLE", "INVALID_PARAMETER")
        assert line["after"] == {"role": "async-master", "broker_id": 0}

        await one.ask(admin.HandOverRequestHeader(1, dry_run=True))
        await one.ask(admin.CheckLogRequestHeader(start=False))
        assert audited(caplog) == []


async def test_name_server_has_lines(caplog: pytest.LogCaptureFixture) -> None:
    async with asking() as one:
        audited(caplog)
        await one.ask_name_server(cluster.PutKVConfigRequestHeader("n", "k", "1"))
        await one.ask_name_server(cluster.PutKVConfigRequestHeader("n", "k", "2"))
        await one.ask_name_server(cluster.WipeWritePermRequestHeader("broker-a"))
        first, second, third = audited(caplog)
        assert (first["before"], first["after"]) == (None, "1")
        assert (second["before"], second["after"]) == ("1", "2")
        assert third["names"] == {"broker_name": "broker-a"}
        assert third["before"] == {"write_permission_by_order": None}
        assert third["after"] == {"write_permission_by_order": False}


def test_secrets_of_accounts_are_left_out() -> None:
    changes = changes_of(handlers_of(AccessAdminProcessor(_no_broker(), _no_broker())))
    request = RemotingCommand.request(
        access.UpdateAccessConfigRequestHeader("key", secret_key="the secret", admin=True)
    )
    names = changes[Code.UPDATE_AND_CREATE_ACL_CONFIG].names(request)
    assert names == {"access_key": "key", "admin": True}
    created = RemotingCommand.request(
        access.CreateUserRequestHeader("ops"),
        b'{"username":"ops","password":"the secret","userType":"Super"}',
    )
    names = changes[Code.AUTH_CREATE_USER].names(created)
    assert names == {"username": "ops", "gives": ["password", "user_type"]}


def _no_broker() -> Any:
    class Nothing:
        def __getattr__(self, name: str) -> Any:
            return self

    return Nothing()


@pytest.mark.parametrize("is_full", [False, True])
async def test_file_gets_each_line_once_even_if_its_disk_was_full(
    autojump_clock: trio.testing.MockClock, is_full: bool
) -> None:
    disk, path = MemoryDisk(), Path("/audit/log")
    disk.make_directory(path.parent)
    disk.is_full = is_full
    async with asking() as one:
        audit = Audit("h:1", wall_clock=SystemWallClock(), disk=disk, path=path)
        table, _ = audited_table(one.broker, audit)
        async with trio.open_nursery() as nursery:
            await nursery.start(audit.run)
            for key in ("deleteWhen", "fileReservedTime"):
                request = RemotingCommand(
                    Code.UPDATE_BROKER_CONFIG, body=format_properties({key: "05"})
                )
                table[request.code](Somebody(), request)  # type: ignore[arg-type]
                await trio.sleep(1)
            disk.is_full = False
            await trio.sleep(10)
            nursery.cancel_scope.cancel()
    file = disk.open(path)
    lines = [json.loads(line) for line in file.pread(file.size, 0).splitlines()]
    assert [line["names"] for line in lines] == [["deleteWhen"], ["fileReservedTime"]]
    assert {line["server"] for line in lines} == {"h:1"}
    assert lines[0]["time"].endswith("Z")


class Somebody:
    """A channel, as far as an audit needs one."""

    remote_addr = "10.0.0.7:5"


def noted(answer: Any, **change: Any) -> tuple[Any, RemotingCommand]:
    """What an audited processor with this answer returns, and its request."""
    audit = Audit("h:1", wall_clock=SystemWallClock(), disk=InlineDisk())
    change = {"names": lambda request: ["x"], **change}
    table = audit.over({1: lambda channel, request: answer}, {1: AuditedChange(**change)})
    request = RemotingCommand(1)
    request.user = "ops"
    return table[1](Somebody(), request), request  # type: ignore[arg-type]


def test_line_names_the_user_that_access_control_has_verified(
    caplog: pytest.LogCaptureFixture,
) -> None:
    noted(RemotingCommand(ResponseCode.NO_PERMISSION, remark="no"))
    (line,) = audited(caplog)
    assert (line["user"], line["client"]) == ("ops", "10.0.0.7:5")
    assert (line["result"], line["remark"]) == ("NO_PERMISSION", "no")


def test_very_large_state_is_only_its_size(caplog: pytest.LogCaptureFixture) -> None:
    noted(None, state=lambda request: "x" * (STATE_SIZE_LIMIT + 1))
    (line,) = audited(caplog)
    assert line["before"] == {"size": STATE_SIZE_LIMIT + 3}
    assert line["result"] == "SUCCESS"


async def test_waiting_processor_leaves_its_line_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        return RemotingCommand(ResponseCode.SUCCESS)

    async def broken() -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        raise ValueError("a bug")

    work_of, _ = noted(work())
    assert audited(caplog) == []
    await work_of
    broken_work, _ = noted(broken())
    with pytest.raises(ValueError, match="a bug"):
        await broken_work
    first, second = audited(caplog)
    assert (first["result"], second["result"]) == ("SUCCESS", "ValueError")
    closed, _ = noted(work())
    closed.close()  # Too many requests wait: the processor is not started, and no warning comes of it.
