"""A master and its slaves decide alike about requests, also when they change places."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from tests.support.secured_broker import INNER, Account, Secured, acl, ok, refused, secured
from trio.testing import MockClock

from rocketrio_broker.access.users_file import VersionedUsers
from rocketrio_broker.embedded import Member
from rocketrio_protocol.commands import access
from rocketrio_protocol.commands.admin import ChangeBrokerRoleRequestHeader, HandOverRequestHeader
from rocketrio_protocol.commands.offset import GetMaxOffsetRequestHeader

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


async def test_slave_answers_the_users_of_its_master(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with pair(tmp_path) as here, worker_at(here, slave_of(here)) as worker:
        ok(await worker.ask(READ))
        await here.revoke("worker")
        await trio.sleep(COPIED)
        refused(await worker.ask(READ))


async def test_change_that_a_tool_also_sends_to_a_slave_succeeds(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with pair(tmp_path) as here:
        slave = slave_of(here).broker
        async with here.client(INNER.access_key, INNER.secret_key, addr=slave.address) as operator:
            header = access.CreateUserRequestHeader("worker")
            ok(await operator.ask(header, b'{"password":"marker-other"}'))
        async with worker_at(here, slave_of(here)) as worker:
            ok(await worker.ask(READ))


async def test_users_and_rights_outlive_a_take_over(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with pair(tmp_path) as here:
        await here.cluster.kill_master()
        slave = slave_of(here).broker
        async with here.client(INNER.access_key, INNER.secret_key, addr=slave.address) as operator:
            ok(
                await operator.pool.call(
                    slave.address, ChangeBrokerRoleRequestHeader("async-master", 0), timeout=60
                )
            )
            async with worker_at(here, slave_of(here)) as worker:
                ok(await worker.send("orders"))
                assert "Topic:others" in refused(await worker.send("others"))
            # The new master takes changes, and the old one follows them when it returns.
            body = acl("worker", {"Topic:others": ["Pub", "Create"]}).to_json()
            ok(await operator.ask(access.CreateAclRequestHeader("User:worker"), body))
        await here.cluster.restart_master()
        await trio.sleep(60)
        async with worker_at(here, here.cluster.master) as worker:
            assert here.cluster.master.broker.role == "slave"
            ok(await worker.ask(GetMaxOffsetRequestHeader("others", 0)))


async def test_change_just_before_a_hand_over_counts_at_the_new_master(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with pair(tmp_path) as here, here.operator() as operator:
        await here.grant("worker", {"Topic:others": ["Pub", "Create"]})
        ok(await operator.pool.call(here.broker.address, HandOverRequestHeader(), timeout=60))
        async with worker_at(here, slave_of(here)) as worker:
            ok(await worker.send("others"))


async def test_slave_without_the_right_account_gets_no_users(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("worker", RIGHTS)
        await here.add_user("operator", {"Cluster:lab": ["All"], "*": ["All"]})
        async with here.client("operator") as operator:
            refused(await operator.ask(access.GetAllUsersRequestHeader()))


@pytest.mark.parametrize("known", [True, False])
async def test_users_are_sent_only_if_they_are_others(tmp_path: Path, *, known: bool) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("worker", RIGHTS)
        async with here.operator() as operator:
            answer = ok(await operator.ask(access.GetAllUsersRequestHeader()))
            version = answer.header(access.GetAllUsersResponseHeader).version
            assert b"worker" in bytes(answer.body)
            assert INNER.secret_key.encode() not in bytes(answer.body)
            again = ok(
                await operator.ask(access.GetAllUsersRequestHeader(version if known else "x"))
            )
            assert bool(again.body) is not known


async def test_slave_keeps_its_users_beside_a_master_that_never_had_any(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with pair(tmp_path) as here:
        control = here.broker.state.access
        assert control is not None
        control.keep(VersionedUsers())  # As after the loss of its data directory.
        await trio.sleep(30)
        async with worker_at(here, slave_of(here)) as worker:
            ok(await worker.ask(READ))
