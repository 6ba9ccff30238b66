"""A master alone, without a slave and without a client of either product: the load generator sends to both in turn.

One connection with 64 sends in flight; CPU is the master's.
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import trio
from load_generator import LoadGenerator, load_generator, send_frame
from tests.interop.jars import apache_jars

from peers.clusters import APACHE_VERSION, Member, apache_master, our_master
from peers.figures import CpuMeter, Goal, Run, alternate, tell_rates
from peers.our_client import QUEUES
from peers.sides import Scale
from rocketrio import open_client
from rocketrio.admin.admin import open_admin

SIZE = 128
IN_FLIGHT = 64
TOPIC = "alone"
WARM_UPS = 4
"""Times as many rounds: JIT compilers need some 100,000 sends."""
TIMES = 4
"""As many sends as where a client takes part, which are the slower part there."""
CPU_HOLD_US, CPU_AIM_US = 15, 10


def measure(scale: Scale) -> None:
    """Sends a second, and what each costs. Raises UnavailableError, NoCompilerError."""
    apache_jars(APACHE_VERSION)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-alone-")))
        generator = stack.enter_context(load_generator())
        masters = {
            "ours": stack.enter_context(our_master(folder / "ours")),
            "theirs": stack.enter_context(apache_master(folder / "apache")),
        }
        for name_server, _ in masters.values():
            trio.run(_create_topic, name_server.address)
        count = TIMES * scale.singles
        work = {side: _sends(generator, master, count) for side, (_, master) in masters.items()}
        runs = alternate(scale.rounds, work, warm_up=WARM_UPS * scale.warm_up)
    tell_rates(
        "master_alone", runs["ours"], runs["theirs"], goal=Goal(1, 1.5),
        body=SIZE, hold_cpu_us=CPU_HOLD_US, aim_cpu_us=CPU_AIM_US,
    )  # fmt: skip


def _sends(generator: LoadGenerator, master: Member, count: int) -> Callable[[], Run]:
    frame = send_frame(SIZE, topic=TOPIC)

    def run() -> Run:
        meter = CpuMeter({"master": [master.pid]})
        load = generator.run(master.address, frame, count=count, in_flight=IN_FLIGHT)
        if load.failed:
            raise SystemExit(f"{load.failed} of {load.requests} sends to {master.address} failed")
        return Run(load.requests, load.seconds, meter.used())

    return run


async def _create_topic(name_server: str) -> None:
    async with (
        open_client(name_servers=[name_server]) as client,
        open_admin(client=client) as admin,
    ):
        await admin.create_topic(TOPIC, queues=QUEUES)
