"""Makes the rows of a report on lag: one for each group and topic, with a verdict and its reason.

Invariant: a row counts every queue of its topic; one whose lag is unknown makes the row's lag unknown.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import attrs

from rocketrio.admin.lag_details import LagDetails
from rocketrio.admin.lag_samples import GroupTopic, LagSamples
from rocketrio.admin.lag_values import GroupLag, QueueLag
from rocketrio_protocol.lag import (
    SAMPLES_NEEDED,
    Circumstances,
    Judgement,
    Sample,
    Verdict,
    judge_counters,
    judge_queue,
    together,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.times import age_ms


@attrs.define
class LagRows:
    """Applies the rules to what a window has sampled, and to what brokers answered about details."""

    window: LagSamples
    details: LagDetails
    missing: Mapping[GroupTopic, Sequence[str]]
    is_detailed: bool = False
    """Whether brokers were asked for details; before, the age of a message is the highest that it may have."""
    now_ms: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.now_ms = self.window.client.wall_clock.now_ms()

    def rows(self) -> Iterator[GroupLag]:
        """Yield all groups with their topics, and the groups without any."""
        for group, topic in self.window.samples:
            yield self._row(group, topic)
        if self.window.topic is None:
            committed = {group for group, _ in self.window.samples}
            known = {group for facts in self.window.facts.values() for group in facts.groups}
            for group in sorted(known - committed):
                if self.window.is_wanted(group, None):
                    yield self._without_topic(group)

    def again(self, row: GroupLag) -> GroupLag:
        """Judge a row again, by what is known now."""
        return (
            self._without_topic(row.group) if row.topic is None else self._row(row.group, row.topic)
        )

    def _row(self, group: str, topic: str) -> GroupLag:
        key = group, topic
        samples: dict[MessageQueue, Sequence[Sample]] = {**self.window.samples[key]}
        parts: list[Judgement] = []
        for name in self.missing.get(key, ()):
            if name in self.window.silent:
                why = self._silent(name)
                assert why is not None
                parts.append(Judgement(Verdict.UNKNOWN, why, None))
                continue
            for queue_id in range(self.window.facts[name].topics[topic]):
                queue = MessageQueue(topic, name, queue_id)
                bounds = self.details.bounds.get(queue)
                end = None if bounds is None else bounds.max_offset
                samples[queue] = [Sample(self.window.times[-1], None, end)]
        queues = [
            self._queue(group, queue, samples[queue]) for queue in sorted(samples, key=_place)
        ]
        parts += self._judged(key, queues)
        ages = [one.oldest_seconds for one in queues]
        return GroupLag(
            group,
            topic,
            together(parts),
            self._members(group),
            None if None in ages else max((age for age in ages if age is not None), default=None),
            queues,
            self._source(queues),
        )

    def _queue(self, group: str, queue: MessageQueue, samples: Sequence[Sample]) -> QueueLag:
        judgement = judge_queue(_name(queue), samples, self._circumstances(group, queue, samples))
        owner = self.details.owner(group, queue)
        last = samples[-1]
        age = None if last.ahead else self.details.ages[queue].get(group)
        if last.lag == 0:
            age = 0.0
        return QueueLag(
            queue,
            last.committed,
            last.end,
            owner,
            age,
            judgement,
        )

    def _judged(self, key: GroupTopic, queues: Sequence[QueueLag]) -> Iterator[Judgement]:
        """Yield the judgements on queues; those with too few samples are judged by each broker's counters, together."""
        by_broker: dict[str, list[QueueLag]] = defaultdict(list)
        for one in queues:
            by_broker[one.queue.broker_name].append(one)
        for name, some in by_broker.items():
            undecided = [one for one in some if self._is_undecided(one)]
            if undecided:
                yield self._counted(key, name, undecided)
            for one in some:
                # Counters are of all queues of a broker, so those with nothing unread are in them.
                if not (undecided and (one in undecided or one.lag == 0)):
                    yield one.judgement

    def _counted(self, key: GroupTopic, name: str, some: Sequence[QueueLag]) -> Judgement:
        """Judge each queue by the counters of its broker; the numbers are those of all of them."""
        into, out = self.details.rates.get((name, key), (None, None))

        def judged(queues: Sequence[QueueLag]) -> Judgement:
            [first, *_] = queues
            sample = Sample(
                self.window.times[-1],
                sum(one.committed_offset or 0 for one in queues),
                sum(one.max_offset or 0 for one in queues),
            )
            owner = self.details.owner(key[0], first.queue)
            known = Circumstances(owner=owner, oldest_age=first.oldest_seconds)
            return judge_counters(
                _name(first.queue), sample, known, in_per_second=into, out_per_second=out
            )

        worst = together(judged([one]) for one in some)
        return attrs.evolve(judged(some), verdict=worst.verdict, why=worst.why)

    def _without_topic(self, group: str) -> GroupLag:
        members = self._members(group)
        why = "it has never committed anything"
        if self.window.silent:
            why = self._silent(min(self.window.silent)) or why
        elif members == 0:
            why += ", and it has no members"
        elif members:
            why = self._uncountable(group, None) or "its members have committed nothing yet"
        judgement = Judgement(Verdict.UNKNOWN, why, None)
        return GroupLag(group, None, judgement, members, None, [], self._source([]))

    def _source(self, queues: Sequence[QueueLag]) -> Literal["window", "counters"]:
        is_counted = self.window.length == 0 or any(map(self._is_undecided, queues))
        return "counters" if is_counted else "window"

    def _is_undecided(self, one: QueueLag) -> bool:
        """Return whether a queue has unread messages, and the window too few samples for a verdict."""
        is_young = len(self.window.times) < SAMPLES_NEEDED
        return is_young and one.judgement.verdict == Verdict.UNKNOWN and bool(one.lag)

    # ------------------------------------------------------------------------------- circumstances

    def _circumstances(
        self, group: str, queue: MessageQueue, samples: Sequence[Sample]
    ) -> Circumstances:
        name, last = queue.broker_name, samples[-1]
        if name in self.window.silent:
            return Circumstances(uncountable=self._silent(name))
        uncountable = self._uncountable(group, queue.topic)
        if uncountable is not None or not last.lag:
            return Circumstances(uncountable=uncountable)
        began = self.window.facts[name].log_began_ms
        log_age = None if began is None else age_ms(began, self.now_ms) / 1000
        bounds = self.details.bounds.get(queue)
        return Circumstances(
            owner=self.details.owner(group, queue),
            oldest_age=self._age(group, queue, log_age),
            log_age=log_age,
            was_reset=(group, queue) in self.details.resets,
            is_deleted=bounds is not None and (last.committed or 0) < bounds.min_offset,
            uncountable=uncountable,
        )

    def _age(self, group: str, queue: MessageQueue, log_age: float | None) -> float | None:
        if self.is_detailed:
            return self.details.ages[queue].get(group)
        progress = self.window.last.get((group, queue.topic), {}).get(queue)
        if progress is None or progress.last_consumed_ms is None:
            return log_age
        return age_ms(progress.last_consumed_ms, self.now_ms) / 1000

    def _silent(self, name: str) -> str | None:
        reason = self.window.silent.get(name)
        return None if reason is None else f"{name} did not answer: {reason}"

    def _uncountable(self, group: str, topic: str | None) -> str | None:
        found = self.details.members.get(group)
        if found is not None and found.message_model == "BROADCASTING":
            return "its members receive all messages each (broadcasting), and keep their offsets themselves"
        retries = (f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}")
        is_pop = found is not None and found.consume_type == "CONSUME_POP"
        if is_pop or any(
            retry in facts.topics for facts in self.window.facts.values() for retry in retries
        ):
            return "its members receive by POP, so brokers keep what was handled in another way"
        return None

    def _members(self, group: str) -> int | None:
        if group not in self.details.members:
            return None
        found = self.details.members[group]
        return 0 if found is None else len(found.connection_set)


def _place(queue: MessageQueue) -> tuple[str, int]:
    return queue.broker_name, queue.queue_id


def _name(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of {queue.broker_name}"
