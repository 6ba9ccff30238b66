"""Apache's `mqadmin` prints on our cluster what it prints on Apache's: the same columns and values.

Both sides get the same topic, messages and group; what differs by nature (times, addresses, ids) is masked.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.golden.reported_keys import (
    RUNTIME,
    RUNTIME_OF,
    RUNTIME_WITHOUT_MEANING,
    SETTINGS,
    SETTINGS_OF,
    SETTINGS_WITHOUT_MEANING,
    wrong_forms,
)
from tests.interop.conftest import OnApache, OnOurs
from tests.interop.java_client import JOIN_TIMEOUT, JavaClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

TOPIC, GROUP, COPY = "tool-orders", "tool-billing", "tool-copy"
QUEUES, PER_QUEUE = 2, 3
SHARED_SETTINGS = 60
"""Settings of brokers that both products have, at least: ours has more of its own from time to time."""

_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?"), "<time>"),
    (re.compile(r"\b127\.0\.0\.1[:_]\d+"), "<address>"),
    (re.compile(r"\b[0-9A-F]{24,60}\b"), "<id>"),
    (re.compile(r"\b1[67]\d{11}\b"), "<ms>"),
    (re.compile(r"\b\d+\.\d+\b"), "<rate>"),
    (re.compile(r"(?<=OK, )\d+"), "<topics>"),
)
_ROW_NUMBER = re.compile(r"^\d{4} ")
_THEIRS_ALONE = re.compile(r"(MSG_REGION=\w+|TRACE_ON=true|WAIT=true)(, )?")
"""Properties that an Apache broker adds to what it stores."""


def masked(text: str) -> list[str]:
    """The lines, sorted: tables come in the order of hash maps."""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())


@attrs.frozen
class Side:
    """One product."""

    java: JavaClient
    master: str
    sent: list[dict[str, Any]]

    def told(self, *words: str) -> str:
        return self.java.mqadmin(*words)


@attrs.frozen
class Both:
    """The same on Apache's cluster and on ours."""

    version: str
    apache: Side
    ours: Side

    def told(self, *words: str) -> list[list[str]]:
        """What theirs and ours print; `<master>` in a word is each side's own."""
        return [
            masked(side.told(*(word.replace("<master>", side.master) for word in words)))
            for side in (self.apache, self.ours)
        ]

    def same(self, *words: str) -> None:
        """Both print the same."""
        theirs, ours = self.told(*words)
        assert ours == theirs


@pytest.fixture(scope="module")
def both(version: str, on_apache: OnApache, on_ours: OnOurs) -> Iterator[Both]:
    sides = [_prepared(cluster) for cluster in (on_apache, on_ours)]
    yield Both(version, *sides)
    for side in sides:
        side.java.call("push_stop", group=GROUP)


def _prepared(cluster: OnApache | OnOurs) -> Side:
    """A topic with messages that a group has read, whose member is still there."""
    java, master = cluster.java, cluster.master.address
    java.create_topic(TOPIC, at=master, queues=QUEUES)
    sent = [
        java.call(
            "send", topic=TOPIC, broker="broker-a", queue_id=queue_id, body=f"{queue_id}/{number}",
            keys=f"k{queue_id}-{number}", tags="red", properties={"n": str(number)},
        )
        for queue_id in range(QUEUES)
        for number in range(PER_QUEUE)
    ]  # fmt: skip
    java.call("push_start", group=GROUP, topic=TOPIC)
    taken = java.call("push_take", group=GROUP, count=len(sent), timeout=JOIN_TIMEOUT)
    assert len(taken) == len(sent)
    side = Side(java, master, sent)
    java.until("consume_stats", group=GROUP)
    _wait_committed(side)
    return side


def _wait_committed(side: Side) -> None:
    """Java commits every five seconds; a group that has committed nothing has no rows, and a difference of 0 too."""

    def is_committed() -> bool:
        told = side.told("consumerProgress", "-g", GROUP)
        rows = all(f"\n{topic} " in told for topic in (TOPIC, f"%RETRY%{GROUP}"))
        return rows and "Diff Total: 0" in told

    wait_until(is_committed, "committed")


SAME = {
    "a topic is changed": ("updateTopic", "-b", "<master>", "-t", TOPIC, "-r", "2", "-w", "2"),
    "its route": ("topicRoute", "-t", TOPIC),
    "its bounds": ("topicStatus", "-t", TOPIC),
    "its cluster": ("topicClusterList", "-t", TOPIC),
    "progress": ("consumerProgress", "-g", GROUP),
    "progress and who": ("consumerProgress", "-g", GROUP, "-s", "true"),
    "members": ("consumerConnection", "-g", GROUP),
    "no producer": ("producerConnection", "-g", "nobody-at-all", "-t", TOPIC),
    "nobody": ("consumerConnection", "-g", "nobody-at-all"),
    "by key": ("queryMsgByKey", "-t", TOPIC, "-k", "k1-2"),
    "by a key that is not there": ("queryMsgByKey", "-t", TOPIC, "-k", "k9-9"),
    "expired queues": ("cleanExpiredCQ", "-b", "<master>"),
    "unused topics": ("cleanUnusedTopic", "-b", "<master>"),
    "a setting": ("updateBrokerConfig", "-b", "<master>", "-k", "deleteWhen", "-v", "05"),
    "an order": ("updateOrderConf", "-t", TOPIC, "-m", "put", "-v", "broker-a:2"),
    "that order": ("updateOrderConf", "-t", TOPIC, "-m", "get"),
    "no order any more": ("updateOrderConf", "-t", TOPIC, "-m", "delete"),
    "a value": ("updateKvConfig", "-s", "tool", "-k", "k", "-v", "v"),
    "no value any more": ("deleteKvConfig", "-s", "tool", "-k", "k"),
    "shares": ("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2"),
    "a setting that is not there": ("updateTopicPerm", "-b", "<master>", "-t", TOPIC, "-p", "6"),
}


def test_producers_are_shown_alike(both: Both) -> None:
    # Ours may have two of them: other stories have a client that writes ROCKETMQ headers, of the same name.
    theirs, ours = (
        {_ROW_NUMBER.sub("", line) for line in lines}
        for lines in both.told("producerConnection", "-g", "java-producer", "-t", TOPIC)
    )
    assert ours == theirs
    assert any("@producing" in line for line in ours)


@pytest.mark.parametrize("what", SAME)
def test_mqadmin_prints_the_same_for_both_products(both: Both, what: str) -> None:
    both.same(*SAME[what])


def test_the_cluster_has_the_same_columns(both: Both) -> None:
    theirs, ours = (side.told("clusterList").splitlines() for side in (both.apache, both.ours))
    assert ours[0].split() == theirs[0].split()
    for number in (0, 1):
        (their_line,) = [line for line in theirs if f"broker-a {number} " in " ".join(line.split())]
        (our_line,) = [line for line in ours if f"broker-a {number} " in " ".join(line.split())]
        assert our_line.split()[:3] == their_line.split()[:3]
        assert our_line.split()[-1] == their_line.split()[-1] or both.version < "5"  # ACTIVATED
    theirs, ours = (
        side.told("clusterList", "-m").splitlines() for side in (both.apache, both.ours)
    )
    assert ours[0].split() == theirs[0].split()
    # The counts are those of the day, of whatever was done there.
    assert [line.split()[:2] for line in ours[1:]] == [["lab", "broker-a"]] * 2


def test_counts_are_those_of_the_group(both: Both) -> None:
    """Apache's are differences of two samples: what came before the first one, ten seconds or less, is in neither."""
    for side in (both.apache, both.ours):
        rows = [line.split() for line in side.told("statsAll", "-t", TOPIC).splitlines()]
        (row,) = [row for row in rows if row[:2] == [TOPIC, GROUP]]
        assert row[2] == "0"
        assert row[-2:] == ["6", "6"] or (side is both.apache and set(row[-2:]) <= {"0", "6"})


def test_counts_have_the_same_columns(both: Both) -> None:
    theirs, ours = (
        [line.split() for line in side.told("statsAll", "-t", TOPIC).splitlines()]
        for side in (both.apache, both.ours)
    )
    assert ours[0] == theirs[0]
    # The rates are of the moment, and 5.3.3 lists a group by the topic's name beside.
    assert [row[:2] for row in ours[1:]] == [[TOPIC, GROUP]]
    assert [TOPIC, GROUP] in [row[:2] for row in theirs[1:]]
    assert {len(row) for row in ours} == {len(row) for row in theirs}


def test_member_reports_itself_to_mqadmin(both: Both) -> None:
    """Its properties, subscription, queues and counts, which the broker asks it for."""
    theirs, ours = (_of_member(side) for side in (both.apache, both.ours))
    assert ours == theirs
    assert any(line.startswith(f"{TOPIC} broker-a 1 {PER_QUEUE}") for line in ours)  # its offset


def _of_member(side: Side) -> list[str]:
    found = re.search(r"\S+@pushing-\S+", side.told("consumerConnection", "-g", GROUP))
    assert found is not None
    told = [
        side.told("consumerStatus", "-g", GROUP),
        side.told("consumerStatus", "-g", GROUP, "-i", found[0]),
    ]
    # Times of the moment, and Java's objects.
    text = re.sub(r"\d{14}|@[0-9a-f]{5,8}\b|Lambda\S+", "<its own>", "\n".join(told))
    return [line for line in masked(text) if "ProcessQueueInfo [" not in line]


def test_mqadmin_lists_topics_of_both_products(both: Both) -> None:
    for side in (both.apache, both.ours):
        assert {TOPIC, f"%RETRY%{GROUP}", "SCHEDULE_TOPIC_XXXX"} <= set(
            side.told("topicList").split()
        )
        rows = [line.split() for line in side.told("topicList", "-c").splitlines()]
        assert ["lab", TOPIC, GROUP] in rows


def details(text: str) -> list[str]:
    """A message as the tool shows it, without what only one product stores, and where it lies."""
    field = re.compile(r"(?!CommitLog|Message Body)[A-Z][A-Za-z ]+: ")
    return [
        _sorted_properties(line)
        for line in masked(_THEIRS_ALONE.sub("", text))
        if field.match(line)
    ]


def _sorted_properties(line: str) -> str:
    name, _, rest = line.partition("{")
    return line if not rest else name + str(sorted(rest.rstrip("}").rstrip(", ").split(", ")))


def assert_same_message(key: str, of_apache: str, of_ours: str) -> None:
    theirs, ours = details(of_apache), details(of_ours)
    assert ours == theirs
    assert f"Keys: [{key}]" in ours
    track = f"MessageTrack [consumerGroup={GROUP}, trackType=CONSUMED"
    assert (track in of_ours) == (track in of_apache)


def test_messages_are_shown_by_id(both: Both) -> None:
    topic = ("-t", TOPIC) if both.version >= "5" else ()
    told = (
        side.told("queryMsgById", "-i", side.sent[4]["offset_id"], *topic)
        for side in (both.apache, both.ours)
    )
    assert_same_message("k1-1", *told)


def test_messages_are_shown_by_unique_key(both: Both) -> None:
    told = (
        side.told("queryMsgByUniqueKey", "-t", TOPIC, "-i", side.sent[4]["message_id"])
        for side in (both.apache, both.ours)
    )
    assert_same_message("k1-1", *told)


def test_messages_are_shown_by_offset(both: Both) -> None:
    words = ("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-o", "2")
    assert_same_message("k1-2", *(side.told(*words) for side in (both.apache, both.ours)))


@pytest.mark.parametrize(
    "words",
    [
        ("printMsg", "-t", TOPIC),
        ("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "1", "-p", "true", "-d", "true"),
    ],
)
def test_mqadmin_prints_the_same_messages_of_both_products(
    both: Both, words: tuple[str, ...]
) -> None:
    shown = re.compile(r"queueId=(\d+).*?queueOffset=(\d+).*?(KEYS=[\w-]+)")
    theirs, ours = (sorted(shown.findall(side.told(*words))) for side in (both.apache, both.ours))
    assert ours == theirs
    assert len(ours) == (QUEUES if words[0] == "printMsg" else 1) * PER_QUEUE


def _table(text: str, separator: str) -> dict[str, str]:
    rows = (line.partition(separator) for line in text.splitlines())
    return {name.strip(): value.strip() for name, found, value in rows if found}


def test_broker_reports_what_apaches_reports(both: Both) -> None:
    theirs, ours = (
        _table(side.told("brokerStatus", "-b", side.master), ": ")
        for side in (both.apache, both.ours)
    )
    forms = RUNTIME | RUNTIME_OF[both.version]
    for told in (theirs, ours):
        assert not wrong_forms({**told, **_rates(told)}, forms)
    # a path; what was sent
    missing = {
        name
        for name in theirs.keys() - ours.keys()
        if not name.startswith(("commitLogDiskRatio_", "scheduleMessageOffset_"))
    }
    assert missing <= set(RUNTIME_WITHOUT_MEANING)


def _rates(told: dict[str, str]) -> dict[str, str]:
    """With the blanks of rates that were not sampled yet, which are lost at the end of a line."""
    rates = {name: value for name, value in told.items() if name.endswith("Tps")}
    return {name: value + " " * (2 - value.count(" ")) for name, value in rates.items()}


def test_mqadmin_shows_settings_by_apaches_names(both: Both) -> None:
    theirs, ours = (
        _table(side.told("getBrokerConfig", "-b", side.master), "=")
        for side in (both.apache, both.ours)
    )
    for told in (theirs, ours):
        assert not wrong_forms(told, SETTINGS | SETTINGS_OF[both.version])
    assert not ours.keys() & SETTINGS_WITHOUT_MEANING
    for name in ("brokerName", "brokerClusterName", "brokerId", "deleteWhen", "fileReservedTime"):
        assert ours[name] == theirs[name]
    assert len(ours.keys() & theirs.keys()) >= SHARED_SETTINGS, ours.keys() - theirs.keys()


def test_mqadmin_exports_settings_of_both_products(both: Both, tmp_path: Path) -> None:
    exported = []
    for name, side in (("apache", both.apache), ("ours", both.ours)):
        told = side.told("exportConfigs", "-c", "lab", "-f", str(tmp_path / name))
        assert "success" in told
        exported.append(json.loads((tmp_path / name / "configs.json").read_text()))
    theirs, ours = (export["brokerConfigs"]["broker-a"] for export in exported)
    assert ours.keys() >= theirs.keys()


def test_mqadmin_shows_a_changed_setting(both: Both) -> None:
    for value in ("71", "72"):
        both.same("updateBrokerConfig", "-b", "<master>", "-k", "fileReservedTime", "-v", value)
        for side in (both.apache, both.ours):
            told = side.told("getBrokerConfig", "-b", side.master)
            assert _table(told, "=")["fileReservedTime"] == value


# ---------------------------------------------------------------------- from here on things change, in this order


def test_a_group_is_put_back_by_time(both: Both) -> None:
    for side in (both.apache, both.ours):
        side.java.call("push_stop", group=GROUP)
    try:
        for side in (both.apache, both.ours):
            side.told("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
            # Without members 4.9's broker refuses, and its tool commits for the group itself; ours does as 5.x.
            assert "Diff Total: 6" in side.told("consumerProgress", "-g", GROUP)
    finally:
        for side in (both.apache, both.ours):
            side.java.call("push_start", group=GROUP, topic=TOPIC)


def test_mqadmin_clones_offsets_on_both_products(both: Both) -> None:
    words = ("cloneGroupOffset", "-s", GROUP, "-d", COPY, "-t", TOPIC, "-o", "true")
    both.same(
        "updateSubGroup", "-b", "<master>", "-g", COPY
    )  # 5.x refuses a group that it does not know.
    told = both.ours.told(*words)
    assert f"clone group offset success. srcGroup[{GROUP}], destGroup=[{COPY}]" in told


def test_a_broker_is_closed_to_writes_and_opened(both: Both) -> None:
    both.same("wipeWritePerm", "-b", "broker-a")
    both.same("addWritePerm", "-b", "broker-a")


def test_groups_and_topics_are_made_and_deleted(both: Both) -> None:
    both.same("updateSubGroup", "-b", "<master>", "-g", "tool-passing")
    both.same("deleteSubGroup", "-b", "<master>", "-g", "tool-passing")
    both.same("updateTopic", "-b", "<master>", "-t", "tool-passing", "-r", "1", "-w", "1")
    # Apache's 5.3.3 fails to delete one on a broker without its timer store, which this one is.
    told = both.ours.told("deleteTopic", "-c", "lab", "-t", "tool-passing")
    assert "delete topic [tool-passing] from cluster [lab] success." in told
    assert "delete topic [tool-passing] from NameServer success." in told
    assert "tool-passing" not in both.ours.told("topicList").split()
