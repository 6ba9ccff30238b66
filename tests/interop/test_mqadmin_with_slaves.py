"""Every command of Apache's `mqadmin` on our master and our slave: it works, or says which request is missing."""

import json
import re
from collections.abc import Iterator

import attrs
import pytest

from tests.interop.java_client import JavaClient
from tests.support import wire
from tests.support.ours import OurBroker, OurNameServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

TOPIC, GROUP = "every-orders", "every-billing"
UPDATE_CONSUMER_OFFSET = 15
COPY_TIMEOUT = 30.0
"""Seconds until a slave has copied its master's tables: they are asked for every 10."""

WORKS = {
    "updateTopic": "-c lab -t {topic} -r 2 -w 2",
    "updateTopicPerm": "-c lab -t {topic} -p 6",
    "updateSubGroup": "-c lab -g {group}",
    "getConsumerConfig": "-g {group}",
    "topicRoute": "-t {topic}",
    "topicStatus": "-t {topic}",
    "topicClusterList": "-t {topic}",
    "topicList": "-c",
    "sendMessage": "-t {topic} -p hello -k k1 -c red",
    "consumeMessage": "-t {topic} -b broker-a -i 0 -o 0 -c 1",
    "sendMsgStatus": "-b broker-a -s 16 -c 2",
    "checkMsgSendRT": "-t {topic} -a 3 -s 16",
    "queryMsgByKey": "-t {topic} -k k1",
    "queryMsgByUniqueKey": "-t {topic} -i 0123456789012345678901234567890A",
    "queryCq": "-t {topic} -q 0 -i 0 -c 3 -b {master}",
    "printMsg": "-t {topic}",
    "printMsgByQueue": "-t {topic} -a broker-a -i 0 -p true",
    "brokerStatus": "-b {slave}",
    "brokerConsumeStats": "-b {master}",
    "consumerProgress": "",
    "resetOffsetByTime": "-g {group} -t {topic} -s 0",
    "producer": "-b {master}",
    "clusterList": "",
    "statsAll": "-t {topic}",
    "allocateMQ": "-t {topic} -i 10.0.0.1,10.0.0.2",
    "updateKvConfig": "-s tool -k k -v v",
    "deleteKvConfig": "-s tool -k k",
    "wipeWritePerm": "-b broker-a",
    "addWritePerm": "-b broker-a",
    "updateOrderConf": "-t {topic} -m put -v broker-a:2",
    "cleanExpiredCQ": "-c lab",
    "cleanUnusedTopic": "-c lab",
    "deleteExpiredCommitLog": "-c lab",
    "getNamesrvConfig": "",
    "updateNamesrvConfig": "-k orderMessageEnable -v true",
    "getBrokerConfig": "-b {slave}",
    "updateBrokerConfig": "-c lab -k deleteWhen -v 05",
    "exportConfigs": "-c lab -f {folder}",
    "exportMetadata": "-c lab -f {folder}",
    "exportMetrics": "-c lab -f {folder}",
    "haStatus": "-b {master}",
    "updateTopicList": "-c lab -f {topics}",
    "updateSubGroupList": "-c lab -f {groups}",
}
"""In this order: the later ones find what the earlier ones made."""
MISSING = {
    "setConsumeMode": ("-c lab -t {topic} -g {group} -m POP", 401),
    "resetMasterFlushOffset": ("-b {master} -o 0", 908),
    "updateStaticTopic": ("-c lab -t every-static -qn 2", 513),
    "exportPopRecord": ("-c lab -d true", 200056),
    "getBrokerEpoch": ("-c lab", 1007),
    "addBroker": ("-c {master} -b x", 902),
    "removeBroker": ("-c {master} -b lab:broker-a:0", 903),
    "getControllerMetaData": ("-a {master}", 1005),
    "getControllerConfig": ("-a {master}", 1010),
    "updateControllerConfig": ("-a {master} -k k -v v", 1009),
    "getColdDataFlowCtrInfo": ("-b {master}", 2003),
    "updateColdDataFlowCtrGroupConfig": ("-b {master} -g {group} -v 1", 2001),
    "removeColdDataFlowCtrGroupConfig": ("-b {master} -g {group}", 2002),
    "setCommitLogReadAheadMode": ("-b {master} -m 0", 2004),
    "createUser": ("-b {master} -u u -p p", 3001),
    "updateUser": ("-b {master} -u u -p p", 3002),
    "deleteUser": ("-b {master} -u u", 3003),
    "getUser": ("-b {master} -u u", 3004),
    "listUser": ("-b {master}", 3005),
    "copyUser": ("-f {master} -t {slave} -u u", 3004),
    "createAcl": ("-b {master} -s User:u -r Topic:t -a Pub -d Allow", 3006),
    "updateAcl": ("-b {master} -s User:u -r Topic:t -a Pub -d Deny", 3007),
    "deleteAcl": ("-b {master} -s User:u", 3008),
    "getAcl": ("-b {master} -s User:u", 3009),
    "listAcl": ("-b {master}", 3010),
    "copyAcl": ("-f {master} -t {slave} -s User:u", 3009),
    "updateAclConfig": ("-b {master} -a user -s password", 50),
    "deleteAclConfig": ("-b {master} -a user", 51),
    "clusterAclConfigVersion": ("-b {master}", 52),
    "updateGlobalWhiteAddr": ("-b {master} -g 10.0.0.1", 53),
    "getAclConfig": ("-b {master}", 54),
    "getSyncStateSet": ("-a {master} -c lab -b broker-a", 1005),
    "electMaster": ("-a {master} -b 0 -bn broker-a -c lab", 1005),
    "cleanBrokerMetadata": ("-a {master} -bn broker-a -c lab -l", 1005),
    "checkRocksdbCqWriteProgress": ("-c lab -n {names}", 354),
    "rocksDBConfigToJson": ("-t topics -b {master}", 355),
}
"""Commands whose request our broker does not know, with its code."""
ELSEWHERE = {
    # Beside Apache's output in test_mqadmin.py and test_mqadmin_members.py.
    "queryMsgById", "queryMsgByOffset", "producerConnection", "consumerConnection", "consumerStatus",
    # Below.
    "cloneGroupOffset", "skipAccumulatedMessage", "deleteTopic", "deleteSubGroup",
    # They want a trace that a client wrote, static topics, or files on this disk, or never end.
    "queryMsgTraceById", "remappingStaticTopic", "dumpCompactionLog", "exportMetadataInRocksDB",
    "startMonitoring", "clusterRT",
}  # fmt: skip


@attrs.frozen
class Tool:
    """`mqadmin` of one version, and where it finds what."""

    version: str
    java: JavaClient
    words: dict[str, str]

    def told(self, command: str, words: str = "") -> str:
        """What it printed, exceptions too."""
        filled = [word.format(**self.words) for word in words.split()]
        return self.java.mqadmin(*command.split(), *filled, errors=True)

    def topics(self) -> set[str]:
        return set(self.told("topicList").split())


@pytest.fixture(scope="module")
def tool(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    folder = tmp_path_factory.mktemp(f"every-{version}")
    (folder / "topics.json").write_text(json.dumps([{"topicName": "every-listed"}]))
    (folder / "groups.json").write_text(json.dumps([{"groupName": "every-listed"}]))
    with (
        OurNameServer(folder / "names") as names,
        OurBroker(folder / "master", names.address) as master,
        OurBroker(folder / "slave", names.address, role="slave", broker_id=1) as slave,
        JavaClient(version, names.address, folder / "java") as java,
    ):
        words = {
            "topic": TOPIC, "group": GROUP, "names": names.address, "master": master.address, "slave": slave.address,
            "folder": str(folder), "topics": str(folder / "topics.json"), "groups": str(folder / "groups.json"),
        }  # fmt: skip
        wait_until(lambda: wire.is_registered(names.address, slave.address), "the slave")
        yield Tool(version, java, words)


def commands(tool: Tool) -> set[str]:
    """The names of all its commands, from its help."""
    return set(re.findall(r"^ {3}(\w+) +\S", tool.told(""), re.MULTILINE))


def test_every_command_is_tried_somewhere(tool: Tool) -> None:
    known = commands(tool)
    assert len(known) > 50
    assert known <= WORKS.keys() | MISSING.keys() | ELSEWHERE


@pytest.mark.parametrize("command", WORKS)
def test_mqadmin_command_works_on_our_pair(tool: Tool, command: str) -> None:
    if command not in commands(tool):
        pytest.skip(f"{tool.version} has no {command}")
    told = tool.told(command, WORKS[command])
    if command == "queryMsgByUniqueKey":
        assert "no message" in told.lower() or "Exception" not in told
    elif command == "resetOffsetByTime" and tool.version < "5":
        assert "rollback" in told or "offset" in told, told
    else:
        assert "Exception" not in told, told


@pytest.mark.parametrize("command", MISSING)
def test_command_that_needs_more_names_the_request_that_is_missing(
    tool: Tool, command: str
) -> None:
    if command not in commands(tool):
        pytest.skip(f"{tool.version} has no {command}")
    words, code = MISSING[command]
    assert f"request type {code} not supported" in tool.told(command, words)


def test_master_and_slave_report_attributes(tool: Tool) -> None:
    if tool.version < "5":
        pytest.skip("4.9 knows no attributes")
    told = tool.told("updateTopic", "-c lab -t every-fifo -a +message.type=FIFO")
    assert "Exception" not in told
    refused = tool.told("updateTopic", "-c lab -t every-fifo -a +message.type=ODD")
    assert "message.type=ODD; this broker takes" in refused

    def is_told(address: str) -> bool:
        topic = wire.topics(address).get("every-fifo")
        return topic is not None and topic["attributes"] == {"message.type": "FIFO"}

    assert is_told(tool.words["master"])
    wait_until(lambda: is_told(tool.words["slave"]), "attributes copied", COPY_TIMEOUT)


def test_offsets_of_a_group_that_is_not_known_are_set_as_on_apaches_broker(tool: Tool) -> None:
    """5.3.3 refuses with 26, 4.9.7 a reset by time with 1 (Broker2Client.resetOffset) and a clone not at all."""
    tool.told("updateTopic", "-c lab -t {topic} -r 2 -w 2")
    tool.told("updateTopic", "-c lab -t %RETRY%every-known -r 1 -w 1")
    tool.told("updateSubGroup", "-c lab -g every-known")
    commit = {"consumerGroup": "every-known", "topic": TOPIC, "queueId": "0", "commitOffset": "0"}
    assert wire.ask(tool.words["master"], UPDATE_CONSUMER_OFFSET, commit).code == 0
    for command, words in {
        "resetOffsetByTime": "-g every-unknown -t {topic} -s 0",
        "skipAccumulatedMessage": "-g every-unknown -t {topic}",
        "cloneGroupOffset": "-s every-known -d every-unknown -t {topic} -o true",
    }.items():
        told = tool.told(command, words)
        if tool.version >= "5":
            assert "CODE: 26" in told, (command, told)
        elif command == "cloneGroupOffset":
            assert "clone group offset success" in told
        else:
            assert "CODE: 1 " in told, (command, told)


def test_group_and_topic_are_deleted_with_a_slave_in_the_cluster(tool: Tool) -> None:
    topics = {f"%RETRY%{GROUP}", f"%DLQ%{GROUP}", "every-passing"}
    tool.told("updateSubGroup", "-c lab -g {group}")
    for topic in topics:
        tool.told("updateTopic", f"-c lab -t {topic} -r 1 -w 1")
    slave = tool.words["slave"]
    wait_until(lambda: topics <= wire.topics(slave).keys(), "copied", COPY_TIMEOUT)
    for command, words in {
        "deleteSubGroup": "-c lab -g {group} -r true",
        "deleteTopic": "-c lab -t every-passing",
    }.items():
        told = tool.told(command, words)
        assert "success" in told
        assert "Exception" not in told, told
    assert not topics & tool.topics()
    wait_until(lambda: not topics & wire.topics(slave).keys(), "deleted at the slave", COPY_TIMEOUT)
