"""The cluster of one run, the hosts of its clients, and what can be seen of it from above.

`World` looks into brokers' memory without a request, so that looking changes nothing.
"""

import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from tests.cluster.histories.contacts import ASKABLE, RETURN_WAIT, Contacts, Outcome
from tests.cluster.histories.disk import ScheduledDisk
from tests.cluster.histories.events import (
    Generation,
    History,
    LogsCompared,
    MemberEnded,
    MemberStarted,
    OffsetsSeen,
    ReignBegan,
    ReignEnded,
    StartFailed,
    TwoMasters,
    now,
)
from tests.cluster.histories.link_files import link_settings, new_folder
from tests.cluster.histories.pause import PausableCluster, PausableMember
from tests.cluster.histories.schedule import MOVABLE_QUEUE, QUEUES, Fault, Schedule
from tests.cluster.histories.uses.names import level_table
from tests.support.clients import open_client

from rocketrio import open_admin
from rocketrio_broker.embedded import MASTER_HOST, NAME_SERVER_HOST, Member
from rocketrio_broker.ha.epochs import common_boundary
from rocketrio_broker.role.standing import CurrentStanding
from rocketrio_broker.role.standing import Event as StandingEvent
from rocketrio_broker.store.acknowledged import Acknowledged
from rocketrio_broker.store.checkpoint import read_checkpoint
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.epochs import EPOCH_FILE
from rocketrio_broker.store.errors import NotOpenedError
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.ha.exchange import Epoch
from rocketrio_protocol.remoting.ports import Dial, VirtualWallClock, split_addr

TOPIC: Final = "orders"
GROUP: Final = "billing"
LATE_TOPIC: Final = "late-"
"""Begins the names of topics that are created while things break."""
BROKER_NAME: Final = "broker-a"
FILL: Final = b" "
"""What bodies are filled up with; histories leave it out."""
BODY_AT: Final = 88
"""Where in a record its body is, with IPv4 hosts. Before it stands what tells records apart: two of one size that are
stored at one address have their first eight bytes in common."""
SLAVE_SYNC_PERIOD: Final = 5.0
LOOK_PERIOD: Final = 0.5
"""Seconds between two looks at the offsets of all brokers."""
START_AGAIN_PAUSE: Final = 1.0
NAME_SERVER_PAUSE: Final = 0.1
"""Seconds that a name server is away when it begins again."""
TRANSACTION_TIMEOUT: Final = 2.0
CHECK_INTERVAL: Final = 3.0
CHECK_MAX: Final = 200
"""More questions than a run has time for: nothing is given up because its producer cannot be reached."""
START_LIMIT: Final = 60.0
"""Seconds a broker may take to come up; longer is a fault of rocketrio."""


ROLE_FILE: Final = "rocketrioRole.json"
CLEAN_ENDS: Final = ("stop", "queue gone")
"""After a kill a broker makes the queues again that the walk through its log meets, and notices nothing."""
LOG_FILE_SIZE: Final = 16_384


class ScheduledClock(VirtualWallClock):
    """The clock of all hosts, which may be ahead for a while."""

    ahead = 0.0
    """Seconds."""

    def now_ms(self) -> int:
        return super().now_ms() + round(self.ahead * 1000)


class WatchedCluster(PausableCluster):
    """A cluster whose network notes who got answers from whom."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.contacts = Contacts(self._listed)

    def dial_from(self, host: str) -> Dial:
        return self.contacts.dial(host, super().dial_from(host))

    def _listed(self) -> frozenset[str]:
        entry = self.name_server.routes.broker_addr_table.get(BROKER_NAME)
        addrs = {} if entry is None else entry.broker_addrs
        return frozenset(split_addr(addr)[0] for addr in addrs.values())


def open_cluster(schedule: Schedule) -> WatchedCluster:
    """Brokers with files so small that a run crosses the ends of many."""
    mode = schedule.mode
    store = StoreConfig(
        flush_disk_type=mode.flush,
        flush_interval_commit_log=mode.flush_interval,
        mapped_file_size_commit_log=LOG_FILE_SIZE,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=20,
        max_index_num=100,
        clean_file_forcibly_enable=False,
        access_message_in_memory_max_bytes=2000 if mode.reads_at_slaves else None,
    )
    settings = link_settings(mode)
    if schedule.uses:
        store = attrs.evolve(store, message_delay_level=level_table())
        settings |= {
            "transaction_timeout": TRANSACTION_TIMEOUT,
            "transaction_check_interval": CHECK_INTERVAL,
            "transaction_check_max": CHECK_MAX,
        }
    return WatchedCluster(
        slaves=mode.slaves,
        broker_name=BROKER_NAME,
        store=store,
        make_disk=ScheduledDisk,
        wall_clock=ScheduledClock(),
        seed=schedule.seed,
        slave_read_enable=mode.reads_at_slaves,
        slave_sync_period=SLAVE_SYNC_PERIOD,
        register_name_server_period=10.0,
        role=mode.role,
        ha_acknowledge=mode.acknowledge,
        ha_divergent_tail=mode.divergent_tail,
        ha_return_role=mode.returns,
        ha_return_wait=RETURN_WAIT,
        **settings,
    )


@attrs.frozen
class Before:
    """What there was when a broker was started or told to lead."""

    at: float
    ends: tuple[tuple[int, int, int], ...]
    """Of all brokers: where their logs end, and how far they are on their disks."""
    logs: dict[int, bytes]
    topics: dict[int, frozenset[str]]


@attrs.frozen
class Asked:
    """Which of the other brokers one could ask that is about to lead, as `ReignBegan` has it."""

    outcomes: tuple[tuple[int, Outcome], ...]
    named: tuple[int, ...]

    def could_know_of(self, number: int) -> bool:
        """Return whether that broker could be reached, or was named by a name server."""
        return number in self.named or dict(self.outcomes).get(number) != "unreachable"


@attrs.frozen
class Copy:
    """A copy of a broker's directory."""

    disk: ScheduledDisk
    log_end: int


@attrs.define
class World:
    """One run."""

    schedule: Schedule
    cluster: WatchedCluster
    history: History
    name_server_is_running: bool = True
    is_ending: bool = False
    """The faults are over: nothing is lowered any more."""
    has_new_log: bool = False
    """The master came back without any log while another broker has one: an operator decides which goes on."""
    new_ids: Iterator[int] = attrs.Factory(lambda: count(10))
    """The ids for brokers that are made slaves. No id is given twice, because a hand-over exchanges two."""
    folder: Path = attrs.Factory(new_folder)
    """For the files of its clients, which are real ones."""
    _hosts: dict[str, str] = attrs.Factory(dict)
    # brokers that start, and their stores once they have a standing: they may serve already
    _starting: dict[int, MessageStore | None] = attrs.Factory(dict)
    _ends: dict[int, tuple[int, int]] = attrs.Factory(dict)  # of brokers that are down
    _ending: set[int] = attrs.Factory(set)
    _logs: dict[int, bytes] = attrs.Factory(dict)  # of brokers that are down, as they had them
    _topics: dict[int, frozenset[str]] = attrs.Factory(
        dict
    )  # of brokers that are down, on their disks
    _reigning: int | None = 0
    _last_reign: int = 0
    _reign_log: bytes = b""  # of the last master, when it was that no more
    _told: dict[int, Before] = attrs.Factory(
        dict
    )  # what there was when a broker was last started, or told or free to lead
    _asked: dict[int, Asked] = attrs.Factory(dict)  # whom a broker had asked when it last claimed
    # the epochs of brokers that have lost the file of them
    _lost_epochs: dict[int, list[Epoch]] = attrs.Factory(dict)
    # where queues ended when a broker began to lead: one that starts may serve before it has started
    _led_from: dict[int, tuple[int, ...]] = attrs.Factory(dict)
    _not_serving: tuple[int, bytes] | None = (
        None  # the place of a reign's beginning, and the log of the last one
    )
    _seen: dict[tuple[int, int], tuple[int, Generation]] = attrs.Factory(dict)

    def rng(self, who: str) -> random.Random:
        """Chance for one actor, the same in each run of the seed whatever others draw."""
        return random.Random(f"{self.schedule.seed} {who}")

    def host(self, name: str) -> str:
        """The address of a member or client of the schedule."""
        kind, _, number = name.rpartition("-")
        match kind:
            case "slave":
                return self.cluster.slaves[int(number) - 1].host
            case "producer":
                return f"10.0.1.{number}"
            case "user":
                return f"10.0.4.{number}"
            case "consumer" | "payer":
                return self._hosts.get(name) or self.new_host(name, 0)
        return {"master": MASTER_HOST, "name server": NAME_SERVER_HOST}[name]

    def new_host(self, name: str, index: int) -> str:
        """The host of a consumer's or payer's next stay; faults of its name are its own from now on."""
        kind, _, number = name.rpartition("-")
        network = 1 if kind == "consumer" else 2
        host = self._hosts[name] = f"10.{network}.{number}.{index}"
        return host

    def member(self, name: str) -> Member:
        """A broker of the schedule, by the name of what it was at first."""
        if name == "master":
            return self.cluster.master
        return self.cluster.slaves[int(name.removeprefix("slave-")) - 1]

    def number(self, host: str) -> int:
        """Which member is at this host."""
        return [member.host for member in self.cluster.members].index(host)

    def number_of(self, store: MessageStore) -> int:
        """Which member has this store; it may be starting yet."""
        roots = [member.config.data for member in self.cluster.members]
        return roots.index(store.directory.root)

    @property
    def has_master(self) -> bool:
        """There is a master now."""
        return self._reigning is not None

    @property
    def last_log_end(self) -> int:
        """How much the last master had when it was that no more."""
        return len(self._reign_log)

    @property
    def master_log_end(self) -> int:
        """Where the log of the master ends, or ended when it was that no more."""
        return self._log_end(self.master)[0]

    @property
    def master(self) -> Member:
        """Who is master now, or was last."""
        return self.cluster.members[self._last_reign]

    def time_of(self, timestamp_ms: int) -> float:
        """Seconds since the run began, of a time that a broker stored."""
        now_ms = self.cluster.wall_clock.now_ms()
        return round(trio.current_time() + (timestamp_ms - now_ms) / 1000, 3)

    async def create_topic(self) -> None:
        """The topic of the run, before anything breaks."""
        async with (
            open_client(
                name_servers=self.cluster.name_servers,
                client_id="10.0.3.2@1#maker",
                dial=self.cluster.dial_from("10.0.3.2"),
                wall_clock=self.cluster.wall_clock,
                rng=self.rng("maker"),
            ) as client,
            open_admin(client=client) as admin,
        ):
            await admin.create_topic(TOPIC, queues=QUEUES)

    # --------------------------------------------------------------------------------- what can be seen

    def log_ends(self) -> tuple[tuple[int, int, int], ...]:
        """Each broker's log end and what of it is flushed: now, or what its disk kept when it went down."""
        return tuple(
            (number, *self._log_end(member))
            for number, member in enumerate(self.cluster.members)
            if number not in self._starting
        )

    def held_by(self) -> tuple[tuple[int, int, int], ...]:
        """The same, with brokers that have not started yet: a slave acknowledges as soon as it follows."""
        early = ((one, store) for one, store in self._starting.items() if store is not None)
        return self.log_ends() + tuple(
            (number, store.max_physical_offset, store.flushed.value) for number, store in early
        )

    def before(self) -> Before:
        """What there is now, before a broker is started or told to lead."""
        members = enumerate(self.cluster.members)
        return Before(
            at=trio.current_time(),
            ends=self.log_ends(),
            logs={number: self._log(member) for number, member in members},
            topics={number: self._topics_of(number) for number in range(len(self.cluster.members))},
        )

    def _log(self, member: Member) -> bytes:
        """A broker's log: now, or what its disk kept at least when it went down."""
        if self.is_up(member):
            return whole_log(member.broker.store)[1]
        number = self.number(member.host)
        return self._logs.get(number, b"")[: self._log_end(member)[0]]

    def _topics_of(self, number: int) -> frozenset[str]:
        """The topics created meanwhile that a broker has: now, or on its disk when it went down."""
        member = self.cluster.members[number]
        if self.is_up(member):
            names = member.broker.state.topics.topic_config_table
            return frozenset(name for name in names if name.startswith(LATE_TOPIC))
        return self._topics.get(number, frozenset())

    def is_up(self, member: Member) -> bool:
        """Return whether a broker runs and is not being taken down, which takes seconds with a slow disk."""
        return member.is_running and not self.goes_down(member)

    def _log_end(self, member: Member) -> tuple[int, int]:
        if self.is_up(member):
            store = member.broker.store
            return store.max_physical_offset, store.flushed.value
        return self._ends.get(self.number(member.host), (0, 0))

    def offsets(
        self, member: Member, *, group: str = GROUP, topic: str = TOPIC
    ) -> tuple[tuple[int, int], ...]:
        """Queue id and offset of a group, as the broker has them in memory; nothing while it is down."""
        if not member.is_running:
            return ()
        queues = member.broker.state.consumer_offsets.query_offsets(group, topic)
        return tuple(sorted(queues.items()))

    def generation(self, member: Member) -> Generation:
        """The generation of the group's offset on the movable queue, as the broker has it in memory."""
        if not member.is_running:
            return (0, 0)
        offsets = member.broker.state.consumer_offsets
        return tuple(offsets.query_version(GROUP, TOPIC, MOVABLE_QUEUE).generation)

    def all_offsets(self) -> tuple[tuple[int, int, int], ...]:
        """Broker, queue id, offset."""
        return tuple(
            (number, queue_id, offset)
            for number, member in enumerate(self.cluster.members)
            for queue_id, offset in self.offsets(member)
        )

    @property
    def all_seen(self) -> bool:
        """Whether no broker is starting, and perhaps serving already."""
        return not self._starting

    async def watch_offsets(self) -> None:
        """Note each change of the brokers' offsets; a task of the run."""
        while True:
            self.look_at_offsets()
            await trio.sleep(LOOK_PERIOD)

    def look_at_offsets(self) -> None:
        """One look."""
        for number, member in enumerate(self.cluster.members):
            generation = self.generation(member)
            seen = {
                queue_id: (offset, generation if queue_id == MOVABLE_QUEUE else ())
                for queue_id, offset in self.offsets(member)
            }
            changed = tuple(
                (queue_id, one[0])
                for queue_id, one in seen.items()
                if self._seen.get((number, queue_id)) != one
            )
            if changed:
                self._seen |= {(number, queue_id): seen[queue_id] for queue_id, _ in changed}
                self.history.add(
                    OffsetsSeen(at=now(), broker=number, offsets=changed, generation=generation)
                )

    # ------------------------------------------------------------------------------- ends and starts

    async def begin_name_server_anew(self) -> None:
        """It lists no broker until brokers register again; nothing where it is down."""
        if self.name_server_is_running:
            self.name_server_is_running = False
            await self.cluster.kill_name_server()
            await trio.sleep(NAME_SERVER_PAUSE)
            await self.cluster.restart_name_server()
            self.name_server_is_running = True

    def goes_down(self, member: Member) -> bool:
        """Whether a broker is being taken down already, which takes its time with a slow disk."""
        return self.number(member.host) in self._ending

    @staticmethod
    def copy(member: Member) -> "Copy":
        """Copy a running broker's directory, as it is at this moment."""
        assert isinstance(member.disk, ScheduledDisk)
        return Copy(member.disk.copy(), member.broker.store.max_physical_offset)

    async def end(
        self,
        member: Member,
        how: str,
        *,
        seed: int = 0,
        kept: float = 1.0,
        torn: int = 0,
        copy: "Copy | None" = None,
    ) -> None:
        """Take a running broker down; `kept` of a power cut, `torn` bytes and a `copy` say what its disk is then."""
        self.look_at_offsets()
        number, store = self.number(member.host), member.broker.store
        log_end, flushed = store.max_physical_offset, store.flushed.value
        disk = member.disk
        assert isinstance(disk, ScheduledDisk)
        # What a checkpoint vouches for lay on the disk long before.
        vouched = self._vouched(member)
        torn = min(torn, log_end - vouched)
        whole = _whole_records(store, vouched, log_end - torn)
        left = {"power cut": flushed, "torn end": whole, "wiped": 0}.get(how, log_end)
        if copy is not None:
            left = copy.log_end
        place = len(self.history.events)
        ended = MemberEnded(
            at=now(),
            broker=number,
            role=member.broker.role,
            how=how,
            log_end=log_end,
            flushed=flushed,
            offsets=self.offsets(member),
            generation=self.generation(member),
            left=left,
            disk_trouble_at=round(disk.trouble_at, 6),
        )
        self.history.add(ended)
        self._ends[number] = left, min(left, flushed)
        self._logs[number] = whole_log(store)[1]
        self._topics[number] = (
            frozenset() if how in ("wiped", "older copy") else self._topics_of(number)
        )
        if how == "epochs gone":
            self._lost_epochs[number] = list(member.broker.store.epochs.lines)
        self.end_reign(member)
        self._ending.add(number)
        await (member.stop() if how in CLEAN_ENDS else member.kill())
        self._ending.discard(number)
        if how == "torn end" and torn > 0:
            disk.tear(member.config.data / "commitlog", LOG_FILE_SIZE, log_end, torn)
        if how in ("power cut", "wiped", "older copy"):
            found = disk.after_cut(seed, kept) if how == "power cut" else type(disk)()
            member.disk = found = found if copy is None else copy.disk
            found.seconds = disk.seconds
            found.fill(disk.is_full)
        self.history.events[place] = attrs.evolve(ended, noted=self._noted(member))

    @staticmethod
    def lose_files(member: Member, fault: Fault) -> None:
        """Remove files of a broker that is down, as a fault says."""
        config, disk = member.config, member.disk
        assert isinstance(disk, ScheduledDisk)
        topic = config.data / "consumequeue" / TOPIC
        queue = topic if fault.amount < 0 else topic / f"{fault.amount:.0f}"
        lost = {
            "queue gone": queue,
            "role gone": config.config_directory / ROLE_FILE,
            "epochs gone": config.data / EPOCH_FILE,
        }
        disk.lose(lost[fault.kind])

    @staticmethod
    def _noted(member: Member) -> int:
        """What of a broker's log its slaves have acknowledged, says its disk."""
        acknowledged = Acknowledged(member.config.data, disk=member.disk)
        acknowledged.load()
        return max((one.address for one in acknowledged.slaves.values()), default=0)

    @staticmethod
    def _vouched(member: Member) -> int:
        directory = member.broker.store.directory
        positions = read_checkpoint(member.disk, directory.checkpoint).positions
        return 0 if positions is None else positions.queue_position

    async def start(self, member: Member) -> None:
        """Bring a broker back; one that cannot start now, as its disk is full, is tried again."""
        number = self.number(member.host)
        before = self._told[number] = self.before()
        with trio.fail_after(START_LIMIT):
            while not member.is_running:
                self._starting[number] = None
                try:
                    await member.start()
                except* (OSError, NotOpenedError) as error:
                    assert isinstance(member.disk, ScheduledDisk)
                    if not member.disk.is_full:
                        raise
                    self.history.add(StartFailed(at=now(), broker=number, error=_text(error)))
                    await trio.sleep(START_AGAIN_PAUSE)
        self._starting.pop(number, None)
        for queue_id in range(QUEUES):
            self._seen.pop((number, queue_id), None)
        self.history.add(
            MemberStarted(
                at=now(),
                broker=number,
                role=member.broker.role,
                log_end=self._log_end(member)[0],
                kept=_common_size(self._logs[number], whole_log(member.broker.store)[1]),
                others=before.ends,
                offsets=self.offsets(member),
                generation=self.generation(member),
            )
        )
        self._compare_log(member)
        if member.broker.state.standing.leads:
            self.begin_reign(member)
        self.look_at_offsets()

    def _compare_log(self, member: Member) -> None:
        """With the logs of all others that run."""
        one = member.broker.store
        for other in self.cluster.members:
            if other is member or not other.is_running:
                continue
            two = other.broker.store
            boundary = common_boundary(
                one.epochs.lines, one.max_physical_offset, two.epochs.lines, two.max_physical_offset
            )
            if boundary is not None:
                self.history.add(
                    LogsCompared(
                        at=now(),
                        broker=self.number(member.host),
                        other=self.number(other.host),
                        boundary=boundary.address,
                        same=common_end(whole_log(one), whole_log(two)),
                    )
                )

    # ------------------------------------------------------------------------------- who is master

    def note_standing(
        self,
        number: int,
        standing: CurrentStanding,
        store: MessageStore,
        event: StandingEvent,
        *,
        did_lead: bool,
    ) -> None:
        """A broker's standing has changed: perhaps its reign begins or ends."""
        member = self.cluster.members[number]
        if number in self._starting:
            self._starting[number] = store
        if standing.leads and not did_lead:
            self._led_from[number] = _queue_ends(store)
        if event in (StandingEvent.LOOKS, StandingEvent.IS_GIVEN_THE_NAME):
            self._told[number] = self.before()
        elif event is StandingEvent.CLAIMS:
            # What it asks later is who else leads. A broker that answers that alone could give it nothing more.
            self._asked[number] = self._asked_by(member)
        if not member.is_running or number in self._starting:
            return  # It begins to reign when it has started, if it leads then.
        if standing.leads and not did_lead:
            self.begin_reign(member)
        elif did_lead and not standing.leads:
            self.end_reign(member)

    def end_reign(self, member: Member) -> None:
        """If this broker was the master, it takes nothing more from now on."""
        number = self.number(member.host)
        if self._reigning == number:
            self.settle_reign()
            self._reigning = None
            self._reign_log = whole_log(member.broker.store)[1]
            log_end = member.broker.store.max_physical_offset
            self.history.add(ReignEnded(at=now(), broker=number, log_end=log_end))

    def begin_reign(self, member: Member) -> None:
        """This broker is master."""
        number = self.number(member.host)
        if self._reigning == number:
            return
        # A broker that is broken on purpose may lead without having claimed anything.
        asked = self._asked.get(number) or self._asked_by(member)
        for other in self.cluster.members:
            one = self.number(other.host)
            is_writing = other is not member and other.is_running and other.broker.store.writable
            # Two that cannot know of each other are beyond what is promised (docs/decisions/0041).
            if is_writing and asked.could_know_of(one):
                self.history.add(TwoMasters(at=now(), broker=number, other=one))
        if self._reigning is not None:
            self.end_reign(self.cluster.members[self._reigning])
        before = self._told[number]
        is_empty = self._log_end(member)[0] == 0
        self.has_new_log = is_empty and any(end for _, end, _ in before.ends)
        self._reigning = self._last_reign = number
        self._compare_log(member)
        is_serving = member.broker.store.writable
        if not is_serving:
            self._not_serving = len(self.history.events), self._reign_log
        self.history.add(
            ReignBegan(
                at=now(),
                broker=number,
                kept=_common_size(self._reign_log, whole_log(member.broker.store)[1]),
                others=before.ends,
                offsets=self.offsets(member),
                generation=self.generation(member),
                queue_ends=self._led_from.pop(number, None) or self.queue_ends(member),
                holders=tuple((one, self._held(one, before)) for one in before.logs),
                asked=asked.outcomes,
                named=asked.named,
                topics=tuple((one, tuple(sorted(names))) for one, names in before.topics.items()),
                has_topics=tuple(sorted(self._topics_of(number))),
                epochs_known_to=self._epochs_known_to(member, asked),
                since=round(before.at, 6),
                is_serving=is_serving,
            )
        )

    def _epochs_known_to(self, member: Member, asked: Asked) -> tuple[int, ...]:
        """Where the first epoch began of those that a broker lost with their file, and that none it could ask knows."""
        number = self.number(member.host)
        could_ask = {one for one, outcome in asked.outcomes if outcome in ASKABLE}
        stores = (
            one.broker.store
            for one in self.cluster.members
            if one.is_running and self.number(one.host) in {number, *could_ask}
        )
        known = {line.id for store in stores for line in store.epochs.lines}
        lost = self._lost_epochs.pop(number, ())
        starts = [line.start for line in lost if line.id not in known]
        if not starts:
            return ()
        store = member.broker.store
        return tuple(store.queue_offset_at(TOPIC, one, min(starts)) for one in range(QUEUES))

    def settle_reign(self) -> None:
        """Look again how much a master has of the last one's log that waited when it got the order to lead."""
        waiting, self._not_serving = self._not_serving, None
        if waiting is not None and self.master.is_running:
            place, log = waiting
            began = self.history.events[place]
            assert isinstance(began, ReignBegan)
            kept = _common_size(log, whole_log(self.master.broker.store)[1])
            self.history.events[place] = attrs.evolve(began, kept=max(kept, began.kept))

    def _asked_by(self, member: Member) -> Asked:
        """How far the other brokers could be asked by one that has asked them all for what it lacks."""
        contacts, since = self.cluster.contacts, self._told[self.number(member.host)].at
        others = [
            (number, other.host)
            for number, other in enumerate(self.cluster.members)
            if other is not member
        ]
        return Asked(
            outcomes=tuple((one, self._outcome(member, one, since=since)) for one, _ in others),
            named=tuple(
                number
                for number, host in others
                if contacts.is_named(member.host, host, NAME_SERVER_HOST, since=since)
            ),
        )

    def _outcome(self, member: Member, number: int, *, since: float) -> Outcome:
        """How the last question of a new master to another broker went."""
        other, network = self.cluster.members[number], self.cluster.memory_network
        assert isinstance(other, PausableMember)
        hosts = member.host, other.host
        outcome = self.cluster.contacts.outcome(*hosts, NAME_SERVER_HOST, since=since)
        is_reachable = (
            other.is_running
            and not other.is_paused
            and number not in self._starting
            and not network._is_held(*hosts)
            and not network._is_held(*reversed(hosts))
        )
        return "unreachable" if outcome == "unlisted" and not is_reachable else outcome

    def queue_ends(self, member: Member) -> tuple[int, ...]:
        """Where the queues of the plain topic end at a broker."""
        return _queue_ends(member.broker.store)

    def _held(self, number: int, before: Before) -> int:
        """How much of the last master's log a broker had before; one that does not lead perhaps got it since."""
        left = [
            event.left
            for event in self.history.events
            if isinstance(event, MemberEnded) and event.broker == number and event.at >= before.at
        ]
        # It cannot be asked for what its disk has not kept.
        logs = [before.logs[number][: min(left, default=None)]]
        if number != self._reigning:
            logs.append(self._log(self.cluster.members[number]))
        return max(_common_size(self._reign_log, log) for log in logs)


def whole_log(store: MessageStore) -> tuple[int, bytes]:
    """The address that a log begins at, and all its bytes."""
    begin, log = store.min_physical_offset, bytearray()
    while (block := store.read_log(begin + len(log), 1 << 20)) is not None:
        log += block
    return begin, bytes(log)


def _queue_ends(store: MessageStore) -> tuple[int, ...]:
    bounds = (store.queue_bounds(TOPIC, queue_id) for queue_id in range(QUEUES))
    return tuple((one or (0, 0))[1] for one in bounds)


def _whole_records(store: MessageStore, start: int, end: int) -> int:
    """Where the last whole record ends that lies between a record's start and an address."""
    log, found = store.commit_log, start
    for address, size, *_ in LogWalk(log, start, stop_at_damage=True).records(end - start):
        if address + size <= end:
            found = address + size
    return found


def common_end(one: tuple[int, bytes], other: tuple[int, bytes]) -> int:
    """The address that two logs are the same up to, from where the later one begins."""
    begin = max(one[0], other[0])
    return begin + _common_size(one[1][begin - one[0] :], other[1][begin - other[0] :])


def _common_size(one: bytes, other: bytes) -> int:
    """How many bytes are the same at the beginning of both."""
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    return next(at for at in range(size) if one[at] != other[at])


def _text(group: BaseExceptionGroup[BaseException]) -> str:
    """The errors of a group without its frames."""
    one = group.exceptions[0]
    return _text(one) if isinstance(one, BaseExceptionGroup) else f"{type(one).__name__}: {one}"
