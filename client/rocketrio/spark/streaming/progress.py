"""How far a streaming query is behind, worked out of the progress that Spark reports.

Spark passes no metrics of Python sources on, but it reports the offsets of every source: the lag of a queue is the end
of the queue less the end of the last batch.

    lag = lag_by_queue(query.lastProgress)
    print(sum(lag.values()), max(lag, key=lag.get))
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.offsets import parse_offset_table
from rocketrio_protocol.message import MessageQueue


def lag_by_queue(progress: Any) -> dict[MessageQueue, int]:
    """Messages that were stored and not read yet when the progress was made, by queue.

    `progress` is what `query.lastProgress` or an element of `query.recentProgress` is, what a StreamingQueryListener
    gets as `event.progress`, or its JSON as dicts; None, as before the first batch, has no queues. Sources of other
    kinds are left out; of two sources that read one queue the slower one counts. What a tag or an expression filters
    out is counted as long as it is not passed over.
    """
    lags: dict[MessageQueue, int] = {}
    for source in [] if progress is None else _field(progress, "sources"):
        latest, end = _table(_field(source, "latestOffset")), _table(_field(source, "endOffset"))
        for queue, offset in end.items():
            lag = max(0, latest.get(queue, offset) - offset)
            lags[queue] = max(lag, lags.get(queue, 0))
    return lags


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name)


def _table(offset: Any) -> dict[MessageQueue, int]:
    """The queues of an offset that is ours, as text or as dicts; of any other none."""
    text = offset if isinstance(offset, str) else json.dumps(offset)
    try:
        if not {"version", "queues"} <= set(_keys(json.loads(text))):
            return {}
        return parse_offset_table(text, option="the offset")
    except (ValueError, OptionError):
        return {}


def _keys(value: Any) -> Iterator[str]:
    yield from value if isinstance(value, dict) else ()
