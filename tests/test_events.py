"""Check that every log line has the form that formatters and metrics read, and that the list of events has it."""

import pytest

from rocketrio_broker.events import KINDS
from rocketrio_protocol.log_lines import RESERVED_KEYS, event_of, parsed_form
from tests.log_events import PAGE, lines, lines_of, page


def problem(form: str | None, values: int | None) -> str | None:
    found = None if form is None else parsed_form(form)
    if found is None:
        return "write constant words and then key=%s for each value, without units or text between"
    keys = [key for key, _ in found[1]]
    if values is not None and len(keys) != values:
        return f"it has {len(keys)} keys and {values} values"
    if len(set(keys)) < len(keys):
        return "a key stands twice"
    if RESERVED_KEYS & set(keys):
        return f"no value may be called {', '.join(RESERVED_KEYS & set(keys))}"
    return None


def test_every_line_is_an_event_and_its_values() -> None:
    found = lines()
    assert len(found) > 300
    wrong = [
        f"{line.place}: {line.form!r}: {why}"
        for line in found
        if (why := problem(line.form, line.values)) is not None
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "call",
    [
        'logger.info("group %s", 1)',
        'logger.info("used percent=%.1f%%", 1)',
        'logger.info("waits for=%ds", 1)',
        'logger.info(f"waits {x}")',
        'logger.info("waits seconds=%d", 1, 2)',
        'logger.info("waits seconds=%d seconds=%d", 1, 2)',
        'logger.log(level, "waits level=%d", 1)',
        'self._rare_log.warning("waits reason=for %s", 1)',
    ],
)
def test_lines_of_another_form_are_found(call: str) -> None:
    (line,) = lines_of("x.py", call)
    assert problem(line.form, line.values) is not None


def test_kept_events_are_those_of_the_source() -> None:
    logged = {line.form and event_of(line.form) for line in lines() if line.level != "debug"}
    assert not KINDS.keys() - logged


def test_guide_lists_the_kept_events() -> None:
    guide = (PAGE.parent / "logs.md").read_text()
    for event, kind in KINDS.items():
        (row,) = [line for line in guide.splitlines() if line.startswith(f"| `{kind}` |")]
        assert event in row.strip("| ").split(" | ")[1].split("; "), event


def test_list_of_events_is_that_of_the_source() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.log_events`"
