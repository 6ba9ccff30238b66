"""Snapshots of a cluster that is well, and of one with each fault, for tests of the diagnosis."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from rocketrio.admin import GroupLag, LagReport, QueueLag, Transactions
from rocketrio.admin.cluster_status import NOT_REACHABLE, TAKES_WRITES, BrokerStatus
from rocketrio.admin.diagnosis.brokers import DAY_MS
from rocketrio.admin.diagnosis.snapshot import GroupMembers, Snapshot
from rocketrio_protocol.bodies.heartbeat import SubscriptionData
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketrio_protocol.bodies.running_info import ConsumerRunningInfo, ProcessQueueInfo
from rocketrio_protocol.bodies.stats import Connection
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.errors import Error
from rocketrio_protocol.lag import Judgement, Owner, Verdict
from rocketrio_protocol.message import MessageQueue

# ------------------------------------------------------------------------------------------ brokers

NONE = dict.fromkeys(attrs.fields_dict(BrokerStatus))
MASTER = BrokerStatus(
    **{
        **NONE,
        "cluster": "c",
        "broker_name": "broker-a",
        "broker_id": 0,
        "role": "sync-master",
        "address": "h:1",
        "state": TAKES_WRITES,
    }
)
SLAVE = attrs.evolve(MASTER, broker_id=1, role="slave", address="h:2", state="following")


def slave(**changes: object) -> BrokerStatus:
    return attrs.evolve(SLAVE, **changes)


def master(**changes: object) -> BrokerStatus:
    return attrs.evolve(MASTER, **changes)


# ------------------------------------------------------------------------------------------- groups

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]


def member(client_id: str, version: int = 400) -> Connection:
    return Connection(client_id, "10.0.0.9:1", "JAVA", version)


def state(*queues: MessageQueue, tags: str = "*", topic: str = "orders") -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        subscription_set=[SubscriptionData(topic, tags), SubscriptionData("%RETRY%g")],
        mq_table={queue: ProcessQueueInfo() for queue in queues},
    )


def dropping(count: int) -> ConsumerRunningInfo:
    """Return the state of a member whose commits of the first queue are dropped."""
    info = state(QUEUES[0])
    info.mq_table[QUEUES[0]].rocketrio_dropped_commits = count
    return info


def group(running: Mapping[str, ConsumerRunningInfo], **changes: Any) -> GroupMembers:
    members = {client_id: member(client_id) for client_id in running}
    whole = GroupMembers("g", "CLUSTERING", members, running, {}, {"orders": QUEUES})
    return attrs.evolve(whole, **changes)


WELL_GROUP = group({"a": state(QUEUES[0]), "b": state(QUEUES[1])})


# ---------------------------------------------------------------------------------------- snapshots

NOW: Final = 1_700_000_000_000
ROUTE: Final = TopicRouteData([], [QueueData("broker-a", 4, 4, 6)])
SETTINGS: Final = {
    "rocketrioReplication": "1",
    "haSecretFile": "/run/ha.secret",
    "brokerIP2": "10.0.0.1",
    "haListenPort": "10912",
    "fileReservedTime": "72",
    "mappedFileSizeCommitLog": "1073741824",
    "autoCreateTopicEnable": "false",
}
TOPICS: Final = {
    name: TopicConfig(name, 4, 4) for name in ("c", "broker-a", "SCHEDULE_TOPIC_XXXX", "orders")
}
INFO: Final = ClusterInfo({"broker-a": BrokerData("c", "broker-a", {0: "h:1", 1: "h:2"})}, {})


def row(verdict: Verdict, topic: str = "orders", **changes: Any) -> GroupLag:
    judgement = Judgement(verdict, "queue 3 of broker-a stands at 7", 5)
    judgement = attrs.evolve(judgement, **changes.pop("judgement", {}))
    queue = MessageQueue(topic, "broker-a", 3)
    queues = [QueueLag(queue, 7, 12, Owner.A_MEMBER, 4.0, judgement)]
    whole = GroupLag("billing", topic, judgement, 1, 4.0, queues, "window")
    return attrs.evolve(whole, **changes)


def report(*rows: GroupLag, silent: Mapping[str, str] | None = None) -> LagReport:
    return LagReport(rows, len(rows), silent or {}, 60.0, 13)


CLOCKED: Final = tuple(attrs.evolve(one, clock_ahead=0.0) for one in (MASTER, SLAVE))
WELL: Final = Snapshot(
    {"n:1": INFO},
    CLOCKED,
    {"h:1": {}, "h:2": {}},
    NOW,
    settings={"h:1": SETTINGS, "h:2": SETTINGS},
    topics={"broker-a": TOPICS},
    listed=list(TOPICS),
    routes={"orders": ROUTE},
    lag=report(row(Verdict.OK, judgement={"lag": 0})),
    groups=[WELL_GROUP],
    transactions={"broker-a": Transactions(0, 3, NOW - DAY_MS)},
)


def changed(**changes: Any) -> Snapshot:
    return attrs.evolve(WELL, **changes)


def with_settings(address: str, **changes: str) -> Snapshot:
    new = {**SETTINGS, **changes}
    return changed(settings={**WELL.settings, address: {k: v for k, v in new.items() if v}})


def with_topics(*names: str) -> Snapshot:
    return changed(topics={"broker-a": {name: TOPICS[name] for name in names}}, listed=names)


def with_lag(*rows: GroupLag) -> Snapshot:
    return changed(lag=report(*rows))


def with_group(members: GroupMembers) -> Snapshot:
    return changed(groups=[members])


def with_route(*queues: QueueData) -> Snapshot:
    return changed(routes={"orders": TopicRouteData([], list(queues))})


RETRY: Final = "%RETRY%billing"
FIRES: Final[dict[str, Snapshot]] = {
    "R01": changed(
        name_servers={
            "n:1": INFO,
            "n:2": ClusterInfo({"broker-a": BrokerData("c", "broker-a", {0: "h:1"})}, {}),
        }
    ),
    "R02": changed(brokers=(CLOCKED[0], attrs.evolve(SLAVE, state=NOT_REACHABLE))),
    "R03": changed(brokers=(*CLOCKED, attrs.evolve(CLOCKED[0], address="h:3"))),
    "R04": changed(listed=[*TOPICS, "lost"]),
    "R05": changed(name_servers={"n:1": INFO, "n:2": Error("no answer")}),
    "R06": changed(brokers=(CLOCKED[1],)),
    "R07": with_route(QueueData("broker-a", 4, 4, 4)),
    "R08": with_topics("c", "broker-a", "orders"),
    "H01": changed(brokers=(CLOCKED[0],)),
    "H02": changed(brokers=(CLOCKED[0], attrs.evolve(CLOCKED[1], seconds_behind=61.0))),
    "H04": with_settings("h:2", haSecretFile=""),
    "S01": changed(runtimes={"h:1": {"commitLogDiskRatio": "0.9"}, "h:2": {}}),
    "S02": with_lag(row(Verdict.LOSING)),
    "S03": changed(runtimes={"h:1": {"dispatchBehindBytes": str(1 << 30)}, "h:2": {}}),
    "S04": changed(brokers=(attrs.evolve(CLOCKED[0], clock_ahead=0.6), CLOCKED[1])),
    "G01": with_group(
        attrs.evolve(
            WELL_GROUP,
            running={"a": state(QUEUES[0]), "b": state(QUEUES[1], tags="paid")},
        )
    ),
    "G02": with_group(
        attrs.evolve(
            WELL_GROUP,
            members={name: member(name) for name in "abc"},
            running={"a": state(QUEUES[0]), "b": state(QUEUES[1]), "c": state()},
        )
    ),
    "G03": with_lag(row(Verdict.STALLED)),
    "G04": with_lag(
        row(Verdict.BEHIND, RETRY, judgement={"in_per_second": 2.0, "out_per_second": 1.0})
    ),
    "G05": with_group(attrs.evolve(WELL_GROUP, members={"a": member("a"), "b": member("b", 500)})),
    "G06": with_group(attrs.evolve(WELL_GROUP, shared_ids={"a": ["10.0.0.1:1", "10.0.0.2:1"]})),
    "G11": with_lag(row(Verdict.BEHIND)),
    "G12": with_lag(row(Verdict.REWOUND)),
    "G14": with_lag(row(Verdict.AHEAD)),
    "T01": changed(transactions={"broker-a": Transactions(0, 3, NOW - DAY_MS + 1)}),
    "C01": with_settings("h:2", mappedFileSizeCommitLog="1048576"),
    "C02": with_settings("h:1", autoCreateTopicEnable="true"),
    "V01": changed(
        runtimes={"h:1": {"brokerVersionDesc": "V4_9_7"}, "h:2": {"brokerVersionDesc": "V5_3_3"}}
    ),
}


ALL_WRONG: Final = Snapshot(
    FIRES["S04"].name_servers,
    FIRES["S04"].brokers,
    FIRES["V01"].runtimes,
    NOW,
    {"h:1": FIRES["C02"].settings["h:1"], "h:2": FIRES["H04"].settings["h:2"]},
    FIRES["R08"].topics,
    FIRES["R04"].listed,
    FIRES["R07"].routes,
    report(*(one.lag.rows[0] for code in ("S02", "G03", "G04") if (one := FIRES[code]).lag)),
    FIRES["G01"].groups,
    FIRES["T01"].transactions,
)
