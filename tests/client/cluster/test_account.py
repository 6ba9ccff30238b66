"""The credentials of a client, and what happens when a server refuses them (`cluster/account.py`)."""

import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from tests.support.clients import open_admin, open_client, open_consumer, open_producer
from tests.support.private_files import private_file
from tests.support.raw_server import ADDRESS, CLIENT, Answer, RawServer, raw_server, told
from trio.testing import MockClock

from rocketrio import (
    ConfigError,
    Credentials,
    Message,
    NotAuthenticatedError,
    NotAuthorizedError,
    NotReachableError,
    SendStatus,
)
from rocketrio.cluster.account import (
    CREDENTIALS_INTERVAL,
    PROVIDER_TIMEOUT,
    file_provider,
    given_credentials,
)
from rocketrio_protocol.errors import AccessRefusedError, NoPermissionError
from rocketrio_protocol.message import MessageQueue

OLD, NEW = Credentials("someone", "old-secret"), Credentials("someone", "new-secret")
OTHER = Credentials("another", "old-secret")
SENT = {"msgId": "0A00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "5"}
QUEUE = MessageQueue("orders", "broker-a", 0)
SEND, PULL, HEARTBEAT = 310, 11, 34

NO_KEY = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, org.apache.rocketmq.acl.plain"
WRONG_4 = "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=someone, org.apache"
NO_RIGHT_4 = "org.apache.rocketmq.acl.common.AclException: No default permission for topic:orders, org.apache"
WRONG_5 = "check signature failed."
NO_RIGHT_5 = (
    "User:someone has no permission to access Topic:orders from 10.0.0.100, no matched policies."
)


@attrs.define
class Asked:
    """A provider that counts its calls."""

    answers: list[Credentials]
    count: int = 0

    async def __call__(self) -> Credentials:
        self.count += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def accepting(account: str, answer: Answer, code: int = 16, remark: str = WRONG_5) -> Answer:
    """Answer requests of one account, and refuse others."""

    def judged(request: dict[str, Any]) -> bytes:
        is_account = (request["extFields"] or {}).get("AccessKey") == account
        return answer(request) if is_account else told(code, remark=remark)(request)

    return judged


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with raw_server() as running:
        yield running


def at(server: RawServer, **options: Any) -> dict[str, Any]:
    return {"name_servers": [ADDRESS], "dial": server.network.host(CLIENT).dial, **options}


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("code", "remark", "kind"),
    [
        (1, NO_KEY, NotAuthenticatedError),
        (1, WRONG_4, NotAuthenticatedError),
        (1, NO_RIGHT_4, NotAuthorizedError),
        (16, WRONG_5, NotAuthenticatedError),
        (16, "User:someone is not found.", NotAuthenticatedError),
        (16, "User:someone is disabled.", NotAuthenticatedError),
        (16, NO_RIGHT_5, NotAuthorizedError),
    ],
)
async def test_refused_send_is_raised_at_once_and_names_account_server_and_topic(
    server: RawServer,
    code: int,
    remark: str,
    kind: type[AccessRefusedError],
    autojump_clock: MockClock,
) -> None:
    server.answers[SEND] = [told(code, remark=remark)]
    async with open_producer(**at(server, credentials=OLD)) as producer:
        started = trio.current_time()
        with pytest.raises(kind) as caught:
            await producer.send(Message("orders", b"1"))
        assert trio.current_time() == started
    for named in ("someone", ADDRESS, "orders", remark):
        assert named in str(caught.value)
    assert caught.value.topic == "orders"
    assert "old-secret" not in str(caught.value)
    assert len(server.of(SEND)) == 1
    assert len(server.of(105)) == 1  # No name server is asked again.
    assert not caught.value.retryable


async def test_refusal_without_credentials_reports_that_none_were_given(server: RawServer) -> None:
    server.answers[SEND] = [told(1, remark=NO_KEY)]
    async with open_producer(**at(server)) as producer:
        with pytest.raises(NotAuthenticatedError, match="this client, which has no credentials"):
            await producer.send(Message("orders", b"1"))


async def test_read_only_topic_is_no_refusal_of_the_account(server: RawServer) -> None:
    server.answers[SEND] = [told(16, remark="the broker's permission is read only")]
    async with open_producer(**at(server, credentials=OLD), retries=0) as producer:
        with pytest.raises(NoPermissionError):
            await producer.send(Message("orders", b"1"))


async def test_name_server_that_refuses_is_not_followed_by_another(server: RawServer) -> None:
    second = "10.0.0.2:9876"
    server.answers[105] = [told(16, remark=WRONG_5)]
    async with open_producer(
        **at(server, credentials=OLD) | {"name_servers": [ADDRESS, second]}
    ) as producer:
        for _ in range(2):
            with pytest.raises(NotAuthenticatedError, match=ADDRESS):
                await producer.send(Message("orders", b"1"))


async def test_consumer_with_a_denied_topic_is_not_opened_and_the_error_names_the_topic(
    server: RawServer, autojump_clock: MockClock
) -> None:
    server.answers[HEARTBEAT] = [told(16, remark=NO_RIGHT_5.replace("orders", "invoices"))]
    with pytest.raises(NotAuthorizedError, match=r"HEART_BEAT.*someone.*Topic:invoices") as caught:
        async with open_consumer(["orders", "invoices"], group="g", **at(server, credentials=OLD)):
            raise AssertionError("It was opened")
    assert caught.value.topic == "invoices"


async def test_consumer_ends_when_a_pull_is_refused(
    server: RawServer, autojump_clock: MockClock
) -> None:
    server.answers[14] = [told(fields={"offset": "0"})]
    server.answers[PULL] = [told(16, remark=NO_RIGHT_5)]
    other = MessageQueue("orders", "broker-a", 1)

    async def consume() -> None:
        async with open_consumer(
            "orders", group="g", queues=[QUEUE, other], **at(server, credentials=OLD)
        ) as consumer:
            async for _ in consumer:
                pass

    started = trio.current_time()
    with pytest.raises(NotAuthorizedError, match=r"PULL_MESSAGE.*someone.*orders"):
        await consume()
    assert 1 <= len(server.of(PULL)) <= 2  # One error, even if both queues were refused at once.
    assert trio.current_time() - started < 1


async def test_admin_names_the_request_that_was_refused(server: RawServer) -> None:
    server.answers[106] = [told(16, remark=WRONG_5)]
    async with open_admin(**at(server, credentials=OLD)) as admin:
        with pytest.raises(NotAuthenticatedError, match="GET_BROKER_CLUSTER_INFO"):
            await admin.cluster_info()


# ------------------------------------------------------------------------------------- providers


async def test_refused_request_is_repeated_once_with_the_providers_other_credentials(
    server: RawServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.answers[SEND] = [accepting("another", told(fields=SENT))]
    provider = Asked([OLD, OTHER])
    async with open_producer(**at(server, credentials=provider)) as producer:
        assert (await producer.send(Message("orders", b"1"))).status is SendStatus.SEND_OK
        first, second = server.of(SEND)
        assert first[0]["extFields"]["AccessKey"] == "someone"
        assert second[0]["extFields"]["AccessKey"] == "another"
        assert first[0]["opaque"] != second[0]["opaque"]
        await producer.send(Message("orders", b"2"))
    assert provider.count == 2
    assert "credentials renewed access_key=another" in caplog.text
    assert "secret" not in caplog.text


async def test_new_secret_of_the_same_account_is_new_credentials(server: RawServer) -> None:
    server.answers[SEND] = [told(16, remark=WRONG_5), told(fields=SENT)]
    async with open_producer(**at(server, credentials=Asked([OLD, NEW]))) as producer:
        await producer.send(Message("orders", b"1"))
    first, second = (header["extFields"]["Signature"] for header, _ in server.of(SEND))
    assert first != second


async def test_refusal_is_raised_if_the_other_credentials_are_refused_too(
    server: RawServer,
) -> None:
    server.answers[SEND] = [told(16, remark=WRONG_5)]
    async with open_producer(**at(server, credentials=Asked([OLD, OTHER, NEW]))) as producer:
        with pytest.raises(NotAuthenticatedError, match="account another"):
            await producer.send(Message("orders", b"1"))
    assert len(server.of(SEND)) == 2


async def test_many_refusals_at_once_ask_the_provider_once(
    server: RawServer, autojump_clock: MockClock
) -> None:
    server.answers[SEND] = [accepting("another", told(fields=SENT))]
    provider = Asked([OLD, OTHER])
    async with (
        open_producer(**at(server, credentials=provider)) as producer,
        trio.open_nursery() as nursery,
    ):
        for _ in range(20):
            nursery.start_soon(producer.send, Message("orders", b"1"))
    assert provider.count == 2


async def test_provider_without_new_credentials_is_asked_at_most_once_a_second(
    server: RawServer, autojump_clock: MockClock
) -> None:
    server.answers[SEND] = [told(16, remark=NO_RIGHT_5)]
    provider = Asked([OLD])
    async with open_producer(**at(server, credentials=provider)) as producer:
        for _ in range(10):
            with pytest.raises(NotAuthorizedError):
                await producer.send(Message("orders", b"1"))
        assert provider.count == 2
        await trio.sleep(1)
        with pytest.raises(NotAuthorizedError):
            await producer.send(Message("orders", b"1"))
    assert provider.count == 3
    assert len(server.of(SEND)) == 11


async def test_provider_is_asked_every_five_minutes(
    server: RawServer, autojump_clock: MockClock
) -> None:
    provider = Asked([OLD, NEW, OTHER])
    async with open_client(**at(server, credentials=provider)) as client:
        assert client.account.credentials == OLD
        await trio.sleep(CREDENTIALS_INTERVAL + 1)
        assert client.account.credentials == NEW
        await trio.sleep(CREDENTIALS_INTERVAL)
        assert client.account.credentials == OTHER
    assert provider.count == 3


async def test_provider_that_fails_later_leaves_the_credentials_as_they_are(
    server: RawServer, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    async def provider() -> Credentials:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ValueError("old-secret")
        if calls == 3:
            await trio.sleep_forever()
        return OLD if calls == 1 else NEW

    async with open_client(**at(server, credentials=provider)) as client:
        await trio.sleep(CREDENTIALS_INTERVAL + 1)
        assert client.account.credentials == OLD
        await trio.sleep(CREDENTIALS_INTERVAL + PROVIDER_TIMEOUT)
        assert client.account.credentials == OLD
        await trio.sleep(CREDENTIALS_INTERVAL)
        assert client.account.credentials == NEW
    assert "credentials not renewed error=ValueError" in caplog.text
    assert f"did not return within {PROVIDER_TIMEOUT:g} s" in caplog.text
    assert "secret" not in caplog.text


async def test_provider_that_fails_at_first_keeps_the_client_from_opening(
    server: RawServer, autojump_clock: MockClock
) -> None:
    async def fails() -> Credentials:
        raise OSError("no vault")

    async def hangs() -> Credentials:
        await trio.sleep_forever()
        raise AssertionError

    async def wrong() -> Any:
        return {"access_key": "a", "secret_key": "old-secret"}

    for provider, kind, problem in (
        (fails, OSError, "no vault"),
        (hangs, ConfigError, "did not return within"),
        (wrong, ConfigError, "returned dict, not Credentials"),
    ):
        with pytest.raises(kind, match=problem) as caught:
            async with open_client(**at(server, credentials=provider)):
                raise AssertionError("It was opened")
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("is_lambda", [False, True])
async def test_plain_function_runs_in_a_worker_thread(server: RawServer, is_lambda: bool) -> None:
    threads: list[threading.Thread] = []

    def provider() -> Credentials:
        threads.append(threading.current_thread())
        return OLD

    async def later() -> Credentials:
        return provider()

    given: Callable[[], Credentials | Awaitable[Credentials]] = provider
    if is_lambda:  # Only a call shows that it is async.
        given = lambda: later()  # noqa: E731
    async with open_client(**at(server, credentials=given)) as client:
        assert client.account.credentials == OLD
    assert (threads[0] is threading.main_thread()) is is_lambda


async def test_hung_provider_does_not_hold_a_refusal_back_for_longer_than_the_call(
    server: RawServer, autojump_clock: MockClock
) -> None:
    server.answers[SEND] = [told(16, remark=NO_RIGHT_5)]
    is_first = True

    async def provider() -> Credentials:
        nonlocal is_first
        if not is_first:
            await trio.sleep_forever()
        is_first = False
        return OLD

    async with open_producer(**at(server, credentials=provider)) as producer:
        started = trio.current_time()
        with pytest.raises(NotAuthorizedError):
            await producer.send(Message("orders", b"1"), timeout=2)
        assert trio.current_time() - started <= 2


async def test_lost_connection_in_the_repetition_is_raised_as_such(
    server: RawServer, autojump_clock: MockClock
) -> None:
    server.answers[SEND] = [told(16, remark=WRONG_5), lambda request: b""]
    async with open_producer(
        **at(server, credentials=Asked([OLD, NEW])), retries=0, timeout=1
    ) as producer:
        with pytest.raises(NotReachableError):
            await producer.send(Message("orders", b"1"))


# ----------------------------------------------------------------------------------- environment


def test_environment_gives_the_credentials(tmp_path: Path) -> None:
    assert given_credentials(None, {}) is None
    assert given_credentials(
        None, {"ROCKETRIO_ACCESS_KEY": "a", "ROCKETRIO_SECRET_KEY": "b"}
    ) == Credentials("a", "b")
    keys = {
        "ROCKETRIO_ACCESS_KEY": "a",
        "ROCKETRIO_SECRET_KEY": "b",
        "ROCKETRIO_SECURITY_TOKEN": "c",
    }
    assert given_credentials(None, keys) == Credentials("a", "b", "c")
    assert given_credentials(OLD, keys) is OLD
    path = private_file(tmp_path / "tools.yml", "accessKey: a\nsecretKey: b\n")
    provider = given_credentials(None, {"ROCKETRIO_CREDENTIALS_FILE": str(path)})
    assert callable(provider)
    assert provider() == Credentials("a", "b")
    path.write_text("accessKey: a\nsecretKey: c\n")
    assert provider() == file_provider(str(path))() == Credentials("a", "c")


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"ROCKETRIO_ACCESS_KEY": "a"}, "set ROCKETRIO_SECRET_KEY too"),
        ({"ROCKETRIO_SECRET_KEY": "marker"}, "set ROCKETRIO_ACCESS_KEY too"),
        (
            {"ROCKETRIO_CREDENTIALS_FILE": "f", "ROCKETRIO_SECRET_KEY": "marker"},
            "both ROCKETRIO_CREDENTIALS_FILE and a key",
        ),
    ],
)
def test_environment_with_half_an_account_is_refused(environ: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        given_credentials(None, environ)
    assert "marker" not in str(caught.value)


@pytest.mark.parametrize("wrong", [("a", "marker"), {"secret_key": "marker"}, "marker", True])
def test_wrong_argument_is_refused_and_not_shown(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"Credentials\(access_key, secret_key\)") as caught:
        given_credentials(wrong, {})
    assert "marker" not in str(caught.value)
