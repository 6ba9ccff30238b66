"""How far a streaming query is behind, worked out of the progress that Spark reports.

Spark passes no metrics of Python sources on, but it reports the offsets of every source: the lag of a queue is the end
of the queue less the end of the last batch.

    lag = lag_by_queue(query.lastProgress)
    print(sum(lag.values()), max(lag, key=lag.get))
"""

import ast
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
    out is counted as long as it is not passed over. A queue whose end Spark does not report is left out, and has not
    no lag: the first batch after a restart, if it repeats one that was cut off, is reported so.

    PySpark 4.0 and 4.1 report as newest what the batch was to read: the lag is 0 there after every batch.
    """
    lags: dict[MessageQueue, int] = {}
    for source in [] if progress is None else _field(progress, "sources"):
        latest, end = _table(_field(source, "latestOffset")), _table(_field(source, "endOffset"))
        for queue in end.keys() & latest.keys():
            lag = max(0, latest[queue] - end[queue])
            lags[queue] = max(lag, lags.get(queue, 0))
    return lags


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name)


def _table(offset: Any) -> dict[MessageQueue, int]:
    """The queues of an offset that is ours, as text or as dicts; of any other none."""
    try:
        value = _parsed(offset) if isinstance(offset, str) else offset
        if not {"version", "queues"} <= set(_keys(value)):
            return {}
        return parse_offset_table(json.dumps(value), option="the offset")
    except (ValueError, SyntaxError, OptionError):
        return {}


def _parsed(text: str) -> Any:
    """JSON; of PySpark 4.0 and 4.1, what Python prints for the same dicts."""
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def _keys(value: Any) -> Iterator[str]:
    yield from value if isinstance(value, dict) else ()
