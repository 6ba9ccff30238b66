"""What Apache's master answered in the recorded runs, ours answers too, request by request.

Left aside, because it cannot be the same: addresses of clients, times of changes, how many changes a table has had,
and the contents of settings (26) and runtime information (28), which are those of another program.
"""

import re
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from tests.golden.golden import VERSIONS, as_4_9_wrote
from tests.support.replay import Exchange, Replayed, golden_records, replay
from trio.testing import MockClock

from rocketrio_broker.processors import NOT_BUILT_YET
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.message import decode_messages

BORN_HOST = slice(48, 56)
RECORDS = (RequestCode.PULL_MESSAGE, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID)
OTHER_PROGRAM = (RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO)
"""Codes whose answers tell about the program itself: only the code is compared."""
OTHER_TOPIC = re.compile("RMQ_SYS_TRANS|rmq_sys_")
"""Those of 5.x's timers, and those of transactions, which 4.x, 5.x and ours create at different times."""
UNSET_REMARK = "not set any response code"
"""What Apache remarks on some successes by mistake; ours leaves it out."""


@attrs.frozen
class Played:
    """One replay and the two logs behind it."""

    version: str
    result: Replayed
    our_records: list[bytes]
    their_records: list[bytes]

    def of(self, *codes: int) -> list[Exchange]:
        return [exchange for exchange in self.result.exchanges if exchange.request.code in codes]


@pytest.fixture(scope="module", params=VERSIONS)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    version = request.param
    clock = MockClock(autojump_threshold=0)
    result, ours, theirs = trio.run(replay, version, tmp_path_factory.mktemp("store"), clock=clock)
    return Played(version, result, ours, [record.record for record in theirs])


def comparable(exchanges: list[Exchange]) -> list[Exchange]:
    return [
        exchange
        for exchange in exchanges
        if exchange.request.code not in NOT_BUILT_YET
        and exchange.theirs.code != ResponseCode.SUBSCRIPTION_NOT_LATEST
    ]


def test_readers_with_newer_tags_are_not_kept_waiting(played: Played) -> None:
    """Apache refuses them until their next heartbeat, in one recording for nine rounds."""
    refused = [
        exchange
        for exchange in played.result.exchanges
        if exchange.theirs.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    ]
    assert len(refused) >= 2
    for exchange in refused:
        assert exchange.ours.code == ResponseCode.SUCCESS, exchange


def test_unbuilt_codes_are_refused_plainly(played: Played) -> None:
    refused = [e for e in played.result.exchanges if e.request.code in NOT_BUILT_YET]
    assert {e.request.code for e in refused} <= NOT_BUILT_YET
    for exchange in refused:
        assert exchange.ours.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, exchange
    everything_else = {
        e.request.code
        for e in played.result.exchanges
        if e.ours.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    }
    assert everything_else <= NOT_BUILT_YET


def test_answers_of_a_replayed_run_have_apaches_codes(played: Played) -> None:
    for exchange in comparable(played.result.exchanges):
        if (exchange.theirs.code, exchange.ours.code) == (29, 1):
            assert played.version == "5.3.3"  # INVALID_PARAMETER is SYSTEM_ERROR in 4.x, as here
            continue
        if (exchange.theirs.code, exchange.ours.code) == (22, 0):
            # An empty queue: 4.x says 0, 5.x that nothing was found. Ours is 4.x.
            assert played.version == "5.3.3"
            assert exchange.request.code == RequestCode.QUERY_CONSUMER_OFFSET
            continue
        assert exchange.ours.code == exchange.theirs.code, exchange


def test_answers_of_a_replayed_run_have_apaches_remarks(played: Played) -> None:
    for exchange in comparable(played.result.exchanges):
        if exchange.theirs.remark == UNSET_REMARK or exchange.ours.code != exchange.theirs.code:
            continue
        ours, theirs = (
            re.sub(r"Producer: .*", "Producer: X", remark or "")
            for remark in (exchange.ours.remark, exchange.theirs.remark)
        )
        assert ours == theirs, exchange


def test_header_fields_are_apaches(played: Played) -> None:
    for exchange in comparable(played.result.exchanges):
        if exchange.request.code in OTHER_PROGRAM or exchange.ours.code != exchange.theirs.code:
            continue
        theirs, own = exchange.theirs.ext_fields, {"rocketrioLogEnd"}
        if played.version == "5.3.3":
            # Fields that 4.x does not have, and ids whose positions differ because 5.x stores longer properties.
            theirs = {
                name: value for name, value in theirs.items() if name in exchange.ours.ext_fields
            }
            moved = {"msgId", "indexLastUpdatePhyoffset"} | own
            assert without(exchange.ours.ext_fields, moved) == without(theirs, moved), exchange
        else:
            # The id that 5.x adds to answers of sends.
            ours = without(exchange.ours.ext_fields, own | {"transactionId"})
            assert ours == theirs, exchange


def test_messages_are_apaches_to_the_byte(played: Played) -> None:
    if played.version != "4.9.7":
        return  # 5.x stores other properties; its messages are compared field by field below.
    for exchange in comparable(played.of(*RECORDS)):
        ours, theirs = masked(exchange.ours.body), masked(exchange.theirs.body)
        assert ours == theirs, exchange
    # A topic's deletion stands in our log alone; in the recorded run it is the last thing done.
    ours = [record for record in played.our_records if b"rocketrioDeleted" not in record]
    assert [masked_record(r) for r in ours] == [masked_record(r) for r in played.their_records]


def test_messages_are_apaches_field_by_field(played: Played) -> None:
    compared = 0
    for exchange in comparable(played.of(*RECORDS)):
        ours = decode_messages(exchange.ours.body)
        theirs = decode_messages(exchange.theirs.body)
        for one, other in zip(ours, theirs, strict=True):
            assert (one.topic, one.queue_id, one.queue_offset, one.body) == (
                other.topic,
                other.queue_id,
                other.queue_offset,
                other.body,
            )
            assert (one.keys, one.tags, one.flag, one.sys_flag) == (
                other.keys,
                other.tags,
                other.flag,
                other.sys_flag,
            )
            compared += 1
    assert compared == {"4.9.7": 28, "5.3.3": 9}[played.version]


def test_bodies_equal_those_of_apache(played: Played) -> None:
    for exchange in comparable(played.result.exchanges):
        code = exchange.request.code
        if code in RECORDS or code in OTHER_PROGRAM or exchange.ours.code != exchange.theirs.code:
            continue
        our_body = bytes(exchange.ours.body)
        if played.version == "4.9.7":
            our_body = as_4_9_wrote(our_body)
        theirs, ours = (normal(code, json_of(body)) for body in (exchange.theirs.body, our_body))
        if played.version == "5.3.3":
            theirs = common(theirs, ours)
        assert ours == theirs, exchange


def test_clients_are_asked_as_apache_asked_them(played: Played) -> None:
    check = RequestCode.CHECK_TRANSACTION_STATE
    theirs = played.result.their_calls
    if played.version == "5.3.3":
        # Its transactions name positions of its own: ours has none to ask about.
        theirs = [call for call in theirs if call[0] != check]
    codes = [code for code, _ in theirs]
    assert codes.count(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED) == 3
    assert codes.count(RequestCode.GET_CONSUMER_RUNNING_INFO) == 1
    assert codes.count(check) == {"4.9.7": 1, "5.3.3": 0}[played.version]
    # As 5.x, ours says of which topic and broker it asks.
    ours = [
        (code, without(fields, {"topic", "bname"}) if code == check else fields)
        for code, fields in played.result.our_calls
    ]
    assert ours == theirs


def test_every_recorded_message_was_played(tmp_path: Path) -> None:
    assert {len(golden_records(version, tmp_path / version)) > 20 for version in VERSIONS} == {True}


# ------------------------------------------------------------------------------------ comparing


def without(fields: dict[str, str], names: set[str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in names}


def masked_record(record: bytes) -> bytes:
    masked_bytes = bytearray(record)
    masked_bytes[BORN_HOST] = bytes(8)
    return bytes(masked_bytes)


def masked(body: Any) -> list[bytes]:
    return [masked_record(message.record) for message in decode_messages(body)]


def json_of(body: Any) -> Any:
    return fastjson.loads(bytes(body), object) if body else None


def normal(code: int, value: Any) -> Any:
    """Without what differs from run to run."""
    if not isinstance(value, dict):
        return value
    value = {
        name: member
        for name, member in value.items()
        if name not in ("dataVersion", "mappingDataVersion", "consumeTps")
    }
    for name in ("topicConfigTable", "offsetTable", "subscriptionGroupTable"):
        table = value.get(name)
        if isinstance(table, dict):
            value[name] = {k: v for k, v in table.items() if not OTHER_TOPIC.match(str(k))}
    for connection in value.get("connectionSet", ()):
        connection["clientAddr"] = "X"
    for topic in value.get("topicConfigTable", {}).values():
        topic.pop("order", None)  # 4.9 forgets what was asked for; ours keeps it, as 5.x
    if code == RequestCode.GET_ALL_DELAY_OFFSET:
        value["offsetTable"] = {}
    if code == RequestCode.GET_CONSUME_STATS:
        for progress in value["offsetTable"].values():
            # 4.9 has none, and 5.3.3's recorded broker refused the pulls that ours answers.
            progress.pop("pullOffset", None)
    return value


def common(theirs: Any, ours: Any) -> Any:
    """The members of `theirs` that `ours` has too: 5.x adds members that 4.x does not know."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {name: common(theirs[name], ours[name]) for name in theirs if name in ours}
    return theirs
