"""Brokers as processes that a real Prometheus reads, and a group that uses them."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
from tests.support.ours import OurBroker, OurNameServer
from tests.support.processes import Process, free_port
from tests.support.prometheus import Prometheus, prometheus
from tests.support.waiting import HANGS, eventually

from rocketrio import Message, open_admin, open_client, open_consumer, open_producer


@attrs.frozen
class Watched:
    """Masters that share each topic, and the Prometheus that reads them."""

    name_server: str
    brokers: Sequence[OurBroker]
    pages: Sequence[str]
    by: Prometheus


@contextmanager
def watched_brokers(folder: Path, *names: str, has_exporter: bool = False) -> Iterator[Watched]:
    """Run masters of these names, perhaps an exporter, and Prometheus."""
    *pages, exporter = (f"127.0.0.1:{free_port()}" for _ in range(len(names) + 1))
    with ExitStack() as stack:
        server = stack.enter_context(OurNameServer(folder / "names"))
        brokers = [
            stack.enter_context(
                OurBroker(
                    folder / name, server.address, name=name, settings=(f"metrics_listen={page}",)
                )
            )
            for name, page in zip(names, pages, strict=True)
        ]
        if has_exporter:
            argv = (
                Path(sys.executable).with_name("rocketrio"), "exporter", "--listen", exporter,
                "--namesrv", server.address, "--names", "native,own", "--every", "5s",
            )  # fmt: skip
            stack.callback(Process.start("exporter", argv, log=folder / "exporter.log").kill)
        exporters = [exporter] if has_exporter else []
        by = stack.enter_context(prometheus(folder, pages, exporters))
        yield Watched(server.address, brokers, pages, by)


async def send(name_server: str, count: int) -> None:
    """Send messages to a new topic."""
    async with (
        open_client(name_servers=[name_server]) as client,
        open_admin(client=client) as admin,
        open_producer(client=client) as producer,
    ):
        await admin.create_topic("orders", queues=4)
        for number in range(count):
            await producer.send(Message("orders", b"%d" % number))


async def handle(name_server: str, count: int) -> None:
    """Let a group take some messages and commit them."""
    async with open_consumer(
        "orders", group="billing", start_from="earliest", name_servers=[name_server], auto_commit=False
    ) as consumer:  # fmt: skip

        def is_begun() -> bool:
            queues = consumer.assignment
            return bool(queues) and None not in map(consumer.position, queues)

        # A commit says nothing of a queue whose beginning is not known yet: then the lag is unknown for good.
        await eventually(is_begun, HANGS)
        for _ in range(count):
            await consumer.receive()
        await consumer.commit()
