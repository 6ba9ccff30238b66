"""Values as JSON shows them: unknown is null, times are ISO 8601 in UTC."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from rocketrio_protocol.log_lines import visible_json


def utc_text(time: datetime) -> str:
    """Return a time as in JSON output."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def json_text(value: Any) -> str:
    """Return a value as one line of JSON."""
    return visible_json(json.dumps(value, ensure_ascii=False, default=plain))


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{value!r} has no form in JSON")
