"""The option `maxStaleness`: how it is written, and what it allows."""

import pytest

from rocketrio.routing.replica_views import VIEW_MAX_AGE, ReplicaViews
from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.options import parse_read_options
from rocketrio.spark.reading.staleness import MaxStaleness, parse_max_staleness

OPTIONS = {"nameServer": "h:1", "subscribe": "t"}


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("10000 messages", MaxStaleness(messages=10_000)),
        ("1 message", MaxStaleness(messages=1)),
        ("0messages", MaxStaleness(messages=0)),
        ("5s", MaxStaleness(seconds=5.0)),
        (" 1.5 S ", MaxStaleness(seconds=1.5)),
        ("500ms", MaxStaleness(seconds=0.5)),
        ("2 min", MaxStaleness(seconds=120.0)),
        ("1h", MaxStaleness(seconds=3600.0)),
    ],
)
def test_a_bound_is_a_number_of_messages_or_a_time(text: str, bound: MaxStaleness) -> None:
    options = parse_read_options({**OPTIONS, "maxStaleness": text})
    assert options.max_staleness == bound
    assert parse_max_staleness(str(bound), option="maxStaleness") == bound


@pytest.mark.parametrize(
    "text", ["", "5", "5 m", "messages", "-1 messages", "1.5 messages", "0s", "5s 3s", "soon"]
)
def test_anything_else_is_refused_with_what_may_be_written(text: str) -> None:
    with pytest.raises(
        OptionError, match=r"maxStaleness=.* is neither a number of messages .*`5s`"
    ):
        parse_read_options({**OPTIONS, "maxStaleness": text})


def test_a_bound_means_nothing_where_only_the_master_is_read() -> None:
    with pytest.raises(OptionError, match="maxStaleness is about slaves; readFrom=master"):
        parse_read_options({**OPTIONS, "maxStaleness": "5s", "readFrom": "master"})


def test_what_nobody_said_is_too_stale() -> None:
    views = ReplicaViews()
    for bound in (MaxStaleness(messages=10**9), MaxStaleness(seconds=10.0**9)):
        assert not bound.allows(views, 1, 0.0)
        assert bound.allows(views, 0, 0.0)
    views.note(0, 1000, None, 0.0)
    views.note(1, 990, None, 0.0)  # as an Apache slave: it does not say how old its view is
    assert MaxStaleness(messages=10).allows(views, 1, 0.0)
    assert not MaxStaleness(messages=9).allows(views, 1, 0.0)
    assert not MaxStaleness(messages=10).allows(views, 1, VIEW_MAX_AGE + 1)
    assert not MaxStaleness(seconds=10.0**9).allows(views, 1, 0.0)
    views.note(1, 990, 3.0, 0.0)
    assert MaxStaleness(seconds=5.0).allows(views, 1, 2.0)
    assert not MaxStaleness(seconds=5.0).allows(views, 1, 2.5)
