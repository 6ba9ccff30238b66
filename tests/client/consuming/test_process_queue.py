"""Positions of one queue while chunks come and go."""

from tests.client.consuming.pulled import pulled, started

from rocketrio_protocol.record.layout import pack_host

HOST = pack_host("10.0.0.1", 1)


def test_position_follows_what_is_handed_out_not_what_is_pulled() -> None:
    queue = started(5)
    assert queue.put(pulled(5, 6, 7, next_offset=8))
    assert (queue.position, queue.fetch_offset) == (5, 8)
    assert [message.queue_offset for message in queue.take().messages] == [5, 6, 7]
    queue.finish()
    assert queue.position == 8


def test_chunks_are_handed_out_in_order() -> None:
    queue = started()
    queue.put(pulled(0, 1, next_offset=2))
    queue.put(pulled(2, next_offset=3))
    assert queue.message_count == 3
    assert queue.take().next_offset == 2
    queue.finish()
    assert queue.take().next_offset == 3
    assert (queue.message_count, queue.size) == (0, 0)


def test_unwanted_messages_are_passed_at_once_when_nothing_is_in_work() -> None:
    queue = started(5)
    assert not queue.put(pulled(next_offset=50))
    assert (queue.position, queue.done_offset) == (50, 50)


def test_unwanted_messages_are_passed_after_what_lies_before_them() -> None:
    queue = started(5)
    queue.put(pulled(5, next_offset=6))
    queue.put(pulled(next_offset=50))
    assert queue.position == 5
    queue.take()
    queue.put(pulled(next_offset=60))
    queue.finish()
    assert queue.position == 60


def test_message_in_work_holds_back_what_may_be_committed() -> None:
    queue = started(5)
    queue.put(pulled(5, next_offset=6))
    queue.take()
    queue.finish()  # Handed out; `done_offset` is for the consumer to move.
    queue.put(pulled(next_offset=50))
    assert (queue.position, queue.done_offset) == (50, 5)


def test_thresholds_count_messages_and_bytes() -> None:
    by_count = started(threshold_messages=2)
    by_count.put(pulled(0, 1, next_offset=2))
    assert not by_count.has_room
    by_count.take()
    assert by_count.has_room
    by_size = started(threshold_bytes=150)
    by_size.put(pulled(0, next_offset=1))
    assert not by_size.has_room


def test_going_elsewhere_forgets_what_was_pulled() -> None:
    queue = started()
    queue.put(pulled(0, 1, next_offset=2))
    epoch = queue.epoch
    queue.start(40)
    assert (queue.position, queue.fetch_offset, queue.done_offset) == (40, 40, 40)
    assert (queue.message_count, len(queue.chunks)) == (0, 0)
    assert queue.epoch > epoch


def test_dropped_queue_holds_nothing() -> None:
    queue = started()
    queue.put(pulled(0, next_offset=1))
    queue.drop()
    assert queue.is_dropped
    assert not queue.chunks
