"""Whether handlers got every message, in order where that is promised, and again where they failed.

Without its tail a queue gives its places to other messages: what is still there in the end is looked at, as with the
plain topic.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from tests.cluster.histories.story import Story
from tests.cluster.histories.tail_losses import shorter_reigns
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
    yield from handled_in_order(story)
    yield from one_owner_at_a_time(story)
    # A message that failed is tried again in its place; the last failure sends it to the dead letters.
    yield from all_was_handled(story, LEDGER, CLERKS, hands_back=_is_hopeless)


def check_retries(story: Story) -> Iterator[Violation]:
    """What fails comes again, later, and often enough."""
    yield from retries_follow_failures(story)
    yield from all_was_handled(story, TASKS, WORKERS, hands_back=_has_failed)
    yield from only_the_hopeless_are_dead(story, TASKS, WORKERS)


def check_notices(story: Story) -> Iterator[Violation]:
    """Every reader gets all of each queue, and leaves nothing out on its way, over all its lives."""
    notices = _queues(story, NOTICES)
    seen: dict[tuple[str, int], set[int]] = defaultdict(set)
    for event in story.history.events:
        if isinstance(event, Noticed):
            queue = notices[event.queue_id]
            if queue.get(event.queue_offset) != event.body:
                continue
            of_reader = seen[event.who, event.queue_id]
            of_reader.add(event.queue_offset)
            missing = {offset for offset in queue if offset < event.queue_offset} - of_reader
            if missing:
                yield Violation("a reader was left out", f"of {sorted(missing)}", event)
                of_reader |= missing
    for queue_id, queue in notices.items():
        for number in range(len(story.schedule.consumers)):
            missing = queue.keys() - seen[f"consumer-{number}", queue_id]
            if missing:
                yield Violation("a reader was left out", f"consumer-{number}: {sorted(missing)}")


def handled_in_order(story: Story) -> Iterator[Violation]:
    """No member begins with a message before all that stand in front of it are finished."""
    queues = _queues(story, LEDGER)
    finished: dict[int, set[int]] = defaultdict(set)
    told: set[int] = set()
    for event in story.history.events:
        if not isinstance(event, Began) or event.topic != LEDGER:
            continue
        queue = queues[event.queue_id]
        if queue.get(event.queue_offset) != event.body:
            continue
        if isinstance(event, Finished):
            if event.outcome == "done" or _is_hopeless(event):
                finished[event.queue_id].add(event.queue_offset)
        elif event.queue_id not in told:
            before = {offset for offset in queue if offset < event.queue_offset}
            if missing := before - finished[event.queue_id]:
                told.add(event.queue_id)
                yield Violation("handled out of order", f"before {sorted(missing)}", event)


def one_owner_at_a_time(story: Story) -> Iterator[Violation]:
    """While a member has a message of a queue no other member has one, whichever broker is master."""
    owners: dict[int, dict[str, Began]] = defaultdict(dict)
    for event in story.history.events:
        if isinstance(event, Finished) and event.topic == LEDGER:
            owners[event.queue_id].pop(event.who, None)
        elif isinstance(event, Began) and event.topic == LEDGER:
            others = owners[event.queue_id]
            if others and event.who not in others:
                yield Violation("two owners", f"{list(others.values())}", event)
            others[event.who] = event


def all_was_handled(
    story: Story, topic: str, group: str, *, hands_back: Callable[[Finished], bool]
) -> Iterator[Violation]:
    """What is in the topic was done by a member, or is a dead letter.

    What a member hands back comes again as another message, which may be in a tail that was lost. The message that it
    hands back may be in one, too, if it had read it before: a master without it does not take it back.
    """
    done: set[bytes] = set()
    read_at: dict[tuple[bytes, int, int], float] = {}  # by message, tries and address
    handed_back: dict[bytes, Finished] = {}
    for event in story.history.events:
        if not isinstance(event, Began) or event.topic != topic:
            continue
        read_at.setdefault(_copy(event), event.at)
        if isinstance(event, Finished):
            if event.outcome == "done":
                done.add(event.body)
            elif hands_back(event):
                handed_back[event.body] = event
    done |= {letter.body for letter in _left(story, dead_letter_topic(group))}
    for began, ended in shorter_reigns(story):
        done |= {
            last.body
            for last in handed_back.values()
            if last.at <= began.at
            or (last.address >= began.kept and read_at[_copy(last)] <= ended.at)
        }
    for message in _left(story, topic):
        if message.body not in done:
            yield Violation("neither done nor a dead letter", f"{message}")


def _copy(event: Began) -> tuple[bytes, int, int]:
    """Tell a message from those that it comes again as."""
    return event.body, event.times, event.address


def retries_follow_failures(story: Story) -> Iterator[Violation]:
    """The n-th time of a message comes when it failed once less, and the delay after that is over."""
    earliest: dict[tuple[bytes, int], tuple[float, float]] = {}  # when it is due, and failed
    for event in story.history.events:
        if not isinstance(event, Began) or event.topic != TASKS:
            continue
        if not isinstance(event, Finished):
            if not event.times:
                continue
            if (event.body, event.times) not in earliest:
                yield Violation("tried again without a failure", "", event)
                continue
            due, failed_at = earliest[event.body, event.times]
            is_early = event.at < due - ROUNDING
            if is_early and not story.schedule.has_wrong_clock(failed_at, event.at):
                yield Violation("tried again too early", f"due at {due}", event)
        elif event.outcome == "failed":
            level = event.level or FIRST_RETRY_LEVEL + event.times
            due = event.at + DELAYS[level - 1]
            key = event.body, event.times + 1
            earliest[key] = min((due, event.at), earliest.get(key, (due, event.at)))


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


def _has_failed(event: Finished) -> bool:
    return event.outcome == "failed"


def _is_hopeless(event: Finished) -> bool:
    return event.outcome == "failed" and event.times >= RECONSUME_LIMIT


def _queues(story: Story, topic: str) -> dict[int, dict[int, bytes]]:
    """Return what a topic holds in the end: by queue, each place and its message."""
    queues: dict[int, dict[int, bytes]] = defaultdict(dict)
    for message in _left(story, topic):
        queues[message.queue_id][message.queue_offset] = message.body
    return queues


def _left(story: Story, topic: str) -> list[Stored]:
    return [message for message in story.final.brokers[0].used if message.topic == topic]
