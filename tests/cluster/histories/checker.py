"""Whether a history and what is left of it keep what was promised: pure functions, one an invariant.

What an acknowledgement promises, as asked for by the modes:

    SEND_OK, synchronous flush, WAIT     on the master's disk: survives everything
    SEND_OK, synchronous master, WAIT    in the log of a slave too (on its disk, if slaves acknowledge that)
    any other answer                     in the master's log: survives kill -9, and a power cut once it is flushed

Invariant: an excuse is a fault in the history that explains the loss, never a kind of run that is not checked. There
are five:

    no copy could be asked                       `may_be_lost`; for places and offsets of queues `TailLoss`
    a report was not on its master's disk yet    `_was_not_noted`
    a disk refused to write, or took its time    `MemberEnded.disk_trouble_at`; or its files are older ones, or none
    a clock was wrong meanwhile                  `Schedule.has_wrong_clock`
    what failed was to come again, and is lost   `all_was_handled`
"""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Final

from tests.cluster.histories.checker_offsets import check_offsets
from tests.cluster.histories.checker_passing import check_passing
from tests.cluster.histories.checker_readers import (
    acknowledged_messages_are_delivered,
    places_passed_by_an_order,
    readers_see_what_is_confirmed,
)
from tests.cluster.histories.checker_standings import (
    former_masters_lead_nobody,
    standings_are_those_of_the_table,
    writes_are_taken_by_those_that_may,
)
from tests.cluster.histories.events import (
    AnsweredEarly,
    Event,
    HandedOver,
    LogsCompared,
    MemberEnded,
    MemberStarted,
    Pulled,
    Received,
    ReignBegan,
    ReignEnded,
    Reported,
    RivalAnswered,
    RivalEnded,
    SendAnswered,
    SendStarted,
    StrangerAnswered,
    TailCut,
    TailWaits,
    TopicCreated,
    TwoMasters,
)
from tests.cluster.histories.schedule import MOVABLE_QUEUE
from tests.cluster.histories.story import Story
from tests.cluster.histories.tail_losses import (
    could_get,
    has_other_history,
    is_divergent,
    may_be_lost,
    more_than_the_master,
    reigns,
    shorter_reigns,
    tail_losses,
)
from tests.cluster.histories.uses.check_handling import check_ledger, check_notices, check_retries
from tests.cluster.histories.uses.check_parked import check_delayed, check_transactions
from tests.cluster.histories.uses.check_regulars import check_regulars
from tests.cluster.histories.violation import Violation, events_of
from tests.cluster.histories.world import common_end

from rocketrio_broker.ha.epochs import common_boundary
from rocketrio_broker.store.acknowledged import SYNC_PERIOD
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.ha.stream import TRANSFER_HEADER_SIZE as HEADER_SIZE

NOTED_WITHIN: Final = 2 * SYNC_PERIOD
"""Seconds after which a slave's report is noted on its master's disk."""


def check(story: Story) -> list[Violation]:
    """Everything that is wrong with a story."""
    if story.crash is not None:
        return [Violation("a broker or client ended by itself", story.crash)]
    return [violation for invariant in INVARIANTS for violation in invariant(story)]


def answers_wait_for_what_they_say(story: Story) -> Iterator[Violation]:
    """Nothing is acknowledged as safe before it is."""
    mode = story.schedule.mode
    for answer in events_of(story, SendAnswered):
        if answer.status != "SEND_OK" or not answer.waits:
            continue
        slaves = [holder for holder in answer.held_by if holder[0] != answer.broker]
        flushed = {number: flushed for number, _, flushed in answer.held_by}.get(answer.broker)
        if mode.flush == "sync" and flushed is not None and flushed <= answer.end_offset:
            yield Violation("acknowledged before it was flushed", f"flushed={flushed}", answer)
        if mode.role == "sync-master":
            on_disk = mode.acknowledge == "disk"
            holders = [one for one in slaves if one[2 if on_disk else 1] > answer.end_offset]
            gone = [
                end
                for end in events_of(story, MemberEnded)
                if end.broker != answer.broker
                and answer.started <= end.at <= answer.at
                and (end.flushed if on_disk else end.log_end) > answer.end_offset
            ]
            if not holders and not gone:
                yield Violation("acknowledged before a slave had it", f"{slaves}", answer)


def acknowledged_messages_are_there(story: Story) -> Iterator[Violation]:
    """Each at the place that its answer named."""
    master = story.final.brokers[0]
    queues = [dict(queue) for queue in master.queues]
    for answer in events_of(story, SendAnswered):
        kept = [
            queues[answer.queue_id].get(answer.queue_offset + index) == body
            for index, body in enumerate(answer.bodies)
        ]
        if not all(kept) and not may_be_lost(story, answer):
            yield Violation("acknowledged and lost", "", answer)


def nothing_acknowledged_is_cut_automatically(story: Story) -> Iterator[Violation]:
    """What a broker gives up by its own proof, whatever the rule, holds no message that it answered SEND_OK for."""
    for cut in events_of(story, TailCut):
        given_up = set(cut.bodies) if cut.is_proven else set()
        for answer in events_of(story, SendAnswered):
            if (
                (answer.broker, answer.status) == (cut.broker, "SEND_OK")
                and answer.at <= cut.at
                and cut.start <= answer.end_offset < cut.end
                and any((answer.queue_id, body) in given_up for body in answer.bodies)
                and not _was_not_noted(story, answer, cut)
            ):
                yield Violation("was cut though acknowledged", f"{cut}", answer)


def slaves_wait_for_what_was_acknowledged(story: Story) -> Iterator[Violation]:
    """A former master waits for an operator, or for his rule, only if something was answered for what it has.

    Or if it may have been: a slave told it so; or the only slave cannot say what it had, because it has lost something
    since, or its power was cut while it reported what it had in memory; or something was answered without a slave. Of
    two slaves one may not have been asked. A stranger that does not identify itself may be an Apache slave.
    """
    mode = story.schedule.mode
    cuts = [cut for cut in events_of(story, TailCut) if not cut.is_proven]
    for wait in (*events_of(story, TailWaits), *cuts):
        was_told = any(
            isinstance(event, Reported)
            and event.broker == wait.broker
            and event.address > wait.start
            and event.at <= wait.at
            for event in story.history.events
        )
        has_lost = any(
            (
                isinstance(event, MemberEnded)
                and (
                    event.left < event.log_end
                    # Nothing was lost then, but only the simulator knows that.
                    or (event.how == "power cut" and mode.acknowledge == "memory")
                )
            )
            or (isinstance(event, TailCut) and not event.is_proven)
            for event in story.history.events
            if event.at <= wait.at and getattr(event, "broker", wait.broker) != wait.broker
        )
        answered_early = any(
            event.broker == wait.broker and event.at <= wait.at
            for event in events_of(story, AnsweredEarly)
        )
        is_unknown = "may have had it" in wait.why and "does not identify" not in wait.why
        is_wrong = (
            ("had acknowledged" in wait.why and not was_told)
            or (is_unknown and mode.slaves == 1 and not has_lost and not was_told)
            or ("before any slave" in wait.why and mode.role == "sync-master")
            or ("before slaves had it" in wait.why and not answered_early)
        )
        if is_wrong:
            yield Violation("waits though nothing was acknowledged", "", wait)


def _was_not_noted(story: Story, answer: SendAnswered, cut: TailCut) -> bool:
    """Return whether the report was not on the disk yet when the power was cut, and its slave lost the message too."""
    ends = [end for end in events_of(story, MemberEnded) if answer.at <= end.at <= cut.at]
    return any(end.broker != cut.broker and end.left <= answer.end_offset for end in ends) and any(
        end.how == "power cut"
        and end.broker == cut.broker
        and end.noted <= answer.end_offset
        and end.at - answer.at <= NOTED_WITHIN
        for end in ends
    )


def logs_are_identical(story: Story) -> Iterator[Violation]:
    """Byte by byte, and as far as the master's, now that everything is mended."""
    master = story.final.brokers[0]
    for slave in story.final.brokers[1:]:
        begin, end = max(master.log_begin, slave.log_begin), min(master.log_end, slave.log_end)
        ours = slave.log[begin - slave.log_begin : end - slave.log_begin]
        theirs = master.log[begin - master.log_begin : end - master.log_begin]
        if ours != theirs:
            at = next(
                i for i, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other
            )
            yield Violation("logs differ", f"broker {slave.broker} from address {begin + at} on")
        if slave.log_end != master.log_end:
            ends = f"broker {slave.broker} ends at {slave.log_end}, the master at {master.log_end}"
            yield Violation("a slave is not level", f"{ends}: {slave.replication}")
        if (slave.queues, slave.used) != (master.queues, master.used):
            yield Violation("queues differ", f"broker {slave.broker}")


def logs_are_identical_below_their_boundary(story: Story) -> Iterator[Violation]:
    """Whatever became of them: two logs are the same up to where they part, by the epochs that they name."""
    torn: dict[
        int, int
    ] = {}  # by broker that has not been mended: up to where no crash tore its log
    for event in story.history.events:
        if isinstance(event, MemberEnded) and event.how == "torn end":
            torn[event.broker] = event.left
        elif isinstance(event, ReignBegan) and any(event.could_ask(one) for one, _ in event.asked):
            torn.pop(event.broker, None)
        elif isinstance(event, LogsCompared):
            pair = {event.broker, event.other}
            if event.same < min([event.boundary, *(torn[one] for one in pair & torn.keys())]):
                yield Violation("logs differ below their boundary", "", event)
            elif event.same >= event.boundary:
                torn = {one: left for one, left in torn.items() if one not in pair}
    for one, other in combinations(story.final.brokers, 2):
        boundary = common_boundary(one.epochs, one.log_end, other.epochs, other.log_end)
        same = common_end((one.log_begin, one.log), (other.log_begin, other.log))
        if boundary is not None and same < boundary.address:
            text = f"brokers {one.broker} and {other.broker} from {same} on, boundary {boundary.address}"
            yield Violation("logs differ below their boundary", text)


def new_master_got_the_whole_log(story: Story) -> Iterator[Violation]:
    """A master has what every broker that could be asked has, when it serves: one that came back, or a new one."""
    for began, ended, number in more_than_the_master(story):
        if could_get(story, began, ended, number):
            yield Violation("a slave still had the tail", f"broker {number}", began)


def everything_came_to_rest(story: Story) -> Iterator[Violation]:
    """After the faults slaves are level and the group has read and committed everything, also of a shorter log."""
    brokers = story.final.brokers
    if not story.final.came_to_rest:
        states = [(state.log_end, state.offsets, state.replication) for state in brokers]
        yield Violation("no rest", f"{states}, ends {[len(q) for q in brokers[0].queues]}")


def producers_find_the_master(story: Story) -> Iterator[Violation]:
    """Once everything is mended each of them reaches the master of that moment."""
    mended = story.schedule.faults_end
    found = {
        answer.producer for answer in events_of(story, SendAnswered) if answer.started >= mended
    }
    for number in range(story.schedule.producers):
        name = f"producer-{number}"
        if name not in found:
            yield Violation("no send", f"{name} reached no master after everything was mended")


def queues_keep_the_order_of_sends(story: Story) -> Iterator[Violation]:
    """A message that was sent after another was answered stands behind it."""
    losses = {loss.ended: loss for loss in tail_losses(story)}
    answered: dict[int, int] = {}  # by queue, where the messages answered so far end
    least: dict[
        str, tuple[int, int]
    ] = {}  # by producer: queue, and where what it sends now may stand at least
    for event in story.history.events:
        if isinstance(event, ReignEnded) and (loss := losses.get(event.at)) is not None:
            answered = {queue: min(end, loss.end_of(queue)) for queue, end in answered.items()}
            least = {
                who: (queue, min(end, loss.end_of(queue))) for who, (queue, end) in least.items()
            }
        elif isinstance(event, SendStarted):
            least[event.producer] = event.queue_id, answered.get(event.queue_id, 0)
        elif isinstance(event, SendAnswered):
            _, end = least.get(event.producer, (event.queue_id, 0))
            if event.queue_offset < end:
                yield Violation("out of order", f"sent behind {end}", event)
            end = event.queue_offset + len(event.bodies)
            answered[event.queue_id] = max(end, answered.get(event.queue_id, 0))


def readers_see_what_a_master_appended(story: Story) -> Iterator[Violation]:
    """Only what was sent, and at one place of a queue one message for ever, but where its tail was lost."""
    losses = tail_losses(story)
    sent: set[tuple[int, bytes]] = set()
    places: dict[tuple[int, int], tuple[bytes, float]] = {}
    end = story.history.events[-1].at
    pulled: set[tuple[int, int, bytes]] = set()
    # of brokers that have not cut what their master lacks
    divergent: dict[tuple[int, int, int], bytes] = {}
    for event in story.history.events:
        if isinstance(event, SendStarted):
            sent.update((event.queue_id, body) for body in event.bodies)
        for queue_id, offset, body in _read(event):
            if (queue_id, body) not in sent:
                yield Violation("read and never sent", f"{queue_id}/{offset} {body!r}", event)
            if isinstance(event, Received):  # A member hands out what it pulled, maybe long before.
                if (queue_id, offset, body) not in pulled:
                    yield Violation("received and never pulled", f"{queue_id}/{offset}", event)
                continue
            pulled.add((queue_id, offset, body))
            lost = [loss for loss in losses if loss.took(queue_id, offset)]
            if (
                isinstance(event, Pulled)
                and any(loss.started <= event.at for loss in lost)
                and is_divergent(story, event.broker, event.at)
            ):
                own = divergent.setdefault((event.broker, queue_id, offset), body)
                if own != body:
                    yield Violation("two messages at one place", f"{own!r} and {body!r}", event)
                continue
            before, at = places.setdefault((queue_id, offset), (body, event.at))
            if before != body:
                if not any(loss.lies_between(at, event.at) for loss in lost):
                    yield Violation("two messages at one place", f"{before!r} and {body!r}", event)
                places[queue_id, offset] = body, event.at
    for queue_id, messages in enumerate(story.final.brokers[0].queues):
        found = dict(messages)
        for (queue, offset), (body, at) in places.items():
            is_lost = any(
                loss.took(queue, offset) and loss.lies_between(at, end) for loss in losses
            )
            if queue == queue_id and found.get(offset) != body and not is_lost:
                yield Violation("read and gone", f"{queue}/{offset} {body!r} read at {at}")


def _read(event: Event) -> Iterator[tuple[int, int, bytes]]:
    if isinstance(event, Pulled):
        for offset, body in event.messages:
            yield event.queue_id, offset, body
    elif isinstance(event, Received):
        yield event.queue_id, event.queue_offset, event.body


def the_group_skips_nothing(story: Story) -> Iterator[Violation]:
    """When a member receives a message that is still there, the group has received all that stand before it."""
    queues = [dict(messages) for messages in story.final.brokers[0].queues]
    received: list[set[int]] = [set() for _ in queues]
    received[MOVABLE_QUEUE] |= places_passed_by_an_order(story)
    told: set[int] = set()
    for event in events_of(story, Received):
        queue, seen = queues[event.queue_id], received[event.queue_id]
        if queue.get(event.queue_offset) != event.body:
            continue
        seen.add(event.queue_offset)
        missing = [offset for offset in queue if offset < event.queue_offset and offset not in seen]
        if missing and event.queue_id not in told:
            told.add(event.queue_id)
            yield Violation("skipped", f"queue {event.queue_id} offsets {missing}", event)


def metadata_converges(story: Story) -> Iterator[Violation]:
    """Topics, groups and offsets are the same everywhere at the end."""
    master = story.final.brokers[0]
    for slave in story.final.brokers[1:]:
        for name in ("topics", "groups", "offsets", "used_offsets"):
            ours, theirs = (set(getattr(one, name)) for one in (slave, master))
            if ours != theirs:
                only = f"only broker {slave.broker}: {ours - theirs}, only master: {theirs - ours}"
                yield Violation(f"{name} differ", only)


def second_master_takes_no_writes(story: Story) -> Iterator[Violation]:
    """While the first of the name is there, and the name server sends no client to another."""
    for event in story.history.events:
        if isinstance(event, RivalAnswered) and event.code == ResponseCode.SUCCESS:
            yield Violation("a second master took a write", "", event)
        elif isinstance(event, RivalEnded) and (event.log_end or event.is_listed):
            yield Violation("there were two masters", "", event)


def hand_overs_lose_nothing(story: Story) -> Iterator[Violation]:
    """When the command is done the new master has all that the former had, and no other ever took writes with it."""
    for event in story.history.events:
        if isinstance(event, TwoMasters):
            yield Violation("there were two masters", "", event)
        elif isinstance(event, HandedOver):
            reign = [
                (began, ended)
                for began, ended in reigns(story)
                if (ended.broker, began.broker) == (event.former, event.broker)
                and ended.at <= event.at  # It may take its time until it takes writes.
            ][-1:]
            if not reign or reign[0][0].kept < _kept_by_its_disk(story, *reign[0]):
                yield Violation("handed over with less", "", event)


def _kept_by_its_disk(story: Story, began: ReignBegan, ended: ReignEnded) -> int:
    """Return what of a log a new master's disk kept, if the broker went down before its reign began."""
    left = [
        event.left
        for event in events_of(story, MemberEnded)
        if event.broker == began.broker and ended.at <= event.at <= began.at
    ]
    return min([ended.log_end, *left])


def strangers_get_nothing(story: Story) -> Iterator[Violation]:
    """Where replication is closed, a peer without proof learns at most that (a TLS alert is shorter than a header)."""
    for answer in events_of(story, StrangerAnswered):
        if answer.size >= HEADER_SIZE:
            yield Violation("a stranger was served", "", answer)


def created_topics_are_there(story: Story) -> Iterator[Violation]:
    """A master that begins has those that it had itself, and those of the brokers that it could ask.

    Those that it knows from their connections alone it asks once: they are not held against it. With a log that an
    operator gave up, because he made a broker with another one master, its topics are given up too.
    """
    created: dict[str, TopicCreated] = {}
    given_up = {
        (began.at, ended.broker)
        for began, ended in shorter_reigns(story)
        if has_other_history(story, began, ended)
    }
    for event in story.history.events:
        if isinstance(event, TopicCreated):
            created[event.topic] = event
        elif isinstance(event, ReignBegan):
            there = set(event.has_topics)
            for number, topics in event.topics:
                missing = created.keys() & set(topics) - set(event.has_topics)
                is_known = number == event.broker or (
                    number in event.named
                    and event.could_ask(number)
                    and (event.at, number) not in given_up
                )
                if missing and is_known and event.is_serving:
                    yield Violation("created and gone", f"broker {number} had {missing}", event)
                elif is_known and not event.is_serving:
                    there |= missing  # It may get them yet.
            created = {name: one for name, one in created.items() if name in there}
    names = {text.split()[0] for text in story.final.brokers[0].topics}
    for topic, one in created.items():
        if topic not in names:
            yield Violation("created and gone", "", one)


def started_members_have_what_they_must(story: Story) -> Iterator[Violation]:
    """A broker comes back with all of its log that its disk kept."""
    ended: dict[int, MemberEnded] = {}
    for event in story.history.events:
        if isinstance(event, MemberEnded):
            ended[event.broker] = event
        elif isinstance(event, MemberStarted):
            end = ended[event.broker]
            # A slave may have been cut in a record; a master appends whole ones.
            if event.kept < end.left and "slave" not in (end.role, event.role):
                yield Violation("came back with less", f"{end.left} before, by {end.how}", event)


INVARIANTS: Final[tuple[Callable[[Story], Iterator[Violation]], ...]] = (
    answers_wait_for_what_they_say,
    acknowledged_messages_are_there,
    nothing_acknowledged_is_cut_automatically,
    slaves_wait_for_what_was_acknowledged,
    logs_are_identical,
    logs_are_identical_below_their_boundary,
    everything_came_to_rest,
    queues_keep_the_order_of_sends,
    readers_see_what_a_master_appended,
    the_group_skips_nothing,
    acknowledged_messages_are_delivered,
    readers_see_what_is_confirmed,
    check_offsets,
    check_passing,
    check_delayed,
    check_transactions,
    check_ledger,
    check_retries,
    check_notices,
    check_regulars,
    metadata_converges,
    created_topics_are_there,
    started_members_have_what_they_must,
    new_master_got_the_whole_log,
    producers_find_the_master,
    hand_overs_lose_nothing,
    standings_are_those_of_the_table,
    writes_are_taken_by_those_that_may,
    former_masters_lead_nobody,
    strangers_get_nothing,
    second_master_takes_no_writes,
)
