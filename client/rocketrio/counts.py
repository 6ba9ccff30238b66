"""How texts write a count and its noun: `1 message`, `5,000 messages`."""

from typing import Final

_PLURALS: Final = {"query": "queries", "entry": "entries"}


def counted(number: int | None, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is one: `1 message`, `5,000 messages`; None is unknown."""
    if number is None:
        return f"an unknown number of {plural(0, noun)}"
    return f"{number:,} {plural(number, noun)}"


def plural(number: int, noun: str) -> str:
    """Return a noun as it stands after a number."""
    return noun if number == 1 else _PLURALS.get(noun, f"{noun}s")
