"""Whether handlers got every message, in order where that is promised, and again where they failed.

Without its tail a queue gives its places to other messages, and a group may have read those already: what follows a
lost tail is not looked at, as with the plain topic.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.cluster.histories.events import Event
from tests.cluster.histories.story import Story
from tests.cluster.histories.tail_losses import any_divergent, first_tail_loss, tail_losses
from tests.cluster.histories.uses.events import Began, Finished, Noticed
from tests.cluster.histories.uses.names import (
    CLERKS,
    DELAYS,
    LEDGER,
    NOTICES,
    RECONSUME_LIMIT,
    ROUNDING,
    TASKS,
    WORKERS,
)
from tests.cluster.histories.uses.playing import Stored
from tests.cluster.histories.violation import Violation

from rocketrio_protocol.commands.consumer import FIRST_RETRY_LEVEL
from rocketrio_protocol.names import dead_letter_topic


def check_ledger(story: Story) -> Iterator[Violation]:
    """In the order of each queue, and by one member at a time."""
    if any_divergent(story):
        return
    yield from handled_in_order(story)
    yield from one_owner_at_a_time(story)
    yield from all_was_handled(story, LEDGER, CLERKS)


def check_retries(story: Story) -> Iterator[Violation]:
    """What fails comes again, later, and often enough."""
    if any_divergent(story):
        return
    yield from retries_follow_failures(story)
    yield from all_was_handled(story, TASKS, WORKERS)
    yield from only_the_hopeless_are_dead(story, TASKS, WORKERS)


def check_notices(story: Story) -> Iterator[Violation]:
    """Every reader gets all of each queue, and leaves nothing out on its way, over all its lives."""
    if any_divergent(story):
        return
    expected: dict[tuple[str, int], int] = defaultdict(int)
    for event in _until_a_loss(story):
        if isinstance(event, Noticed):
            place = event.who, event.queue_id
            if event.queue_offset > expected[place]:
                yield Violation("a reader was left out", f"before {expected[place]}", event)
            expected[place] = max(expected[place], event.queue_offset + 1)
    if tail_losses(story):
        return
    for notice in _left(story, NOTICES):
        for number in range(len(story.schedule.consumers)):
            if notice.queue_offset >= expected[f"consumer-{number}", notice.queue_id]:
                yield Violation("a reader was left out", f"consumer-{number}: {notice}")


def handled_in_order(story: Story) -> Iterator[Violation]:
    """Nobody begins with a message before somebody has finished all that stand in front of it."""
    finished: dict[int, set[int]] = defaultdict(set)
    for event in _until_a_loss(story):
        if isinstance(event, Finished) and event.topic == LEDGER:
            if event.outcome == "done" or _is_hopeless(event):
                finished[event.queue_id].add(event.queue_offset)
        elif isinstance(event, Began) and event.topic == LEDGER:
            missing = set(range(event.queue_offset)) - finished[event.queue_id]
            if missing:
                yield Violation("handled out of order", f"before {sorted(missing)}", event)
                return


def one_owner_at_a_time(story: Story) -> Iterator[Violation]:
    """While a member has a message of a queue no other member has one, whichever broker is master."""
    owners: dict[int, dict[str, Began]] = defaultdict(dict)
    for event in _until_a_loss(story):
        if isinstance(event, Finished) and event.topic == LEDGER:
            owners[event.queue_id].pop(event.who, None)
        elif isinstance(event, Began) and event.topic == LEDGER:
            others = owners[event.queue_id]
            if others and event.who not in others:
                yield Violation("two owners", f"{list(others.values())}", event)
            others[event.who] = event


def all_was_handled(story: Story, topic: str, group: str) -> Iterator[Violation]:
    """What is in the topic was done by somebody, or is a dead letter."""
    if tail_losses(story):
        return
    done = {
        event.body
        for event in story.history.events
        if isinstance(event, Finished) and event.topic == topic and event.outcome == "done"
    }
    done |= {letter.body for letter in _left(story, dead_letter_topic(group))}
    for message in _left(story, topic):
        if message.body not in done:
            yield Violation("neither done nor a dead letter", f"{message}")


def retries_follow_failures(story: Story) -> Iterator[Violation]:
    """The n-th time of a message comes when it failed once less, and the delay after that is over."""
    earliest: dict[tuple[bytes, int], float] = {}
    for event in _until_a_loss(story):
        if not isinstance(event, Began) or event.topic != TASKS:
            continue
        if not isinstance(event, Finished):
            may_come = earliest.get((event.body, event.times), 0.0 if not event.times else None)
            if may_come is None:
                yield Violation("tried again without a failure", "", event)
            elif event.at < may_come - ROUNDING and not story.schedule.clocks_jump:
                yield Violation("tried again too early", f"due at {may_come}", event)
        elif event.outcome == "failed":
            level = event.level or FIRST_RETRY_LEVEL + event.times
            due = event.at + DELAYS[level - 1]
            key = event.body, event.times + 1
            earliest[key] = min(due, earliest.get(key, due))


def only_the_hopeless_are_dead(story: Story, topic: str, group: str) -> Iterator[Violation]:
    """A dead letter has failed as often as it may."""
    hopeless = {
        event.body
        for event in story.history.events
        if isinstance(event, Finished) and event.topic == topic and _is_hopeless(event)
    }
    for letter in _left(story, dead_letter_topic(group)):
        if letter.body not in hopeless:
            yield Violation("dead too soon", f"{letter}")


def _is_hopeless(event: Finished) -> bool:
    return event.outcome == "failed" and event.times >= RECONSUME_LIMIT


def _until_a_loss(story: Story) -> Iterator[Event]:
    first_loss = first_tail_loss(story)
    for event in story.history.events:
        if event.at >= first_loss:
            return
        yield event


def _left(story: Story, topic: str) -> list[Stored]:
    return [message for message in story.final.brokers[0].used if message.topic == topic]
