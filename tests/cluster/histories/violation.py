"""One broken promise, and how it is printed."""

from typing import TypeVar

import attrs
from tests.cluster.histories.events import Event
from tests.cluster.histories.story import Story

Kind = TypeVar("Kind", bound=Event)


@attrs.frozen
class Violation:
    """What is wrong, and with which event."""

    invariant: str
    detail: str
    event: Event | None = None

    def __str__(self) -> str:
        where = "" if self.event is None else f"\n    {self.event}"
        return f"{self.invariant}: {self.detail}{where}"


def events_of(story: Story, kind: type[Kind]) -> list[Kind]:
    """The events of one kind."""
    return [event for event in story.history.events if isinstance(event, kind)]


def failure_text(story: Story, violations: list[Violation]) -> str:
    """Everything that is needed to understand a failing seed."""
    found = "\n".join(str(violation) for violation in violations)
    return (
        f"{story.schedule}\n{story.history.text()}\n\n"
        f"seed {story.schedule.seed} breaks {len(violations)} promises:\n{found}\n"
        f"Replay: python -m tests.cluster.soak --seed {story.schedule.seed}"
    )
