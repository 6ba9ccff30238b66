from tests.broker.parts import config_file

from rocketrio_broker.kv_config import KVConfigManager
from rocketrio_broker.store.memory_disk import MemoryDisk


def test_values_survive_a_restart() -> None:
    disk = MemoryDisk()
    first = KVConfigManager(file=config_file("kvConfig.json", disk))
    first.put("N", "k", "v")
    first.put("N", "gone", "v")
    first.delete("N", "gone")
    again = KVConfigManager(file=config_file("kvConfig.json", disk))
    again.load()
    assert again.value("N", "k") == "v"
    assert again.value("N", "gone") is None
    assert again.namespace("N") == {"k": "v"}


def test_what_was_never_put_is_not_there() -> None:
    table = KVConfigManager()
    table.load()
    table.delete("N", "k")
    assert table.value("N", "k") is None
    assert table.namespace("N") is None
