"""The text format of Prometheus (0.0.4), as short pieces of text.

A page of a large broker has tens of thousands of samples, which must not stop the broker's loop. The pieces can be made
in as many steps as wanted; prometheus_client writes a family at once, and takes ten times as long for each sample
(docs/decisions/0061).
"""

from collections.abc import Mapping
from typing import Final, Literal

import attrs

from rocketrio_protocol.histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@attrs.frozen
class Family:
    """A metric: all samples of one name."""

    name: str
    kind: Kind
    meaning: str

    def described(self, meaning: str) -> "Family":
        """Return the same metric with another help text, for a page that measures it in another way."""
        return Family(self.name, self.kind, meaning)

    def head(self) -> str:
        """Return the lines before the samples."""
        return f"# HELP {self.name} {self.meaning}\n# TYPE {self.name} {self.kind}\n"

    def sample(self, labels: str, value: float) -> str:
        """Return the line of one sample; `labels` is made by `label_text`."""
        return f"{self.name}{{{labels}}} {value}\n"

    def alone(self, labels: str, value: float | None) -> str:
        """Return a whole family of one sample; of none if the value is unknown."""
        return "" if value is None else self.head() + self.sample(labels, value)


def label_text(labels: Mapping[str, object], common: str = "") -> str:
    """Return labels as they are written in a sample, after the `common` ones."""
    text = ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{common},{text}" if common and text else common or text


def flag(value: bool) -> str:
    """Return the value of a label that is true or false."""
    return "true" if value else "false"


def histogram_text(histogram: Histogram, name: str, labels: str) -> str:
    """Return the lines of one histogram."""
    separator = "," if labels else ""
    lines = [
        f'{name}_bucket{{{labels}{separator}le="{bound}"}} {count}\n'
        for bound, count in histogram.buckets()
    ]
    total = sum(histogram.counts)
    lines.append(f"{name}_sum{{{labels}}} {histogram.sum}\n{name}_count{{{labels}}} {total}\n")
    return "".join(lines)
