"""Whether nothing of a topic's earlier life is in its later ones, and nothing of a later one is lost."""

from collections.abc import Iterator

from tests.cluster.histories.events import (
    PassingPulled,
    PassingSent,
    ReignBegan,
    ReignEnded,
    TopicRemade,
)
from tests.cluster.histories.story import Story
from tests.cluster.histories.tail_losses import has_other_history, may_be_lost, shorter_reigns
from tests.cluster.histories.violation import Violation, events_of


def check_passing(story: Story) -> Iterator[Violation]:
    """All that is promised of a topic that was deleted and created again."""
    yield from master_has_no_earlier_life(story)
    yield from last_life_is_whole(story)
    yield from offsets_are_of_the_last_life(story)


def master_has_no_earlier_life(story: Story) -> Iterator[Violation]:
    """Nor do crashes bring it back, whichever broker is master."""
    master: int | None = 0
    since = 0.0
    lives: list[TopicRemade] = []
    for event in story.history.events:
        if isinstance(event, ReignEnded):
            master = None
        elif isinstance(event, ReignBegan):
            master, since = event.broker, event.at
        elif isinstance(event, TopicRemade):
            lives.append(event)
            since = event.at
        elif isinstance(event, PassingPulled) and event.asked >= since:
            life = _life_at(story, lives, event.at)
            earlier = [body for body in event.bodies if _life_of(body) < life]
            if earlier and event.broker == master:
                yield Violation("deleted and read", f"{earlier}", event)


def last_life_is_whole(story: Story) -> Iterator[Violation]:
    """What was acknowledged in it is at its place, and nothing else is there."""
    master = story.final.brokers[0]
    last = len(story.schedule.remakes)
    places = [dict(queue) for queue in master.passing]
    for event in story.history.events:
        if (
            isinstance(event, PassingSent)
            and event.life == last
            and places[event.queue_id].get(event.queue_offset) != event.body
            and not may_be_lost(story, event)
        ):
            yield Violation("acknowledged and lost", "of the passing topic", event)
    life = _last_life(story)
    for queue in master.passing:
        if any(_life_of(body) < life for _, body in queue):
            yield Violation("deleted and kept", f"{queue}")
    for slave in story.final.brokers[1:]:
        if any(ours != theirs for ours, theirs in zip(slave.passing, master.passing, strict=True)):
            yield Violation("queues differ", f"of the passing topic, broker {slave.broker}")


def _last_life(story: Story) -> int:
    """Return the topic's life in the end."""
    return _life_at(story, events_of(story, TopicRemade), story.history.events[-1].at)


def _life_at(story: Story, lives: list[TopicRemade], at: float) -> int:
    """Return the topic's life: the last one of these whose beginning is in the log of the master of a time."""
    return max(
        (
            remade.life
            for remade in lives
            if not any(
                began.at <= at and _went_with(story, remade, began, ended)
                for began, ended in shorter_reigns(story)
            )
        ),
        default=0,
    )


def _went_with(story: Story, remade: TopicRemade, began: ReignBegan, ended: ReignEnded) -> bool:
    """Return whether this life of the topic was lost with the end of the last master's log, which a new one lacks."""
    if remade.at > ended.at:
        return False
    if began.kept < remade.log_end:
        return True
    if not has_other_history(story, began, ended):
        return False
    # A topic that is new to its broker leaves no deletion in the log: in an empty log its life begins at 0.
    starts = [one.at for one in events_of(story, ReignBegan) if one.broker == ended.broker]
    return remade.at >= max((at for at in starts if at <= ended.at), default=0.0)


def offsets_are_of_the_last_life(story: Story) -> Iterator[Violation]:
    """None is there when it begins, in the end none beyond the end of its queue, and all brokers have the same."""
    for event in story.history.events:
        if isinstance(event, TopicRemade) and event.offsets:
            yield Violation("offset of an earlier life", "", event)
    master = story.final.brokers[0]
    ends = [max((offset + 1 for offset, _ in queue), default=0) for queue in master.passing]
    for state in story.final.brokers:
        beyond = [pair for pair in state.passing_offsets if pair[1] > ends[pair[0]]]
        if beyond:
            yield Violation("offset of an earlier life", f"broker {state.broker}: {beyond}")
        elif state.passing_offsets != master.passing_offsets:
            yield Violation("offsets differ", f"of the passing topic, broker {state.broker}")


def _life_of(body: bytes) -> int:
    return int(body.partition(b".")[0])
