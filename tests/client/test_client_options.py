"""What must say an option of the client a second time, and is compared with its declaration, the opener's signature.

Type checkers need `ClientOptions`; the documentation has a table of limits, and docstrings name some of the numbers.
"""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack, get_type_hints

import attrs
import pytest

from rocketrio import (
    Consumer,
    Prefetch,
    Producer,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio.connect import ClientOptions
from rocketrio.limits import ADMIN_TIMEOUT, API_TIMEOUT
from rocketrio.producing.pipeline import BATCH_MAX_MESSAGES

GUIDE = Path(__file__).parents[2] / "docs" / "client.md"
PREFETCH = Prefetch()


def default(function: Callable[..., object], name: str) -> Any:
    return inspect.signature(function).parameters[name].default


def kib(size: int) -> str:
    return f"{size // 1024} KiB" if size < 1 << 20 else f"{size >> 20} MiB"


QUEUE_LIMITS = f"{PREFETCH.queue_messages:,} messages or {kib(PREFETCH.queue_bytes)}"
INTERVAL = default(open_client, "heartbeat_broker_interval")
LIMITS = {
    "a send, with its retries": f"{default(open_producer, 'timeout'):g} s, {default(open_producer, 'retries')} retries",
    "body, batch": kib(default(open_producer, "max_message_size")),
    "compression": f"over {kib(default(open_producer, 'compress_over'))} (not in batches)",
    "pipeline: waiting messages; batch": f"{default(Producer.pipeline, 'pending_limit'):,};"
    f" {kib(default(Producer.pipeline, 'batch_size'))} or {BATCH_MAX_MESSAGES:,} messages",
    "pulled ahead per queue": f"{QUEUE_LIMITS}, plus one pull",
    "pulled ahead by a consumer": f"{kib(PREFETCH.total_bytes)} over all queues, plus one large message a queue",
    "handlers at once; time to finish at the end; time for one message": f"{default(Consumer.run, 'concurrency')};"
    f" {default(Consumer.run, 'drain_timeout'):g} s; {default(Consumer.run, 'handler_timeout') / 60:g} min",
    "one pull": f"{PREFETCH.batch_size:,} messages, 1 MiB; brokers give 32 and 256 KiB by default",
    "request headers": default(open_client, "serialize_type").name,
    "heartbeats, routes": f"{INTERVAL:g} s",
}  # fmt: skip
ARGUMENTS = {
    *(field.name for field in attrs.fields(Prefetch)),
    *(
        name
        for function in (open_client, open_consumer, open_producer, Producer.pipeline, Consumer.run)
        for name in inspect.signature(function).parameters
    ),
}


def test_typed_options_are_the_arguments_of_open_client() -> None:
    arguments = get_type_hints(open_client)
    del arguments["return"]
    assert list(get_type_hints(ClientOptions).items()) == list(arguments.items())


@pytest.mark.parametrize("opener", [open_consumer, open_producer, open_admin])
def test_openers_take_the_options_of_a_client(opener: Callable[..., object]) -> None:
    assert get_type_hints(opener)["client_options"] == Unpack[ClientOptions]


def test_limits_in_the_documentation_are_the_defaults() -> None:
    section = GUIDE.read_text().partition("\n## Limits\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*)\|$", section, re.MULTILINE)[1:]
    changed = {what: where for what, _, where in rows if where}
    assert {what: default for what, default, _ in rows if what in changed} == LIMITS
    assert set(re.findall(r"(\w+)=", " ".join(changed.values()))) <= ARGUMENTS
    assert default(open_client, "poll_name_server_interval") == INTERVAL


def test_docstrings_name_the_limits() -> None:
    text = " ".join((open_consumer.__doc__ or "").split())
    assert f"{QUEUE_LIMITS} for a queue and {kib(PREFETCH.total_bytes)} over all queues" in text
    text = " ".join((open_client.__doc__ or "").split())
    assert f"the {API_TIMEOUT:g} seconds ({ADMIN_TIMEOUT:g} for administration)" in text
