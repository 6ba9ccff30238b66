"""Whether a history and what is left of it keep what was promised: pure functions, one an invariant.

What an acknowledgement promises, as asked for by the modes:

    SEND_OK, synchronous flush, WAIT     on the master's disk: survives everything
    SEND_OK, synchronous master, WAIT    in the log of a slave too (on its disk, if slaves acknowledge that)
    any other answer                     in the master's log: survives kill -9, and a power cut once it is flushed

Invariant: an excuse is a fault in the history that explains the loss, never a kind of run that is not checked.
"""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Final

from tests.cluster.histories.checker_offsets import SETTLED, can_ask, check_offsets
from tests.cluster.histories.checker_passing import check_passing
from tests.cluster.histories.checker_readers import (
    acknowledged_messages_are_delivered,
    readers_see_what_is_confirmed,
)
from tests.cluster.histories.events import (
    Event,
    HandedOver,
    LogsCompared,
    MemberEnded,
    MemberStarted,
    Pulled,
    Received,
    ReignBegan,
    ReignEnded,
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
from tests.cluster.histories.schedule import Failover
from tests.cluster.histories.story import BrokerState, Story
from tests.cluster.histories.tail_losses import (
    DAMAGES,
    any_divergent,
    end_of,
    first_tail_loss,
    may_be_divergent,
    may_be_lost,
    more_than_the_master,
    reigns,
    tail_losses,
    was_down,
)
from tests.cluster.histories.uses.check_handling import check_ledger, check_notices, check_retries
from tests.cluster.histories.uses.check_parked import check_delayed, check_transactions
from tests.cluster.histories.uses.check_regulars import check_regulars
from tests.cluster.histories.violation import Violation, events_of
from tests.cluster.histories.world import common_end

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.epochs import common_boundary
from rocketrio_broker.store.acknowledged import SYNC_PERIOD
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.ha.stream import TRANSFER_HEADER_SIZE as HEADER_SIZE

SET_BACK: Final = ("wiped", "older copy")
"""The ends of a broker that may come back without a table that it had stored."""

NOTED_WITHIN: Final = 2 * SYNC_PERIOD
"""Seconds after which a slave's report is noted on its master's disk."""

_Offset = tuple[int | str, ...]
"""Queue id and offset, and for the uses group and topic before them."""


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
        is_excused = may_be_lost(
            story,
            status=answer.status,
            waits=answer.waits,
            started=answer.started,
            end_offset=answer.end_offset,
        )
        if not all(kept) and not is_excused:
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
    """A former master waits for an operator only if a slave that lost something may have had more than it has.

    Of two slaves one may not have been asked. A stranger that does not identify itself may be an Apache slave.
    """
    is_alone = story.schedule.mode.slaves == 1
    for wait in events_of(story, TailWaits):
        has_lost = any(
            (isinstance(event, MemberEnded) and event.how in (*DAMAGES, "power cut"))
            or (isinstance(event, TailCut) and not event.is_proven)
            for event in story.history.events
            if event.at <= wait.at and getattr(event, "broker", wait.broker) != wait.broker
        )
        is_unknown = "may have had it" in wait.why and "does not identify" not in wait.why
        if not has_lost and ("had acknowledged" in wait.why or (is_alone and is_unknown)):
            yield Violation("waits though nothing was acknowledged", "", wait)


def _was_not_noted(story: Story, answer: SendAnswered, cut: TailCut) -> bool:
    """Return whether a power cut came before a slave's report was noted on the disk, and that slave was set back."""
    ends = [end for end in events_of(story, MemberEnded) if answer.at <= end.at <= cut.at]
    return any(end.how in SET_BACK and end.broker != cut.broker for end in ends) and any(
        end.how == "power cut" and end.broker == cut.broker and end.at - answer.at <= NOTED_WITHIN
        for end in ends
    )


def logs_are_identical(story: Story) -> Iterator[Violation]:
    """Byte by byte, and as far as the master's, now that everything is mended."""
    master = story.final.brokers[0]
    for slave in story.final.brokers[1:]:
        if _waits_ahead(story, slave):
            continue
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
    torn: set[int] = set()
    for event in story.history.events:
        if isinstance(event, MemberEnded) and event.how == "torn end":
            torn.add(event.broker)
        elif (
            isinstance(event, LogsCompared)
            and event.same < event.boundary
            # What a crash tore is not mended before its broker has found another one.
            and not torn & {event.broker, event.other}
        ):
            yield Violation("logs differ below their boundary", "", event)
    for one, other in combinations(story.final.brokers, 2):
        boundary = common_boundary(one.epochs, one.log_end, other.epochs, other.log_end)
        same = common_end((one.log_begin, one.log), (other.log_begin, other.log))
        if boundary is not None and same < boundary.address:
            text = f"brokers {one.broker} and {other.broker} from {same} on, boundary {boundary.address}"
            yield Violation("logs differ below their boundary", text)


def _waits_ahead(story: Story, slave: BrokerState) -> bool:
    """Whether a slave with more than its master says so: nothing was appended since that would tell them apart."""
    master = story.final.brokers[0]
    return (
        may_be_divergent(story, slave.broker)
        and slave.replication.startswith(HAClientState.AHEAD.value)
        and slave.log.startswith(master.log)
    )


def new_master_got_the_whole_log(story: Story) -> Iterator[Violation]:
    """What a slave that could be asked had beyond it, a master has when it serves: one that came back, or a new one."""
    for began, ended, number in more_than_the_master(story):
        if can_ask(story, ended.at, began) and not was_down(story, number, began.at):
            yield Violation("a slave still had the tail", f"broker {number}", began)


def everything_came_to_rest(story: Story) -> Iterator[Violation]:
    """After the faults slaves are level and the group has read and committed everything, also of a shorter log."""
    brokers = story.final.brokers
    if not story.final.came_to_rest and not any(_waits_ahead(story, one) for one in brokers[1:]):
        states = [(state.log_end, state.offsets, state.replication) for state in brokers]
        yield Violation("no rest", f"{states}, ends {[len(q) for q in brokers[0].queues]}")


def producers_find_the_master(story: Story) -> Iterator[Violation]:
    """Once everything is mended each of them reaches whoever is master then."""
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
    losses = {loss.ended for loss in tail_losses(story)}
    answered: dict[int, int] = {}  # by queue, where the messages answered so far end
    least: dict[str, int] = {}  # by producer, where what it sends now may stand at least
    for event in story.history.events:
        if isinstance(event, ReignEnded) and event.at in losses:
            answered.clear()
            least.clear()
        elif isinstance(event, SendStarted):
            least[event.producer] = answered.get(event.queue_id, 0)
        elif isinstance(event, SendAnswered):
            if event.queue_offset < least.get(event.producer, 0):
                yield Violation("out of order", f"sent behind {least[event.producer]}", event)
            end = event.queue_offset + len(event.bodies)
            answered[event.queue_id] = max(end, answered.get(event.queue_id, 0))


def readers_see_what_a_master_appended(story: Story) -> Iterator[Violation]:
    """Only what was sent, and at one place of a queue one message for ever."""
    losses = tail_losses(story)
    sent: set[tuple[int, bytes]] = set()
    places: dict[tuple[int, int], tuple[bytes, float]] = {}
    final = story.final.brokers[0].queues
    end = story.history.events[-1].at
    divergent = {
        state.broker for state in story.final.brokers if may_be_divergent(story, state.broker)
    }
    pulled: set[tuple[int, int, bytes]] = set()
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
            if isinstance(event, Pulled) and event.broker in divergent:
                continue
            before, at = places.setdefault((queue_id, offset), (body, event.at))
            if before != body and not any(loss.lies_between(at, event.at) for loss in losses):
                yield Violation("two messages at one place", f"{before!r} and {body!r}", event)
    for queue_id, messages in enumerate(final):
        found = dict(messages)
        for (queue, offset), (body, at) in places.items():
            if queue != queue_id or any(loss.lies_between(at, end) for loss in losses):
                continue
            if found.get(offset) != body:
                yield Violation("read and gone", f"{queue}/{offset} {body!r} read at {at}")


def _read(event: Event) -> Iterator[tuple[int, int, bytes]]:
    if isinstance(event, Pulled):
        for offset, body in event.messages:
            yield event.queue_id, offset, body
    elif isinstance(event, Received):
        yield event.queue_id, event.queue_offset, event.body


def the_group_skips_nothing(story: Story) -> Iterator[Violation]:
    """Whoever receives a message, all before it were received by somebody of the group."""
    first_loss = first_tail_loss(story)
    received: dict[int, set[int]] = {}
    if any_divergent(story):
        return
    for event in events_of(story, Received):
        if event.at >= first_loss:
            return
        seen = received.setdefault(event.queue_id, set())
        seen.add(event.queue_offset)
        if len(seen) != max(seen) + 1:
            missing = sorted(set(range(max(seen))) - seen)
            yield Violation("skipped", f"queue {event.queue_id} offsets {missing}", event)
            return


def metadata_converges(story: Story) -> Iterator[Violation]:
    """Topics, groups and offsets are the same everywhere at the end."""
    master = story.final.brokers[0]
    for slave in story.final.brokers[1:]:
        if _waits_ahead(story, slave):
            continue  # It copies nothing from a master whose log it does not follow.
        for name in ("topics", "groups", "offsets", "used_offsets"):
            ours, theirs = (set(getattr(one, name)) for one in (slave, master))
            if "offsets" in name and tail_losses(story):
                # A master takes no offset of a queue that holds nothing, and a slave keeps the one that it has.
                ours, theirs = (_of_queues_with_messages(master, one) for one in (ours, theirs))
            if ours != theirs:
                only = f"only broker {slave.broker}: {ours - theirs}, only master: {theirs - ours}"
                yield Violation(f"{name} differ", only)


def _of_queues_with_messages(master: BrokerState, offsets: set[_Offset]) -> set[_Offset]:
    """Return the offsets, of the plain topic or of the uses, on queues that hold messages at the master."""
    held = {("", queue_id) for queue_id, messages in enumerate(master.queues) if messages}
    held |= {(stored.topic, stored.queue_id) for stored in master.used}
    return {one for one in offsets if ("" if len(one) == 2 else one[1], one[-2]) in held}


def second_master_takes_no_writes(story: Story) -> Iterator[Violation]:
    """While the first of the name is there, and the name server sends nobody to another."""
    for event in story.history.events:
        if isinstance(event, RivalAnswered) and event.code == ResponseCode.SUCCESS:
            yield Violation("a second master took a write", "", event)
        elif isinstance(event, RivalEnded) and (event.log_end or event.is_listed):
            yield Violation("there were two masters", "", event)


def hand_overs_lose_nothing(story: Story) -> Iterator[Violation]:
    """When the command is done the new master has all that the former had, and nobody else ever took writes with it."""
    for event in story.history.events:
        if isinstance(event, TwoMasters):
            yield Violation("there were two masters", "", event)
        elif isinstance(event, HandedOver):
            kept = [
                began.kept >= ended.log_end
                for began, ended in reigns(story)
                if (ended.broker, began.broker) == (event.former, event.broker)
                and ended.at <= event.at  # It may take its time until it takes writes.
            ]
            if (not kept or not kept[-1]) and not _lost_its_end(story, event):
                yield Violation("handed over with less", "", event)


def _lost_its_end(story: Story, handed_over: HandedOver) -> bool:
    """Whether the new master went down with what no disk had yet, before the command was answered."""
    began = max(
        (
            event.at
            for event in story.history.events
            if isinstance(event, ReignEnded)
            and event.broker == handed_over.former
            and event.at <= handed_over.at
        ),
        default=handed_over.at,
    )
    return any(
        isinstance(event, MemberEnded)
        and event.broker == handed_over.broker
        and event.how not in ("stop", "kill")
        and began <= event.at <= handed_over.at
        for event in story.history.events
    )


def former_masters_lead_nobody(story: Story) -> Iterator[Violation]:
    """One that comes back as master gives nothing to readers while another one is master."""
    if not any(isinstance(change, Failover) for change in story.schedule.switches):
        return  # In a hand-over both are, for as long as the former one has not heard that it is over.
    master: int | None = 0
    for event in story.history.events:
        if isinstance(event, ReignEnded):
            master = None
        elif isinstance(event, ReignBegan):
            master = event.broker
        elif (
            isinstance(event, Pulled)
            and master not in (None, event.broker)
            and event.role not in ("", "slave")
        ):
            yield Violation("a former master was read from", "", event)


def strangers_get_nothing(story: Story) -> Iterator[Violation]:
    """Where replication is closed, who proves nothing is told at most that (a TLS alert is shorter than a header)."""
    for answer in events_of(story, StrangerAnswered):
        if answer.size >= HEADER_SIZE:
            yield Violation("a stranger was served", "", answer)


def created_topics_are_there(story: Story) -> Iterator[Violation]:
    """Their file is synced before a request for one is answered, and a new master asks the last one for its table."""
    names = {text.split()[0] for text in story.final.brokers[0].topics}
    cut_off = max(
        (one.cut_off + one.copied for one in story.schedule.switches if isinstance(one, Failover)),
        default=0.0,
    )
    for created in events_of(story, TopicCreated):
        was_not_heard_of = (
            any(
                began.broker != ended.broker
                and began.at >= created.at
                and not can_ask(story, created.at, began)
                for began, ended in reigns(story)
            )
            or any(
                # Its table is gone with the process or disk that had it, before slaves copied it.
                (was_down(story, ended.broker, began.at) or end_of(story, ended) in SET_BACK)
                and 0 <= ended.at - created.at <= SETTLED + cut_off
                for began, ended in reigns(story)
            )
            or any(
                end_of(story, ended) in SET_BACK and not can_ask(story, ended.at, began)
                for began, ended in reigns(story)
            )
        )
        if created.topic not in names and not was_not_heard_of:
            yield Violation("created and gone", "", created)


def started_members_have_what_they_must(story: Story) -> Iterator[Violation]:
    """A broker comes back with its whole log, or after a power cut with what was flushed at least."""
    ended: dict[int, MemberEnded] = {}
    for event in story.history.events:
        if isinstance(event, MemberEnded):
            ended[event.broker] = event
        elif isinstance(event, MemberStarted):
            end = ended[event.broker]
            least = end.flushed if end.how == "power cut" else end.log_end
            # A slave may have been cut in a record; a master appends whole ones.
            if end.how in DAMAGES:
                continue
            if event.kept < least and "slave" not in (end.role, event.role):
                yield Violation("came back with less", f"{least} before, by {end.how}", event)


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
    former_masters_lead_nobody,
    strangers_get_nothing,
    second_master_takes_no_writes,
)
