"""Received messages as tables: Arrow, and pandas or Polars made from Arrow.

Adjacent records of a pulled chunk are cut out in one piece, pieces are joined into blocks, and a block is decoded by
columns. Messages from a retry topic are read one by one, because their topic is in their properties.

Invariant: the table is built before the messages are taken. Messages that cannot be decoded, or whose decompressed
bodies exceed the limit, stay with the consumer.
Unlike Java: Java has no tables.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rocketrio.arguments import list_of
from rocketrio.consuming.hand_out import HandOut
from rocketrio.consuming.pulled_messages import PulledMessages
from rocketrio_protocol.errors import ConfigError, ProtocolError
from rocketrio_protocol.extras import how_to_install
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.compression import InflateBudget, TooMuchToInflateError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

TABLE_ROWS: Final = 65_536
"""Rows of one table: enough to make the fixed cost of a table negligible."""
BLOCK_SIZE: Final = 32 * 1024 * 1024
"""Bytes decoded at once, so that the joined records and the columns made of them never both exist as a whole."""
BROKER_NAME: Final = "broker_name"
"""The column that is not part of a record."""
COLUMNS: Final = (
    "topic",
    BROKER_NAME,
    "queue_id",
    "queue_offset",
    "keys",
    "tags",
    "body",
    "born_time",
    "store_time",
    "properties",
)

_EXTRAS: Final = {"pyarrow": "columns", "pandas": "pandas", "polars": "polars"}

Columns: TypeAlias = Sequence[str]
"""The names of the wanted columns, in the wanted order."""
Piece: TypeAlias = tuple[memoryview, int, str]
"""Adjacent records, their count, and their broker's name."""


async def receive_table(
    hand_out: HandOut, columns: Columns, max_messages: int, max_wait: float
) -> "pyarrow.Table":
    """Return the next messages as one Arrow table."""
    return await _receive(hand_out, columns, max_messages, max_wait, lambda table: table)


async def receive_pandas(
    hand_out: HandOut, columns: Columns, max_messages: int, max_wait: float
) -> "pandas.DataFrame":
    """Return the next messages as a pandas DataFrame."""
    _library("pandas")
    return await _receive(
        hand_out, columns, max_messages, max_wait, lambda table: table.to_pandas()
    )


async def receive_polars(
    hand_out: HandOut, columns: Columns, max_messages: int, max_wait: float
) -> "polars.DataFrame":
    """Return the next messages as a Polars DataFrame."""
    from_arrow = _library("polars").from_arrow
    frame: polars.DataFrame = await _receive(hand_out, columns, max_messages, max_wait, from_arrow)
    return frame


async def _receive(
    hand_out: HandOut,
    columns: Columns,
    max_messages: int,
    max_wait: float,
    convert: Callable[[Any], Any],
) -> Any:
    known = _known_columns()
    if not isinstance(columns, str):
        columns = list_of(str, "columns", columns)
    unknown = [name for name in columns if name not in known]
    if len(set(columns)) < len(columns) and not unknown:
        raise ConfigError(f"columns={columns!r} names one of them twice")
    if unknown or not columns:
        raise ConfigError(
            f"columns={columns!r}: {', '.join(unknown) or 'nothing'} is not a column; available: {', '.join(known)}"
        )
    await hand_out.wait_table(max_messages, max_wait)
    hand_out.want_columns()
    table = table_of(hand_out.peek(max_messages), columns)
    frame = convert(table)
    # Only now, when nothing can fail any more: a message that cannot be decoded
    # stays with the consumer, and so do the others.
    hand_out.pass_over(table.num_rows)
    return frame


def table_of(lists: Iterable[Sequence[MessageExt]], columns: Columns) -> "pyarrow.Table":
    """Return these messages in order as a table: all, or the first ones whose decompressed bodies fit the limit."""
    arrow = _library("pyarrow")
    known = _known_columns()
    schema = arrow.schema([(name, known[name]) for name in columns])
    batches = [
        arrow.RecordBatch.from_arrays([block[name] for name in columns], schema=schema)
        for block in _decoded_blocks(lists, dict.fromkeys(columns))
    ]
    return arrow.Table.from_batches(batches, schema)


def _known_columns() -> dict[str, Any]:
    arrow = _library("pyarrow")
    columns = import_module("rocketrio_protocol.columns.decode")
    return {BROKER_NAME: arrow.string(), **columns.COLUMN_TYPES}


def _library(name: str) -> ModuleType:
    """Import an optional library when it is needed: pyarrow alone takes 40 MiB of memory."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"{name} is not installed, and tables are made with it",
            remedy=how_to_install(_EXTRAS[name]),
        ) from error


# ------------------------------------------------------------------------------------ from messages to columns


def _decoded_blocks(
    lists: Iterable[Sequence[MessageExt]], columns: Collection[str]
) -> Iterator[dict[str, Any]]:
    budget = InflateBudget()
    for block in _blocks(lists):
        try:
            yield _decoded(block, columns, budget)
        except TooMuchToInflateError as error:
            fitting = error.fitting
        else:
            continue
        if fitting:  # The memory that the exception held is free by now.
            yield _decoded(list(_first(block, fitting)), columns, InflateBudget())
        return


def _blocks(lists: Iterable[Sequence[MessageExt]]) -> Iterator[list[Sequence[MessageExt]]]:
    """Group the messages into blocks that are decoded together."""
    block: list[Sequence[MessageExt]] = []
    size = 0
    for messages in lists:
        is_record = _is_record(messages)
        if block and (size >= BLOCK_SIZE or not is_record):
            yield block
            block, size = [], 0
        if is_record:
            block.append(messages)
            size += _stored_size(messages)
        else:
            yield [messages]
    if block:
        yield block


def _stored_size(messages: Sequence[MessageExt]) -> int:
    if isinstance(messages, PulledMessages):
        return len(messages.piece)
    return sum(message.size for message in messages)


def _is_record(messages: Sequence[MessageExt]) -> bool:
    """Return whether the messages are plain records; redelivered ones have more than their record says."""
    return isinstance(messages, PulledMessages) or type(messages[0]) is MessageExt


def _first(block: Iterable[Sequence[MessageExt]], count: int) -> Iterator[Sequence[MessageExt]]:
    for messages in block:
        if count <= 0:
            return
        yield messages[:count]
        count -= len(messages)


def _pieces(messages: Sequence[MessageExt]) -> Iterator[Piece]:
    """Split messages into adjacent pieces: a message that a tag filter omitted, or another pull, ends a piece."""
    if isinstance(messages, PulledMessages):
        yield messages.piece, len(messages), messages.broker_name
        return
    buffer, start = messages[0].buffer, messages[0].start
    end, first = start, 0
    for index, message in enumerate(messages):
        if message.start != end or message.buffer is not buffer:
            yield memoryview(buffer)[start:end], index - first, messages[first].broker_name
            buffer, start, first = message.buffer, message.start, index
            end = start
        end += message.size
    yield memoryview(buffer)[start:end], len(messages) - first, messages[first].broker_name


def _decoded(
    block: list[Sequence[MessageExt]], columns: Collection[str], budget: InflateBudget
) -> dict[str, Any]:
    from rocketrio_protocol.columns.arrays import runs
    from rocketrio_protocol.columns.decode import decode_columns

    if not _is_record(block[0]):
        return _one_by_one(block[0], columns, budget)
    pieces = [piece for messages in block for piece in _pieces(messages)]
    chunk = pieces[0][0] if len(pieces) == 1 else b"".join(piece for piece, _, _ in pieces)
    # The number of rows comes from a column; `broker_name` alone has its own count.
    try:
        arrays = decode_columns(chunk, [n for n in columns if n != BROKER_NAME], budget=budget)
    except TooMuchToInflateError:
        raise
    except (ProtocolError, ConfigError):
        # The joined records do not say their broker; read one by one, the first that is unreadable names its place.
        _one_by_one([message for messages in block for message in messages], columns, budget)
        raise
    if BROKER_NAME in columns:
        arrays[BROKER_NAME] = runs(
            [name for _, _, name in pieces], [count for _, count, _ in pieces]
        )
    return arrays


def _one_by_one(
    messages: Sequence[MessageExt], columns: Collection[str], budget: InflateBudget
) -> dict[str, Any]:
    from rocketrio_protocol.columns.arrays import runs
    from rocketrio_protocol.columns.decode import columns_of

    arrays = columns_of(messages, [n for n in columns if n != BROKER_NAME], budget=budget)
    if BROKER_NAME in columns:
        arrays[BROKER_NAME] = runs(
            [message.broker_name for message in messages], [1] * len(messages)
        )
    return arrays
