"""What a user without the right to a topic gets of it: the same requests at both products, and the table of them.

docs/COMPATIBILITY.md has the table, "What access control refuses".
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from rocketrio import Credentials, open_admin
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import admin, consumer, offset, pull, query, send, transaction
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.record.batch import encode_batch
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp
from rocketrio_protocol.signature import Signer
from tests.interop.secured import ADMIN, BOTH, DENIED, GROUP, RIGHTS, TOPIC, secured_apache
from tests.interop.secured_ours import FOREIGN, INNER, secured_ours

pytestmark = pytest.mark.interop

PAGE = Path(__file__).parents[2] / "docs" / "COMPATIBILITY.md"
HEADING = "## What access control refuses"
_SEND = ("java-producer", DENIED, "TBW102", 4, 0, 0, 1_700_000_000_000, 0)
_HALF = "TRAN_MSG\x01true\x02PGROUP\x01java-producer\x02UNIQ_KEY\x010A0B0C0D00002A139F5512345678"
_BATCH = encode_batch([(0, b"one", b""), (0, b"two", b"")])


async def stored(pool: ChannelPool, address: str, properties: str = "") -> tuple[str, int]:
    """Send a message to the denied topic; return its id, and its address in the log."""
    header = send.SendMessageRequestHeaderV2(*_SEND, properties=properties, batch=False)
    answer = await pool.call(address, header, b"for others", timeout=20)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    message_id = answer.header(send.SendMessageResponseHeader).msg_id
    return message_id, parse_offset_message_id(message_id)[2]


def pulling(group: str, *, lite: bool = False) -> pull.PullMessageRequestHeader:
    kind = pull.LitePullMessageRequestHeader if lite else pull.PullMessageRequestHeader
    return kind(group, DENIED, 0, 0, 32, 4, 0, 0, 1, "*", "TAG")


def attempts(
    message: tuple[str, int], half: tuple[str, int]
) -> dict[str, tuple[RequestHeader | int, bytes]]:
    """The requests by the words that the table has for them."""
    message_id, address = message
    half_id, half_address = half
    retry = (*_SEND[:1], f"%RETRY%{FOREIGN}", *_SEND[2:])
    own_retry = (GROUP, f"%RETRY%{FOREIGN}", *_SEND[2:])
    return {
        "send (10)": (send.SendMessageRequestHeader(*_SEND), b"x"),
        "send (310)": (send.SendMessageRequestHeaderV2(*_SEND), b"x"),
        "batch (320)": (send.SendBatchMessageRequestHeader(*_SEND, batch=True), _BATCH),
        "reply (324)": (send.SendReplyMessageRequestHeader(*_SEND), b"x"),
        "send to a foreign group's retry topic (310)": (send.SendMessageRequestHeaderV2(*retry), b"x"),
        "the same under an own group's name": (send.SendMessageRequestHeaderV2(*own_retry), b"x"),
        "pull (11)": (pulling(GROUP), b""),
        "lite pull (361)": (pulling(GROUP, lite=True), b""),
        "query by key (12)": (query.QueryMessageRequestHeader(DENIED, "k", 1, 0, 2**60), b""),
        "view by id, as another topic (33)": (query.ViewMessageRequestHeader(address, topic=TOPIC), b""),
        "send back, as another topic (36)": (
            consumer.ConsumerSendMsgBackRequestHeader(address, GROUP, 0, origin_topic=TOPIC), b"",
        ),
        "consume directly, as another topic (309)": (
            consumer.ConsumeMessageDirectlyRequestHeader(GROUP, "nobody", message_id, topic=TOPIC), b"",
        ),
        "end a foreign transaction, as another topic (37)": (
            transaction.EndTransactionRequestHeader("java-producer", 0, half_address, 12, half_id, topic=TOPIC), b"",
        ),
        "bounds of a queue (30)": (offset.GetMaxOffsetRequestHeader(DENIED, 0), b""),
        "create a topic (17)": (
            admin.CreateTopicRequestHeader("new-topic", "TBW102", 1, 1, 6, "SINGLE_TAG", order=False), b"",
        ),
        "create a group (200)": (
            admin.UpdateAndCreateSubscriptionGroupRequestHeader(), b'{"groupName":"new-group"}',
        ),
        "settings (26)": (admin.GetBrokerConfigRequestHeader(), b""),
        "change a setting (25)": (admin.UpdateBrokerConfigRequestHeader(), b"slaveReadEnable=true\n"),
        "topics for slaves (21)": (admin.GetAllTopicConfigRequestHeader(), b""),
        "all accounts with secrets (54)": (RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, b""),
    }  # fmt: skip


async def tried(address: str, operator: Credentials, user: Credentials) -> dict[str, str]:
    """What became of each request: `refused`, `passes`, or `unknown` for a code that the broker does not have."""
    async with open_channel_pool(dial_tcp, signer=Signer(operator)) as pool:
        message, half = await stored(pool, address), await stored(pool, address, _HALF)
    outcomes = {}
    for name, (header, body) in attempts(message, half).items():
        request = (
            RemotingCommand(header, body=body)
            if isinstance(header, int)
            else RemotingCommand.request(header, body)
        )
        async with open_channel_pool(dial_tcp, signer=Signer(user)) as pool:
            answer = await pool.call(address, request, timeout=20)
        remark = answer.remark or ""
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            outcomes[name] = "unknown"
        elif answer.code == ResponseCode.NO_PERMISSION or "AclException" in remark:
            outcomes[name] = "refused"
        else:
            outcomes[name] = "passes"
    return outcomes


async def make_user(name_server: str) -> None:
    """Make the same user as on Apache's brokers."""
    async with open_admin(name_servers=[name_server], credentials=INNER) as operator:
        access = operator.access()
        await access.create_user(BOTH.access_key, BOTH.secret_key)
        for resource, actions in RIGHTS[BOTH].items():
            await access.grant(BOTH.access_key, [resource], actions)


def told() -> dict[str, dict[str, str]]:
    """The table: by product and request."""
    section = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    rows = [
        [cell.strip().replace("*", "") for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if re.match(r"\| .* \|", line)
    ]
    head, *rest = rows
    return {
        product: {row[0]: row[column] for row in rest}
        for column, product in enumerate(head)
        if column
    }


@pytest.fixture(scope="module")
def at_apache(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with secured_apache(version, tmp_path_factory.mktemp(f"denied-{version}")) as there:
        yield trio.run(tried, there.master.address, ADMIN, BOTH)


def test_apaches_broker_does_as_the_table_says(version: str, at_apache: dict[str, str]) -> None:
    assert at_apache == told()[version]


def test_our_broker_refuses_all_of_it(version: str, tmp_path: Path) -> None:
    if version >= "5":
        pytest.skip("once is enough")
    with secured_ours(version, tmp_path) as here:
        trio.run(make_user, here.name_server)
        ours = trio.run(tried, here.master.address, INNER, BOTH)
    assert ours == told()["rocketrio"]
    assert set(ours.values()) == {"refused", "unknown"}
