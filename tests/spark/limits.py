"""Limits of batches, given where this PySpark has them: a test of something else runs on 4.0 and 4.1 without."""

from typing import TypeVar

import pytest

from rocketrio.spark.streaming.reader import HAS_LIMITS

needs_limits = pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.2 has limits and AvailableNow")
T = TypeVar("T")


def limited(**options: T) -> dict[str, T]:
    """Those options, or none."""
    return options if HAS_LIMITS else {}
