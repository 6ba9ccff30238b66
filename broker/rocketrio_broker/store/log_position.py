"""How far something has come in the log, and the store time of the last message it has seen."""

from rocketrio_broker.watermark import Watermark


class LogPosition(Watermark):
    """A watermark over log addresses that remembers when what lies before it was stored."""

    __slots__ = ("store_time_ms",)

    def __init__(self, value: int = 0, store_time_ms: int = 0) -> None:
        super().__init__(value)
        self.store_time_ms = store_time_ms
