"""The standings of all brokers, as each event changes them: who reigns, and what the parts of a broker allow then."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.histories.events import Stood, now
from tests.cluster.histories.world import World

from rocketrio_broker.role.standing import Event
from rocketrio_broker.role.switchboard import Switchboard


@contextmanager
def note_standings(world: World) -> Iterator[None]:
    """In this block note each event of a broker's standing, and the reigns that begin and end with it."""
    note = Switchboard.note
    roots = [member.config.data for member in world.cluster.members]

    def noted(
        switchboard: Switchboard, event: Event, reason: str = "", *, other: str | None = None
    ) -> None:
        standing, store = switchboard._standing, switchboard._store
        before, log_end = standing.now, store.max_physical_offset
        note(switchboard, event, reason, other=other)
        if store.directory.root not in roots:
            return  # A rival's.
        broker = world.number_of(store)
        world.history.add(
            Stood(
                at=now(),
                broker=broker,
                event=event.name,
                before=before.name,
                standing=standing.now.name,
                writes=store.writable,
                copies=store.is_slave,
                log_end=log_end,
            )
        )
        world.note_standing(broker, standing, store, event, did_lead=before.label == "leads")

    Switchboard.note = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Switchboard.note = note  # type: ignore[method-assign]
