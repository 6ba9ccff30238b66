"""Apache's clients and mqadmin with an account, on our name server and broker with access control.

The stories of Java's clients are those of the other files, with an account that has the rights of producers, consumers
and their tools, and no more.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.interop.java_client import JavaClient, JavaError, bodies
from tests.interop.secured_ours import (
    DENIED,
    DISABLED,
    FOREIGN,
    INNER,
    ORDINARY,
    SecuredOurs,
    secured_ours,
    secured_servers,
)
from tests.interop.test_consumer_requests import (  # noqa: F401 - played here again
    test_a_group_chooses_by_sql92,
    test_a_message_that_fails_comes_again_later,
    test_a_message_that_fails_too_often_is_a_dead_letter,
    test_a_request_gets_its_reply,
    test_two_orderly_members_never_share_a_queue,
)
from tests.interop.test_java_on_our_broker import (  # noqa: F401 - played here again
    test_batch_gets_consecutive_offsets,
    test_compressed_body_comes_back,
    test_every_kind_of_send_is_stored,
    test_held_pull_is_woken_by_a_send,
    test_java_gets_the_status_of_each_kind_of_pull,
    test_java_group_consumes_everything_once_and_continues,
    test_java_pulls_only_messages_with_its_tags,
    test_messages_are_found_by_id_and_by_key,
    test_offsets_of_a_group,
    test_offsets_of_a_queue,
    test_topic_is_made_by_the_first_send,
)
from tests.support import wire
from tests.support.private_files import account_file
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def secured(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredOurs]:
    with secured_ours(version, tmp_path_factory.mktemp(f"secured-{version}")) as here:
        yield here


@pytest.fixture
def on_ours(secured: SecuredOurs) -> SecuredOurs:
    """The cluster of the stories that other files have."""
    return secured


def test_transaction_is_decided(java: JavaClient, topic: str) -> None:
    sent = java.call("transaction_send", topic=topic, body="kept", local="COMMIT")
    java.call("transaction_send", topic=topic, body="dropped", local="ROLLBACK")
    assert sent["status"] == "SEND_OK"
    assert bodies(java.until("read_all", topic=topic)) == ["kept"]


def test_trace_needs_no_right_of_its_own(
    java: JavaClient, topic: str, secured: SecuredOurs
) -> None:
    java.call("send_as", group="traced-group", traced=True, topic=topic, body="traced")

    def is_there() -> bool:
        found = secured.operator.until("read_all", topic="RMQ_SYS_TRACE_TOPIC")
        return any(topic in message["body"] for message in found)

    wait_until(is_there, "traced")


DENIED_QUEUE = {"topic": DENIED, "broker": "broker-a", "queue_id": 0}
ATTEMPTS: dict[str, tuple[str, dict[str, Any]]] = {
    "send": ("send", {"body": "x", **DENIED_QUEUE}),
    "batch": ("send_batch", {"bodies": ["x", "y"], **DENIED_QUEUE}),
    "half message": ("transaction_send", {"topic": DENIED, "body": "x", "local": "COMMIT"}),
    "foreign retry topic": (
        "send",
        {"body": "x", "topic": f"%RETRY%{FOREIGN}", "broker": "broker-a", "queue_id": 0},
    ),
    "pull": ("pull", {"offset": 0, **DENIED_QUEUE}),
    "offsets": ("offsets", {"timestamp_ms": 0, **DENIED_QUEUE}),
    "query by key": ("query_key", {"topic": DENIED, "key": "k"}),
    "creation": ("create_topic", {"topic": DENIED, "queues": 9}),
}


WITHOUT_CODE = ("query_key", "transaction_send", "offsets")
"""Java raises another error for these, and the refusal is its cause."""


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_denied_topic_is_refused_with_16(
    attempt: str, java: JavaClient, secured: SecuredOurs
) -> None:
    op, fields = ATTEMPTS[attempt]
    if op == "create_topic":
        fields = {**fields, "address": secured.master.address}
    before = secured.operator.call("offsets", timestamp_ms=0, **DENIED_QUEUE)["max"]
    with pytest.raises(JavaError) as refused:
        java.call(op, **fields)
    if op not in WITHOUT_CODE:
        assert "CODE: 16" in str(refused.value)
        assert "has no permission to access" in str(refused.value)
    assert secured.operator.call("offsets", timestamp_ms=0, **DENIED_QUEUE)["max"] == before


def test_message_of_a_denied_topic_is_not_shown_by_its_id(
    java: JavaClient, secured: SecuredOurs
) -> None:
    sent = secured.operator.call("send", body="secret", **DENIED_QUEUE)
    shown = secured.operator.until("view_message", topic=DENIED, message_id=sent["offset_id"])
    assert shown["body"] == "secret"
    for claimed in (DENIED, "any-other"):
        with pytest.raises(JavaError):
            java.call("view_message", topic=claimed, message_id=sent["offset_id"])


@pytest.mark.parametrize(
    ("access_key", "secret", "text"),
    [
        (ORDINARY.access_key, "wrong-secret", "check signature failed"),
        ("unknown-1", "wrong-secret", "check signature failed"),
        (None, "", "username cannot be null"),
    ],
)
def test_client_without_the_right_secret_is_refused_at_once(
    secured: SecuredOurs, tmp_path: Any, access_key: str | None, secret: str, text: str
) -> None:
    options = (
        ()
        if access_key is None
        else (f"-Dstory.accessKey={access_key}", f"-Dstory.secretKey={secret}")
    )
    with JavaClient(
        secured.version, secured.name_server, tmp_path, jvm_options=options
    ) as stranger:
        with pytest.raises(JavaError) as refused:
            stranger.call("topics")
        assert "CODE: 16" in str(refused.value)
        assert text in str(refused.value)


def test_client_of_a_disabled_user_is_refused(secured: SecuredOurs, tmp_path: Path) -> None:
    options = (
        f"-Dstory.accessKey={DISABLED.access_key}",
        f"-Dstory.secretKey={DISABLED.secret_key}",
    )
    queue = {"topic": DENIED, "broker": "broker-a", "queue_id": 0}
    with (
        JavaClient(secured.version, secured.name_server, tmp_path, jvm_options=options) as java,
        pytest.raises(JavaError, match=f"CODE: 16.*{DISABLED.access_key} is disabled"),
    ):
        java.call("send", body="x", **queue)


# -------------------------------------------------------------------------------------------- mqadmin


@attrs.frozen
class Administered:
    """A master that takes changes of users from this host's mqadmin, and that mqadmin."""

    version: str
    address: str
    operator: JavaClient


@pytest.fixture(scope="module")
def administered(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administered]:
    folder = tmp_path_factory.mktemp(f"administered-{version}")
    account_file(folder / "java" / "conf" / "tools.yml", INNER)
    with (
        secured_servers(folder / "servers", "acl_plain_signatures_from=127.0.0.1") as servers,
        JavaClient(version, servers.name_server.address, folder / "java") as operator,
    ):
        yield Administered(version, servers.master.address, operator)


def told(java: JavaClient, *words: str) -> str:
    return java.mqadmin(*words, errors=True)


def test_mqadmin_without_an_account_is_refused(secured: SecuredOurs, tmp_path: Any) -> None:
    with JavaClient(secured.version, secured.name_server, tmp_path) as stranger:
        assert "username cannot be null" in told(stranger, "clusterList")


def test_mqadmin_of_an_ordinary_user_changes_nothing(
    java: JavaClient, secured: SecuredOurs
) -> None:
    assert "Cluster:lab" in told(
        java,
        "updateBrokerConfig",
        "-b",
        secured.master.address,
        "-k",
        "brokerPermission",
        "-v",
        "4",
    )


def test_mqadmin_with_an_account_administers_topics(secured: SecuredOurs) -> None:
    operator, master = secured.operator, secured.master.address
    assert "success" in told(
        operator, "updateTopic", "-b", master, "-t", "by-mqadmin", "-r", "2", "-w", "2"
    )
    assert "by-mqadmin" in told(operator, "topicList")
    assert "broker-a" in told(operator, "clusterList")


def test_mqadmin_changes_no_user_from_a_host_that_is_not_named(secured: SecuredOurs) -> None:
    changes = (
        (("updateAclConfig", "-a", "account-1", "-s", "marker-secret-1", "-u", "PUB"),)
        if secured.version < "5"
        else (
            ("createUser", "-u", "clerk", "-p", "marker-secret-1", "-t", "Normal"),
            ("createAcl", "-s", "User:clerk", "-r", "Topic:a", "-a", "Pub", "-d", "Allow"),
            ("listUser",),
        )
    )
    for change, *rest in changes:
        said = told(secured.operator, change, "-b", secured.master.address, *rest)
        assert "needs a proof" in said
        assert "acl_plain_signatures_from" in said


def test_mqadmin_4_changes_accounts(administered: Administered) -> None:
    if administered.version >= "5":
        pytest.skip("5.3.3 has other commands")
    operator, master = administered.operator, administered.address
    secret = "marker-secret-1"
    assert "success" in told(
        operator, "updateAclConfig", "-b", master, "-a", "account-1", "-s", secret,
        "-u", "DENY", "-t", "story=PUB|SUB,other=DENY", "-g", "story-group=SUB",
    )  # fmt: skip
    shown = told(operator, "clusterAclConfigVersion", "-b", master)
    assert "rocketrioUsers.json" in shown
    assert secret not in shown
    refused = told(operator, "updateGlobalWhiteAddr", "-b", master, "-g", "10.10.103.*")
    assert "acl_white_addresses" in refused
    assert secret not in told(operator, "getAclConfig", "-b", master)
    assert "success" in told(operator, "deleteAclConfig", "-b", master, "-a", "account-1")
    assert "account-1" in told(operator, "deleteAclConfig", "-b", master, "-a", "account-1")


def test_mqadmin_4_changes_accounts_and_white_addresses_of_a_cluster_that_wants_them(
    version: str, tmp_path: Path
) -> None:
    if version >= "5":
        pytest.skip("5.3.3 has other commands")
    account_file(tmp_path / "java" / "conf" / "tools.yml", INNER)
    with (
        secured_servers(
            tmp_path / "servers",
            "acl_white_addresses=true",
            "acl_plain_signatures_from=127.0.0.1",
        ) as servers,
        JavaClient(version, servers.name_server.address, tmp_path / "java") as operator,
    ):
        account = ("-a", "account-1", "-s", "marker-secret-1", "-u", "PUB")
        assert "success" in told(operator, "updateAclConfig", "-c", "lab", *account)
        white = told(operator, "updateGlobalWhiteAddr", "-c", "lab", "-g", "127.0.0.1")
        assert "success" in white
        # Without an account the address suffices to look, and not to change a user.
        assert wire.ask(servers.master.address, wire.GET_BROKER_RUNTIME_INFO).code == 0
        assert (
            wire.ask(servers.master.address, 51, {"accessKey": "account-1"}).code
            == wire.NO_PERMISSION
        )
        assert "success" in told(operator, "deleteAclConfig", "-c", "lab", "-a", "account-1")


def test_mqadmin_5_administers_users_and_rights(administered: Administered) -> None:
    if administered.version < "5":
        pytest.skip("4.9.7 has other commands")
    operator = administered.operator
    for where in (("-b", administered.address), ("-c", "lab")):
        told(operator, "createUser", *where, "-u", "clerk", "-p", "marker-secret-1", "-t", "Normal")
        assert "existed" in told(
            operator, "createUser", *where, "-u", "clerk", "-p", "marker-2", "-t", "Normal"
        )
        shown = told(operator, "getUser", *where, "-u", "clerk")
        assert "clerk" in shown
        assert "Normal" in shown
        assert "marker" not in shown
        listed = told(operator, "listUser", *where)
        assert {"clerk", ORDINARY.access_key, INNER.access_key} <= set(listed.split())
        assert "marker" not in listed
        told(operator, "updateUser", *where, "-u", "clerk", "-s", "disable")
        assert "disable" in told(operator, "getUser", *where, "-u", "clerk")
        told(operator, "createAcl", *where, "-s", "User:clerk", "-r", "Topic:a,Group:g*", "-a", "Pub,Sub", "-i",
             "10.0.0.0/8", "-d", "Allow")  # fmt: skip
        shown = told(operator, "getAcl", *where, "-s", "User:clerk")
        for text in ("User:clerk", "Topic:a", "Group:g*", "10.0.0.0/8", "Allow"):
            assert text in shown
        told(
            operator,
            "updateAcl",
            *where,
            "-s",
            "User:clerk",
            "-r",
            "Topic:a",
            "-a",
            "Pub",
            "-d",
            "Deny",
        )
        assert "Deny" in told(operator, "listAcl", *where, "-s", "clerk")
        told(operator, "deleteAcl", *where, "-s", "User:clerk", "-r", "Topic:a")
        assert "Topic:a" not in told(operator, "getAcl", *where, "-s", "User:clerk")
        told(operator, "deleteUser", *where, "-u", "clerk")
        assert "clerk" not in told(operator, "listUser", *where)


def test_no_secret_is_in_a_log(secured: SecuredOurs) -> None:
    logs = list(secured.master.home.parent.glob("*/out.log"))
    assert len(logs) == 2
    text = "".join(path.read_text() for path in logs)
    for secret in (INNER.secret_key, ORDINARY.secret_key, "marker"):
        assert secret not in text
