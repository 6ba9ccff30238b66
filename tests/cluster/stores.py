"""Pairs with small files, whose logs are damaged or lose power."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from tests.support.faulty_disk import FaultyDisk
from tests.support.pair import Pair, pair_of

from rocketrio_broker.store.config import StoreConfig

KEYED: Final = "KEYS\x01{}\x02TAGS\x01k"
STORE: Final = StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=20,
    max_index_num=100,
)
UNFLUSHED: Final = StoreConfig(
    flush_interval_commit_log=3600,
    mapped_file_size_commit_log=16_384,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=20,
    max_index_num=100,
)
"""Nothing is flushed but when files end and on a clean stop: a power cut loses much."""
MONEY: Final[dict[str, Any]] = {"role": "sync-master", "ha_acknowledge": "disk"}


def keyed_pair(slaves: int = 1, **settings: Any) -> AbstractAsyncContextManager[Pair]:
    """Messages have keys, so that a torn end lies in their properties."""
    return pair_of(slaves, properties=KEYED, store=STORE, slave_read_enable=True, **settings)


def unflushed_pair(slaves: int = 1, **settings: Any) -> AbstractAsyncContextManager[Pair]:
    """Disks lose at a power cut what was not synced."""
    settings = {"make_disk": FaultyDisk, **settings}
    return pair_of(slaves, store=UNFLUSHED, slave_read_enable=True, **settings)
