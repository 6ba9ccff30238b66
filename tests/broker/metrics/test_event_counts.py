import logging

from rocketrio_broker.metrics.event_counts import EventCounts


def test_lines_are_counted_by_event_and_level_while_attached() -> None:
    counts, log = EventCounts(), logging.getLogger("rocketrio_broker.test")
    log.setLevel("INFO")
    with counts.attached():
        log.info("topic created topic=%s", "a")
        log.info("topic created topic=%s", "b")
        log.warning("topic created topic=%s", "c")
        log.debug("topic created topic=%s", "d")
        log.error("%s is of another form", "x")
    log.warning("topic created topic=%s", "e")
    found = dict(counts.by_kind())
    assert found == {
        ("topic created", "info"): 2,
        ("topic created", "warning"): 1,
        ("other", "error"): 1,
    }
