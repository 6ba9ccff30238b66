"""What the tests of streams do when Spark gives up on a Python process that was late."""

from typing import Any

import attrs
import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.stream_rig import STARTS, Reading

LATE = StreamingQueryException("[STREAM_FAILED] Python worker failed to connect back.")
LOSS = StreamingQueryException("[ROCKETMQ_OFFSET_OUT_OF_RANGE] gone")


@attrs.define
class Ending:
    """A query that is over."""

    failure: StreamingQueryException | None
    status: str = "over"

    def exception(self) -> StreamingQueryException | None:
        return self.failure

    def awaitTermination(self, timeout: int) -> bool:  # noqa: N802 - Spark's name
        if self.failure is not None:
            raise self.failure
        return True


def _reading(*failures: StreamingQueryException | None) -> Reading:
    queries: Any = iter([Ending(failure) for failure in failures])
    return Reading(next(queries), lambda: next(queries), {}, {})


def test_a_late_process_is_started_again_in_any_batch() -> None:
    assert _reading(LATE, LATE, None).ended().query.exception() is None
    later = _reading(LATE, None)
    later.wait(lambda: later.query.exception() is None)


def test_every_other_failure_is_the_tests_to_see() -> None:
    with pytest.raises(StreamingQueryException, match="gone"):
        _reading(LATE, LOSS, None).ended()
    with pytest.raises(AssertionError, match="gone"):
        _reading(LOSS, None).wait(lambda: False)
    with pytest.raises(StreamingQueryException, match="connect back"):
        _reading(*[LATE] * STARTS, None).ended()
