"""Where rows go and which of them share a request: chunks of rows, and backlogs of chunks."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio.producing.outgoing import Outgoing
from rocketrio.producing.publish_route import queue_for_key
from rocketrio.spark.errors import RowError
from rocketrio.spark.writing.backlog import BATCH_MAX_MESSAGES, Backlog, QueueBacklog, Request
from rocketrio.spark.writing.chunks import chunks
from rocketrio.spark.writing.rows import ALONE, COMPRESSED, Rows
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.record.batch import decode_batch, encode_batch

QUEUES = {
    topic: [MessageQueue(topic, name, number) for name in ("a", "b") for number in range(3)]
    for topic in ("x", "y")
}


def rows_of(
    bodies: list[bytes],
    *,
    topics: list[str] | None = None,
    kinds: list[int] | None = None,
    **targets: Any,
) -> Rows:
    names = tuple(dict.fromkeys(topics or ["x"]))
    places = None if len(names) == 1 else np.array([names.index(t) for t in topics or []])
    entries = pa.array([encode_batch([(0, body, b"")]) for body in bodies], pa.binary())
    singles = {
        row: Outgoing((topics or ["x"] * len(bodies))[row], bodies[row], "", 0, 0, ())
        for row, kind in enumerate(kinds or [])
        if kind & ALONE
    }
    return Rows(
        names,
        places,
        entries,
        None if kinds is None or not any(kinds) else np.array(kinds),
        singles,
        **targets,
    )


def bodies_of(request: Request) -> list[bytes]:
    if not request.outgoing.is_batch:
        return [request.outgoing.body]
    return [body for _, body, _ in decode_batch(request.outgoing.body)]


def sent(backlogs: Backlog) -> dict[tuple[str, MessageQueue | None], list[list[bytes]]]:
    """All that leaves, one request of a backlog after the other."""
    found: dict[tuple[str, MessageQueue | None], list[list[bytes]]] = defaultdict(list)
    while (taken := backlogs.next_request()) is not None:
        backlog, request = taken
        assert request.outgoing.topic == backlog.topic
        bodies = bodies_of(request)
        assert len(bodies) == request.count
        found[backlog.topic, backlog.queue].append(bodies)
        backlogs.answered(backlog)
    assert not backlogs.waiting_size
    return dict(found)


def all_sent(
    rows: Rows, queues: Mapping[str, list[MessageQueue]] = QUEUES
) -> dict[tuple[str, MessageQueue | None], list[list[bytes]]]:
    backlogs = Backlog(batch_size=1000, max_in_flight=4)
    backlogs.add(rows, queues)
    return sent(backlogs)


def test_rows_for_any_queue_share_one_lane() -> None:
    assert all_sent(rows_of([b"1", b"2", b"3"])) == {("x", None): [[b"1", b"2", b"3"]]}


def test_topics_do_not_share_requests() -> None:
    found = all_sent(rows_of([b"1", b"2", b"3"], topics=["x", "y", "x"]))
    assert found == {("x", None): [[b"1", b"3"]], ("y", None): [[b"2"]]}


def test_kinds_do_not_share_requests_and_come_together_where_order_is_free() -> None:
    kinds = [0, COMPRESSED, 0, ALONE, COMPRESSED, ALONE]
    rows = rows_of([b"%d" % number for number in range(6)], kinds=kinds)
    assert all_sent(rows) == {("x", None): [[b"0", b"2"], [b"1", b"4"], [b"3"], [b"5"]]}
    flags = [(each.sys_flag, each.single is not None) for _, _, each in chunks(rows, QUEUES)]
    assert flags == [(0, False), (1, False), (0, True), (0, True)]


def test_rows_of_a_queue_keep_their_order_whatever_their_kinds() -> None:
    kinds = [0, COMPRESSED, 0, ALONE, ALONE, 0]
    rows = rows_of(
        [b"%d" % number for number in range(6)], kinds=kinds, partitions=np.array([4] * 6)
    )
    assert all_sent(rows) == {
        ("x", QUEUES["x"][4]): [[b"0"], [b"1"], [b"2"], [b"3"], [b"4"], [b"5"]]
    }


def test_a_sharding_key_chooses_the_queue_that_the_producer_would() -> None:
    keys = ["k1", "k2", None, "k1"]
    rows = rows_of(
        [b"1", b"2", b"3", b"4"],
        topics=["x", "y", "x", "x"],
        keys=pa.array([key and key.encode() for key in keys], pa.binary()),
    )
    assert all_sent(rows) == {
        ("x", queue_for_key("k1", QUEUES["x"])): [[b"1", b"4"]],
        ("y", queue_for_key("k2", QUEUES["y"])): [[b"2"]],
        ("x", None): [[b"3"]],
    }


def test_a_queue_can_be_named() -> None:
    rows = rows_of(
        [b"1", b"2", b"3"], queue_ids=np.array([2, -1, 2]), broker_names=["b", None, "a"]
    )
    assert all_sent(rows) == {
        ("x", MessageQueue("x", "b", 2)): [[b"1"]],
        ("x", None): [[b"2"]],
        ("x", MessageQueue("x", "a", 2)): [[b"3"]],
    }


def test_a_number_is_enough_where_one_broker_has_the_topic() -> None:
    rows = rows_of([b"1"], queue_ids=np.array([1]))
    assert all_sent(rows, {"x": QUEUES["x"][:3]}) == {("x", QUEUES["x"][1]): [[b"1"]]}


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (
            {"partitions": np.array([0, 6])},
            "row 1 of task 0 names partition 6 of topic x, which has 6 queues; drop the",
        ),
        (
            {"queue_ids": np.array([1, 1])},
            "row 0 of task 0 names queue 1 of topic x, which several brokers have: a, b;",
        ),
        (
            {"queue_ids": np.array([0, 3]), "broker_names": ["a", "a"]},
            "row 1 of task 0 names queue 3 of broker a of topic x, which is not there; drop the columns",
        ),
    ],
)
def test_a_queue_that_is_not_there_is_refused(targets: Any, said: str) -> None:
    with pytest.raises(RowError) as caught:
        all_sent(rows_of([b"1", b"2"], **targets))
    assert said in str(caught.value)


def test_no_rows_are_no_request() -> None:
    assert all_sent(rows_of([])) == {}


def test_a_queue_has_one_request_under_way_and_any_queue_several() -> None:
    backlogs = Backlog(batch_size=30, max_in_flight=2)
    backlogs.add(rows_of([b"12345678"] * 4, partitions=np.array([0, 0, -1, -1])), QUEUES)
    backlogs.add(rows_of([b"87654321"] * 2), QUEUES)
    taken = []
    while (found := backlogs.next_request()) is not None:
        taken.append(found)
    assert Counter(backlog.queue for backlog, _ in taken) == {None: 2, QUEUES["x"][0]: 1}
    for backlog, _ in taken:
        backlogs.answered(backlog)
    again = [backlogs.next_request(), backlogs.next_request(), backlogs.next_request()]
    assert [found and found[0].queue for found in again].count(QUEUES["x"][0]) == 1
    assert sum(request.count for _, request in taken) == 3


def test_what_waits_while_a_request_travels_becomes_the_next_one() -> None:
    backlogs = Backlog(batch_size=1000, max_in_flight=1)
    backlogs.add(rows_of([b"1"]), QUEUES)
    first = backlogs.next_request()
    assert first is not None
    for body in (b"2", b"3", b"4"):
        backlogs.add(rows_of([body]), QUEUES)
    assert backlogs.next_request() is None
    backlogs.answered(first[0])
    assert sent(backlogs) == {("x", None): [[b"2", b"3", b"4"]]}


def test_a_request_has_a_limit_of_messages_too() -> None:
    backlogs = Backlog(batch_size=1 << 20, max_in_flight=1)
    backlogs.add(rows_of([b""] * (BATCH_MAX_MESSAGES + 5)), QUEUES)
    assert [len(bodies) for bodies in sent(backlogs)["x", None]] == [BATCH_MAX_MESSAGES, 5]


@pytest.mark.slow
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from("xy"),
                st.sampled_from([None, "k1", "k2", "k3"]),
                st.sampled_from([0, COMPRESSED, ALONE, ALONE | COMPRESSED]),
                st.integers(0, 60),
            ),
            max_size=12,
        ),
        max_size=4,
    ),
    st.integers(100, 400),
)
def test_every_row_is_sent_once_and_rows_of_a_key_in_order(
    batches: list[list[Any]], batch_size: int
) -> None:
    backlogs = Backlog(batch_size, max_in_flight=3)
    given_by_key: dict[Any, list[bytes]] = defaultdict(list)
    count = 0
    for batch in batches:
        bodies = [b"%d." % (count + at) + b"x" * row[3] for at, row in enumerate(batch)]
        count += len(batch)
        for body, (topic, key, _, _) in zip(bodies, batch, strict=True):
            backlog = None if key is None else queue_for_key(key, QUEUES[topic])
            given_by_key[topic, backlog].append(body)
        backlogs.add(
            rows_of(
                bodies,
                topics=[row[0] for row in batch] or None,
                kinds=[row[2] for row in batch],
                keys=pa.array([row[1] and row[1].encode() for row in batch], pa.binary()),
            ),
            QUEUES,
        )
    found = {backlog: sum(requests, []) for backlog, requests in sent(backlogs).items()}  # noqa: RUF017
    assert found.keys() == given_by_key.keys()
    for (topic, queue), bodies in given_by_key.items():
        if queue is None:
            assert sorted(found[topic, queue]) == sorted(bodies)
        else:
            assert found[topic, queue] == bodies


def test_a_lane_is_ready_while_something_waits_and_may_leave() -> None:
    assert not QueueBacklog("x", None, 1).is_ready
