"""Which slaves a broker remembers, and when it forgets them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from tests.support.faulty_disk import FaultyDisk
from trio.testing import MockClock

from rocketrio_broker.ha.config import SLAVES_LIMIT
from rocketrio_broker.ha.known_slaves import (
    CONNECTED_WITHIN,
    REFRESH_PERIOD,
    SETTLE_TIME,
    KnownSlaves,
)
from rocketrio_broker.ha.peers import Peers
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.tasks import background_nursery

SERVERS = ("10.0.0.8:9876", "10.0.0.9:9876")
MASTER, FIRST, SECOND = (f"10.0.0.{host}:10911" for host in (10, 11, 12))


@attrs.frozen
class SlavesEnd:
    """A connection of a slave."""

    addr: str


@attrs.define
class Story:
    """Name servers, the slaves that are connected, and who remembers them."""

    listed: dict[str, dict[int, str] | None]
    """What each name server lists; None: it does not answer."""
    disk: FaultyDisk = attrs.Factory(FaultyDisk)
    connections: list[SlavesEnd] = attrs.Factory(list)
    came: Watermark = attrs.Factory(Watermark)
    went: Watermark = attrs.Factory(Watermark)
    master: str | None = None
    """Whom the broker follows."""
    answers_after: float = 0.0
    """Seconds until an answer of a name server comes."""

    async def call(
        self, addr: str, request: RequestHeader, body: bytes = b"", *, timeout: float = 3.0
    ) -> RemotingCommand:
        addrs = self.listed[addr]
        await trio.sleep(self.answers_after)
        if addrs is None:
            raise NotReachableError("no answer", broker_addr=addr)
        table = {"broker-a": BrokerData("DefaultCluster", "broker-a", addrs)}
        return RemotingCommand(code=0, body=ClusterInfo(table, {}).to_json())

    def known(self) -> KnownSlaves:
        return KnownSlaves(
            Path("/config"),
            disk=self.disk,
            peers=Peers(self.call, self.call, tuple(self.listed), "broker-a", MASTER),
            connections=self.connections,
            changes=(self.came, self.went),
            master=lambda: self.master,
        )

    @asynccontextmanager
    async def remembering(self) -> AsyncGenerator[KnownSlaves]:
        """Run the task that remembers them."""
        async with background_nursery() as nursery:
            known = self.known()
            await nursery.start(known.run)
            yield known

    def connect(self, addr: str) -> None:
        self.connections.append(SlavesEnd(addr))
        self.came.advance(self.came.value + 1)

    def disconnect(self, addr: str) -> None:
        self.connections.remove(SlavesEnd(addr))
        self.went.advance(self.went.value + 1)

    async def come(self, *addrs: str) -> None:
        """Let slaves connect, and wait until they are known."""
        for addr in addrs:
            self.connect(addr)
        await trio.sleep(2 * SETTLE_TIME)

    async def come_and_go(self, known: KnownSlaves, *addrs: str) -> None:
        """Let slaves come, and go for so long that they are forgotten."""
        await self.come(*addrs)
        self.listed[SERVERS[0]] = {0: MASTER}
        for addr in addrs:
            self.disconnect(addr)
        await trio.sleep(2 * SETTLE_TIME)
        assert list(known.addrs()) == []


async def test_slave_is_remembered_a_moment_after_it_came_and_over_a_power_cut(
    autojump_clock: MockClock,
) -> None:
    story = Story({SERVERS[0]: {0: MASTER, 1: FIRST}})
    async with story.remembering() as known:
        assert list(known.addrs()) == []
        await story.come(FIRST)
        assert list(known.addrs()) == [FIRST]
    story.disk = story.disk.after_cut(seed=1, kept=0.0)
    assert list(story.known().addrs()) == [FIRST]


async def test_slave_that_comes_is_known_at_once_or_a_moment_later(
    autojump_clock: MockClock,
) -> None:
    """The first may be promoted within the moment; the second is listed only then."""
    story = Story({SERVERS[0]: {0: MASTER, 1: FIRST}})
    async with story.remembering() as known:
        story.connect(FIRST)
        await trio.sleep(SETTLE_TIME / 2)
        story.listed[SERVERS[0]] = {0: FIRST, 1: SECOND}
        assert known.met() == [FIRST]
        story.connect(SECOND)
        await trio.sleep(SETTLE_TIME)
        assert known.met() == [FIRST, SECOND]


async def test_slave_that_was_forgotten_and_is_back_is_known_at_once(
    autojump_clock: MockClock,
) -> None:
    """It may be promoted within the moment, and the name server may be silent by then."""
    story = Story({SERVERS[0]: {0: MASTER, 1: FIRST}})
    async with story.remembering() as known:
        await story.come_and_go(known, FIRST)
        story.listed[SERVERS[0]] = {0: MASTER, 1: FIRST}
        story.connect(FIRST)
        await trio.sleep(SETTLE_TIME / 2)
        story.listed[SERVERS[0]] = None
        story.disconnect(FIRST)
        await trio.sleep(2 * SETTLE_TIME)
        assert list(known.addrs()) == [FIRST]


async def test_slave_that_comes_while_name_servers_answer_is_asked_for_too(
    autojump_clock: MockClock,
) -> None:
    story = Story({SERVERS[0]: {0: MASTER}}, answers_after=0.1)
    async with story.remembering() as known:
        await trio.sleep(REFRESH_PERIOD + 0.05)
        story.listed[SERVERS[0]] = {0: MASTER, 1: FIRST}
        await story.come(FIRST)
        assert known.met() == [FIRST]


async def test_slave_that_went_and_is_listed_no_more_is_forgotten(
    autojump_clock: MockClock,
) -> None:
    story = Story({SERVERS[0]: {0: MASTER, 1: FIRST, 2: SECOND}})
    async with story.remembering() as known:
        for addr in (FIRST, SECOND):
            story.connect(addr)
        await trio.sleep(2 * SETTLE_TIME)
        assert list(known.addrs()) == [FIRST, SECOND]
        story.listed[SERVERS[0]] = {0: MASTER, 1: FIRST}
        story.disconnect(SECOND)
        await trio.sleep(2 * SETTLE_TIME)
        assert list(known.addrs()) == [FIRST]
        # Who asks later whether one of them took over has to know them all.
        assert known.met() == [SECOND, FIRST]


async def test_slave_that_is_back_while_no_name_server_answers_is_remembered_again(
    autojump_clock: MockClock,
) -> None:
    """By the host that its connection comes from."""
    story = Story({SERVERS[0]: {0: MASTER, 1: FIRST, 2: SECOND}})
    async with story.remembering() as known:
        await story.come_and_go(known, FIRST, SECOND)
        story.listed[SERVERS[0]] = None
        story.connect(FIRST.replace(":10911", ":49160"))
        await trio.sleep(2 * SETTLE_TIME)
        assert list(known.addrs()) == [FIRST]
    assert list(story.known().addrs()) == [FIRST]


@pytest.mark.parametrize(
    "listed", [{SERVERS[0]: {}}, {SERVERS[0]: None}, {SERVERS[0]: {}, SERVERS[1]: None}]
)
async def test_slaves_are_not_forgotten_because_a_name_server_is_new_or_silent(
    autojump_clock: MockClock, listed: dict[str, dict[int, str] | None]
) -> None:
    story = Story({server: {0: MASTER, 1: FIRST} for server in listed})
    async with story.remembering() as known:
        await story.come(FIRST)
        story.listed.update(listed)
        await trio.sleep(2 * REFRESH_PERIOD)
        assert list(known.addrs()) == [FIRST]


async def test_former_master_forgets_no_slave_because_a_name_server_has_restarted(
    autojump_clock: MockClock,
) -> None:
    """Its slaves follow another one now: nothing but the list knows of them, and no broker has registered there yet."""
    story = Story({SERVERS[0]: {0: MASTER, 1: FIRST}})
    async with story.remembering() as known:
        await story.come(FIRST)
        story.listed[SERVERS[0]] = {}
        story.disconnect(FIRST)
        await trio.sleep(2 * REFRESH_PERIOD)
        assert list(known.addrs()) == [FIRST]
        story.listed[SERVERS[0]] = {2: SECOND}
        await trio.sleep(2 * REFRESH_PERIOD)
        assert list(known.addrs()) == [FIRST, SECOND]
        story.listed[SERVERS[0]] = {0: SECOND}
        await trio.sleep(2 * REFRESH_PERIOD)
        assert list(known.addrs()) == [FIRST]
        story.listed[SERVERS[0]] = {0: SECOND, 1: MASTER}
        await trio.sleep(2 * REFRESH_PERIOD)
        assert list(known.addrs()) == []


async def test_followed_master_is_remembered_until_name_servers_list_slaves_of_this_broker(
    autojump_clock: MockClock,
) -> None:
    story = Story({SERVERS[0]: {}}, master=SECOND)
    async with story.remembering():
        await trio.sleep(REFRESH_PERIOD + SETTLE_TIME)
    story.disk, story.master = story.disk.after_cut(seed=1, kept=0.0), None
    async with story.remembering() as known:
        await trio.sleep(2 * REFRESH_PERIOD)
        assert known.followed == SECOND
        # A name server that does not list this broker has restarted: the slave may follow another one.
        story.listed[SERVERS[0]] = {1: FIRST}
        await trio.sleep(2 * REFRESH_PERIOD)
        assert known.followed == SECOND
        story.listed[SERVERS[0]] = {0: MASTER, 1: FIRST}
        await trio.sleep(2 * REFRESH_PERIOD)
        assert known.followed is None
    assert story.known().followed is None


async def test_successor_is_remembered_that_name_servers_list_before_a_registration_names_it(
    autojump_clock: MockClock,
) -> None:
    story = Story({SERVERS[0]: {0: MASTER, 1: FIRST}})
    async with story.remembering() as known:
        await story.come(FIRST)
        assert known.followed is None
        story.listed[SERVERS[0]] = {0: FIRST, 1: MASTER}
        story.disconnect(FIRST)
        await trio.sleep(2 * SETTLE_TIME)
        assert (known.addrs(), known.followed) == ([], FIRST)
    assert story.known().followed == FIRST


async def test_slave_counts_as_connecting_for_some_seconds_if_it_names_its_own_host(
    autojump_clock: MockClock,
) -> None:
    known = Story({SERVERS[0]: None}).known()
    known.note_connection(FIRST, "10.0.0.11:49160")
    for wrong in (SECOND, "", "10.0.0.11:0", "10.0.0.11"):
        known.note_connection(wrong, "10.0.0.11:49161")
    assert known.connecting() == [FIRST]
    assert not known.addrs()
    await trio.sleep(CONNECTED_WITHIN + 1)
    assert known.connecting() == []


async def test_number_of_connecting_slaves_is_limited(autojump_clock: MockClock) -> None:
    known = Story({SERVERS[0]: None}).known()
    for port in range(1, SLAVES_LIMIT + 10):
        known.note_connection(f"10.0.0.11:{port}", "10.0.0.11:49160")
    assert known.connecting() == [f"10.0.0.11:{port}" for port in range(10, SLAVES_LIMIT + 10)]


async def test_ids_are_remembered_for_slaves_that_are_away_and_over_a_power_cut(
    autojump_clock: MockClock,
) -> None:
    story = Story({SERVERS[0]: {0: MASTER, 1: FIRST, 2: SECOND}})
    async with story.remembering() as known:
        await trio.sleep(REFRESH_PERIOD + SETTLE_TIME)
        assert known.ids() == {FIRST: 1, SECOND: 2}
        story.listed[SERVERS[0]] = {0: SECOND, 1: FIRST}
        await trio.sleep(REFRESH_PERIOD + SETTLE_TIME)
        story.listed[SERVERS[0]] = None
        await trio.sleep(REFRESH_PERIOD + SETTLE_TIME)
    story.disk = story.disk.after_cut(seed=1, kept=0.0)
    assert story.known().ids() == {FIRST: 1, SECOND: 2}


async def test_id_belongs_to_the_address_that_was_listed_with_it_last(
    autojump_clock: MockClock,
) -> None:
    story = Story({SERVERS[0]: {0: MASTER, 1: FIRST, 2: SECOND}})
    async with story.remembering() as known:
        await trio.sleep(REFRESH_PERIOD + SETTLE_TIME)
        story.listed[SERVERS[0]] = {0: MASTER, 2: FIRST}
        await trio.sleep(REFRESH_PERIOD + SETTLE_TIME)
        assert known.ids() == {FIRST: 2}


async def test_file_of_an_earlier_version_and_a_damaged_one_have_no_ids() -> None:
    for ids in ("", ',"ids":["x 10.0.0.11:10911","1","1 nowhere"]'):
        story = Story({SERVERS[0]: None})
        file = story.disk.open(Path("/config/slaves.json"), create=True)
        file.pwrite(f'{{"slaves":["{FIRST}"]{ids}}}'.encode(), 0)
        known = story.known()
        assert known.addrs() == [FIRST]
        assert known.ids() == {}


async def test_number_of_remembered_ids_is_limited(autojump_clock: MockClock) -> None:
    story = Story({SERVERS[0]: None})
    async with story.remembering() as known:
        for first in range(1, 4 * SLAVES_LIMIT, SLAVES_LIMIT):
            ids = range(first, first + SLAVES_LIMIT)
            story.listed[SERVERS[0]] = {id_: f"10.0.0.11:{20_000 + id_}" for id_ in ids}
            await trio.sleep(REFRESH_PERIOD + SETTLE_TIME)
        assert sorted(known.ids().values()) == [*ids]
