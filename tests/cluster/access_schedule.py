"""Users that lose rights and change keys, and certificates that expire, while brokers are killed, parted and change
places, by a seed.

An operator makes changes at the master; faults happen between them. A worker with the account tries every broker.

    at the master       a change that was answered counts from the next request on, for its requests and waiting pulls
    at a slave          the same within `COPIED` seconds, while it can reach the master
    after a hand-over   nothing that was answered is lost
    after a kill        nothing that was answered `COPIED` seconds before is lost
    while a key changes the new one and the one before it are valid, and no other
    after the end of    connections that stand go on, clients and slaves make no new one, and a client learns why;
      the certificate   what was answered then counts as ever, and slaves follow again once it is renewed
    at the end          all brokers decide alike, and have the same log

In half of the runs everything is over TLS, also between brokers. Each has the same certificate.

Pure chance is in the seed; times are virtual. `play` returns what happened, line by line: equal for equal seeds.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from tests.support.caller import accepted
from tests.support.secured_broker import (
    INNER,
    REFUSED,
    Account,
    Secured,
    acl,
    secured,
)
from tests.support.tls import client_context, write_files

from rocketrio_broker.embedded import Member
from rocketrio_protocol.bodies.access import UserInfo
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import access
from rocketrio_protocol.commands.admin import ChangeBrokerRoleRequestHeader, HandOverRequestHeader
from rocketrio_protocol.commands.offset import GetMaxOffsetRequestHeader
from rocketrio_protocol.commands.pull import PullMessageRequestHeader, PullSysFlag
from rocketrio_protocol.errors import TlsError
from rocketrio_protocol.remoting.reloaded_files import RELOAD_PERIOD

COPIED: Final = 15.0
"""Seconds within which a slave that can reach its master has its users: a round of copying, and a little."""
STEPS: Final = 14
TOPICS: Final = ("red", "blue")
WORKER: Final = "worker"
ORDER_LIMIT: Final = 60.0


@attrs.define
class Known:
    """What must hold of the worker: its keys, the newest first, and its topics."""

    keys: tuple[str, ...]
    topics: frozenset[str]
    is_enabled: bool = True


@attrs.define
class Run:
    """One run of one seed."""

    here: Secured
    rng: random.Random
    known: Known
    folder: Path
    lines: list[str] = attrs.field(factory=list)
    keys_made: int = 0
    standing: Account | None = None
    """The operator's connection to the master while no new one is possible."""

    @property
    def members(self) -> list[Member]:
        return [member for member in self.here.cluster.members if member.is_running]

    @property
    def master(self) -> Member:
        return next(member for member in self.members if not member.broker.config.is_slave)

    def note(self, text: str) -> None:
        self.lines.append(text)

    # ------------------------------------------------------------------------------- what an operator does

    async def order(
        self, header: object, body: bytes = b"", *, at: Member | None = None
    ) -> RemotingCommand:
        if self.standing is not None:
            return accepted(await self.standing.ask(header, body))  # type: ignore[arg-type]
        address = (at or self.master).broker.address
        async with self.here.client(INNER.access_key, INNER.secret_key, addr=address) as operator:
            return accepted(await operator.pool.call(address, header, body, timeout=ORDER_LIMIT))  # type: ignore[arg-type]

    async def grant(self) -> None:
        topic = self.rng.choice(TOPICS)
        rights = {f"Topic:{topic}": ["Pub", "Sub", "Create"]}
        await self.order(
            access.CreateAclRequestHeader(f"User:{WORKER}"), acl(WORKER, rights).to_json()
        )
        self.known.topics |= {topic}
        self.note(f"granted {topic}")

    async def revoke(self) -> None:
        topic = self.rng.choice(TOPICS)
        await self.order(access.DeleteAclRequestHeader(f"User:{WORKER}", resource=f"Topic:{topic}"))
        self.known.topics -= {topic}
        self.note(f"revoked {topic}")

    async def new_key(self) -> None:
        self.keys_made += 1
        key = f"key-{self.keys_made}"
        await self.order(access.UpdateUserRequestHeader(WORKER), UserInfo(password=key).to_json())
        self.known.keys = (key, self.known.keys[0])
        self.note(f"new key {key}")

    async def drop_old_key(self) -> None:
        key = self.known.keys[0]
        await self.order(access.UpdateUserRequestHeader(WORKER), UserInfo(password=key).to_json())
        self.known.keys = (key,)
        self.note("old key dropped")

    async def switch_status(self) -> None:
        status = "disable" if self.known.is_enabled else "enable"
        await self.order(
            access.UpdateUserRequestHeader(WORKER), UserInfo(user_status=status).to_json()
        )
        self.known.is_enabled = not self.known.is_enabled
        self.note(status)

    # ----------------------------------------------------------------------------------------- what breaks

    async def kill_slave(self) -> None:
        member = self.rng.choice([each for each in self.members if each.broker.config.is_slave])
        await member.kill()
        await trio.sleep(self.rng.uniform(0, 20))
        await self.change()
        await member.start()
        self.note(f"{member.host} was killed")

    async def part(self) -> None:
        member = self.rng.choice([each for each in self.members if each.broker.config.is_slave])
        self.here.cluster.partition(self.master, member)
        await trio.sleep(self.rng.uniform(0, 40))
        await self.change()
        self.here.cluster.heal()
        self.note(f"{member.host} was parted from the master")

    async def restart_master(self) -> None:
        master = self.master
        await self.change()
        await master.kill()
        await trio.sleep(self.rng.uniform(0, 10))
        await master.start()
        self.note("the master was killed, and is back")
        await self.judge(COPIED)

    async def take_over(self) -> None:
        await self.settle()
        old = self.master
        new = self.rng.choice([each for each in self.members if each is not old])
        await old.kill()
        await self.order(ChangeBrokerRoleRequestHeader("async-master", 0), at=new)
        self.note(f"{new.host} took over")
        await self.judge(0)
        await self.change()
        await old.start()
        await self.settle()

    async def hand_over(self) -> None:
        await self.settle()
        await self.change()
        await self.order(HandOverRequestHeader())
        self.note(f"handed over to {self.master.host}")
        await self.judge(0)
        await self.settle()

    async def expire(self) -> None:
        """Let the certificate end while a slave loses its connections or is started, and renew it."""
        if self.here.tls is None:
            return
        address = self.master.broker.address
        slave = self.rng.choice([each for each in self.members if each.broker.config.is_slave])
        fault = self.rng.choice(("nothing else", "a cut", "a restart"))
        async with (
            self.here.client(INNER.access_key, INNER.secret_key, addr=address) as self.standing,
            trio.open_nursery() as nursery,
        ):
            accepted(await self.standing.ask(GetMaxOffsetRequestHeader(TOPICS[0], 0)))
            write_files(self.folder, is_expired=True)
            await trio.sleep(RELOAD_PERIOD + 1)
            if fault == "a cut":
                self.here.cluster.cut(slave.host)
            elif fault == "a restart":
                await slave.kill()
                nursery.start_soon(slave.start)
            await self.change()
            accepted(
                await self.standing.send(self.rng.choice(TOPICS), b"by a connection that stands")
            )
            await trio.sleep(self.rng.uniform(0, 40))
            await self._refused_for_its_end(address)
            if fault != "nothing else":
                assert not slave.is_running or not self._has_the_log(slave), self.lines
            write_files(self.folder)
            await trio.sleep(RELOAD_PERIOD + 1)
        self.standing = None
        self.note(f"the certificate ended, with {fault} of {slave.host}, and was renewed")
        await self.settle()
        await self.judge(COPIED)

    async def _refused_for_its_end(self, address: str) -> None:
        with pytest.raises(TlsError, match="certificate has expired"):
            async with self.here.client(WORKER, self.known.keys[0], addr=address) as worker:
                await worker.ask(GetMaxOffsetRequestHeader(TOPICS[0], 0))

    def _has_the_log(self, member: Member) -> bool:
        ends = {each.broker.store.max_physical_offset for each in (member, self.master)}
        return len(ends) == 1

    async def change(self) -> None:
        """Let the operator change something."""
        changes: tuple[Callable[[], Awaitable[None]], ...] = (
            self.grant, self.revoke, self.new_key, self.drop_old_key, self.switch_status,
        )  # fmt: skip
        await self.rng.choice(changes)()

    async def settle(self) -> None:
        """Wait until slaves follow, and have copied."""
        with trio.fail_after(180):
            while not all(self._follows(member) for member in self.members):  # noqa: ASYNC110
                await trio.sleep(1)
        await trio.sleep(COPIED)

    def _follows(self, member: Member) -> bool:
        if not member.broker.config.is_slave:
            return True
        slave = member.broker.statistics().slave
        return slave is not None and slave.tables.last_problem is None and slave.tables.rounds > 0

    # ---------------------------------------------------------------------------------------------- judging

    async def judge(self, after: float) -> None:
        """Compare what each broker decides with what must hold: the master now, slaves after some time."""
        await self._judge(self.master)
        if after:
            await trio.sleep(after)
            for member in self.members:
                await self._judge(member)

    async def _judge(self, member: Member) -> None:
        for key in {*self.known.keys, "key-0", f"key-{self.keys_made}"}:
            async with self.here.client(WORKER, key, addr=member.broker.address) as worker:
                for topic in TOPICS:
                    wanted = (
                        key in self.known.keys
                        and self.known.is_enabled
                        and topic in self.known.topics
                    )
                    code = (await worker.ask(GetMaxOffsetRequestHeader(topic, 0))).code
                    assert (code != REFUSED) == wanted, self._story(member, key, topic, code)

    def _story(self, member: Member, key: str, topic: str, code: int) -> str:
        return "\n".join(
            [
                *self.lines,
                f"{member.host} answered {code} to {key} about {topic}, where {self.known} holds",
            ]
        )

    async def wait_in_a_pull(self) -> None:
        """Lose the right to a topic, or keep it, while a pull of it waits; then a message comes."""
        topic, key = self.rng.choice(TOPICS), self.known.keys[0]
        async with self._pulling(topic, key) as answers:
            await trio.sleep(1)
            await self.rng.choice((self.revoke, self.switch_status, self.grant))()
            async with self.here.client(
                INNER.access_key, INNER.secret_key, addr=self.master.broker.address
            ) as sender:
                accepted(await sender.send(topic, b"after"))
        may = self.known.is_enabled and topic in self.known.topics
        for answer in answers:
            assert may or answer.code == REFUSED, self._story(self.master, key, topic, answer.code)
            assert may or not answer.body
        self.note(f"a pull of {topic} was answered {[answer.code for answer in answers]}")

    @asynccontextmanager
    async def _pulling(self, topic: str, key: str) -> AsyncIterator[list[RemotingCommand]]:
        answers: list[RemotingCommand] = []
        address = self.master.broker.address
        async with (
            self.here.client(WORKER, key, addr=address) as worker,
            trio.open_nursery() as nursery,
        ):
            end = await self._end_of(topic)

            async def pull() -> None:
                flags = PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION
                header = PullMessageRequestHeader(
                    "group", topic, 0, end, 32, flags, 0, 10_000, 1, "*", "TAG"
                )
                answers.append(await worker.pool.call(address, header, timeout=30))

            nursery.start_soon(pull)
            yield answers

    async def _end_of(self, topic: str) -> int:
        bounds = self.master.broker.store.queue_bounds(topic, 0)
        return 0 if bounds is None else bounds[1]


async def play(seed: int, folder: Path, *, steps: int = STEPS) -> list[str]:
    """Play one seed; return what happened."""
    rng = random.Random(f"access {seed}")
    settings = _tls_settings(folder) if rng.choice((True, False)) else {}
    async with secured(
        folder, slaves=rng.choice((1, 2)), role="async-master", seed=seed, **settings
    ) as here:
        run = Run(here, rng, Known(("key-0",), frozenset(TOPICS)), folder)
        await prepare(run)
        await run.settle()
        kinds: tuple[Callable[[], Awaitable[None]], ...] = (
            run.change, run.change, run.wait_in_a_pull, run.kill_slave, run.part, run.restart_master, run.take_over,
            run.hand_over, run.expire,
        )  # fmt: skip
        for _ in range(steps):
            await rng.choice(kinds)()
            await run.judge(
                rng.choice((0.0, 0.0, COPIED)) if all(map(run._follows, run.members)) else 0.0
            )
        await run.settle()
        await run.judge(COPIED)
        digests = {
            member.broker.state.access.digest
            for member in run.members
            if member.broker.state.access
        }
        assert len(digests) == 1, "\n".join(run.lines)
        assert all(map(run._has_the_log, run.members)), "\n".join(run.lines)
        return run.lines


def _tls_settings(folder: Path) -> dict[str, Any]:
    """Write a certificate; return the settings of a cluster that has it at every port, and what clients check."""
    files = write_files(folder)
    return {
        "tls": client_context(),
        "tls_certificate_file": files.certificate,
        "tls_key_file": files.key,
        "peer_tls_authority_file": files.authority,
        "ha_tls_certificate_file": files.certificate,
        "ha_tls_key_file": files.key,
        "ha_tls_authority_file": files.authority,
    }


async def prepare(run: Run) -> None:
    """Make the worker, its topics and the group."""
    rights = {f"Topic:{topic}": ["Pub", "Sub", "Create"] for topic in TOPICS}
    await run.order(access.CreateUserRequestHeader(WORKER), UserInfo(password="key-0").to_json())
    await run.here.grant(WORKER, {**rights, "Group:group": ["Sub"]})
    async with run.here.operator() as operator:
        for topic in TOPICS:
            accepted(await operator.send(topic))
