"""Requests about users and their rights."""

import logging
from pathlib import Path

import pytest
from tests.support.caller import accepted
from tests.support.private_files import private_file
from tests.support.secured_broker import (
    INNER,
    SECRET,
    Account,
    acl,
    inner_file,
    refused,
    secured,
)

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketrio_protocol.bodies.topics import DataVersion
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import access
from rocketrio_protocol.headers import RequestHeader

PASSWORD = UserInfo(password=SECRET).to_json()


async def users(account: Account, text: str = "") -> list[UserInfo]:
    body = accepted(await account.ask(access.ListUsersRequestHeader(text or None))).body
    return fastjson.loads(body, list[UserInfo]) if body else []


async def test_user_exists_from_creation_to_deletion(tmp_path: Path) -> None:
    async with secured(tmp_path) as here, here.operator() as operator:
        accepted(await operator.ask(access.CreateUserRequestHeader("writer"), PASSWORD))
        assert "existed" in refused(
            await operator.ask(access.CreateUserRequestHeader("writer"), PASSWORD)
        )
        shown = accepted(await operator.ask(access.GetUserRequestHeader("writer"))).body
        assert fastjson.loads(shown, dict[str, str]) == {
            "username": "writer", "userType": "Normal", "userStatus": "enable",
        }  # fmt: skip
        accepted(
            await operator.ask(
                access.UpdateUserRequestHeader("writer"), UserInfo(user_status="disable").to_json()
            )
        )
        assert {each.username: each.user_status for each in await users(operator)} == {
            "writer": "disable", INNER.access_key: "enable",
        }  # fmt: skip
        assert [each.username for each in await users(operator, "rite")] == ["writer"]
        assert await users(operator, "nobody") == []
        accepted(await operator.ask(access.DeleteUserRequestHeader("writer")))
        assert accepted(await operator.ask(access.GetUserRequestHeader("writer"))).body == b""
        for header in (
            access.DeleteUserRequestHeader("writer"),
            access.UpdateUserRequestHeader("writer"),
        ):
            assert refused(await operator.ask(header)) == "The user is not exist"


async def test_user_that_cannot_be_is_refused(tmp_path: Path) -> None:
    refused_with = ResponseCode.NO_PERMISSION
    cases = [
        (" ", UserInfo(password=SECRET), ResponseCode.INVALID_PARAMETER, "blank"),
        ("u", UserInfo(), refused_with, "password"),
        ("u", UserInfo(password=" "), refused_with, "password"),
        ("u", UserInfo(password=SECRET, user_type="root"), refused_with, "userType"),
        ("u", UserInfo(password=SECRET, user_status="on"), refused_with, "userStatus"),
        ("a\nb", UserInfo(password=SECRET), refused_with, "username"),
        ("a:b", UserInfo(password=SECRET), refused_with, "username"),
        (INNER.access_key, UserInfo(password=SECRET), refused_with, "existed"),
    ]
    async with secured(tmp_path) as here, here.operator() as operator:
        for name, info, code, text in cases:
            answer = await operator.ask(access.CreateUserRequestHeader(name), info.to_json())
            assert answer.code == code, (name, info)
            assert answer.remark is not None
            assert text in answer.remark
            assert "marker" not in answer.remark


async def test_policies_are_merged_by_resource_shown_and_deleted(tmp_path: Path) -> None:
    async with secured(tmp_path) as here, here.operator() as operator:
        await here.add_user("writer", {"Topic:a": ["Pub"], "Topic:b*": ["Sub", "Get"]})
        await here.grant("writer", {"Topic:a": ["All"]}, "Deny")
        default = AclInfo(
            "User:writer",
            [PolicyInfo("Default", [PolicyEntryInfo("*", ["List"], ["10.0.0.0/8"], "Allow")])],
        )
        accepted(
            await operator.ask(access.UpdateAclRequestHeader("User:writer"), default.to_json())
        )
        body = accepted(await operator.ask(access.GetAclRequestHeader("User:writer"))).body
        shown = AclInfo.from_json(body)
        assert [(policy.policy_type, len(policy.entries)) for policy in shown.policies] == [
            ("Custom", 2),
            ("Default", 1),
        ]
        by_resource = {
            entry.resource: entry for policy in shown.policies for entry in policy.entries
        }
        assert by_resource["Topic:a"].actions == ["All"]
        assert by_resource["Topic:a"].decision == "Deny"
        assert by_resource["Topic:b*"].actions == ["Sub", "Get"]
        assert by_resource["*"].source_ips == ["10.0.0.0/8"]
        listed = accepted(await operator.ask(access.ListAclsRequestHeader("wri", "Topic:a"))).body
        (one,) = fastjson.loads(listed, list[AclInfo])
        assert [entry.resource for entry in one.policies[0].entries] == ["Topic:a"]
        await here.revoke("writer", "Topic:a")
        await here.revoke("writer")
        assert accepted(await operator.ask(access.GetAclRequestHeader("User:writer"))).body == b""
        assert accepted(await operator.ask(access.ListAclsRequestHeader())).body == b""


async def test_policy_that_cannot_be_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    cases = [
        ("User:absent", PolicyEntryInfo("Topic:t", ["Pub"], [], "Allow"), "The subject of User:absent is not exist."),
        ("writer", PolicyEntryInfo("Topic:t", ["Pub"], [], "Allow"), "User:name"),
        ("User:writer", PolicyEntryInfo(None, ["Pub"], [], "Allow"), "The resource is null."),
        ("User:writer", PolicyEntryInfo("Topik:t", ["Pub"], [], "Allow"), "Topik:t"),
        ("User:writer", PolicyEntryInfo("Topic:t", [], [], "Allow"), "The actions is empty."),
        ("User:writer", PolicyEntryInfo("Topic:t", ["Any"], [], "Allow"), "Any"),
        ("User:writer", PolicyEntryInfo("Topic:t", ["Pub"], ["10.0.0"], "Allow"), "10.0.0"),
        ("User:writer", PolicyEntryInfo("Topic:t", ["Pub"], [], None), "The decision is null."),
        ("User:writer", PolicyEntryInfo("Topic:t", ["Pub"], [], "Maybe"), "Maybe"),
        (f"User:{INNER.access_key}", PolicyEntryInfo("Topic:t", ["Pub"], [], "Deny"), "inner account"),
    ]  # fmt: skip
    async with secured(tmp_path) as here, here.operator() as operator:
        await here.add_user("writer", {"Topic:a": ["Pub"]})
        good = PolicyEntryInfo("Topic:good", ["Pub"], [], "Allow")
        for subject, entry, text in cases:
            body = AclInfo(subject, [PolicyInfo("Custom", [good, entry])]).to_json()
            assert text in refused(await operator.ask(access.CreateAclRequestHeader(subject), body))
            shown = AclInfo.from_json(
                accepted(await operator.ask(access.GetAclRequestHeader("User:writer"))).body
            )
            assert [each.resource for each in shown.policies[0].entries] == ["Topic:a"], text


async def test_normal_user_with_the_cluster_cannot_touch_super_users(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("boss", user_type="Super")
        await here.add_user("operator", {"Cluster:lab": ["Update", "Get"]})
        async with here.client("operator") as operator:
            accepted(await operator.ask(access.CreateUserRequestHeader("writer"), PASSWORD))
            to_super = UserInfo(password="marker-mine", user_type="Super").to_json()
            mine = UserInfo(password="marker-mine").to_json()
            forbidden: list[tuple[RequestHeader, bytes]] = [
                (access.CreateUserRequestHeader("second"), to_super),
                (access.UpdateUserRequestHeader("writer"), to_super),
                (access.UpdateUserRequestHeader("boss"), mine),
                (access.DeleteUserRequestHeader("boss"), b""),
            ]
            for header, body in forbidden:
                answer = await operator.ask(header, body)
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "super user" in (answer.remark or "")
            account = access.UpdateAccessConfigRequestHeader("second-1", "marker-mine", admin=True)
            assert (await operator.ask(account)).code == ResponseCode.SYSTEM_ERROR
            assert "Cluster:lab" in refused(
                await operator.ask(access.GetSealedUsersRequestHeader())
            )
        async with here.operator() as inner:
            assert {each.username for each in await users(inner)} == {
                "boss",
                "operator",
                "writer",
                INNER.access_key,
            }


async def test_last_super_user_stays(tmp_path: Path) -> None:
    accounts = tmp_path / "first"
    accounts.mkdir()
    async with secured(accounts) as here:
        await here.add_user("boss", user_type="Super")
        stored = here.broker.state.access
        assert stored is not None
        disk, data = here.cluster.master.disk, stored.file_names
    async with secured(tmp_path, inner_credentials_file=None, make_disk=lambda: disk) as here:
        assert here.broker.state.access is not None
        assert here.broker.state.access.file_names == data
        async with here.client("boss") as boss:
            for header, body in (
                (access.DeleteUserRequestHeader("boss"), b""),
                (access.UpdateUserRequestHeader("boss"), UserInfo(user_type="Normal").to_json()),
                (access.UpdateUserRequestHeader("boss"), UserInfo(user_status="disable").to_json()),
            ):
                assert "last Super user" in refused(await boss.ask(header, body))


async def test_changed_user_is_there_after_a_restart(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("writer", {"Topic:orders": ["Pub", "Create"]})
        await here.cluster.kill_master()
        await here.cluster.restart_master()
        async with here.client("writer") as writer:
            accepted(await writer.send("orders"))


async def test_change_is_logged_with_its_author_and_without_passwords(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with secured(tmp_path) as here, here.operator() as operator:
        await here.add_user("writer", {"Topic:orders": ["Pub"]})
        accepted(await operator.ask(access.DeleteUserRequestHeader("writer")))
    changes = [each.getMessage() for each in caplog.records if "changed by=" in each.getMessage()]
    assert len(changes) == 3
    assert all(f"by={INNER.access_key} from=10.0.0.100:" in line for line in changes)
    assert "user writer created" in changes[0]
    assert "Topic:orders" in changes[1]
    assert "marker" not in caplog.text


# --------------------------------------------------------------------------------------- accounts of 4.x


async def test_account_of_rocketmq_4_is_set_changed_and_deleted(tmp_path: Path) -> None:
    async with secured(tmp_path) as here, here.operator() as operator:
        header = access.UpdateAccessConfigRequestHeader(
            "account-1",
            "marker-secret-1",
            default_topic_perm="DENY",
            topic_perms="orders=PUB,other=DENY",
        )
        accepted(await operator.ask(header))
        shown = AclInfo.from_json(
            accepted(await operator.ask(access.GetAclRequestHeader("User:account-1"))).body
        )
        assert {e.resource: (e.actions, e.decision) for p in shown.policies for e in p.entries} == {
            "Topic:orders": (["Pub"], "Allow"),
            "Topic:other": (["All"], "Deny"),
            "Topic:*": (["All"], "Deny"),
        }
        changed = access.UpdateAccessConfigRequestHeader(
            "account-1", "marker-secret-1", group_perms="g=SUB", default_topic_perm="SUB"
        )
        accepted(await operator.ask(changed))
        shown = AclInfo.from_json(
            accepted(await operator.ask(access.GetAclRequestHeader("User:account-1"))).body
        )
        assert {e.resource: (e.actions, e.decision) for p in shown.policies for e in p.entries} == {
            "Topic:orders": (["Pub"], "Allow"),
            "Topic:other": (["All"], "Deny"),
            "Group:g": (["Sub", "Get"], "Allow"),
            "Topic:*": (["Sub", "Get"], "Allow"),
        }
        accepted(await operator.ask(access.DeleteAccessConfigRequestHeader("account-1")))
        answer = await operator.ask(access.DeleteAccessConfigRequestHeader("account-1"))
        assert answer.code == ResponseCode.DELETE_ACL_CONFIG_FAILED


async def test_account_that_cannot_be_is_answered_209_without_the_secret(tmp_path: Path) -> None:
    headers = [
        access.UpdateAccessConfigRequestHeader("short", "marker-secret"),
        access.UpdateAccessConfigRequestHeader("account-1", "marker"),
        access.UpdateAccessConfigRequestHeader("account-1"),
        access.UpdateAccessConfigRequestHeader("account-1", "marker-secret", topic_perms="orders"),
        access.UpdateAccessConfigRequestHeader(
            "account-1", "marker-secret", white_remote_address="10.0.0.*"
        ),
        access.UpdateAccessConfigRequestHeader(INNER.access_key, "marker-secret"),
    ]
    async with secured(tmp_path) as here, here.operator() as operator:
        for header in headers:
            answer = await operator.ask(header)
            assert answer.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, header
            assert answer.remark
            assert "marker" not in answer.remark


async def test_version_of_the_accounts_grows_with_each_change(tmp_path: Path) -> None:
    async with secured(tmp_path) as here, here.operator() as operator:

        async def version() -> DataVersion:
            answer = accepted(await operator.ask(access.GetAccessConfigVersionRequestHeader()))
            header = answer.header(access.GetAccessConfigVersionResponseHeader)
            assert header.cluster_name == "lab"
            assert header.all_acl_file_version is not None
            (one,) = fastjson.loads(
                header.all_acl_file_version.encode(), dict[str, DataVersion]
            ).values()
            assert fastjson.loads(header.version.encode(), DataVersion) == one
            return one

        before = await version()
        await here.add_user("writer")
        assert (await version()).counter == before.counter + 1


async def test_white_addresses_are_refused_unless_wanted_and_never_suffice_for_changes(
    tmp_path: Path,
) -> None:
    header = access.UpdateGlobalWhiteAddressesRequestHeader("10.0.0.*")
    failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
    async with secured(tmp_path) as here, here.operator() as operator:
        assert (await operator.ask(header)).code == failed
    async with secured(tmp_path, acl_white_addresses=True) as here, here.operator() as operator:
        elsewhere = access.UpdateGlobalWhiteAddressesRequestHeader("10.0.0.*", "/etc/passwd")
        assert (await operator.ask(elsewhere)).code == failed
        async with here.client() as stranger:
            refused(await stranger.send("orders"))
            accepted(await operator.ask(header))
            accepted(await stranger.send("orders"))
            refused(await stranger.ask(access.CreateUserRequestHeader("u"), PASSWORD))
            refused(await stranger.ask(RemotingCommand(25)))
            accepted(await operator.ask(access.UpdateGlobalWhiteAddressesRequestHeader("")))
            refused(await stranger.send("orders"))


# ------------------------------------------------------------------------------- users in files


async def test_users_in_files_are_changed_there_alone(tmp_path: Path) -> None:
    accounts = private_file(
        tmp_path / "plain_acl.yml",
        "accounts:\n- {accessKey: manager-1, secretKey: marker-user-secret, admin: true}\n",
    )
    async with (
        secured(
            tmp_path, acl_file=str(accounts), inner_credentials_file=inner_file(tmp_path)
        ) as here,
        here.client("manager-1") as boss,
    ):
        changes: list[tuple[RequestHeader, bytes]] = [
            (access.CreateUserRequestHeader("writer"), PASSWORD),
            (access.UpdateUserRequestHeader("writer"), PASSWORD),
            (access.DeleteUserRequestHeader("writer"), b""),
            (
                access.CreateAclRequestHeader("User:manager-1"),
                acl("manager-1", {"*": ["All"]}).to_json(),
            ),
            (access.DeleteAclRequestHeader("User:manager-1"), b""),
            (access.UpdateAccessConfigRequestHeader("account-1", "secret-1"), b""),
            (access.DeleteAccessConfigRequestHeader("account-1"), b""),
            (access.UpdateGlobalWhiteAddressesRequestHeader("10.0.0.*"), b""),
        ]
        for header, body in changes:
            remark = refused(await boss.ask(header, body))
            assert "file is the truth" in remark
            assert str(accounts) in remark
        assert {each.username for each in await users(boss)} == {"manager-1", INNER.access_key}
