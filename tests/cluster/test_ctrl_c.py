"""Ctrl-C at every line of rocketrio that a small program comes through: it ends in KeyboardInterrupt, and soon.

Each line gets one before it is run for the first and for the last time. Where that tears a wait in two, trio wakes a
task that has ended, which it calls an internal error, or no task is left to end one that shields itself.
"""

import faulthandler
import gc
import linecache
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import pytest
import trio

from rocketrio import Message, MessageExt, open_admin, open_client, open_consumer, open_producer
from rocketrio_broker.embedded import EmbeddedCluster

ROOT = Path(__file__).parents[2]
TOPIC = "orders"
GENERATIONS = 3
"""Collections in a row: what one of them ends may let go of more."""
TOO_LONG = 120.0
"""Seconds; what is asked to wait until all is done waits twice as long."""

Trace = Callable[[FrameType, str, Any], object]

pytestmark = [
    pytest.mark.slow,
    # What was being made or handed on is left to the garbage collector, as in any program; `nothing_left` calls it.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


async def program() -> None:
    """Sends, receives, and has handlers run, over sockets."""
    async with (
        EmbeddedCluster(network="loopback") as cluster,
        open_client(name_servers=cluster.name_servers) as client,
    ):
        async with open_admin(client=client) as admin:
            await admin.create_topic(TOPIC, queues=2)
        async with open_producer(client=client) as producer:
            for number in range(6):
                await producer.send(Message(TOPIC, b"%d" % number))
        handled = trio.Event()

        async def handle(message: MessageExt) -> None:
            await trio.lowlevel.checkpoint()
            handled.set()

        async with (
            open_consumer(TOPIC, group="g", client=client, start_from="earliest") as consumer,
            trio.open_nursery() as nursery,
        ):
            await consumer.receive()
            await consumer.receive_batch(2)

            async def run() -> None:
                await consumer.run(handle, concurrency=2, drain_timeout=2 * TOO_LONG)

            nursery.start_soon(run)
            await handled.wait()
            nursery.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def pythons_own_handler() -> Iterator[None]:
    """Trio handles Ctrl-C only in the place of Python's handler, and a Spark session of this process leaves its own."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Collect the sockets that were not closed while their warning is awaited: it would fail a later test."""
    yield
    for _ in range(GENERATIONS):
        gc.collect()


@attrs.frozen
class Place:
    """A line of rocketrio."""

    path: str
    line: int

    @property
    def is_between(self) -> bool:
        """Whether a block may end here: a trace comes between its last line and its end, a signal does not."""
        text = linecache.getline(self.path, self.line).strip()
        return text.startswith(("with ", "async with ", "yield"))


class CtrlC:
    """Counts how often each line under some path is run; Ctrl-C comes just before one of them, if it is chosen."""

    def __init__(self, part: str, chosen: tuple[Place, int] | None = None) -> None:
        self.counts: Counter[Place] = Counter()
        self.has_come = False
        self._path = str(ROOT / part)
        self._chosen = chosen

    def _called(self, frame: FrameType, event: str, arg: Any) -> Trace | None:
        code = frame.f_code
        # Generators run also when they are thrown away, where nothing can be raised.
        if code.co_flags & CO_GENERATOR or not code.co_filename.startswith(self._path):
            return None
        return self._at_line

    def _at_line(self, frame: FrameType, event: str, arg: Any) -> Trace:
        place = Place(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not place.is_between:
            self.counts[place] += 1
            if (place, self.counts[place]) == self._chosen:
                self.has_come = True
                signal.raise_signal(signal.SIGINT)
        return self._at_line

    def run(self) -> None:
        faulthandler.dump_traceback_later(TOO_LONG, exit=True)
        sys.settrace(self._called)
        try:
            trio.run(program)
        finally:
            sys.settrace(None)
            faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("protocol/rocketrio_protocol/remoting/channel.py", marks=pytest.mark.long),
        pytest.param("protocol/rocketrio_protocol/remoting/reactor.py", marks=pytest.mark.long),
        "broker/rocketrio_broker/waiting/watermark.py",
        pytest.param("client/rocketrio/consuming/running.py", marks=pytest.mark.long),
        pytest.param("client/rocketrio/consuming/hand_out.py", marks=pytest.mark.long),
    ],
)
def test_ctrl_c_at_any_line_ends_the_program_at_once(part: str) -> None:
    undisturbed = CtrlC(part)
    undisturbed.run()
    assert undisturbed.counts
    for place, count in undisturbed.counts.items():
        for number in {1, count}:
            ctrl_c = CtrlC(part, chosen=(place, number))
            try:
                ctrl_c.run()
            except KeyboardInterrupt:
                assert ctrl_c.has_come
            except trio.TrioInternalError as error:
                error.add_note(f"Ctrl-C came at {place}, the {number}. time of {count}")
                raise
            else:
                assert not ctrl_c.has_come, f"lost at {place}"


def test_ctrl_c_that_was_not_heard_yet_ends_the_opening_of_a_client() -> None:
    @trio.lowlevel.enable_ki_protection
    def press() -> None:
        signal.raise_signal(signal.SIGINT)

    async def opening() -> None:
        press()
        async with open_client(name_servers=["127.0.0.1:9"]):
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(opening)
