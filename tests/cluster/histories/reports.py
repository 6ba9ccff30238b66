"""What its slaves reported to a master of their logs, at the moment when it reads that."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.histories.events import Reported, now
from tests.cluster.histories.world import World

from rocketrio_broker.ha.connection import HAConnection
from rocketrio_protocol.remoting.ports import split_addr


@contextmanager
def note_reports(world: World) -> Iterator[None]:
    """In this block note each report of a slave that has more than it reported before on its connection."""
    take_report = HAConnection._take_report
    hosts = [member.host for member in world.cluster.members]

    def noted(connection: HAConnection, offset: int) -> None:
        before = connection.slave_ack_offset
        take_report(connection, offset)
        slave, _ = split_addr(connection.addr)
        is_reader = connection.greeting is not None and connection.greeting.is_reader
        if slave in hosts and not is_reader and connection.slave_ack_offset > before:
            store = connection._store
            world.history.add(
                Reported(
                    at=now(),
                    broker=world.number_of(store),
                    slave=hosts.index(slave),
                    address=connection.slave_ack_offset,
                    end=store.max_physical_offset,
                    flushed=store.flushed.value,
                )
            )

    HAConnection._take_report = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        HAConnection._take_report = take_report  # type: ignore[method-assign]
