"""Arguments of the wrong kind: each is refused by a ConfigError that names it, before anything is opened."""

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.support.orders import send

from rocketrio import (
    ClientInstance,
    ClosedError,
    Message,
    MessageQueue,
    Prefetch,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio.consuming.subscription import parse_subscription
from rocketrio_protocol.errors import ConfigError, LocalProtocolError

QUEUE = MessageQueue("orders", "broker-a", 0)

CONSUMER: list[tuple[str, list[Any]]] = [
    ("topics", [5, None, b"orders", [1], [b"orders"], QUEUE]),
    ("group", [None, 5, b"g", ["g"]]),
    ("tags", [5, True, [1], b"paid", {"orders": 5}]),
    ("where", [5, True, ["a > 1"], b"a > 1", {"orders": 5}]),
    ("queues", [5, "orders", QUEUE, ["orders"], [("orders", "broker-a", 0)]]),
    ("start_from", [0, None, True, ["earliest"], "first", timedelta(1)]),
    ("wait_for_topic", [True, "1", 0, -1, float("nan"), timedelta(seconds=1)]),
    ("mode", [None, True, ["clustering"], "CLUSTERING"]),
    ("orderly", [None, 1, "no"]),
    ("offsets_path", [5, True, b"file", ["file"]]),
    ("ignore_unreadable_offsets", [None, 1, "no"]),
    ("max_reconsume_times", [True, "3", 1.5, -1]),
    ("delay_levels", [5, None, "1s 5s", [1, 5], [], timedelta(1)]),
    ("auto_commit", [None, 0, "no"]),
    ("auto_commit_interval", [None, True, "5", 0, -1, float("nan"), timedelta(seconds=5)]),
    ("prefetch", [None, True, 1000, {"queue_messages": 1000}]),
    ("read_from", [None, True, ["master"], 0]),
    ("max_staleness", [True, "1", 0, timedelta(seconds=1)]),
    ("max_staleness_messages", [True, "1", 1.5, -1]),
    ("strategy", [None, "averagely", 5]),
]
PREFETCH: list[tuple[str, list[Any]]] = [
    ("batch_size", [None, True, "32", 32.0, 0]),
    ("queue_messages", [None, True, "1000", 1e3, 0]),
    ("queue_bytes", [None, True, "1000", 1e6, 0]),
    ("total_bytes", [None, True, "1000", 1e6, 0]),
]
PRODUCER: list[tuple[str, list[Any]]] = [
    ("group", [None, 5, b"g", ["g"]]),
    ("timeout", [None, True, "3", 0, -1, float("nan"), timedelta(seconds=3)]),
    ("retries", [None, True, "2", 2.0, -1]),
    ("max_message_size", [None, True, "4096", 1e6, 0]),
    ("compress_over", [None, True, "4096", 1e6, -1]),
    ("auto_create_topic", [None, 1, "no"]),
    ("avoid_slow_brokers", [None, 1, "no", [0.5]]),
    ("delay_levels", [5, None, "1s 5s", [1, 5], [], timedelta(1)]),
    ("check_transaction", [True, "check", 5]),
]
CLIENT: list[tuple[str, list[Any]]] = [
    ("name_servers", [5, True, b"a:1", ["a:1", 2], {1: 2}]),
    ("client_id", [5, True, b"me"]),
    ("static_grace", [True, "60", 1.5, 0]),
    ("connect_broker_by_user", [None, 1, "no"]),
    ("default_broker_id", [None, True, "1", 1.5, -1]),
    ("poll_name_server_interval", [None, True, "30", 0, timedelta(seconds=30)]),
    ("heartbeat_broker_interval", [None, True, "30", 0, timedelta(seconds=30)]),
    ("serialize_type", [None, "YAML", 5]),
    ("request_timeout", [True, "3", 0, -1, float("nan"), timedelta(seconds=3)]),
    ("namespace", [None, 5, b"ns"]),
    ("trace", [None, 1, 0.5]),
    ("metrics", [None, 1, "no"]),
    ("credentials", [True, "ops", ("ops", "secret")]),
    ("tls", [1, "ca.pem", {"authority_file": "ca.pem"}]),
    ("ssl_context", [True, "ca.pem"]),
]
OPENERS: list[tuple[Callable[..., object], list[tuple[str, list[Any]]]]] = [
    (open_consumer, CONSUMER),
    (open_producer, PRODUCER),
    (open_client, CLIENT),
    (Prefetch, PREFETCH),
]


def cases(table: list[tuple[str, list[Any]]]) -> list[Any]:
    return [
        pytest.param(name, value, id=f"{name}={value!r:.30}")
        for name, values in table
        for value in values
    ]


@pytest.mark.parametrize(("opener", "table"), OPENERS)
def test_tables_have_wrong_values_of_every_argument(
    opener: Callable[..., object], table: list[tuple[str, list[Any]]]
) -> None:
    arguments = set(inspect.signature(opener).parameters)
    assert {name for name, _ in table} == arguments - {"client", "client_options"}


@pytest.mark.parametrize(("name", "value"), cases(CONSUMER))
async def test_consumer_names_the_argument(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"topics": "orders", "group": "g"}
    if name.startswith("max_staleness"):
        arguments["read_from"] = "nearest"
    if name == "offsets_path":
        arguments["mode"] = "broadcasting"
    with pytest.raises(ConfigError, match=name):
        async with open_consumer(**{**arguments, name: value}):
            raise AssertionError("open")


@pytest.mark.parametrize(("name", "value"), cases(PREFETCH))
def test_prefetch_names_the_argument(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        Prefetch(**{name: value})


@pytest.mark.parametrize(("name", "value"), cases(PRODUCER))
async def test_producer_names_the_argument(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        async with open_producer(**{name: value}):
            raise AssertionError("open")


@pytest.mark.parametrize(("name", "value"), cases(CLIENT))
async def test_client_names_the_argument(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        async with open_client(**{name: value}):
            raise AssertionError("open")


@pytest.mark.parametrize("wrong", ["client", 5, open_client])
async def test_client_argument_of_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="client="):
        async with open_consumer("orders", group="g", client=wrong):
            raise AssertionError("open")
    with pytest.raises(ConfigError, match="client="):
        async with open_producer(client=wrong):
            raise AssertionError("open")


RECEIVING: list[tuple[str, list[Any]]] = [
    ("max_messages", [None, True, "5", 5.0, 0, -1]),
    ("max_wait", [None, True, "5", -1, float("nan"), timedelta(seconds=1)]),
]
RUNNING: list[tuple[str, list[Any]]] = [
    ("concurrency", [None, True, "5", 0]),
    ("drain_timeout", [None, True, "5", -1]),
]


async def noop(message: object) -> None:
    raise AssertionError(message)


async def test_receiving_and_running_name_the_argument(client: ClientInstance) -> None:
    await send(client, 1)
    async with open_consumer(group="g", queues=[QUEUE], client=client) as consumer:
        for name, values in RECEIVING:
            for value in values:
                for receive in (consumer.receive_batch, consumer.read_arrow, consumer.read_pandas):
                    with pytest.raises(ConfigError, match=name):
                        await receive(**{name: value})
                with pytest.raises(ConfigError, match=name):
                    consumer.batches(**{name: value})
        for name, values in RUNNING:
            for value in values:
                for run in (consumer.run, consumer.run_batches):
                    with pytest.raises(ConfigError, match=name):
                        await run(noop, **{name: value})


async def test_as_many_as_there_are_may_be_asked_for(client: ClientInstance) -> None:
    await send(client, 3, queues=1)
    async with open_consumer(group="g", queues=[QUEUE], client=client) as consumer:
        assert (await consumer.read_arrow(10**30)).num_rows == 3
        await send(client, 2, start=3, queues=1)
        assert len(await consumer.receive_batch(10**30)) == 2


async def test_numbers_of_numpy_and_lists_of_any_kind_are_taken(client: ClientInstance) -> None:
    await send(client, 1)
    assert parse_subscription(tag for tag in ("a", "b")).tags == {"a", "b"}
    async with open_producer(timeout=np.float64(2.5), retries=np.int64(1), client=client):
        pass
    async with open_consumer(
        {"orders": 1},
        group="g",
        queues=(QUEUE,),
        prefetch=Prefetch(batch_size=np.int32(8)),
        client=client,
    ) as consumer:
        assert consumer.assignment == [QUEUE]


def test_a_list_takes_each_tag_as_it_is() -> None:
    assert parse_subscription(["paid, open"]).tags == {"paid, open"}


@pytest.mark.parametrize("tags", ["a|b", "paid,open", "a b", "'paid'", "a || b c"])
async def test_tags_that_no_message_has_are_refused(client: ClientInstance, tags: str) -> None:
    with pytest.raises(ConfigError, match=r"separated by \|\|"):
        async with open_consumer("orders", group="g", tags=tags, client=client):
            pass


@pytest.mark.parametrize(
    ("opener", "given", "meant"),
    [
        (partial(open_consumer, "orders", group="g"), "nameservers", "name_servers"),
        (partial(open_consumer, "orders", group="g"), "tag", "tags"),
        (open_producer, "time_out", "timeout"),
        (open_admin, "names_servers", "name_servers"),
    ],
)
async def test_unknown_argument_is_an_error_that_suggests_the_right_one(
    opener: Any, given: str, meant: str
) -> None:
    with pytest.raises(ConfigError, match=f"has no argument {given}=; did you mean {meant}="):
        async with opener(**{given: "x"}):
            pass


async def test_send_of_something_else_than_a_message_is_an_error(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        with pytest.raises(ConfigError, match="message must be a Message, not bytes"):
            await producer.send(b"x")  # type: ignore[arg-type]
        with pytest.raises(LocalProtocolError, match=r"tags=\['a'\] must be text"):
            await producer.send(Message("orders", b"x", tags=["a"]))  # type: ignore[arg-type]
        with pytest.raises(LocalProtocolError, match=r"tags=\['a'\] must be text"):
            await producer.send_batch([Message("orders", b"x", tags=["a"])])  # type: ignore[arg-type]
    for send_again in (producer.send(Message("orders", b"")), producer.send_batch([])):
        with pytest.raises(ClosedError, match="the producer of group rocketrio is closed"):
            await send_again


def test_opener_in_plain_asyncio_names_the_bridge() -> None:
    async def main() -> None:
        async with open_producer(name_servers="10.0.0.9:9876"):
            pass

    with pytest.raises(ConfigError, match=r"rocketrio\.aio"):
        asyncio.run(main())
