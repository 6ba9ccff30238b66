"""Sorts encoded rows into chunks: each has one topic, one queue (or any), and one kind.

Invariant: rows for a queue keep their order, whatever their kinds; among rows for any queue those of a kind are put
together, so that they share batches.
Invariant: delayed rows, and rows too large for a batch, are chunks of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np

from rocketrio.producing.outgoing import Outgoing
from rocketrio.producing.publish_route import queue_for_key
from rocketrio.spark.errors import RowError
from rocketrio.spark.writing.rows import ALONE, COMPRESSED, Rows
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.record.layout import SysFlag

_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_KINDS: Final = 4  # two bits


@attrs.define(eq=False)
class Chunk:
    """Rows of one backlog and one kind, one after the other; taken rows are removed."""

    sys_flag: int
    data: memoryview
    ends: Any
    """The end of each row in `data`."""
    single: Outgoing | None = None
    """A row that is sent alone; the chunk then has no other rows."""
    start: int = 0
    row: int = 0
    """The next row to take; `start` is where it begins in `data`."""

    @property
    def size(self) -> int:
        """The number of bytes that are left."""
        return len(self.data) - self.start

    def take(self, size: int, count: int) -> tuple[memoryview, int]:
        """Take whole rows, at most `size` bytes and `count` rows; return their bytes and number, which may be 0."""
        limit = int(np.searchsorted(self.ends, self.start + size, side="right"))
        last = min(limit, self.row + count, len(self.ends))
        if last <= self.row:
            return self.data[:0], 0
        end, taken = int(self.ends[last - 1]), last - self.row
        data = self.data[self.start : end]
        self.start, self.row = end, last
        return data, taken


def chunks(
    rows: Rows, queues: Mapping[str, Sequence[MessageQueue]]
) -> Iterator[tuple[str, MessageQueue | None, Chunk]]:
    """Sort the rows by topic, queue and, if the order does not matter, kind; yield them as chunks."""
    count = len(rows)
    if not count:
        return
    places = _queue_places(rows, queues)
    codes = _sort_codes(rows, places)
    if codes is None:
        order = None
        edges = np.array([0, count])
    else:
        order = np.argsort(codes, kind="stable")
        edges = _edges(rows, codes, order)
        if (np.diff(order) == 1).all():
            order = None
    entries = rows.entries if order is None else rows.entries.take(order)
    assert not entries.offset, "each record batch has new entries"
    _, offset_buffer, data_buffer = entries.buffers()
    offsets, data = np.frombuffer(offset_buffer, np.int32), memoryview(data_buffer)
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        row = first if order is None else int(order[first])
        topic = _topic_of(rows, row)
        place = -1 if places is None else int(places[row])
        queue = None if place < 0 else queues[topic][place]
        start = int(offsets[first])
        kind = 0 if rows.kinds is None else int(rows.kinds[row])
        yield (
            topic,
            queue,
            Chunk(
                sys_flag=_COMPRESSED if kind & COMPRESSED else 0,
                data=data[start : int(offsets[last])],
                ends=offsets[first + 1 : last + 1].astype(np.int64) - start,
                single=rows.singles[row] if kind & ALONE else None,
            ),
        )


def _sort_codes(rows: Rows, places: Any) -> Any:
    """Return numbers by which rows are sorted stably, or None if all rows are alike."""
    if rows.topic_places is None and places is None and rows.kinds is None:
        return None
    codes = np.zeros(len(rows), np.int64)
    if rows.topic_places is not None:
        codes += rows.topic_places.astype(np.int64) << 32
    if places is not None:
        codes += (places + 1) * _KINDS
    if rows.kinds is not None:
        # Rows for any queue have no order to keep, so rows of a kind can share batches.
        codes += rows.kinds if places is None else np.where(places < 0, rows.kinds, 0)
    return codes


def _edges(rows: Rows, codes: Any, order: Any) -> Any:
    """Return where chunks begin and end in the sorted rows."""
    is_edge = np.diff(codes[order]) != 0
    if rows.kinds is not None:
        kinds = rows.kinds[order]
        is_edge |= np.diff(kinds) != 0
        is_edge |= (kinds[1:] & ALONE) != 0
    return np.concatenate(([0], np.flatnonzero(is_edge) + 1, [len(order)]))


def _queue_places(rows: Rows, queues: Mapping[str, Sequence[MessageQueue]]) -> Any:
    """Return each row's position in its topic's list of queues, -1 for any; None if all rows may go anywhere."""
    if rows.keys is not None:
        return _by_key(rows, queues)
    if rows.partitions is not None:
        return _by_partition(rows, queues)
    if rows.queue_ids is not None:
        return _by_queue_id(rows, queues)
    return None


def _topic_of(rows: Rows, row: int) -> str:
    return rows.topics[0 if rows.topic_places is None else rows.topic_places[row]]


def _by_key(rows: Rows, queues: Mapping[str, Sequence[MessageQueue]]) -> Any:
    assert rows.keys is not None
    coded = rows.keys.dictionary_encode()
    keys = [key.decode() for key in coded.dictionary.to_pylist()]
    codes = coded.indices.fill_null(-1).to_numpy()
    places = np.full(len(rows), -1, np.int64)
    for place, topic in enumerate(rows.topics):
        queue_places = {queue: index for index, queue in enumerate(queues[topic])}
        by_code = np.array(
            [*(queue_places[queue_for_key(key, queues[topic])] for key in keys), -1], np.int64
        )
        mine = slice(None) if rows.topic_places is None else rows.topic_places == place
        places[mine] = by_code[codes[mine]]
    return places


def _by_partition(rows: Rows, queues: Mapping[str, Sequence[MessageQueue]]) -> Any:
    counts = np.array([len(queues[topic]) for topic in rows.topics])
    most = counts[0] if rows.topic_places is None else counts[rows.topic_places]
    wrong = rows.partitions >= most
    if wrong.any():
        row = int(np.argmax(wrong))
        topic = _topic_of(rows, row)
        raise RowError(
            f"{rows.name_of(row)} names partition {rows.partitions[row]} of topic {topic}, which has"
            f" {len(queues[topic])} queues; drop the column partition to spread rows over them"
        )
    return rows.partitions


def _by_queue_id(rows: Rows, queues: Mapping[str, Sequence[MessageQueue]]) -> Any:
    places = np.full(len(rows), -1, np.int64)
    found: dict[tuple[str, str | None, int], int] = {}
    for row, queue_id in enumerate(rows.queue_ids.tolist()):
        if queue_id < 0:
            continue
        name = None if rows.broker_names is None else rows.broker_names[row]
        wanted = _topic_of(rows, row), name, queue_id
        place = found.get(wanted)
        if place is None:
            place = found[wanted] = _place_of(rows, row, *wanted, queues[wanted[0]])
        places[row] = place
    return places


def _place_of(
    rows: Rows,
    row: int,
    topic: str,
    broker_name: str | None,
    queue_id: int,
    queues: Sequence[MessageQueue],
) -> int:
    fitting = [
        place
        for place, queue in enumerate(queues)
        if queue.queue_id == queue_id and broker_name in (None, queue.broker_name)
    ]
    if len(fitting) == 1:
        return fitting[0]
    where = f" of broker {broker_name}" if broker_name is not None else ""
    if fitting:
        names = ", ".join(queues[place].broker_name for place in fitting)
        raise RowError(
            f"{rows.name_of(row)} names queue {queue_id} of topic {topic}, which several brokers have: {names};"
            " add the column broker_name"
        )
    raise RowError(
        f"{rows.name_of(row)} names queue {queue_id}{where} of topic {topic}, which is not there;"
        " drop the columns queue_id and broker_name to spread rows over all queues"
    )
