"""Epochs that begin in a store, and messages between them."""

from typing import Any

from tests.support.stores import put_of, stored

from rocketrio_broker.store.epochs import Epochs
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.ha.exchange import Epoch


async def begin(store: MessageStore, name: str = "me") -> Epochs:
    await store.epochs.begin(new_name=lambda: name, reports_disk=False)
    return store.epochs


def epoch(store: MessageStore, number: int, **more: Any) -> Epoch:
    values: dict[str, Any] = {"member": "me", "mode": "sync", **more}
    return Epoch(number=number, id=f"id{number}", start=store.max_physical_offset, **values)


def fill(store: MessageStore, count: int = 3) -> None:
    for _ in range(count):
        stored(store.append(put_of(b"x" * 100)))
