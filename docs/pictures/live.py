"""Takes the pictures of a live pair: the screen of `rocketrio top groups` and a board (board.py).

A name server, a master and a slave run as processes, groups that are well and groups that are not read from them, and
Prometheus scrapes them. The screen is what the command printed to a terminal (a pty), as SVG by rich.
"""

import fcntl
import io
import math
import os
import pty
import random
import re
import struct
import sys
import tempfile
import termios
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import trio
from docs.pictures.board import draw_board
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from tests.support.ours import OurBroker, OurNameServer
from tests.support.processes import free_port
from tests.support.prometheus import prometheus

from rocketrio import (
    ClientInstance,
    ConsumeLater,
    Message,
    MessageExt,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)

FOLDER: Final = Path(__file__).parent
BOARD: Final = FOLDER.parents[1] / "monitoring" / "grafana" / "groups.json"
TOPICS: Final = ("orders", "payments")
GROUPS: Final = ("billing", "search", "reports", "mailing", "fraud")
BURST: Final = 10
"""The messages that come together, on average."""
SECONDS: Final = 300.0
"""How long the load runs: rates of a board need minutes, and so does a group that stops and returns."""
SHOWN: Final = 240.0
"""The last seconds, which the board shows: rates need a minute before that."""
WATCHED: Final = 70.0
"""The last seconds, in which `top` watches: its verdicts look at a minute."""
COMMAND: Final = ("top", "groups", "--every", "5")
WIDTH: Final = 112
HEIGHT: Final = 9
"""Of the terminal; the rows of retry topics, the last ones, have no room."""
_HOME: Final = "\x1b[H"
"""Begins each drawing of the screen."""
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""What rich would have readers fetch from another host."""


async def send(client: ClientInstance, topic: str, per_second: float) -> None:
    """Send messages until cancelled: in bursts, at random, and more or fewer of them in each half of a minute."""
    begun = trio.current_time()
    rng = random.Random(topic)
    async with open_producer(client=client) as producer, trio.open_nursery() as nursery:
        while True:
            wave = 1 + 0.4 * math.sin((trio.current_time() - begun) / 60 * math.tau)
            for _ in range(rng.randint(1, 2 * BURST - 1)):
                nursery.start_soon(producer.send, Message(topic, b"x" * 400))
            await trio.sleep(rng.expovariate(per_second / BURST * wave))


async def read(
    client: ClientInstance,
    topic: str,
    group: str,
    *,
    each: float = 0.0,
    fails: bool = False,
    lasts: float = math.inf,
) -> None:
    """Handle messages for some seconds, one at a time if each takes long; a handler that `fails` does so at times."""

    async def handle(message: MessageExt) -> None:
        await trio.sleep(each)
        if fails and message.queue_offset % 50 == 0:
            raise ConsumeLater

    with trio.move_on_after(lasts):
        async with open_consumer(
            topic, group=group, client=client, start_from="earliest", max_reconsume_times=1
        ) as consumer:
            await consumer.run(handle, concurrency=1 if each else 8)


async def load(client: ClientInstance) -> None:
    """Let one group keep up, one be too slow, one stop, one fail at times, and one stop and return."""
    async with open_admin(client=client) as admin:
        for topic in TOPICS:
            await admin.create_topic(topic, queues=4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, client, "orders", 40)
        nursery.start_soon(send, client, "payments", 15)
        nursery.start_soon(partial(read, client, "orders", "billing"))
        nursery.start_soon(partial(read, client, "orders", "search", each=0.2))
        nursery.start_soon(partial(read, client, "orders", "reports", lasts=SECONDS - 150))
        nursery.start_soon(partial(read, client, "payments", "mailing", fails=True))
        await read(client, "payments", "fraud", lasts=SECONDS - 120)
        await trio.sleep(85)
        await read(client, "payments", "fraud", each=0.016)


async def screen_of(name_server: str) -> str:
    """Return what the command shows in a terminal after it has watched."""
    end, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    process = await trio.lowlevel.open_process(
        [Path(sys.executable).with_name("rocketrio"), *COMMAND],
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
        env={**os.environ, "NAMESRV_ADDR": name_server, "TERM": "xterm-256color"},
    )
    seen = b""
    with trio.move_on_after(WATCHED):
        while True:
            await trio.lowlevel.wait_readable(end)
            seen += os.read(end, 65_536)
    process.terminate()
    await process.wait()
    return seen.decode().split(_HOME)[-2]  # The last one may not be whole.


def draw_screen(screen: str, picture: Path) -> None:
    """Draw what a terminal shows."""
    console = Console(width=WIDTH, record=True, file=io.StringIO())
    console.print(Text.from_ansi("\n".join(line.rstrip() for line in screen.splitlines())))
    svg = console.export_svg(
        title=" ".join(("rocketrio", *COMMAND)), theme=MONOKAI, unique_id="top"
    )
    picture.write_text(_FONT.sub("", svg))


async def watch(name_server: str) -> str:
    """Return the screen at the end of the load."""
    async with open_client(name_servers=[name_server]) as client, trio.open_nursery() as nursery:
        nursery.start_soon(load, client)
        await trio.sleep(SECONDS - WATCHED)
        screen = await screen_of(name_server)
        nursery.cancel_scope.cancel()
    return screen


def take_pictures() -> None:
    """Run the pair, and write the pictures."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(folder)
        names = stack.enter_context(OurNameServer(home / "namesrv"))
        names.wait_ready()
        pages = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        for number, page in enumerate(pages):
            broker = OurBroker(
                home / f"broker-{number}",
                names.address,
                role="slave" if number else "async-master",
                broker_id=number,
                settings=(f"metrics_listen={page}",),
            )
            stack.enter_context(broker).wait_ready()
        by = stack.enter_context(prometheus(home, pages))
        draw_screen(trio.run(watch, names.address), FOLDER / "top.svg")
        chosen = {"topic": "|".join(TOPICS), "consumer_group": "|".join(GROUPS)}
        draw_board(BOARD, by.url, SHOWN, FOLDER / "board.png", chosen=chosen)


if __name__ == "__main__":
    take_pictures()
