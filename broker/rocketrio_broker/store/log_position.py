"""A position in the log, with the store time of the last message before it."""

from rocketrio_broker.watermark import Watermark


class LogPosition(Watermark):
    """A watermark over log addresses that also has the store time of the last message below it."""

    __slots__ = ("store_time_ms",)

    def __init__(self, value: int = 0, store_time_ms: int = 0) -> None:
        super().__init__(value)
        self.store_time_ms = store_time_ms
