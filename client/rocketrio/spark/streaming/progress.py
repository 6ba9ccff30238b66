"""Computes how far a streaming query is behind, from the progress that Spark reports.

Spark does not pass on metrics of Python sources, but it reports the offsets of every source: the lag of a queue is the
end of the queue less the end of the last batch.

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
    """Return the number of messages of each queue that were stored and not yet read at the time of the progress.

    `progress` is `query.lastProgress`, an element of `query.recentProgress`, the `event.progress` of a
    StreamingQueryListener, or its JSON as dicts; None, as before the first batch, has no queues. Sources of other
    formats are omitted; of two sources that read one queue the slower one counts. Messages that a tag or an expression
    filters out count until they are skipped. A queue whose end Spark does not report is omitted, which does not mean
    that it has no lag: the first batch after a restart is reported so if it repeats an interrupted one. So is one that
    was read beyond its newest offset, of a topic that was made again.

    PySpark 4.0 and 4.1 report the end of the batch as the newest offset: there the lag is 0 after every batch.
    """
    lags: dict[MessageQueue, int] = {}
    for source in [] if progress is None else _field(progress, "sources"):
        latest, end = _table(_field(source, "latestOffset")), _table(_field(source, "endOffset"))
        for queue in end.keys() & latest.keys():
            if end[queue] <= latest[queue]:
                lags[queue] = max(latest[queue] - end[queue], lags.get(queue, 0))
    return lags


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name)


def _table(offset: Any) -> dict[MessageQueue, int]:
    """Return the queues of an offset in this source's form, as text or as dicts; none for any other offset."""
    try:
        value = _parsed(offset) if isinstance(offset, str) else offset
        if not {"version", "queues"} <= set(_keys(value)):
            return {}
        return parse_offset_table(json.dumps(value), option="the offset")
    except (ValueError, SyntaxError, OptionError):
        return {}


def _parsed(text: str) -> Any:
    """Parse JSON, or what Python prints for the same dicts, as PySpark 4.0 and 4.1 report it."""
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def _keys(value: Any) -> Iterator[str]:
    yield from value if isinstance(value, dict) else ()
