"""How commands print messages: as rows for `Output.show`, and one message with all its fields."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from rocketrio.cli.columns import Column, Row
from rocketrio.cli.format_strings import has_body, message_printer
from rocketrio.cli.json_values import utc_text
from rocketrio.cli.output import Output
from rocketrio.cli.say import say, warn
from rocketrio.counts import counted
from rocketrio_protocol.log_lines import visible

if TYPE_CHECKING:
    from rocketrio_protocol.message import MessageExt

_ABSENT: Final = "-"
BODY_SHOWN: Final = 40
"""Characters of a body in a table; `message get` shows it whole."""


def message_row(one: MessageExt) -> dict[str, Any]:
    """Return a message with its body for programs; keys, tags and broker name are null if it has none.

    A body that cannot be read is null, as is its size, and `body_error` says why.
    """
    return {
        "message_id": one.message_id,
        "offset_message_id": one.offset_message_id,
        "topic": one.topic,
        "broker_name": one.broker_name or None,
        "queue_id": one.queue_id,
        "queue_offset": one.queue_offset,
        "store_time": one.store_time,
        "born_time": one.born_time,
        "reconsume_times": one.reconsume_times,
        "keys": one.keys or None,
        "tags": one.tags,
        "body_size": body_size(one),
        "body_error": None,
        **body_fields(one),
    }


def body_size(one: MessageExt) -> int | None:
    """Return the size of a body; None if it cannot be read."""
    return len(one.body) if one.body_error is None else None


def body_problem(one: MessageExt) -> str | None:
    """Return why a body cannot be read, as rows have it in `body_error`; None if it can be."""
    return None if one.body_error is None else str(one.body_error)


def warn_of_unreadable(messages: Sequence[MessageExt], template: str | None = None) -> None:
    """Name on standard error the messages whose bodies could not be printed, by a format only if it has the body."""
    if template is None or has_body(template):
        for one in messages:
            if one.body_error is not None:
                warn(str(one.body_error))


def list_messages(output: Output, messages: Sequence[MessageExt]) -> None:
    """Print messages: a table with the beginning of their bodies, one JSON object per line, or by a format string."""
    if output.template is not None:
        for one in messages[: output.limit]:
            print_message(output, one, "")
        return
    columns = (
        Column("message_id", "id"),
        Column(
            "store_time",
            "stored",
            lambda row: output.time(row["store_time"], timespec="milliseconds"),
        ),
        Column("keys", cell=lambda row: row["keys"] or ""),
        Column("tags", cell=lambda row: row["tags"] or ""),
        Column("body_size", "bytes"),
        Column("broker_name", "broker", lambda row: row["broker_name"] or ""),
        Column("queue_id", "queue"),
        Column("queue_offset", "offset"),
        Column("body", cell=_cut_body),
    )
    output.show(map(message_row, messages), columns, lines=True)


def _cut_body(row: Row) -> str:
    """Return the beginning of a body on one line; the size of one that is not text, or why it cannot be read."""
    if row.get("body_error") is not None:
        return f"({row['body_error']})"
    if "encoding" in row:
        return f"({counted(row['body_size'], 'byte')}, not text)"
    text = " ".join(row["body"][: 4 * BODY_SHOWN].split())
    is_whole = len(text) <= BODY_SHOWN and len(row["body"]) <= 4 * BODY_SHOWN
    return text if is_whole else f"{text[: BODY_SHOWN - 1]}…"


def print_message(output: Output, message: MessageExt, text: str) -> None:
    """Print one message of a stream: `text` for people, otherwise the row, or what the format string makes of it."""
    if output.template is None:
        output.line(message_row(message), text)
    else:
        show = message_printer(output.template, message_row, utc=output.utc)
        output.raw(lambda number: show(message, number))
        warn_of_unreadable([message], output.template)


def show_message(output: Output, found: Sequence[MessageExt], max_body: int) -> None:
    """Print messages with all fields and properties, and for people the first bytes of the body."""
    if output.template is not None:
        list_messages(output, found)
        return
    if not output.for_people:
        rows = [message_row(one) | {"properties": dict(one.properties)} for one in found]
        output.show(rows, lines=True)
        return
    for one in found:
        _show(one, max_body)


def _show(one: MessageExt, max_body: int) -> None:
    fields = {
        name: utc_text(value) if name.endswith("_time") else _ABSENT if value is None else value
        for name, value in message_row(one).items()
        if name not in ("body", "encoding") and (name != "body_error" or value is not None)
    }
    fields = {name.replace("_", " "): value for name, value in fields.items()}
    fields |= {f"property {name}": value for name, value in sorted(one.properties.items())}
    width = max(map(len, fields))
    for name, value in fields.items():
        say(f"{name:<{width}}  {value}")
    if one.body_error is not None:
        return
    shown = one.body[:max_body]
    click.echo(f"\n{visible(shown.decode('utf-8', 'backslashreplace'))}")
    if len(shown) < len(one.body):
        click.echo(
            f"the first {len(shown):,} of {len(one.body):,} bytes; --max-body shows more", err=True
        )


def body_fields(message: MessageExt) -> dict[str, object]:
    """Return `body` for JSON as text, or as base64 with `encoding` if it is not UTF-8.

    It is null, with the reason in `body_error`, if it cannot be read: that hides no other message.
    """
    problem = message.body_error
    if problem is not None:
        return {"body": None, "body_error": str(problem)}
    try:
        return {"body": message.body.decode()}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(message.body).decode(), "encoding": "base64"}
