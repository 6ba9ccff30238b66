"""Whether what was parked comes when it may, at least once, and else never: delayed messages and transactions.

What was parked stands in the log as other messages do, so that only a tail that was lost with it excuses. Once it is
there it is delivered, whatever becomes of the record of its delivery, of progress, or of a decision.
"""

from collections import defaultdict
from collections.abc import Iterator
from math import inf

from tests.cluster.histories.events import ReignBegan
from tests.cluster.histories.story import Story
from tests.cluster.histories.tail_losses import may_be_lost
from tests.cluster.histories.uses.events import Accepted, Offered, Worked
from tests.cluster.histories.uses.names import PAYMENTS, REMINDERS, ROUNDING
from tests.cluster.histories.uses.playing import Stored
from tests.cluster.histories.violation import Violation, events_of

from rocketrio_protocol.names import TRANS_CHECK_MAX_TIME_TOPIC


def check_delayed(story: Story) -> Iterator[Violation]:
    """Each comes, and none before its time."""
    offered = _offered(story, REMINDERS)
    delivered = _delivered(story, REMINDERS)
    stored_by = {event.body: event.at for event in _accepted(story, REMINDERS)}
    for body, copies in delivered.items():
        if body not in offered:
            yield Violation("delivered and never sent", f"{copies}")
            continue
        begins, delay = offered[body].at, offered[body].delay
        due = begins + delay
        first = min(copy.stored_at for copy in copies)
        is_early = first < due - ROUNDING
        # By its broker's clock when it was stored: a broker that stands still may store it much later.
        if is_early and not story.schedule.has_wrong_clock(
            begins, stored_by.get(body, inf) + delay
        ):
            yield Violation("delivered before its time", f"at {first}, due at {due}", offered[body])
        yield from _not_too_often(story, copies)
    for accepted in _accepted(story, REMINDERS):
        if accepted.body not in delivered and not may_be_lost(story, accepted):
            yield Violation("delayed and lost", "", accepted)


def check_transactions(story: Story) -> Iterator[Violation]:
    """The message comes if, and only if, its work was done."""
    delivered = _delivered(story, PAYMENTS)
    done = {worked.body for worked in events_of(story, Worked)}
    for body, copies in delivered.items():
        if body not in done:
            yield Violation("not done and delivered", f"{copies}")
        yield from _not_too_often(story, copies)
    for accepted in _accepted(story, PAYMENTS):
        is_missing = accepted.body in done and accepted.body not in delivered
        if is_missing and not may_be_lost(story, accepted):
            yield Violation("done and not delivered", "", accepted)
    for given_up in _delivered(story, TRANS_CHECK_MAX_TIME_TOPIC).values():
        yield Violation("given up", f"{given_up}")


def _not_too_often(story: Story, copies: list[Stored]) -> Iterator[Violation]:
    """A new master may not know that one was delivered a moment before; otherwise it comes once."""
    most = 1 + len(events_of(story, ReignBegan))
    if len(copies) > most:
        yield Violation("delivered too often", f"{most} times at most: {copies}")


def _offered(story: Story, topic: str) -> dict[bytes, Offered]:
    return {event.body: event for event in events_of(story, Offered) if event.topic == topic}


def _accepted(story: Story, topic: str) -> list[Accepted]:
    return [event for event in events_of(story, Accepted) if event.topic == topic]


def _delivered(story: Story, topic: str) -> dict[bytes, list[Stored]]:
    delivered = defaultdict(list)
    for message in story.final.brokers[0].used:
        if message.topic == topic:
            delivered[message.body].append(message)
    return delivered
