"""What administration of users and rights sends, and what it makes of the answers (`admin/access.py`)."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.clients import open_admin
from tests.support.raw_server import ADDRESS, CLIENT, RawServer, raw_server, told

from rocketrio import ConfigError
from rocketrio.admin import AccessAdmin, AccessRight, AccessUser, RequestCodeNotSupportedError
from rocketrio_protocol.commands.access import UpdateAccessConfigRequestHeader
from rocketrio_protocol.errors import BrokerError

SECRET = "marker-of-a-password"
CLUSTER = (
    b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.1:10911"},"brokerName":"broker-a",'
    b'"cluster":"c"}},"clusterAddrTable":{"c":["broker-a"]}}'
)
USER = {
    "username": "someone",
    "password": SECRET,
    "userType": "Super",
    "userStatus": "enable",
}
ACL = {
    "subject": "User:someone",
    "policies": [
        {
            "policyType": "Custom",
            "entries": [
                {
                    "resource": "Topic:orders",
                    "actions": ["Pub", "Sub"],
                    "sourceIps": ["10.0.0.0/8"],
                    "decision": "Allow",
                },
                {"resource": "Group:*", "actions": ["All"], "sourceIps": None, "decision": "Deny"},
            ],
        }
    ],
}


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with raw_server() as running:
        running.answers |= {106: [told(body=CLUSTER)]}
        yield running


@pytest.fixture
async def access(server: RawServer) -> AsyncIterator[AccessAdmin]:
    dial = server.network.host(CLIENT).dial
    async with open_admin(name_servers=[ADDRESS], dial=dial) as admin:
        yield admin.access(plain_passwords=True)


async def test_users_and_rights_are_values_without_passwords(
    server: RawServer, access: AccessAdmin
) -> None:
    server.answers |= {
        3004: [told(body=body(USER))],
        3005: [told(body=body([USER]))],
        3009: [told(body=body(ACL))],
        3010: [told(body=body([ACL]))],
    }
    user = AccessUser("someone", is_super=True, is_enabled=True, brokers=(ADDRESS,))
    assert await access.users("some") == [user]
    assert await access.user("someone") == [user]
    rights = await access.rights_of("someone")
    assert rights == await access.rights("some", "o")
    assert rights == [
        AccessRight("someone", "Group:*", ("All",), is_allowed=False, brokers=(ADDRESS,)),
        AccessRight(
            "someone", "Topic:orders", ("Pub", "Sub"), True, ("10.0.0.0/8",), brokers=(ADDRESS,)
        ),
    ]
    assert SECRET not in repr((user, rights))
    [(listed, _)] = server.of(3005)
    assert listed["extFields"] == {"filter": "some"}
    [(shown, _)] = server.of(3010)
    assert shown["extFields"] == {"subjectFilter": "some", "resourceFilter": "o"}


async def test_unknown_user_is_nothing(server: RawServer, access: AccessAdmin) -> None:
    server.answers |= {3004: [told()], 3005: [told()], 3009: [told()], 3010: [told()]}
    assert await access.user("someone") == await access.users() == []
    assert await access.rights_of("someone") == await access.rights() == []


async def test_change_goes_to_master_and_slave(server: RawServer, access: AccessAdmin) -> None:
    server.answers |= {3001: [told()], 3002: [told()], 3003: [told()]}
    assert await access.create_user("someone", SECRET, is_super=True) == [ADDRESS, ADDRESS]
    created = server.of(3001)
    assert len(created) == 2
    assert created[0][0]["extFields"] == {"username": "someone"}
    assert json.loads(created[0][1]) == USER
    await access.update_user("someone", is_enabled=False)
    [(_, changed), _] = server.of(3002)
    assert {name: value for name, value in json.loads(changed).items() if value is not None} == {
        "username": "someone",
        "userStatus": "disable",
    }
    await access.delete_user("someone")
    assert server.of(3003)[0][0]["extFields"] == {"username": "someone"}


async def test_slave_that_copies_its_masters_users_is_left_out(
    server: RawServer, access: AccessAdmin
) -> None:
    server.answers[3003] = [told(), told(14, remark="ask the master")]
    assert await access.delete_user("someone") == [ADDRESS]


async def test_master_that_refuses_is_an_error(server: RawServer, access: AccessAdmin) -> None:
    server.answers[3001] = [told(16, remark="The user is existed")]
    with pytest.raises(BrokerError, match="existed") as caught:
        await access.create_user("someone", SECRET)
    assert len(server.of(3001)) == 1
    assert SECRET not in str(caught.value)
    server.answers[3005] = [told(3, remark="unknown")]
    with pytest.raises(RequestCodeNotSupportedError):
        await access.users()


async def test_grant_and_revoke_send_the_rights(server: RawServer, access: AccessAdmin) -> None:
    server.answers |= {3006: [told()], 3008: [told()]}
    rights = [
        AccessRight("someone", "Topic:orders", ("Pub", "Sub"), True, ("10.0.0.0/8",)),
        AccessRight("someone", "Group:*", ("All",), is_allowed=False),
    ]
    await access.grant_all(rights)
    sent, content = server.of(3006)[0]
    assert sent["extFields"] == {"subject": "User:someone"}
    expected = json.loads(json.dumps(ACL).replace("null", "[]"))
    assert json.loads(content) == expected
    await access.revoke("someone", "Topic:orders")
    assert server.of(3008)[0][0]["extFields"] == {
        "subject": "User:someone",
        "resource": "Topic:orders",
    }


async def test_account_of_4_is_sent_as_fields(server: RawServer, access: AccessAdmin) -> None:
    server.answers |= {
        50: [told()],
        51: [told()],
        53: [told()],
        52: [told(fields={"version": "v", "allAclFileVersion": '{"f":1}'})],
    }
    account = UpdateAccessConfigRequestHeader("someone", SECRET, admin=False, topic_perms="a=PUB")
    await access.update_account(account)
    assert server.of(50)[0][0]["extFields"] == {
        "accessKey": "someone",
        "secretKey": SECRET,
        "admin": "false",
        "topicPerms": "a=PUB",
    }
    await access.delete_account("someone")
    await access.set_white_addresses(["10.0.0.1", "10.0.0.2"])
    assert server.of(53)[0][0]["extFields"] == {"globalWhiteAddrs": "10.0.0.1,10.0.0.2"}
    assert await access.account_versions() == {ADDRESS: '{"f":1}'}


async def test_wrong_arguments_are_refused_before_anything_is_sent(
    server: RawServer, access: AccessAdmin
) -> None:
    with pytest.raises(ConfigError, match="colon"):
        await access.create_user("a:b", SECRET)
    with pytest.raises(ConfigError, match="actions Publish cannot"):
        await access.grant("someone", ["Topic:a"], ["Publish"])
    with pytest.raises(ConfigError, match="give one of"):
        await access.update_user("someone")
    assert [header["code"] for header, _ in server.asked] == []


CHANGES_WITH_A_PASSWORD = {
    3001: lambda access: access.create_user("someone", SECRET),
    3002: lambda access: access.update_user("someone", password=SECRET),
    50: lambda access: access.update_account(UpdateAccessConfigRequestHeader("someone", SECRET)),
}


@pytest.mark.parametrize("code", CHANGES_WITH_A_PASSWORD)
async def test_password_is_not_sent_in_plain_to_another_machine(
    server: RawServer, code: int
) -> None:
    server.answers |= {code: [told()]}
    dial = server.network.host(CLIENT).dial
    async with open_admin(name_servers=[ADDRESS], dial=dial) as admin:
        with pytest.raises(
            ConfigError, match=f"password of someone .* in plain to {ADDRESS}"
        ) as no:
            await CHANGES_WITH_A_PASSWORD[code](admin.access())
        assert "--plain" in str(no.value)
        assert SECRET not in str(no.value)
        assert not server.of(code)
        await CHANGES_WITH_A_PASSWORD[code](admin.access(plain_passwords=True))
    assert server.of(code)


async def test_change_without_a_password_is_sent_in_plain(server: RawServer) -> None:
    server.answers |= {3002: [told()], 3003: [told()], 50: [told()]}
    dial = server.network.host(CLIENT).dial
    async with open_admin(name_servers=[ADDRESS], dial=dial) as admin:
        access = admin.access()
        await access.update_user("someone", is_enabled=False)
        await access.delete_user("someone")
        await access.update_account(UpdateAccessConfigRequestHeader("someone"))
