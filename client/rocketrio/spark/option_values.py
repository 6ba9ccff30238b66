"""Reading single option values: numbers, yes or no, choices, lists. Each error names the option and what it takes."""

from collections.abc import Sequence
from difflib import get_close_matches

from rocketrio.spark.errors import OptionError

_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


def whole_number(text: str, *, option: str, least: int, most: int | None = None) -> int:
    """An integer between `least` and `most`."""
    try:
        number = int(text.strip())
    except ValueError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        upper = "" if most is None else f" to {most}"
        raise OptionError(f"{option}={text!r} is not a whole number from {least}{upper}")
    return number


def truth(text: str, *, option: str) -> bool:
    """true or false."""
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise OptionError(f"{option}={text!r} is neither true nor false")
    return word in _TRUE


def choice(text: str, *, option: str, words: Sequence[str]) -> str:
    """One of some words."""
    word = text.strip().lower()
    if word not in words:
        raise OptionError(f"{option}={text!r} is none of: {', '.join(words)}")
    return word


def words_of(text: str, *, option: str) -> tuple[str, ...]:
    """A comma-separated list, in its order, each once."""
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise OptionError(f"{option} is empty")
    return words


def suggestion(wrong: str, known: Sequence[str]) -> str:
    """`; did you mean X?` where a known word is near, otherwise a full stop."""
    by_lower = {word.lower(): word for word in known}
    near = get_close_matches(wrong.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[near[0]]}?" if near else "."
