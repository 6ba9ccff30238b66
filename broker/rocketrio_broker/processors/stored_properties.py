r"""Changes a message's properties before the broker stores them.

A plain message loses WAIT and gets CLUSTER in its place; a batch keeps WAIT, with CLUSTER before it:

    KEYS 1 k 2 WAIT 1 true 2 TAGS 1 t        (1 and 2 are the separators \x01 and \x02)
    KEYS 1 k 2 CLUSTER 1 lab 2 TAGS 1 t

Java's map of hashes puts it in the same place, for every message of the recorded traffic. The text is cut and joined
because decoding it into a dict and encoding it again takes four times as long.

A message that is parked is stored with all of its properties, as a map in Java's order (`delayed_puts.py`).

Invariant: no separator at the end, as 4.9 stores it (a 5.x client sends one).
Answers to: SendMessageProcessor's handling of origProps, MessageDecoder.messageProperties2String.
"""

from typing import Final

from rocketrio_protocol.record.properties import (
    NAME_VALUE_SEPARATOR,
    PAIR_SEPARATOR,
    PROPERTY_CLUSTER,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    decode_properties,
    property_label,
)

_WAIT: Final = PROPERTY_WAIT_STORE_MSG_OK + NAME_VALUE_SEPARATOR
_CLUSTER: Final = PROPERTY_CLUSTER + NAME_VALUE_SEPARATOR
UNIQUE_KEY_LABEL: Final = property_label(PROPERTY_UNIQUE_KEY)
"""What precedes the id that the producer gave a message, in encoded properties."""
DELAY_MARK: Final = "DEL"
"""A text in the properties of every message to be delivered later: in DELAY, and in the names of 5.x's timers."""
TRANSACTION_MARK: Final = PROPERTY_TRANSACTION_PREPARED + NAME_VALUE_SEPARATOR
"""A text in the properties of every half message. Most messages contain neither text and need no further check."""


def stored_properties(text: str | None, cluster_name: str, *, is_batch: bool) -> tuple[str, bool]:
    """Return the text to store, and whether the producer waits for flush and replication."""
    cluster = _CLUSTER + cluster_name
    if not text:
        return cluster, True
    if text[-1] == PAIR_SEPARATOR:
        text = text[:-1]
    start = text.find(_WAIT)
    if start < 0 and _CLUSTER not in text:
        return f"{cluster}{PAIR_SEPARATOR}{text}", True
    is_whole_name = start == 0 or (start > 0 and text[start - 1] == PAIR_SEPARATOR)
    if not is_whole_name or text.find(_WAIT, start + 1) >= 0 or _CLUSTER in text:
        return _rewritten(text, cluster_name, is_batch=is_batch)
    end = text.find(PAIR_SEPARATOR, start)
    if end < 0:
        end = len(text)
    waits = is_true(text[start + len(_WAIT) : end])
    if is_batch:
        return f"{text[:start]}{cluster}{PAIR_SEPARATOR}{text[start:]}", waits
    return f"{text[:start]}{cluster}{text[end:]}", waits


def property_map(text: str, cluster_name: str) -> dict[str, str]:
    """Return the properties of a message that is stored with all of them, also WAIT, in Java's order."""
    properties = decode_properties(text)
    wait = properties.pop(PROPERTY_WAIT_STORE_MSG_OK, None)
    properties[PROPERTY_CLUSTER] = cluster_name
    if wait is not None:
        properties[PROPERTY_WAIT_STORE_MSG_OK] = wait
    return properties


def _rewritten(text: str, cluster_name: str, *, is_batch: bool) -> tuple[str, bool]:
    """Return the same as `stored_properties`, slower, for names that occur twice or that end like WAIT or CLUSTER."""
    properties = decode_properties(text)
    wait = properties.get(PROPERTY_WAIT_STORE_MSG_OK)
    if not is_batch:
        properties.pop(PROPERTY_WAIT_STORE_MSG_OK, None)
    properties[PROPERTY_CLUSTER] = cluster_name
    joined = PAIR_SEPARATOR.join(
        f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items()
    )
    return joined, wait is None or is_true(wait)


def is_true(text: str) -> bool:
    """Return whether a text means true, by the rule of Java's parseBoolean."""
    return text == "true" or text.lower() == "true"
