"""Sends to a synchronous master's process whose slaves are stopped, or behind a relay that misbehaves.

After how many seconds each answer comes is asserted in virtual time, by `test_synchronous_replication.py`. Here are
brokers that wait longer than any machine is slow, and brokers that give up soon.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import pytest
import trio
from tests.support import wire
from tests.support.caller import Caller
from tests.support.commit_logs import wait_caught_up
from tests.support.load import stopped
from tests.support.ours import OurBroker, OurNameServer
from tests.support.relay import RelayProcess, relay_to
from tests.support.server import start_together
from tests.support.waiting import HANGS, eventually

from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

pytestmark = [pytest.mark.real, pytest.mark.slow]

OK = ResponseCode.SUCCESS
TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
PATIENT = ("slave_timeout=60", "ha_housekeeping_interval=120", "ha_send_heartbeat_interval=0.5")
IMPATIENT = ("slave_timeout=0.5", "ha_housekeeping_interval=4", "ha_send_heartbeat_interval=0.5")


@attrs.define
class Trio:
    """A synchronous master; one slave follows it directly, the other one through a relay."""

    master: OurBroker
    slave: OurBroker
    far_slave: OurBroker
    relay: RelayProcess


@contextmanager
def three_brokers(home: Path, settings: tuple[str, ...]) -> Iterator[Trio]:
    with ExitStack() as stack:
        names = stack.enter_context(OurNameServer(home / "namesrv")).address
        master = OurBroker(home / "master", names, role="sync-master", settings=settings)
        relay = stack.enter_context(relay_to(f"127.0.0.1:{master.port + 1}"))
        slave, far_slave = (
            OurBroker(home / f"slave-{id_}", names, role="slave", broker_id=id_, settings=own)
            for id_, own in (
                (1, settings),
                (2, (*settings, f"ha_master_address={relay.address}")),
            )
        )
        start_together(stack, master, slave, far_slave)
        yield Trio(master, slave, far_slave, relay)


@pytest.fixture(scope="module", name="patient")
def _patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with three_brokers(tmp_path_factory.mktemp("patient"), PATIENT) as brokers:
        yield brokers


@pytest.fixture(scope="module", name="impatient")
def _impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with three_brokers(tmp_path_factory.mktemp("impatient"), IMPATIENT) as brokers:
        yield brokers


@attrs.define
class Sender:
    """Sends, and keeps what was answered."""

    caller: Caller
    addr: str
    answers: list[int] = attrs.Factory(list)

    async def send(self) -> int:
        answer = await self.caller.send(self.addr, b"x", timeout=HANGS)
        self.answers.append(answer.code)
        return answer.code

    async def until(self, code: int) -> None:
        """Send until this is the answer."""

        async def is_answered() -> bool:
            return await self.send() == code

        await eventually(is_answered, HANGS, interval=0.05)

    def log_end(self) -> int:
        return wire.max_physical_offset(self.addr)


@asynccontextmanager
async def sender(brokers: Trio) -> AsyncIterator[Sender]:
    """When both slaves are level."""
    async with open_channel_pool(dial_tcp) as pool:
        one = Sender(Caller(pool), brokers.master.address)
        await one.until(OK)
        for slave in (brokers.slave, brokers.far_slave):
            await trio.to_thread.run_sync(wait_caught_up, brokers.master.address, slave.address)
        one.answers.clear()
        yield one


async def test_one_of_two_slaves_may_be_paused(patient: Trio) -> None:
    async with sender(patient) as one:
        for slave in (patient.slave, patient.far_slave):
            with stopped(slave):
                assert {await one.send() for _ in range(100)} == {OK}


async def test_stopped_slaves_are_waited_for_until_they_are_dropped(impatient: Trio) -> None:
    async with sender(impatient) as one:
        with stopped(impatient.slave), stopped(impatient.far_slave):
            await one.until(NOT_AVAILABLE)
            assert TIMEOUT in one.answers
            # Then sends do not wait for a slave any more.
            assert {await one.send() for _ in range(10)} == {NOT_AVAILABLE}
        await one.until(OK)


async def test_sends_wait_together_for_slaves_that_continue(patient: Trio) -> None:
    async with sender(patient) as one:
        before = one.log_end()
        assert await one.send() == OK
        end = one.log_end()
        size = end - before
        one.answers.clear()
        async with trio.open_nursery() as nursery:
            with stopped(patient.slave), stopped(patient.far_slave):
                for _ in range(50):
                    nursery.start_soon(one.send)
                await eventually(lambda: one.log_end() == end + 50 * size, HANGS)
                assert one.answers == []
        assert one.answers == [OK] * 50


async def test_sends_over_a_slow_link_are_all_acknowledged(patient: Trio) -> None:
    async with sender(patient) as one:
        with stopped(patient.slave):
            patient.relay.tell("delay 0.1")
            try:
                async with trio.open_nursery() as nursery:
                    for _ in range(50):
                        nursery.start_soon(one.send)
            finally:
                patient.relay.tell("delay 0")
        assert one.answers == [OK] * 50


def links(master: OurBroker) -> set[str]:
    """The slaves' ends of the replication connections that the master has."""
    status = wire.ask(master.address, RequestCode.GET_BROKER_HA_STATUS).json()
    return {link["addr"] for link in status["haConnectionInfo"]}


@pytest.mark.parametrize("word", ["half-close", "drop"])
async def test_connection_that_ends_is_opened_again(patient: Trio, word: str) -> None:
    async with sender(patient) as one:
        before = links(patient.master)
        with stopped(patient.slave):
            patient.relay.tell(word)
            with trio.fail_after(HANGS):
                while not (after := links(patient.master)) - before:
                    await one.send()
            assert len(after | before) == len(before) + 1
            await one.until(OK)


async def test_connection_that_passes_nothing_is_dropped_and_opened_again(impatient: Trio) -> None:
    async with sender(impatient) as one:
        with stopped(impatient.slave):
            impatient.relay.tell("hold")
            try:
                await one.until(NOT_AVAILABLE)
                assert TIMEOUT in one.answers
            finally:
                impatient.relay.tell("go")
            await one.until(OK)
