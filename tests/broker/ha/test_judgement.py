"""What follows from the answers of a survey: pure functions, without a clock or a network."""

from collections.abc import Collection, Mapping

import attrs
import pytest

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.judgement import (
    all_are_slaves,
    has_id,
    has_later_epoch,
    is_fresh,
    leader,
    longer_logs,
    other_masters,
    rival,
    shows_successor,
    silent_brokers,
    slaves_of,
    tail_sources,
    unasked,
    why_nobody_leads,
    why_not_follower,
)
from rocketrio_broker.ha.peers import Identity
from rocketrio_broker.ha.survey import FRESH_FOR, PeerView, Survey, no_answer
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import AccessRefusedError, BrokerError, NotReachableError
from rocketrio_protocol.ha.exchange import Epoch, Welcome
from rocketrio_protocol.ha.status import HAClientRuntimeInfo, HARuntimeInfo, OwnStatus

NAME = "broker-a"
OWN, FIRST, SECOND, THIRD = (f"10.0.0.{host}:10911" for host in range(1, 5))
NAME_SERVER = "10.0.0.9:9876"
LINK = "10.0.0.2:10912"


def slave(addr: str, *, end: int = 100, name: str | None = NAME, ha: str | None = LINK) -> PeerView:
    identity = Identity(name, 1, ha, is_rocketrio=True, role="slave", log_end=end)
    return PeerView(addr, identity, end, 7.0)


def master(addr: str, *, claims: bool = True, end: int = 100) -> PeerView:
    identity = Identity(NAME, 0, LINK, is_rocketrio=True, role="async-master", claims=claims)
    return PeerView(addr, identity, end, 7.0)


def of_apache(addr: str, broker_id: int = 0) -> PeerView:
    return PeerView(addr, Identity(NAME, broker_id, LINK), 100, 7.0)


def silent(addr: str) -> PeerView:
    return PeerView(addr, problem=no_answer(addr))


def survey(
    *views: PeerView,
    listed: Mapping[int, str] | None = None,
    remembered: Collection[str] = (),
    also: Collection[str] = (),
) -> Survey:
    return Survey(
        broker_name=NAME,
        own_addr=OWN,
        listed={NAME_SERVER: listed or {}},
        remembered=frozenset(remembered),
        also=frozenset(also),
        views={view.addr: view for view in views},
    )


# --- masters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "own_end", "goes_on"),
    [
        (master(FIRST), 900, "the other"),
        (master(FIRST, claims=False, end=200), 100, "the other"),
        (master(FIRST, claims=False, end=100), 200, "this one"),
        # Of two equal ones the lesser address: this one's.
        (master(FIRST, claims=False, end=100), 100, "this one"),
        (of_apache(FIRST), 900, "the other"),
        (slave(FIRST, end=900), 100, "this one"),
        (attrs.evolve(master(FIRST), identity=Identity("broker-b", 0, LINK)), 0, "this one"),
        (silent(FIRST), 0, "this one"),
    ],
    ids=[
        "leads", "waits with more", "waits with less", "waits with as much", "Apache's", "slave",
        "another name", "silent",
    ],
)  # fmt: skip
def test_of_two_masters_one_goes_on(other: PeerView, own_end: int, goes_on: str) -> None:
    found = survey(other)
    assert (rival(found, own_end) is None) == (goes_on == "this one")


def test_of_two_that_lead_the_listed_one_goes_on() -> None:
    found = survey(master(FIRST), master(SECOND, claims=False, end=900))
    assert [one.addr for one in other_masters(found)] == [FIRST, SECOND]
    found = attrs.evolve(found, listed={NAME_SERVER: {0: OWN}})
    # One that waits goes on if it has more, whichever broker is listed.
    assert [one.addr for one in other_masters(found)] == [SECOND]
    assert leader(found) is None
    both = attrs.evolve(found, listed={NAME_SERVER: {0: OWN}, "10.0.0.8:9876": {0: FIRST}})
    assert leader(both) == other_masters(both)[0]
    assert other_masters(both)[0].addr == FIRST


def test_name_without_a_master_is_described() -> None:
    assert why_nobody_leads(survey()) is None
    assert why_nobody_leads(survey(slave(FIRST), master(SECOND))) is None
    told = why_nobody_leads(survey(slave(FIRST), silent(SECOND)))
    assert told is not None
    assert f"slaves are this one and {FIRST}; no answer comes from {SECOND}" in told


def test_broker_leads_again_only_if_all_have_answered_that_they_are_slaves() -> None:
    found = survey(slave(FIRST), slave(SECOND))
    assert all_are_slaves(found, None)
    assert all_are_slaves(found, FIRST)
    assert not all_are_slaves(found, THIRD)  # The last master was not asked.
    assert not all_are_slaves(survey(slave(FIRST), silent(SECOND)), None)
    assert not all_are_slaves(survey(slave(FIRST), slave(SECOND, name="broker-b")), None)
    assert not all_are_slaves(survey(slave(FIRST), master(SECOND, claims=False)), None)
    assert not all_are_slaves(survey(), None)
    assert not all_are_slaves(attrs.evolve(found, listed={}), None)  # No name server answered.


def test_broker_of_another_name_stands_for_no_answer() -> None:
    found = survey(slave(FIRST, name="broker-b"), slave(SECOND, name=None), slave(THIRD))
    assert silent_brokers(found) == {FIRST}
    assert slaves_of(found) == {THIRD}


# --- logs ----------------------------------------------------------------------------------------


def test_logs_are_those_of_slaves_and_of_who_was_asked_too() -> None:
    found = survey(
        slave(FIRST), slave(SECOND, name="broker-b"), master(THIRD, claims=False), slave(OWN),
        listed={0: THIRD, 1: FIRST, 2: SECOND}, remembered=[SECOND],
    )  # fmt: skip
    assert [log.addr for log in tail_sources(found)] == [FIRST]
    with_master = attrs.evolve(found, also=frozenset({THIRD}))
    assert [log.addr for log in tail_sources(with_master)] == [FIRST, THIRD]
    assert [log.addr for log in longer_logs(with_master, 99)] == [FIRST, THIRD]
    assert [log.addr for log in longer_logs(with_master, 99, {FIRST})] == [THIRD]
    assert longer_logs(with_master, 100) == []


def test_master_waits_for_slaves_and_name_servers_that_say_nothing() -> None:
    apache = attrs.evolve(of_apache(SECOND, 1), log_end=None, problem=BrokerError("busy"))
    found = survey(
        silent(FIRST), apache, slave(THIRD, ha=None), silent("10.0.0.7:1"), silent("10.0.0.8:1"),
        listed={0: "10.0.0.7:1", 1: FIRST, 2: SECOND}, remembered=[THIRD], also=["10.0.0.8:1"],
    )  # fmt: skip
    found = attrs.evolve(found, silent_servers={"10.0.0.5:9876": NotReachableError("gone")})
    problems = unasked(found)
    assert [*problems] == ["10.0.0.5:9876", FIRST, SECOND, THIRD]
    assert "No answer in time" in str(problems[FIRST])
    assert "where it serves its log" in str(problems[THIRD])
    # It is not known any more what the broker had whose address was given away.
    given_away = survey(slave(FIRST, name="broker-b"), remembered=[FIRST])
    assert (unasked(given_away), tail_sources(given_away)) == ({}, [])


def test_end_of_a_log_is_known_for_a_moment() -> None:
    found = survey(slave(FIRST), silent(SECOND), listed={1: FIRST, 2: SECOND})
    assert is_fresh(found, 7.0 + FRESH_FOR)
    assert not is_fresh(found, 7.1 + FRESH_FOR)
    assert is_fresh(survey(), 100.0)


# --- epochs --------------------------------------------------------------------------------------


def epoch(number: int, id_: str = "a", member: str = "own") -> Epoch:
    return Epoch(number=number, id=id_, start=100 * number, member=member)


def welcomed(view: PeerView, *epochs: Epoch, broker_id: int = 1, member: str = "b") -> PeerView:
    answer = Welcome(
        member=member, broker_id=broker_id, begin=0, end=900, highest=9, epochs=[*epochs]
    )
    return attrs.evolve(view, welcome=answer)


OPENED = epoch(3, "new", "b")


@pytest.mark.parametrize(
    ("view", "proved", "unproved"),
    [
        (welcomed(master(FIRST), epoch(1), OPENED, broker_id=0), True, True),
        (welcomed(slave(FIRST), epoch(1), OPENED), True, False),
        # A slave's master opened it: over a link without a proof, a foreign one may have.
        (welcomed(master(FIRST), OPENED, broker_id=0, member="c"), True, False),
        (welcomed(master(FIRST), epoch(1), epoch(2, "beside", "b"), broker_id=0), True, True),
        (welcomed(master(FIRST), epoch(1), epoch(2), broker_id=0), False, False),
        (welcomed(master(FIRST), epoch(1, "old", "b"), broker_id=0), False, False),
        (welcomed(master(FIRST), broker_id=0), False, False),
        (master(FIRST), False, False),
        (of_apache(FIRST), False, True),
        (of_apache(FIRST, 1), False, False),
        (silent(FIRST), False, False),
    ],
    ids=[
        "opener", "its slave", "another opener", "beside", "this log", "earlier", "no epochs",
        "no answer of the link", "Apache's master", "Apache's slave", "silent",
    ],
)  # fmt: skip
def test_successor_shows_an_epoch(view: PeerView, proved: bool, unproved: bool) -> None:
    own = [epoch(1), epoch(2)]
    shown = [
        shows_successor(view, own, broker_name=NAME, is_proved=is_proved)
        for is_proved in (True, False)
    ]
    assert shown == [proved, unproved]
    assert not shows_successor(view, own, broker_name="broker-b", is_proved=True)


def test_later_epoch_has_a_greater_number() -> None:
    own = [epoch(1), epoch(2)]
    assert has_later_epoch(welcomed(slave(FIRST), OPENED), own)
    assert not has_later_epoch(welcomed(slave(FIRST), epoch(2, "beside")), own)
    assert not has_later_epoch(welcomed(slave(FIRST)), own)
    assert not has_later_epoch(welcomed(slave(FIRST), OPENED), [])
    assert not has_later_epoch(slave(FIRST), own)


# --- hand-over, ids ------------------------------------------------------------------------------

STREAM = "10.0.0.2:50000"


def following(**fields: str | None) -> PeerView:
    client = HAClientRuntimeInfo(
        **{
            "rocketrio_state": HAClientState.FOLLOWING.value,
            "rocketrio_local_addr": STREAM,
            **fields,
        }
    )
    own = OwnStatus(role="slave", broker_id=1)
    status = HARuntimeInfo(master=False, rocketrio=own, ha_client_runtime_info=client)
    return attrs.evolve(slave(FIRST), status=status)


def of_role(role: str) -> PeerView:
    own = OwnStatus(role=role, broker_id=1)
    return attrs.evolve(slave(FIRST), status=HARuntimeInfo(master=True, rocketrio=own))


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (following(), None),
        (following(rocketrio_local_addr="10.0.0.2:7"), "has no replication connection"),
        (following(rocketrio_local_addr=None), "has no replication connection"),
        (following(rocketrio_state="elsewhere"), "is elsewhere"),
        (following(rocketrio_state="elsewhere", rocketrio_last_problem="x"), "is elsewhere: x"),
        (of_role("async-master"), "is async-master"),
        (attrs.evolve(slave(FIRST), status=HARuntimeInfo(master=False)), "is an Apache broker"),
        (attrs.evolve(slave(FIRST), problem=BrokerError("unknown")), "is an Apache broker"),
        (silent(FIRST), "cannot be asked: No answer in time"),
        (
            PeerView(FIRST, problem=AccessRefusedError("no", code=ResponseCode.NO_PERMISSION)),
            "does not say who it is",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_follower_copies_from_this_master(view: PeerView, why: str | None) -> None:
    told = why_not_follower(view, {STREAM: 10}, limit=10)
    assert told is None if why is None else (told or "").startswith(why)


def test_follower_is_near_the_end_of_the_log() -> None:
    told = why_not_follower(following(), {STREAM: 11}, limit=10)
    assert told == "is 11 bytes behind, more than 10"


def test_id_is_that_of_a_broker_of_the_same_name() -> None:
    assert has_id(slave(FIRST), NAME, 1)
    assert not has_id(slave(FIRST), NAME, 2)
    assert not has_id(slave(FIRST, name="broker-b"), NAME, 1)
    assert not has_id(silent(FIRST), NAME, 1)
