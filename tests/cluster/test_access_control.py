"""A master and its slaves decide alike about requests, also when they change places."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from tests.support.caller import accepted
from tests.support.secured_broker import (
    INNER,
    SECRET,
    Account,
    Secured,
    acl,
    refused,
    secured,
)
from tests.support.tls import write_files

from rocketrio_broker.access import guard
from rocketrio_broker.access.users_file import VersionedUsers
from rocketrio_broker.embedded import Member
from rocketrio_protocol.bodies.access import UserInfo
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import access
from rocketrio_protocol.commands.admin import ChangeBrokerRoleRequestHeader, HandOverRequestHeader
from rocketrio_protocol.commands.offset import GetMaxOffsetRequestHeader
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha.link import AnswerSeal

READ = GetMaxOffsetRequestHeader("orders", 0)
RIGHTS = {"Topic:orders": ["Pub", "Sub", "Create"]}
COPIED = 5.0
"""Seconds after which a slave has what its master has."""


@asynccontextmanager
async def pair(folder: Path, **settings: object) -> AsyncIterator[Secured]:
    async with secured(folder, slaves=1, role="sync-master", **settings) as here:
        await trio.sleep(15)
        await here.add_user("worker", RIGHTS)
        await trio.sleep(COPIED)
        yield here


def slave_of(here: Secured) -> Member:
    return here.cluster.slaves[0]


@asynccontextmanager
async def worker_at(here: Secured, member: Member) -> AsyncIterator[Account]:
    async with here.client("worker", addr=member.broker.address) as worker:
        yield worker


async def test_slave_answers_the_users_of_its_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as here, worker_at(here, slave_of(here)) as worker:
        accepted(await worker.ask(READ))
        await here.revoke("worker")
        await trio.sleep(COPIED)
        refused(await worker.ask(READ))


async def test_change_that_a_tool_also_sends_to_a_slave_succeeds(tmp_path: Path) -> None:
    async with pair(tmp_path) as here:
        slave = slave_of(here).broker
        async with here.client(INNER.access_key, INNER.secret_key, addr=slave.address) as operator:
            header = access.CreateUserRequestHeader("worker")
            accepted(await operator.ask(header, b'{"password":"marker-other"}'))
        async with worker_at(here, slave_of(here)) as worker:
            accepted(await worker.ask(READ))


@pytest.mark.slow
async def test_users_and_rights_outlive_a_take_over(tmp_path: Path) -> None:
    async with pair(tmp_path) as here:
        await here.cluster.kill_master()
        slave = slave_of(here).broker
        async with here.client(INNER.access_key, INNER.secret_key, addr=slave.address) as operator:
            accepted(
                await operator.pool.call(
                    slave.address, ChangeBrokerRoleRequestHeader("async-master", 0), timeout=60
                )
            )
            async with worker_at(here, slave_of(here)) as worker:
                accepted(await worker.send("orders"))
                assert "Topic:others" in refused(await worker.send("others"))
            # The new master takes changes, and the old one follows them when it returns.
            body = acl("worker", {"Topic:others": ["Pub", "Create"]}).to_json()
            accepted(await operator.ask(access.CreateAclRequestHeader("User:worker"), body))
        await here.cluster.restart_master()
        await trio.sleep(60)
        async with worker_at(here, here.cluster.master) as worker:
            assert here.cluster.master.broker.role == "slave"
            accepted(await worker.ask(GetMaxOffsetRequestHeader("others", 0)))


async def test_change_just_before_a_hand_over_counts_at_the_new_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as here, here.operator() as operator:
        await here.grant("worker", {"Topic:others": ["Pub", "Create"]})
        accepted(await operator.pool.call(here.broker.address, HandOverRequestHeader(), timeout=60))
        async with worker_at(here, slave_of(here)) as worker:
            accepted(await worker.send("others"))


async def test_account_without_all_rights_gets_no_users(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("worker", RIGHTS)
        await here.add_user("operator", {"Cluster:lab": ["All"], "*": ["All"]})
        async with here.client("operator") as operator:
            refused(await operator.ask(access.GetSealedUsersRequestHeader()))


def link_of(here: Secured) -> AnswerSeal:
    """Return what seals the users for the slave."""
    (connection,) = here.broker.state.ha_service.connections
    assert connection.answers is not None
    return connection.answers


@pytest.mark.parametrize("known", [True, False])
async def test_users_are_sealed_for_the_slave_and_only_if_they_are_others(
    tmp_path: Path, *, known: bool
) -> None:
    async with pair(tmp_path) as here, here.operator() as operator:
        seal = link_of(here)

        async def ask(version: str | None) -> RemotingCommand:
            return accepted(
                await operator.ask(access.GetSealedUsersRequestHeader(version, seal.link, "n"))
            )

        answer = await ask(None)
        version = answer.header(access.GetSealedUsersResponseHeader).version
        sealed = bytes(answer.body)
        assert b"worker" not in sealed
        assert SECRET.encode() not in sealed
        users = seal.open(sealed, question=b"n")
        assert b"worker" in users
        assert SECRET.encode() in users
        assert INNER.secret_key.encode() not in users
        with pytest.raises(RemoteProtocolError):
            seal.open(sealed, question=b"another question")
        again = await ask(version if known else "x")
        assert bool(seal.open(bytes(again.body), question=b"n")) is not known


@pytest.mark.parametrize("link", [None, "0" * 32])
async def test_users_are_sent_to_no_one_but_a_connected_slave(
    tmp_path: Path, link: str | None
) -> None:
    async with pair(tmp_path) as here, here.operator() as operator:
        answer = await operator.ask(access.GetSealedUsersRequestHeader(None, link))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "ha_secret_file" in (answer.remark or "")
        assert not answer.body
        # As slaves of earlier versions ask, which go on without the users.
        plain = await operator.ask(RemotingCommand(RequestCode.GET_ALL_USERS))
        assert plain.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize("peer_tls", [True, False])
async def test_users_go_over_tls_where_the_link_has_certificates_alone(
    tmp_path: Path, *, peer_tls: bool
) -> None:
    files = write_files(tmp_path)
    link = {
        "ha_secret_file": None,
        "ha_tls_certificate_file": files.certificate,
        "ha_tls_key_file": files.key,
        "ha_tls_authority_file": files.authority,
    }
    ports = {
        "tls_mode": "permissive",
        "tls_certificate_file": files.certificate,
        "tls_key_file": files.key,
        "peer_tls": peer_tls,
        "peer_tls_authority_file": files.authority if peer_tls else None,
    }
    async with pair(tmp_path, **link, **ports) as here:
        control = slave_of(here).broker.state.access
        assert control is not None
        assert ("worker" in control.table.users) is peer_tls
        assert control.is_copied is peer_tls


async def test_pair_without_a_proof_of_its_link_copies_no_users_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path, ha_secret_file=None) as here:
        lines = [line for line in caplog.messages if line.startswith("users not copied")]
        assert len(lines) == 1
        assert "ha_secret_file" in lines[0]
        control = slave_of(here).broker.state.access
        assert control is not None
        assert "worker" not in control.table.users
        assert slave_of(here).broker.slave is not None
        # Its own users can be changed: each broker has its own.
        slave = slave_of(here).broker.address
        async with here.client(INNER.access_key, INNER.secret_key, addr=slave) as operator:
            body = UserInfo(password=SECRET).to_json()
            accepted(await operator.ask(access.CreateUserRequestHeader("worker"), body))
        assert "worker" in control.table.users


@pytest.mark.slow
async def test_slave_keeps_its_users_beside_a_master_that_never_had_any(tmp_path: Path) -> None:
    async with pair(tmp_path) as here:
        control = here.broker.state.access
        assert control is not None
        control.keep(VersionedUsers())  # As after the loss of its data directory.
        await trio.sleep(30)
        async with worker_at(here, slave_of(here)) as worker:
            accepted(await worker.ask(READ))


@pytest.mark.parametrize("named", ["10.0.0.*", ""])
async def test_slave_of_an_earlier_version_is_asked_with_a_signature_only_if_its_host_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Such a slave wants a signature for each question, also for who it is."""
    monkeypatch.setattr(guard, "ANYONE", None)
    async with pair(tmp_path, acl_plain_signatures_from=named) as here, here.operator() as operator:
        order = HandOverRequestHeader()
        answer = await operator.pool.call(here.broker.address, order, timeout=60)
        if named:
            accepted(answer)
        else:
            assert "username cannot be null" in (answer.remark or "")
            assert "acl_plain_signatures_from" in (answer.remark or "")
