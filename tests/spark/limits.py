"""Limits of batches, given where this PySpark has them: a test of something else runs on 4.0 and 4.1 without."""

from typing import TypeVar

from rocketrio.spark.streaming.reader import HAS_LIMITS

T = TypeVar("T")


def limited(**options: T) -> dict[str, T]:
    """Those options, or none."""
    return options if HAS_LIMITS else {}
