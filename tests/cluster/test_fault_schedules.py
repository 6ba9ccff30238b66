"""Fault schedules by seed: the same each time, and no promise broken; and what is broken on purpose is seen.

`ROCKETRIO_SEEDS=2000` runs more of them; `make soak` runs them until stopped.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal, get_args

import attrs
import pytest
from tests.cluster.histories import injector
from tests.cluster.histories.checker import check
from tests.cluster.histories.chosen import broken_promises, schedule_of, switching
from tests.cluster.histories.events import HandedOver, ReignBegan, RivalAnswered, RivalEnded
from tests.cluster.histories.hang_guard import real_time_limit
from tests.cluster.histories.schedule import (
    LOST_FILES,
    Failover,
    Fault,
    FaultKind,
    Grab,
    HandOver,
    Switch,
    make_schedule,
)
from tests.cluster.histories.story import run_story
from tests.cluster.histories.tail_losses import any_divergent, tail_losses
from tests.cluster.histories.violation import events_of
from tests.cluster.mutants import (
    ask_no_slave,
    believe_slaves_alone,
    claim_in_a_hand_over,
    look_for_no_master,
    miss_no_queue,
)
from tests.cluster.soak import HASH_SEED
from tests.support.further import first_of

from rocketrio_broker import broker
from rocketrio_broker.ha import connection, judgement
from rocketrio_broker.ha.gather_offsets import SlaveTables
from rocketrio_broker.ha.history import HistoryCheck
from rocketrio_broker.ha.link_security import LinkSecurity
from rocketrio_broker.ha.missing_tail import FetchedTail, MissingTail
from rocketrio_broker.ha.resync import Resync
from rocketrio_broker.ha.second_history import SecondHistory
from rocketrio_broker.ha.torn_end import Damage, TornEnd
from rocketrio_broker.namesrv.routes import RouteInfoManager
from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.offsets.version import Version
from rocketrio_broker.store import dispatch, flush, recovery
from rocketrio_broker.store.disk import Buffer
from rocketrio_broker.store.mapped_file import MappedFile
from rocketrio_broker.store.mapped_file_queue import MappedFileQueue
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.replicated_log import ReplicatedLog
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.ha.exchange import Welcome
from rocketrio_protocol.remoting.ports import Transport

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("ROCKETRIO_SEEDS", "6"))
FURTHER_SEEDS = 194
PROCESSES = 2

pytestmark = pytest.mark.slow


def soak(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.soak", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": HASH_SEED},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


async def asks_nobody(*_: object) -> None:
    """Stand for what asks slaves, and gets nothing from them."""


async def fetches_nothing(*_: object) -> FetchedTail:
    """Stand for the search for a longer log, and find none."""
    return FetchedTail()


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, SEEDS), pytest.param(SEEDS, FURTHER_SEEDS, marks=pytest.mark.long)],
    ids=["first", "further"],
)
def test_no_seed_breaks_a_promise(first: int, count: int) -> None:
    share = count // PROCESSES
    runs = [
        soak("--from", str(first + number * share), "--seeds", str(share), "--minutes", "60")
        for number in range(PROCESSES)
    ]
    outputs = [run.communicate()[0] for run in runs]
    failed = [output for run, output in zip(runs, outputs, strict=True) if run.returncode]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("seed", first_of(1, [0, 9, 3, 29, 12]))
def test_same_seed_gives_the_same_history(seed: int) -> None:
    first, second = run_story(make_schedule(seed)), run_story(make_schedule(seed))
    assert first.history == second.history
    assert first.final == second.final
    assert first.crash is None
    # And the same one in another process, where addresses and hashes differ.
    assert first.history.text() in soak("--seed", str(seed)).communicate()[0]


POWER_CUT = Fault(12.0, 2.0, "power cut", "master", amount=0.0)
OUTAGE = (
    Fault(8.0, 6.0, "kill", "master"),
    Fault(7.0, 12.0, "name server down", "name server"),
)


def test_chosen_faults_break_nothing() -> None:
    assert broken_promises(schedule_of(POWER_CUT)) == set()
    assert broken_promises(schedule_of(*OUTAGE)) == set()


# Right after a topic was made, and before the slave copies the table.
SWITCH = Switch(6.2, "slave-1", is_careful=False)


def test_masters_change_places_and_break_nothing() -> None:
    there_and_back = SWITCH, Switch(15.0, "master", is_careful=True)
    ended = run_story(switching(*there_and_back))
    assert check(ended) == []
    assert [event.broker for event in events_of(ended, ReignBegan)] == [1, 0]


def test_new_master_that_asks_no_slave_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlaveTables, "take_over", asks_nobody)
    assert broken_promises(switching(SWITCH)) == {"created and gone"}


def test_new_master_without_the_last_message_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    end_replication = ReplicatedLog.end_replication

    def forgetting(log: ReplicatedLog) -> None:
        end_replication(log)
        monkeypatch.setattr(ReplicatedLog, "end_replication", end_replication)
        last = [queue.entry(queue.max_offset - 1) for queue in log._table]
        log.truncate_to(max(entry[0] for entry in last if entry is not None))

    monkeypatch.setattr(ReplicatedLog, "end_replication", forgetting)
    # It gets back what only the old master has left.
    assert broken_promises(switching(SWITCH)) == set()

    monkeypatch.setattr(ReplicatedLog, "end_replication", forgetting)
    monkeypatch.setattr(MissingTail, "fetch", fetches_nothing)
    assert "a slave still had the tail" in broken_promises(switching(SWITCH))


def test_full_disk_does_not_end_a_slave_that_becomes_master() -> None:
    """A topic came while it was full: the new master cannot keep the table, and waits for room."""
    full = schedule_of(Fault(4.0, 10.0, "full disk", "slave-1"))
    assert broken_promises(attrs.evolve(full, switches=(SWITCH,))) == set()


def test_checker_finds_a_topic_created_again_on_one_broker_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another is master before the first message of the new life, or the same after a crash."""
    switched = attrs.evolve(switching(Switch(10.07, "slave-1", is_careful=True)), remakes=(10.0,))
    killed = attrs.evolve(schedule_of(Fault(10.1, 2.0, "kill", "master")), remakes=(10.0,))
    assert broken_promises(switched) == set()
    assert broken_promises(killed) == set()

    async def nothing(_: MessageStore) -> None:
        pass

    monkeypatch.setattr(MessageStore, "checkpoint", nothing)
    assert broken_promises(killed) == set()
    monkeypatch.setattr(dispatch, "deletion_in", lambda *_: None)
    assert broken_promises(killed) & {"deleted and read", "deleted and kept"}
    assert broken_promises(switched) & {"deleted and read", "deleted and kept"}


def test_offsets_of_a_topic_that_outlive_it_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget_nothing(*_: object) -> None:
        pass

    monkeypatch.setattr(ConsumerOffsetManager, "remove_topic", forget_nothing)
    remade = attrs.evolve(schedule_of(), remakes=(20.0,))
    assert broken_promises(remade) == {"offset of an earlier life"}


def test_second_master_that_asks_for_no_first_one_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rival = schedule_of(Fault(8.0, 4.0, "rival", "rival"))
    ended = run_story(rival)
    assert check(ended) == []
    assert {event.code for event in events_of(ended, RivalAnswered)} == {
        ResponseCode.SERVICE_NOT_AVAILABLE
    }
    assert events_of(ended, RivalEnded)

    monkeypatch.setattr(judgement, "other_masters", lambda _: [])
    assert "there were two masters" in broken_promises(rival)
    # Without the name server's refusal either it goes on for longer.
    monkeypatch.setattr(RouteInfoManager, "_check_only_master", lambda *_: None)
    assert "a second master took a write" in broken_promises(rival)


@pytest.mark.parametrize("link", ["secret", "tls"])
def test_admitted_stranger_is_detected(
    monkeypatch: pytest.MonkeyPatch, link: Literal["secret", "tls"]
) -> None:
    plain = schedule_of()
    closed = attrs.evolve(plain, mode=attrs.evolve(plain.mode, link=link))
    assert broken_promises(closed) == set()

    async def whoever(_: LinkSecurity, transport: Transport, dialled: str = "") -> Transport:
        return transport

    for end in ("accept", "connect"):
        monkeypatch.setattr(LinkSecurity, end, whoever)
    assert broken_promises(closed) == {"a stranger was served"}


def test_slave_that_alters_a_byte_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    append_raw = MessageStore.append_raw

    def altering(store: MessageStore, physical_offset: int, data: Buffer) -> None:
        altered = bytearray(data)
        if physical_offset > 5000:
            altered[-1] ^= 1
        append_raw(store, physical_offset, altered)

    monkeypatch.setattr(MessageStore, "append_raw", altering)
    assert "logs differ" in broken_promises(schedule_of())


async def decides_nothing(*_: object) -> None:
    pass


def test_acknowledging_before_the_disk_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def flushed_in_words(files: MappedFileQueue | None, log: list[MappedFile]) -> None:
        pass

    monkeypatch.setattr(flush, "_flush_files", flushed_in_words)
    # A slave would give back what the disk never had, and so would an operator who makes it master.
    monkeypatch.setattr(MissingTail, "fetch", fetches_nothing)
    monkeypatch.setattr(injector, "decide_between_histories", decides_nothing)
    broken = broken_promises(schedule_of(POWER_CUT))
    assert {"acknowledged and lost", "came back with less"} <= broken


def test_lowering_an_offset_while_tables_are_merged_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The master that returns learns nothing, and its slave copies it.
    monkeypatch.setattr(broker, "_gather", asks_nobody)
    monkeypatch.setattr(Version, "is_newer_than", lambda ours, other: ours != other)
    monkeypatch.setattr(Version, "join", lambda ours, other: other)
    assert "offset went back" in broken_promises(schedule_of(*OUTAGE))


def test_master_that_asks_no_slave_for_offsets_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    outage = schedule_of(Fault(8.0, 6.0, "kill", "master"))
    assert broken_promises(outage) == set()

    monkeypatch.setattr(broker, "_gather", asks_nobody)
    assert broken_promises(outage) == {"slaves were not asked"}


def test_slave_that_answers_once_the_master_claims_is_too_late_with_its_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stands still while it is asked for them; what it answers then is only that it does not lead."""
    outage = schedule_of(
        POWER_CUT,
        Fault(13.0, 5.0, "delay", "master", "slave-1", amount=0.1),
        Fault(15.1, 5.6, "pause", "slave-1"),
    )
    ended = run_story(outage)
    assert check(ended) == []
    (began,) = events_of(ended, ReignBegan)
    assert (began.at, began.asked) == (15.1 + 5.6, ((1, "failed"),))

    monkeypatch.setattr(broker, "_gather", asks_nobody)
    assert broken_promises(outage) == {"slaves were not asked"}


def test_master_that_lost_its_tail_gets_it_back() -> None:
    ended = run_story(schedule_of(POWER_CUT, mode="async"))
    assert check(ended) == []
    assert not tail_losses(ended)


def test_master_that_lost_its_whole_log_takes_no_writes_until_an_operator_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It began a new log before its slave could be asked, and nothing is lost."""
    lost = (
        Fault(5.0, 1.0, "power cut", "master", amount=0.0),
        Fault(4.9, 20.0, "partition", "slave-1", "master"),
    )
    assert broken_promises(schedule_of(*lost, mode="async")) == set()
    monkeypatch.setattr(injector, "decide_between_histories", decides_nothing)
    assert "no send" in broken_promises(schedule_of(*lost, mode="async"))


def test_slave_that_could_not_be_asked_follows_once_its_own_tail_is_cut() -> None:
    lost = (
        Fault(5.0, 1.0, "power cut", "master", amount=0.9),
        Fault(4.9, 20.0, "partition", "slave-1", "master"),
    )
    ended = run_story(schedule_of(*lost, mode="async"))
    assert check(ended) == []
    assert tail_losses(ended)
    assert any_divergent(ended)
    assert ended.final.brokers[1].log == ended.final.brokers[0].log


def test_torn_end_that_is_taken_for_whole_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    torn = schedule_of(Fault(12.0, 1.0, "torn end", "master", amount=17.0))
    assert broken_promises(torn) == set()

    async def finds_nothing(*_: object) -> Damage:
        return Damage.NONE

    monkeypatch.setattr(recovery, "_end_before_torn", lambda _, walk: walk.position)
    monkeypatch.setattr(TornEnd, "compare", finds_nothing)
    assert broken_promises(torn) == {"a slave still had the tail"}


def test_failovers_break_no_promise() -> None:
    """The former master comes back as master at once; with a slave that was cut off the log became shorter."""
    failover = Failover(10.0, "slave-1", 0.0, 0.1, 0.3, 8.0)
    shortened = attrs.evolve(failover, cut_off=3.0)
    assert broken_promises(switching(failover)) == set()
    assert broken_promises(switching(shortened)) == set()


@pytest.mark.parametrize("rule", ["cut", "refuse"])
def test_former_master_that_believes_a_slave_which_was_set_back_is_seen(
    monkeypatch: pytest.MonkeyPatch, rule: Literal["cut", "refuse"]
) -> None:
    """The slave that is promoted runs on an older copy of its directory."""
    set_back = switching(Failover(10.0, "slave-1", 0.0, 0.1, 0.3, 8.0, copied=2.0))
    money = attrs.evolve(set_back.mode, role="sync-master", divergent_tail=rule)
    set_back = attrs.evolve(set_back, mode=money, all_wait=True)
    assert broken_promises(set_back) == set()
    believe_slaves_alone(monkeypatch)
    assert broken_promises(set_back) == {"was cut though acknowledged"}


@pytest.mark.parametrize("who", ["master", "slave-1"])
@pytest.mark.parametrize("role", ["async-master", "sync-master"])
def test_broker_that_comes_back_with_an_older_copy_loses_nothing(
    who: str, role: Literal["async-master", "sync-master"]
) -> None:
    """Another broker has the rest, and it asks."""
    set_back = schedule_of(Fault(12.0, 2.0, "older copy", who, amount=4.0))
    set_back = attrs.evolve(set_back, mode=attrs.evolve(set_back.mode, role=role))
    ended = run_story(set_back)
    assert check(ended) == []
    assert not tail_losses(ended)


def test_master_that_claims_in_a_hand_over_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands still; the follower takes over, dies and comes back a moment after that one has gone on.

    Both follow each other then, until the one leads again whose settings say so.
    """
    stalled = schedule_of(
        Fault(9.5, 5.0, "delay", "master", "slave-1", amount=0.01),
        Fault(10.13, 2.63, "pause", "master"),
        Fault(12.44, 0.44, "kill", "slave-1"),
        Fault(12.88, 5.0, "name server down", "name server"),
    )
    stalled = attrs.evolve(stalled, switches=(HandOver(10.0),))
    ended = run_story(stalled)
    assert check(ended) == []
    assert [event.broker for event in events_of(ended, HandedOver)] == [1]
    claim_in_a_hand_over(monkeypatch)
    assert "handed over with less" in broken_promises(stalled)


def test_slave_that_grabs_for_the_place_of_a_living_master_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grabbing = switching(Grab(10.0, "slave-1"))
    assert broken_promises(grabbing) == set()
    look_for_no_master(monkeypatch)
    assert "there were two masters" in broken_promises(grabbing)


def test_master_that_asks_no_slave_for_its_tail_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MissingTail, "fetch", fetches_nothing)
    assert "a slave still had the tail" in broken_promises(schedule_of(POWER_CUT, mode="async"))


@pytest.mark.parametrize("who", ["master", "slave-1"])
@pytest.mark.parametrize("kind", get_args(LOST_FILES))
def test_broker_that_lost_files_breaks_no_promise(kind: FaultKind, who: str) -> None:
    """Also after a hand-over, when its settings say another role than it held."""
    lost = schedule_of(Fault(14.0, 2.0, kind, who, amount=1.0))
    assert broken_promises(lost) == set()
    assert broken_promises(attrs.evolve(lost, switches=(HandOver(8.0),))) == set()


def test_broker_that_does_not_miss_the_files_of_a_queue_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    miss_no_queue(monkeypatch)
    lost = schedule_of(Fault(14.0, 2.0, "queue gone", "master", amount=1.0))
    assert "acknowledged and lost" in broken_promises(lost)


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (Fault(7.0, 6.0, "delay", "master", "slave-1", amount=0.001),),
        (Fault(9.0, 0.5, "slow disk", "slave-1", amount=0.05),),
        (Fault(4.0, 0.2, "partition", "slave-1", "name server"),),
    ],
    ids=["alone", "delay", "slow disk", "partition"],
)
def test_master_that_asks_no_slave_is_seen_whatever_else_breaks(
    monkeypatch: pytest.MonkeyPatch, faults: tuple[Fault, ...]
) -> None:
    """A small fault before keeps no broker from being asked, and excuses nothing."""
    cut = schedule_of(POWER_CUT, *faults, mode="async")
    cut = attrs.evolve(cut, mode=attrs.evolve(cut.mode, role="sync-master"), all_wait=True)
    assert broken_promises(cut) == set()
    ask_no_slave(monkeypatch)
    assert broken_promises(cut) == {"a slave still had the tail", "acknowledged and lost"}


def test_slave_that_follows_whatever_comes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a slave that compares nothing: its master comes back shorter, and outgrows it."""

    def trusting(resync: Resync) -> HistoryCheck:
        return HistoryCheck(resync._log, resync._log.max_offset)

    async def says_no(*_: object) -> bool:
        return False

    async def believes(resync: Resync, welcome: Welcome, _: str) -> None:
        await resync._store.epochs.adopt(welcome.epochs)

    monkeypatch.setattr(MissingTail, "fetch", fetches_nothing)
    monkeypatch.setattr(Resync, "begin", trusting)
    monkeypatch.setattr(Resync, "take_welcome", believes)
    monkeypatch.setattr(connection, "common_boundary", lambda *_: None)
    monkeypatch.setattr(SecondHistory, "_is_other_history", says_no)
    assert "logs differ" in broken_promises(schedule_of(POWER_CUT, mode="async"))


@pytest.mark.parametrize(
    "hang",
    [
        "while True: pass",
        "while True: await trio.sleep(3600)",
        "await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)",
    ],
    ids=["in a loop", "in jumps of the clock", "waiting for nothing"],
)
def test_seed_that_hangs_ends_and_prints_its_history(hang: str) -> None:
    program = f"""
import sys, trio
from tests.cluster import soak
from tests.cluster.histories import story
async def operate(world):
    await trio.sleep(5)
    {hang}
story.operate = operate
soak.REAL_TIME_LIMIT = 3.0
sys.exit(soak.main(["--from", "7", "--seeds", "1"]))
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": HASH_SEED},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    assert "SendAnswered" in run.stdout
    assert "it still ran after 3 s of real time" in run.stdout
    assert "<string>" in run.stdout  # Where it was.
    assert "--seed 7" in run.stdout


@pytest.mark.slow
def test_run_that_has_few_turns_of_the_processor_is_left_alone() -> None:
    with real_time_limit(1.0, str):
        for _ in range(25):
            turn_ends = time.process_time() + 0.015
            while time.process_time() < turn_ends:
                pass
            time.sleep(0.085)
