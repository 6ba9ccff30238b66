"""Progress of the delay levels: its file, and what slaves get of it."""

from tests.broker.builders import config_file, read

from rocketrio_broker.offsets.delayed import DelayOffsets
from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies.offsets import DelayOffsetWrapper


def offsets_of(file: ConfigFile, log_end: int = 900) -> DelayOffsets:
    return DelayOffsets(file, log_end=lambda: log_end)


def test_levels_are_written_in_order_and_read_again() -> None:
    disk = MemoryDisk()
    file = config_file("delayOffset.json", disk)
    offsets = offsets_of(file)
    offsets.begin()
    assert not offsets.has_unwritten
    offsets.advance(3, 4, 1000)
    offsets.advance(1, 7, 1100)
    assert offsets.has_unwritten
    wrapper, log_end, change_count = offsets.snapshot()
    assert log_end == 1100
    offsets.write(wrapper, change_count)
    assert not offsets.has_unwritten
    assert read(disk, file.path) == b'{\n\t"offsetTable":{1:7,3:4\n\t}\n}'
    again = offsets_of(file)
    again.begin()
    assert again.offset_table == {1: 7, 3: 4}
    assert again.log_end == 900


def test_what_came_while_a_snapshot_was_written_is_still_to_be_written() -> None:
    offsets = offsets_of(config_file("delayOffset.json"))
    offsets.begin()
    offsets.advance(1, 1, 1000)
    wrapper, _, change_count = offsets.snapshot()
    offsets.advance(1, 2, 1100)
    assert wrapper.offset_table == {1: 1}
    offsets.write(wrapper, change_count)
    assert offsets.has_unwritten


def test_apache_s_5_x_file_is_read() -> None:
    file = config_file("delayOffset.json")
    file.write_bytes(
        b'{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":17\n\t},'
        b'\n\t"offsetTable":{1:12,17:3\n\t}\n}'
    )
    offsets = offsets_of(file)
    offsets.begin()
    assert offsets.offset_table == {1: 12, 17: 3}


def test_slaves_get_current_progress_or_else_that_of_the_file() -> None:
    file = config_file("delayOffset.json")
    file.write(DelayOffsetWrapper({1: 5}))
    offsets = offsets_of(file)
    assert offsets.answer() == (DelayOffsetWrapper({1: 5}), 900)
    offsets.begin()
    offsets.advance(1, 6, 950)
    assert offsets.answer() == (DelayOffsetWrapper({1: 6}), 950)
    offsets.end()
    file.write(DelayOffsetWrapper({1: 8}))
    assert offsets.answer() == (DelayOffsetWrapper({1: 8}), 900)
