"""Sends to a synchronous master's process whose slaves are stopped, or behind a relay that misbehaves."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import attrs
import pytest
import trio
from tests.support import wire
from tests.support.caller import Caller
from tests.support.commit_logs import wait_caught_up
from tests.support.load import stopped
from tests.support.ours import OurBroker, OurNameServer
from tests.support.relay import RelayProcess, relay_to

from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

pytestmark = [pytest.mark.real, pytest.mark.slow]

OK = ResponseCode.SUCCESS
TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
SLAVE_TIMEOUT, HOUSEKEEPING = 0.7, 2.5
SETTINGS = (
    f"slave_timeout={SLAVE_TIMEOUT}",
    f"ha_housekeeping_interval={HOUSEKEEPING}",
    "ha_send_heartbeat_interval=0.5",
)
SLACK = 1.0
"""Seconds that two busy cores may add."""


@attrs.define
class Trio:
    """A synchronous master; one slave follows it directly, the other one, if it runs, through a relay."""

    master: OurBroker
    slave: OurBroker
    far_slave: OurBroker
    relay: RelayProcess


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    home = tmp_path_factory.mktemp("synchronous")
    with ExitStack() as stack:
        names = stack.enter_context(OurNameServer(home / "namesrv")).address
        master = OurBroker(home / "master", names, role="sync-master", settings=SETTINGS)
        relay = stack.enter_context(relay_to(f"127.0.0.1:{master.port + 1}"))
        slave, far_slave = (
            OurBroker(home / f"slave-{id_}", names, role="slave", broker_id=id_, settings=settings)
            for id_, settings in (
                (1, SETTINGS),
                (2, (*SETTINGS, f"ha_master_address={relay.address}")),
            )
        )
        for broker in (master, slave, far_slave):  # All at once: a start is what costs time here.
            stack.callback(_end, broker)
            broker.start()
        for broker in (master, slave, far_slave):
            broker.wait_ready()
        yield Trio(master, slave, far_slave, relay)


def _end(broker: OurBroker) -> None:
    broker.__exit__()


@attrs.define
class Sender:
    """Sends and tells what was answered, and after how many seconds."""

    caller: Caller
    addr: str

    async def send(self) -> tuple[int, float]:
        start = time.monotonic()
        answer = await self.caller.send(self.addr, b"x")
        return answer.code, time.monotonic() - start

    async def note(self, answers: list[tuple[int, float]]) -> None:
        answers.append(await self.send())

    async def until(self, code: int, limit: float) -> float:
        """Send until this is the answer; seconds it took."""
        start = time.monotonic()
        seen: list[int] = []
        with trio.move_on_after(limit):
            while True:
                seen.append((await self.send())[0])
                if seen[-1] == code:
                    return time.monotonic() - start
                await trio.sleep(0.05)
        raise AssertionError(f"no {code} within {limit} s, but {sorted(set(seen))}")


@asynccontextmanager
async def sender(brokers: Trio) -> AsyncIterator[Sender]:
    """When both slaves are level."""
    async with open_channel_pool(dial_tcp) as pool:
        one = Sender(Caller(pool), brokers.master.address)
        await one.until(OK, 10)
        for slave in (brokers.slave, brokers.far_slave):
            await trio.to_thread.run_sync(wait_caught_up, brokers.master.address, slave.address)
        yield one


async def test_one_of_two_slaves_may_be_paused(brokers: Trio) -> None:
    async with sender(brokers) as one:
        for slave in (brokers.slave, brokers.far_slave):
            with stopped(slave):
                answers = [await one.send() for _ in range(100)]
            assert {code for code, _ in answers} == {OK}
            assert max(seconds for _, seconds in answers) < SLAVE_TIMEOUT


async def test_stopped_slaves_are_waited_for_until_they_are_dropped(brokers: Trio) -> None:
    async with sender(brokers) as one:
        with stopped(brokers.slave), stopped(brokers.far_slave):
            code, seconds = await one.send()
            assert code == TIMEOUT
            assert SLAVE_TIMEOUT <= seconds < SLAVE_TIMEOUT + SLACK
            # Then nobody is waited for any more.
            assert await one.until(NOT_AVAILABLE, 10) < HOUSEKEEPING + SLACK
            code, seconds = await one.send()
            assert code == NOT_AVAILABLE
            assert seconds < SLAVE_TIMEOUT
        assert await one.until(OK, 10) < 5


async def test_slave_that_continues_in_time_releases_the_send(brokers: Trio) -> None:
    async with sender(brokers) as one:
        answers: list[tuple[int, float]] = []
        async with trio.open_nursery() as nursery:
            with stopped(brokers.slave), stopped(brokers.far_slave):
                nursery.start_soon(one.note, answers)
                await trio.sleep(SLAVE_TIMEOUT / 2)
                assert answers == []
        assert answers[0][0] == OK
        assert SLAVE_TIMEOUT / 2 <= answers[0][1] < SLAVE_TIMEOUT


async def test_slow_link_delays_each_send_and_not_their_number(brokers: Trio) -> None:
    async with sender(brokers) as one:
        answers: list[tuple[int, float]] = []
        with stopped(brokers.slave):
            brokers.relay.tell("delay 0.1")
            try:
                await trio.sleep(0.2)
                async with trio.open_nursery() as nursery:
                    for _ in range(50):
                        nursery.start_soon(one.note, answers)
            finally:
                brokers.relay.tell("delay 0")
        assert [code for code, _ in answers] == [OK] * 50
        # There and back; what goes together waits together.
        assert min(seconds for _, seconds in answers) >= 0.2
        assert max(seconds for _, seconds in answers) < SLAVE_TIMEOUT


def links(master: OurBroker) -> set[str]:
    """The slaves' ends of the replication connections that the master has."""
    status = wire.ask(master.address, RequestCode.GET_BROKER_HA_STATUS).json()
    return {link["addr"] for link in status["haConnectionInfo"]}


@pytest.mark.parametrize("word", ["half-close", "drop"])
async def test_connection_that_ends_is_opened_again(brokers: Trio, word: str) -> None:
    async with sender(brokers) as one:
        before = links(brokers.master)
        with stopped(brokers.slave):
            brokers.relay.tell(word)
            with trio.fail_after(3):
                while not (after := links(brokers.master)) - before:
                    await one.send()
            assert len(after | before) == len(before) + 1
            assert await one.until(OK, 10) < 1


async def test_connection_that_passes_nothing_is_dropped_and_opened_again(brokers: Trio) -> None:
    async with sender(brokers) as one:
        with stopped(brokers.slave):
            brokers.relay.tell("hold")
            try:
                assert (await one.send())[0] == TIMEOUT
                assert await one.until(NOT_AVAILABLE, 10) < HOUSEKEEPING + SLACK
            finally:
                brokers.relay.tell("go")
            assert await one.until(OK, 10) < 5
