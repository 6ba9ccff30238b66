from datetime import datetime

import attrs
import pytest
import trio
from tests.broker.processors.asking import asking
from tests.golden.exchanges import exchanges_of
from tests.support.clocks import START_MS
from trio.testing import MockClock

from rocketrio_broker.embedded import SMALL_STORE
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.bodies.route import KVTable, TopicRouteData
from rocketrio_protocol.bodies.topics import DataVersion
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import admin, cluster

UPDATE = admin.UpdateBrokerConfigRequestHeader()


async def test_changed_setting_takes_effect_and_is_reported(autojump_clock: MockClock) -> None:
    async with asking() as one:
        before = fastjson.loads(
            (await one.ask(admin.GetBrokerConfigRequestHeader())).ext_fields["version"].encode(),
            DataVersion,
        )
        text = b"accessMessageInMemoryMaxRatio=0\nslaveReadEnable=true\n"
        assert (await one.ask(UPDATE, text)).code == ResponseCode.SUCCESS
        assert one.broker.config.slave_read_enable
        one.put("T", b"a")
        assert not one.broker.store.is_in_memory(0)
        answer = await one.ask(admin.GetBrokerConfigRequestHeader())
        shown = parse_properties(answer.body)
        assert shown["accessMessageInMemoryMaxRatio"] == "0"
        after = fastjson.loads(answer.ext_fields["version"].encode(), DataVersion)
        assert after.counter == before.counter + 1


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (b"brokerName=b", ResponseCode.NO_PERMISSION, "broker_name"),
        (b"slaveReadEnabled=true", ResponseCode.SYSTEM_ERROR, "slaveReadEnable"),
        (b"accessMessageInMemoryMaxRatio=much", ResponseCode.SYSTEM_ERROR, "not a number"),
        (b"maxTransferBytesOnMessageInMemory=0", ResponseCode.SYSTEM_ERROR, "must be"),
    ],
)
async def test_change_of_a_fixed_setting_is_refused_with_the_reason(
    autojump_clock: MockClock, text: bytes, code: int, told: str
) -> None:
    async with asking() as one:
        before = one.broker.config
        answer = await one.ask(UPDATE, b"slaveReadEnable=true\n" + text)
        assert answer.code == code
        assert told in (answer.remark or "")
        assert one.broker.config == before


async def test_broker_made_read_only_registers_the_new_permission(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        await one.ask(UPDATE, b"brokerPermission=4")
        await one.broker.registration.wait_registered()
        answer = await one.ask_name_server(cluster.GetRouteInfoRequestHeader("TBW102"))
        (queues,) = TopicRouteData.from_json(answer.body).queue_datas
        assert not queues.is_writable


async def test_settings_have_javas_names_and_units(autojump_clock: MockClock) -> None:
    async with asking() as one:
        answer = await one.ask(admin.GetBrokerConfigRequestHeader())
        shown = parse_properties(answer.body)
        assert shown["brokerClusterName"] == "lab"
        assert shown["brokerRole"] == "ASYNC_MASTER"
        assert shown["flushDiskType"] == "ASYNC_FLUSH"
        assert shown["registerNameServerPeriod"] == "30000"
        assert shown["listenPort"] == "10911"
        (theirs,) = exchanges_of("4.9.7", "broker", answer_code := 26)  # type: ignore[arg-type]
        assert answer_code == theirs.request.code
        assert theirs.answer is not None
        javas = parse_properties(theirs.answer.body)
        own = {name for name in shown if name not in javas}
        assert own <= {
            "accessMessageInMemoryMaxBytes",
            "aclFile",
            "aclPlainSignaturesFrom",
            "aclWhiteAddresses",
            "configuredBrokerId",
            "configuredBrokerRole",
            "connectionLimit",
            "diskSpaceCleanForciblyRatio",
            "diskSpaceWarningLevelRatio",
            "groupsLimit",
            "haAcknowledge",
            "haConfirmedReads",
            "haDivergentTail",
            "haFullHistoryStart",
            "haHandOverOnStop",
            "haMasterAddress",
            "haMissingHistory",
            "haReturn",
            "haReturnRole",
            "haReturnWait",
            "haTlsPeerNames",
            "haUnconfirmedReads",
            "peerTlsCheckHostName",
            "hostConnectionLimit",
            "inSyncSlaves",
            "logCheckRate",
            "maxFilterMessageSize",
            "maxPullMessageSize",
            "maxTopicLength",
            "metricsExporterType",
            "metricsLabel",
            "metricsOtelCardinalityLimit",
            "rocketrioReplication",
            "shortPollingTime",
            "slaveSyncPeriod",
            "staticMemberGraceLimit",
            "topicsLimit",
            "unfinishedSizeLimit",
            "unreadableTables",
            "unsentSizeLimit",
        }


async def test_runtime_information_has_the_keys_that_tools_read(autojump_clock: MockClock) -> None:
    (theirs,) = exchanges_of("4.9.7", "broker", 28)  # type: ignore[arg-type]
    assert theirs.answer is not None
    expected = set(KVTable.from_json(theirs.answer.body).table)
    async with asking() as one:
        one.put("T", b"a")
        table = KVTable.from_json(
            (await one.ask(admin.GetBrokerRuntimeInfoRequestHeader())).body
        ).table
    without = ("scheduleMessageOffset_", "commitLogDiskRatio_")
    assert {key for key in expected if not key.startswith(without)} <= set(table)
    assert table["brokerVersion"] == "407"
    assert table["commitLogMaxOffset"] == str(one.broker.store.max_physical_offset)
    assert table["putTps"].count(" ") == 2


@pytest.mark.parametrize(
    "code", [RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE]
)
async def test_expired_files_are_deleted_on_request(
    autojump_clock: MockClock, code: RequestCode
) -> None:
    hour = datetime.fromtimestamp(START_MS / 1000).hour  # The virtual clock starts there.
    store = attrs.evolve(
        SMALL_STORE,
        mapped_file_size_commit_log=4096,
        file_reserved_time=0.01,
        delete_when=f"{(hour + 12) % 24:02}",
    )
    async with asking(store=store) as one:
        for _ in range(4):
            one.put("T", bytes(3000))
        await trio.sleep(60)
        assert one.broker.store.min_physical_offset == 0
        answer = await one.ask(RemotingCommand(code=code))
        assert answer.code == ResponseCode.SUCCESS
        assert one.broker.store.min_physical_offset == 3 * 4096
        assert one.broker.store.queue_bounds("T", 0) == (3, 4)
