"""Brokers and lags as the tables of the command show them."""

import math

import attrs

from rocketrio import MessageQueue
from rocketrio.admin import GroupLag, LagReport, Owner, QueueLag
from rocketrio.admin.cluster_status import TAKES_WRITES, BrokerStatus
from rocketrio_protocol.ha.status import LastWait
from rocketrio_protocol.lag import Judgement, Verdict

MASTER = BrokerStatus(
    cluster="c",
    broker_name="broker-a",
    broker_id=0,
    role="sync-master",
    address="10.0.0.1:10911",
    state=TAKES_WRITES,
    min_physical_offset=0,
    max_physical_offset=4_000_000_000,
    follows=None,
    bytes_behind=None,
    seconds_behind=None,
    seconds_since_report=None,
    bytes_per_second=None,
    acknowledges=None,
    problem=None,
    last_wait=LastWait(
        status="PUT_OK", end_offset=9, flush_seconds=0.002, slave_seconds=0.0015, slave="10.0.0.2:4"
    ),
    answered={"PUT_OK": 1200, "FLUSH_SLAVE_TIMEOUT": 0},
)
SLAVE = attrs.evolve(
    MASTER,
    broker_id=1,
    role="slave",
    address="10.0.0.2:10911",
    state="following",
    max_physical_offset=1_000_000_000,
    follows="10.0.0.1:10912",
    bytes_behind=3_000_000_000,
    seconds_behind=61.25,
    seconds_since_report=0.1,
    bytes_per_second=100_000_000,
    acknowledges="disk",
    last_wait=None,
    answered=None,
)


QUEUE = MessageQueue("orders", "broker-a", 3)
STALLED = Judgement(Verdict.STALLED, "queue 3 of broker-a stands", 7, 1.25, 0.0, math.inf, 42.0)
ROW = GroupLag(
    "billing",
    "orders",
    STALLED,
    members=2,
    oldest_seconds=7200.0,
    queues=[QueueLag(QUEUE, 5, 12, "app-7@10.0.0.9", 7200.0, STALLED)],
    source="window",
)
UNKNOWN = Judgement(Verdict.UNKNOWN, "broker-b did not answer: away", None)
PARTLY = attrs.evolve(
    ROW,
    judgement=UNKNOWN,
    members=None,
    oldest_seconds=None,
    queues=[
        *ROW.queues,
        QueueLag(
            attrs.evolve(QUEUE, broker_name="broker-b"), 5, None, Owner.A_MEMBER, None, UNKNOWN
        ),
    ],
)
NOTHING = GroupLag("idle", None, UNKNOWN, 0, None, [], "window")
REPORT = LagReport([ROW, PARTLY, NOTHING], 9, {"broker-b": "away"}, 60.0, 13)
