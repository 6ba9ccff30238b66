"""Runs the broker's current role and switches between roles: a master takes over before it takes writes.

    master  end of following: all complete records into the queues, an incomplete one is cut off
            | no other master of this name continues | messages that slaves have and this log lacks are fetched
            | tables and offsets of its slaves taken over | it claims to lead, and checks for masters and logs again
            | registered | an epoch of its own | writes | delayed messages and transactions
    slave   writes refused, waiting sends answered | follows its master's log and tables | registered

A role runs in a cancel scope; `change` ends it and begins the other. Connections, tables and listeners continue. A
master that finds another rocketrio master taking writes becomes its slave, if `ha_return_role` says so. The current
role is stored in a file (`file.py`) for the next start. What is found out is reported as an event (`standing.py`), and
the standing that follows from it decides what the broker does for others.

A master that starts gives way to any other that it knows of. One that was registered and leads gives way to a broker
that has taken over, as its epoch shows (`ha/judgement.py`); if a name server lists another master, that is only logged.

Invariant: a master begins to take writes only while no other live master of its name is known.
Invariant: it takes no writes before the reachable name servers have listed it.
Invariant: it takes no writes before its queues are complete and its slaves were asked for messages and offsets.
Answers to: BrokerController.changeToMaster, changeToSlave.
Unlike Java: a slave registers at once and learns its master from the answer; in Java it waits for the next period.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final

import attrs
import trio

from rocketrio_broker.delay.delayed_puts import parked_from
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.gather_offsets import GATHER_LIMIT, TakenOver
from rocketrio_broker.ha.judgement import (
    OtherMaster,
    all_are_slaves,
    has_later_epoch,
    leader,
    longer_logs,
    rival,
    shows_successor,
    silent_brokers,
    slaves_of,
    why_nobody_leads,
)
from rocketrio_broker.ha.missing_tail import FetchedTail
from rocketrio_broker.ha.open_epoch import EpochOpener
from rocketrio_broker.ha.slave import SlaveReplication
from rocketrio_broker.ha.survey import PeerView, Survey, Surveyor
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.role.file import PendingHandOver, RoleFile
from rocketrio_broker.role.standing import (
    ASIDE,
    CLAIMING,
    FOLLOWING,
    LEADING,
    NOT_TAKEN_OVER,
    SHORT_OF_ROOM,
    Event,
)
from rocketrio_broker.role.switchboard import Switchboard
from rocketrio_broker.settings.config import BrokerConfig, LiveConfig, Role
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.refusals import Refuser
from rocketrio_broker.tables.config_file import ConfigFileError, UnreadableTablesError
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.codes import MASTER_ID, ResponseCode
from rocketrio_protocol.errors import ConfigError, Error, RequestCodeNotSupportedError

logger = logging.getLogger("rocketrio_broker")

OTHER_MASTER_CHECK_INTERVAL: Final = 5.0
"""Seconds until a master that stands aside checks again whether the other one is gone."""

RIVAL_CHECK_INTERVAL: Final = 1.0
"""Seconds until a master that lets another one go first checks again whether that takes writes now."""

SECOND_SEARCH_LIMIT: Final = 1.0
"""Seconds for the second search for other masters and longer logs: live brokers have answered by then."""

EPOCHS_LIMIT: Final = 5.0
"""Seconds for all brokers that are asked for their epochs together."""

FORMER_FOLLOWS_LIMIT: Final = 1.0
"""Seconds that a master waits, after a hand-over or a change of its mode, for enough slaves for its sends."""

FORMER_LEAVES_LIMIT: Final = 3.0
"""Seconds for the former master, after a hand-over, to leave the name servers' lists."""

FORMER_PAUSE: Final = 0.02
"""Seconds between two attempts to be listed in its place."""

OUTCOME_PAUSE: Final = 0.5
"""Seconds until a follower that did not answer is asked again whether it took over."""

LEAST_QUEUES: Final = 4
"""Queues of a topic from a broker that did not report its queue counts (clients' defaultTopicQueueNums)."""

PARKED_TURN: Final = 200
"""Parked messages that are read without giving way to requests: five milliseconds of work."""

ROOM_CHECK_INTERVAL: Final = 5.0
"""Seconds until a broker whose disk cannot store its topics, or its role, tries again."""

NAME_CHECK_INTERVAL: Final = 5.0
"""Seconds between two checks of a slave that follows no master whether the name has one."""

NOBODY_LEADS_AFTER: Final = 20.0
"""Seconds without a master of the name before a broker leads again by itself: an operator who swaps two brokers by hand
takes less."""

FAR_BEHIND: Final = 4 << 20
"""Bytes of its master's log that a slave may lack and take over: in a hand-over it gets them while writes wait, and
after a failure of an asynchronous master they are what was on the way."""

A_SLAVE: Final = "this broker is a slave"
BECOMES_A_SLAVE: Final = "this broker becomes a slave"

HANDS_OVER_GATHER_LIMIT: Final = 1.0
"""Seconds in which slaves are asked before a hand-over begins: one that is dead, and listed yet, delays it so long."""

GATHER_AGAIN_AFTER: Final = 1.0
"""Seconds until the slaves are asked for offsets a second time: the name servers list this master by then."""


class RoleService:
    """Runs one broker in its role."""

    def __init__(
        self,
        broker: BrokerState,
        switchboard: Switchboard,
        *,
        follow: Callable[[], SlaveReplication],
        surveyor: Surveyor,
        fetch: Callable[[Callable[[str], None], Survey], Awaitable[FetchedTail]],
        opener: EpochOpener,
        gather: Callable[[Survey | None, Collection[str], float, TakenOver], Awaitable[object]],
        join_offsets: Callable[[TakenOver], None],
        ask_outcome: Callable[[str, str], Awaitable[str]],
        claim_id: Callable[[str], Awaitable[int]],
        role_file: RoleFile,
        followed: str | None,
    ) -> None:
        """Create it; `follow` makes a slave's side of replication, `gather` takes over the slaves' tables and offsets.

        `fetch` gets messages that only other brokers have; its arguments are a function to call if that takes long, and
        what the peers have just answered. `opener` opens the epoch of the writes that come now. The arguments of
        `gather` are what the peers have answered, or None to ask the name servers again, those that did not answer, a
        time limit, and what was taken over already. `join_offsets` takes over the offsets that have waited there.
        `ask_outcome` asks the broker at an address for the outcome of a hand-over; `claim_id` asks a master for a
        slave's id. `followed` is the master that this broker followed before it was started.
        """
        self._broker = broker
        self._config: LiveConfig = broker.config
        self._standing = broker.standing
        self._switchboard = switchboard
        self._store = broker.store
        self._registration = broker.registration
        self._group_transfer = broker.group_transfer
        self._make_slave = follow
        self._fetch = fetch
        self._opener = opener
        self._gather = gather
        self._join_offsets = join_offsets
        self._ask_outcome = ask_outcome
        self._task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
        self._surveyor = surveyor
        self._peers = surveyor.peers
        self._claim_id = claim_id
        self._role_file = role_file
        self._second_history = broker.second_history
        self._last_master = followed
        self._fellows: frozenset[str] = frozenset()
        """The other slaves that were found when this one last looked for a master."""
        self._were_back: Mapping[str, int] = {}
        """The brokers with longer logs for which this take-over began again, and where those ended then."""
        self._reverts_to: BrokerConfig | None = None
        """The settings from before an operator's request to become master; None once the broker serves."""
        self._refused: RefusedError | None = None
        self._master_end = 0
        """Where the log of the last master ended, as far as it told this broker."""
        self._accepts_loss = False
        """Whether the operator who makes this slave master accepts what is lost with that."""
        self._topics_known_to: int | None = None
        """The topics of older messages are known here, unless they were deleted; None if this broker was not a slave
        since it was started or last took writes."""
        self._taken = TakenOver()
        self._scope = trio.CancelScope()
        self.turn = trio.Lock()
        """Held while a request changes the role."""
        self._between_roles = trio.Lock()
        """Held from the end of a role until its file has the next one."""
        self._former: str | None = None
        """The master that has handed over to this broker, until this one takes writes."""
        self._epoch_role: Role | None = None
        """The role of this broker when it opened its epoch; None if it still has to open one."""
        self._opening = trio.Lock()

    def __repr__(self) -> str:
        return f"<RoleService {self._config.broker.role}>"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run in the role of the settings, and in later roles; started once requests of the first may be answered."""
        self._task_status = task_status
        while True:
            with trio.CancelScope() as self._scope:
                # `change` holds it until the role file has the next role: a broker that shows
                # itself as a slave is one after a power cut too.
                async with self._between_roles:
                    is_slave = self._config.broker.is_slave
                if is_slave:
                    await self._follow()
                else:
                    await self._lead()
            if self._scope.cancelled_caught:
                logger.info("role changed role=%s", self._config.broker.role)

    async def change(self, role: Role, broker_id: int, *, accept_loss: bool = False) -> None:
        """Take another role, or id; return once it serves, and for a master once the name servers list it.

        Raises ConfigError, and changes nothing, for an impossible pair. Raises RefusedError if another master
        continues, a name server lists one, the disk cannot store that this broker is master, or, without `accept_loss`,
        it lacks more than `FAR_BEHIND` of its master's log: then the broker remains a slave. After a cancel the change
        continues.
        """
        async with self.turn:
            before = self._config.broker
            try:
                after: BrokerConfig = attrs.evolve(before, role=role, broker_id=broker_id)
            except ValueError as error:
                raise ConfigError(f"No broker has this role and id: {error}") from error
            if after == before:
                return
            self._refused = None
            if not after.is_slave and not before.is_slave:
                # A master stays a master: only what its sends wait for changes.
                await self._change_mode(after)
                await self._keep_role(is_order=True)
                return
            served = self._standing.served.value
            if after.is_slave:
                async with self._between_roles:
                    self._end_role(after, BECOMES_A_SLAVE)
                    await self._keep_role(is_order=True)
            else:
                self._last_master = self._registration.last_master or self._last_master
                self._reverts_to, self._accepts_loss = before, accept_loss
                # Sends from its last time as master may still wait, and acknowledgements
                # count differently when it leads.
                self._broker.waiting_answers.answer_all()
                self._begin_to_lead(after)
            await self._standing.served.wait_past(served)
            if self._refused is not None:
                raise self._refused

    async def step_down(self, slave: BrokerConfig, master: str, ha_master: str | None) -> None:
        """Become a slave of `master`, which takes over, or may; the caller holds `turn` and writes the file."""
        served = self._standing.served.value
        self._registration.learn_master(master, ha_master)
        self._end_role(slave, f"{master} takes over")
        await self._standing.served.wait_past(served)

    async def succeed(self, role: Role, *, token: str, former: str) -> None:
        """Become master in place of `former`, which has stopped taking writes; return when that is stored on the disk.

        Raises ConfigFileError, and then this broker remains a slave.
        """
        async with self.turn:
            after = attrs.evolve(self._config.broker, role=role, broker_id=MASTER_ID)
            # The point of no return comes first. If it led before the file is synced, a power cut would make it a slave
            # that answers `void`, and the former master would write again, beside what was written here.
            await self._role_file.hold(after, taken=token)
            self._former = self._last_master = former
            self._begin_to_lead(after)

    def _end_role(self, slave: BrokerConfig, reason: str) -> None:
        """End the present role; `slave` is the next one."""
        if self._standing.leads:
            self._switchboard.note(Event.STEPS_DOWN, reason)
        self._broker.waiting_answers.answer_all()
        self._config.replace(slave)
        self._scope.cancel()

    async def _note(self, event: Event, reason: str = "", *, other: str | None = None) -> None:
        """Report what this role has found out, unless it has been ended meanwhile."""
        # An order ends a role at once, by its scope. What the ended role found out must not change the standing of the
        # next one: a broker that is a slave by then would take writes.
        await trio.lowlevel.checkpoint_if_cancelled()
        self._switchboard.note(event, reason, other=other)

    def _begin_to_lead(self, master: BrokerConfig) -> None:
        """End the role of a slave. Name servers are not asked to list this broker before it takes writes."""
        self._registration.hold()
        self._config.replace(master)
        self._scope.cancel()

    async def _resolve(self, pending: PendingHandOver) -> None:
        """Ask the follower of a hand-over whether it took over, until it answers; become master again if it did not."""
        logger.warning("outcome of a hand-over is not known, asking to=%s", pending.to)
        while True:
            try:
                state = await self._ask_outcome(pending.to, pending.token)
                break
            except Error as error:
                logger.debug("not answered to=%s error=%s", pending.to, error)
                await trio.sleep(OUTCOME_PAUSE)
        logger.warning("outcome of a hand-over to=%s state=%s", pending.to, state)
        if state != "void":
            self._switchboard.note(Event.FOLLOWS, A_SLAVE)
        else:
            master = pending.master
            self._begin_to_lead(
                attrs.evolve(self._config.broker, role=master.role, broker_id=master.broker_id)
            )
        # `_begin_to_lead` has cancelled this task too. The file must lose its open hand-over
        # all the same, or this broker asks again at its next start.
        with trio.CancelScope(shield=True):
            problem = await self._keep_role()
        while problem is not None:
            # It would ask again at its next start; by then that broker may have handed over to another one.
            await trio.sleep(ROOM_CHECK_INTERVAL)
            problem = await self._keep_role()

    async def _change_mode(self, after: BrokerConfig) -> None:
        """Begin or stop to wait for slaves; messages that are stored so belong to another epoch."""
        self._broker.waiting_answers.answer_all()
        self._config.replace(after)
        if self._standing.now is LEADING:
            try:
                await self._open_epoch("this master changes its mode")
            except trio.Cancelled:
                self._scope.cancel()  # It takes over again, in its new mode.
                raise
        # No message was stored since the epoch began: there was no wait.
        self._switchboard.set_mode()
        logger.info("role changed role=%s", after.role)
        if self._group_transfer.is_required:
            # Rocketrio slaves connect again for the new epoch: sends get SLAVE_NOT_AVAILABLE until they have.
            before = self._group_transfer.connections()
            with trio.move_on_after(FORMER_FOLLOWS_LIMIT):
                while before & self._group_transfer.connections():  # noqa: ASYNC110
                    await trio.sleep(FORMER_PAUSE)
            await self._wait_for_slaves()

    async def _follow(self) -> None:
        self._former = None
        if (pending := self._role_file.pending) is None:
            self._switchboard.note(Event.FOLLOWS, A_SLAVE)
        else:
            reason = f"it is not known whether {pending.to} took over, asking it"
            self._switchboard.note(Event.OUTCOME_UNKNOWN, reason)
        self._topics_known_to = self._store.epochs.end_of_own
        self._broker.slave = slave = self._make_slave()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(slave.run)
                self._mark_ready()
                if pending is not None:
                    nursery.start_soon(self._resolve, pending)
                nursery.start_soon(self._watch_name, slave)
        finally:
            self._standing.problem = None
            self._master_end = max(slave.master_end, self._store.max_physical_offset)
            if (known_to := slave.synchronize.topics_known_to) is not None:
                self._topics_known_to = known_to
            self._broker.slave = None

    async def _watch_name(self, slave: SlaveReplication) -> None:
        """Report that the name has no master; lead again if settings or an order say so and all others are slaves.

        A master that was replaced holds the role of a slave. If its successor then loses its disk or its role file, it
        starts as the slave of its settings, and both would follow each other for ever.
        """
        since = trio.current_time()
        while True:
            await trio.sleep(NAME_CHECK_INTERVAL)
            problem, fellows = None, frozenset[str]()
            # A slave may follow another slave for a while, on a connection from when that one was master.
            is_following = slave.client.state is HAClientState.FOLLOWING
            if not is_following or self._registration.master.addr is None:
                last = self._registration.last_master or self._last_master
                found = await self._surveyor.survey({*self._also_asked(), *filter(None, [last])})
                problem, fellows = why_nobody_leads(found), slaves_of(found)
            self._fellows = fellows
            if problem is None:
                since, self._standing.problem = trio.current_time(), None
            elif trio.current_time() < since + NOBODY_LEADS_AFTER:
                continue
            elif await self._may_lead_again(found, last):
                master = self._role_file.as_master
                assert master is not None
                logger.warning(
                    "no broker of this name is master, this one leads again as its settings say, or an order "
                    "role=%s slaves=%s",
                    master.role, ",".join(sorted(slaves_of(found))),
                )  # fmt: skip
                self._last_master = last
                self._begin_to_lead(
                    attrs.evolve(self._config.broker, role=master.role, broker_id=master.broker_id)
                )
            elif self._standing.problem != problem:
                self._standing.problem = problem
                logger.warning("no broker of this name is master problem=%s", problem)

    async def _may_lead_again(self, found: Survey, last: str | None) -> bool:
        """Return whether settings or an order say master, and all that it knows of are slaves of no master.

        An order to be a slave stands until it was carried out: until another broker has led since this one did. A
        hand-over does not: its successor says that it is a slave, and has forgotten that it was to lead.
        """
        if (
            self._standing.now is not FOLLOWING
            or self._role_file.as_master is None
            or not all_are_slaves(found, last)
        ):
            return False
        epochs = self._store.epochs
        is_carried_out = bool(epochs.lines) and epochs.lines[-1].member != epochs.member
        return (
            not self._role_file.is_ordered
            or is_carried_out
            or await self._slave_has_later_epoch(found)
        ) and not self.turn.locked()

    async def _slave_has_later_epoch(self, found: Survey) -> bool:
        """Return whether the log of a slave shows that another broker has led since this one did."""
        own = self._store.epochs.lines

        def has_one(view: PeerView) -> bool:
            return has_later_epoch(view, own)

        return await self._first_that(has_one, found.answered) is not None

    async def _first_that(
        self, shows: Callable[[PeerView], bool], peers: Iterable[str | PeerView]
    ) -> str | None:
        """Ask brokers for their epochs until one shows something; return its address, None if none does."""
        views = await self._surveyor.ask(
            peers, then=self._surveyor.epochs, limit=EPOCHS_LIMIT, enough=shows
        )
        by = next((view.addr for view in views if shows(view)), None)
        for view in views:
            if by is None and view.problem is not None:
                logger.info(
                    "could not check whether another broker took over peer=%s reason=%s",
                    view.addr, view.problem,
                )  # fmt: skip
        return by

    async def _lead(self) -> None:
        """Take over and lead; return to begin again.

        That is if another master continues, a name server refuses this one, or a broker with a longer log came back.
        """
        store, registration, note = self._store, self._registration, self._note
        store.refusals.lift(Refuser.EPOCH)  # It was left if opening one was cancelled.
        self._epoch_role = None
        if self._were_back:
            # The offsets that wait are kept: a slave that has answered before may not answer now.
            self._taken = TakenOver(log_of=self._taken.log_of, offsets=self._taken.offsets)
        else:
            self._taken = TakenOver()
        listings = registration.listings.value
        former, self._former = self._former, None
        if former is None:
            is_aside = self._standing.now is ASIDE
            reason = self._standing.reason if is_aside else NOT_TAKEN_OVER
            await note(Event.LOOKS, reason, other=self._standing.other if is_aside else None)
            found = await self._surveyor.survey(self._also_asked())
            if (other := rival(found, self._store.max_physical_offset)) is not None:
                await self._yield_to(other)
                return
            # Before it may answer that it is master while it waits, and before the tables change.
            if not await self._holds_role():
                return
            await note(Event.IS_ALONE, NOT_TAKEN_OVER)
        else:
            await note(Event.IS_GIVEN_THE_NAME, NOT_TAKEN_OVER)
        known_to = store.epochs.end_of_own
        if self._topics_known_to is not None:
            known_to = min(self._topics_known_to, store.max_physical_offset)
        if former is None:
            fetched = await self._fetch(self._wait, found)
            missing, answers = fetched.unreachable, found.joined(fetched.survey)
            self._taken.log_of = fetched.copied_from or self._taken.log_of
            # Before offsets are gathered: they count messages of epochs.
            if (loss := self._loss()) is not None and self._reverts_to is not None:
                await self._revert(self._reverts_to, loss)
                return
            known = None if fetched.sources else self._broker.consumer_offsets.known_in
            await self._opener.recover(answers, counted_in=known)
            # The log has grown by what was fetched. Slaves may have that already:
            # their first reports count up to there.
            self._switchboard.expect_acknowledgements()
        else:
            answers, missing = await self._surveyor.survey_of(former), {}
        async with trio.open_nursery() as nursery:
            # For as long after a hand-over too: the former master alone knows what was committed since the last copy,
            # and an offset that is not known when clients come here goes backwards.
            nursery.start_soon(self._gather, answers, missing, GATHER_LIMIT, self._taken)
            nursery.start_soon(self._opener.ask, answers)
        if not await self._has_tables(former):
            return
        await note(Event.CLAIMS, NOT_TAKEN_OVER)
        other = None
        if former is None:
            # Not by what was answered before: only now do others see that this one claims.
            looked = await self._look_again(silent_brokers(found))
            other = leader(looked)
            # Nor by where logs ended before: what a broker has that came back since may have been acknowledged. A log
            # that was compared grows only by a master that cannot be asked, and would be longer each time.
            longer = longer_logs(looked, store.max_physical_offset, fetched.compared)
            back = {log.addr: log.end for log in longer}
            # What could not be fetched the last time either is no reason to begin for ever.
            if other is None and back and back != self._were_back:
                # The slaves' offsets still wait: this log is going to be longer.
                self._were_back = back
                logger.info(
                    "longer logs have come back, taking over begins again brokers=%s",
                    ",".join(sorted(back)),
                )
                return
            self._were_back = {}
        else:
            self._take_offsets()
            # The former master has checked that no other leads. The epoch first: slaves connect again when they learn
            # of it.
            await self._open_epoch()
            await self._wait_for_slaves()
            if not await self._holds_role():
                return
        if other is None:
            # Before it is listed: clients take the topics and their queues from what this broker registers.
            await self._restore_topics(known_to)
            self._topics_known_to = None
            listed = await self._register(former)
            if listed is not None:
                other = OtherMaster(listed, is_listed=True)
            elif registration.listings.value == listings:
                # No name server decides, and to find that out took seconds: a former master may lead again.
                other = leader(await self._look_again())
        if other is None:
            if former is None:
                # One that yields until here, because a name server knows a master that it could not ask, has lowered
                # no offset: that master would take the lower one for a newer one. Queries wait until here.
                self._take_offsets()
            await self._take_over(registration.refusals.value, listings)
        else:
            await self._yield_to(other)

    def _take_offsets(self) -> None:
        """Take over the offsets of slaves, for this log has all that it will have."""
        self._join_offsets(self._taken)
        # Now, and not when the task that waits for deletions runs: no master
        # may have offsets of a topic's former incarnation.
        self._broker.deleted_topics.follow()

    async def _has_tables(self, former: str | None) -> bool:
        """Return whether the tables are known, as files or other brokers have them, or may be dropped.

        Otherwise a slave reverts and this returns False; a start raises UnreadableTablesError. A master that went on
        would serve as a new broker, and its slaves would copy its empty tables.
        """
        broker = self._broker
        waits = any(one.offset_table for one in self._taken.offsets.values())
        if not (problems := broker.unreadable_tables(but_offsets=waits)):
            return True
        may_drop = self._config.broker.unreadable_tables == "drop" or former is not None
        if may_drop or self._store.commit_log.is_empty:
            for problem in problems:
                logger.error("going on without what a table held reason=%s", problem)
            broker.drop_unreadable_tables()
            return True
        error = UnreadableTablesError("; ".join(problems))
        if self._reverts_to is None:
            raise error
        await self._revert(self._reverts_to, str(error))
        return False

    def _loss(self) -> str | None:
        """Return what is lost if this broker leads, if that is much and was not accepted; None otherwise."""
        own = self._store.max_physical_offset
        lacks = self._master_end - own
        if self._accepts_loss or lacks <= FAR_BEHIND:
            return None
        return (
            f"it has {own} bytes of a log of which {self._last_master or 'its master'} had {self._master_end}, {lacks} "
            "more, and no other broker that answers has them: bring that one back, or promote a slave that has more; "
            "`rocketrio broker role --accept-loss` gives them up"
        )

    def _also_asked(self) -> set[str]:
        """Return brokers that name servers may not list yet, or no more: the last master, and other slaves."""
        # Of two brokers that have one id, name servers list now this one and now that one.
        sharing = self._registration.id_shared_with()
        last = filter(None, [self._last_master])
        return {*self._peers.connecting(), *self._fellows, *sharing, *last}

    async def _look_again(self, silent: Collection[str] = ()) -> Survey:
        """Ask the peers once more: one may have claimed the name before this broker, or may have a longer log.

        A broker that is just starting, and so was `silent`, searches again too, and finds this claim: unless this one
        is starting too.
        """
        if self._open():
            silent = ()
        return await self._surveyor.survey(
            self._also_asked(), limit=SECOND_SEARCH_LIMIT, but=silent
        )

    async def _wait_for_slaves(self) -> None:
        """Wait, for a limited time, until sends that wait for slaves would be answered PUT_OK."""
        if self._group_transfer.is_required:
            with trio.move_on_after(FORMER_FOLLOWS_LIMIT):
                await self._group_transfer.replicated.wait_reached(self._store.max_physical_offset)

    async def _register(self, former: str | None) -> str | None:
        """Register this master; return the master that a name server lists instead. The former one leaves soon.

        If a name server listed the former one, that counts until one lists this broker: a name server that dies
        meanwhile proves nothing.
        """
        registration = self._registration
        listings = registration.listings.value
        listed = await registration.register_as_master()
        with trio.move_on_after(FORMER_LEAVES_LIMIT):
            while listed is not None and listed == former:
                await trio.sleep(FORMER_PAUSE)
                listed = await registration.register_as_master()
                if listed is None and registration.listings.value == listings:
                    listed = former
        return listed

    async def _take_over(self, refusals: int, listings: int) -> None:
        """Take writes; return when another broker has taken over, or seems to have.

        `refusals` and `listings` are the name servers' answers that had come when this master began to register.
        """
        store = self._store
        is_new_log = store.commit_log.is_empty
        # Before the first write: without its line on the disk nothing shows later which master wrote a message.
        if self._epoch_role != self._config.broker.role:
            await self._open_epoch()
        self._second_history.begin(is_new_log=is_new_log)
        async with trio.open_nursery() as nursery:
            # Before the first write too: until the ledger is read each transaction counts as open, and a commit that is
            # sent again would deliver its message twice.
            for service in self._broker.leading_services():
                await nursery.start(service.run)
            await self._note(Event.TAKES_OVER)
            if store.writable:
                logger.info("writes are taken offset=%d", store.max_physical_offset)
            else:
                logger.error("no writes are taken reason=%s", store.refusal)
            self._mark_ready()
            await nursery.start(self._broker.delayed_messages().run)
            nursery.start_soon(self._gather_again)
            nursery.start_soon(self._second_history.watch)
            await self._wait_for_successor(refusals, listings)
            # Writes end first, and then the services on which they depend.
            await self._note(Event.LOOKS, NOT_TAKEN_OVER)
            nursery.cancel_scope.cancel()

    async def _wait_for_successor(self, refusals: int, listings: int) -> None:
        """Return when a name server refuses this master and another broker proves that it has taken over.

        A master that no name server has listed so far has no clients: a refusal alone is enough for it.
        """
        registration = self._registration
        alarmed = None
        while True:
            await registration.refusals.wait_past(refusals)
            refusals = registration.refusals.value
            others = sorted(set(registration.other_masters.values()))
            if not others:
                continue
            if registration.listings.value == listings:
                return
            if (by := await self._successor(others[0])) is not None:
                logger.warning("another broker has taken over listed=%s by=%s", others[0], by)
                return
            if alarmed != others[0]:
                alarmed = others[0]
                logger.error("the name is taken at a name server problem=%s", alarm(alarmed))

    async def _successor(self, listed: str) -> str | None:
        """Return the address of a broker that shows that another one than this has taken over, None if none does.

        `listed` is the master that a name server lists; only that one and known slaves are asked.
        """
        is_proved = self._surveyor.is_proved
        own, name = self._store.epochs.lines, self._peers.broker_name

        def shows(view: PeerView) -> bool:
            return shows_successor(view, own, broker_name=name, is_proved=is_proved)

        known = self._broker.known_slaves.met()
        return await self._first_that(shows, sorted({*known, listed} if is_proved else known))

    async def _yield_to(self, other: OtherMaster) -> None:
        """Let another master continue: revert to a slave, become that one's slave, or stand aside as a master."""
        self._last_master = other.addr  # Asked directly from now on: name servers may be gone.
        name = self._config.broker.broker_name
        reason = f"{name} has another live master, at {other.addr}"
        if other.is_listed:
            reason = f"a name server lists {other.addr} as master of {name}"
        elif not other.leads:
            reason = f"{name} has another master that takes over first, at {other.addr}"
        if self._reverts_to is not None:
            remedy = "stop that one, or make it a slave, and ask again"
            await self._revert(self._reverts_to, f"{reason}; {remedy}")
            return
        if self._config.broker.ha_return_role == "follow" and await self._become_slave_of(other):
            return
        reason = f"{reason}: stop one of the two, or make it a slave"
        if self._standing.reason != reason:
            logger.error("no writes are taken reason=%s", reason)
        await self._note(Event.YIELDS, reason, other=other.addr)
        if other.is_listed:
            # Name servers that accepted the registration would send clients here.
            await self._registration.leave()
        self._mark_ready()
        await trio.sleep(OTHER_MASTER_CHECK_INTERVAL if other.leads else RIVAL_CHECK_INTERVAL)

    async def _revert(self, slave: BrokerConfig, reason: str) -> None:
        """Be the slave again that it was before a request to become master; that request is refused."""
        self._config.replace(slave)
        await self._keep_role()
        self._refused = RefusedError(
            ResponseCode.SERVICE_NOT_AVAILABLE, f"it remains a slave: {reason}"
        )
        logger.warning("remains a slave reason=%s", reason)

    async def _become_slave_of(self, other: OtherMaster) -> bool:
        """Follow a rocketrio master that takes writes, under an id from it; return False if that is not possible."""
        if not other.is_rocketrio or not other.leads:
            return False
        try:
            broker_id = await self._claim_id(other.addr)
        except RequestCodeNotSupportedError:
            return False
        except Error as error:
            logger.info("cannot follow yet master=%s reason=%s", other.addr, error)
            return False
        if self._standing.leads:
            await self._note(Event.STEPS_DOWN, BECOMES_A_SLAVE)
        self._broker.waiting_answers.answer_all()
        self._config.replace(attrs.evolve(self._config.broker, role="slave", broker_id=broker_id))
        await self._keep_role()
        self._registration.learn_master(other.addr, other.ha_addr)
        logger.warning(
            "another master of this name takes writes, this one follows it master=%s id=%d",
            other.addr, broker_id,
        )  # fmt: skip
        return True

    async def _holds_role(self) -> bool:
        """Store the role of a new master; revert to a slave and return False if a requested role cannot be stored."""
        problem = await self._keep_role(is_order=self._reverts_to is not None)
        if problem is None or self._reverts_to is None:
            return True
        await self._revert(self._reverts_to, str(problem))
        return False

    async def _keep_role(self, *, is_order: bool = False) -> ConfigFileError | None:
        """Store this role for the next start; return the error if that fails."""
        try:
            await self._role_file.hold(self._config.broker, is_order=is_order)
        except ConfigFileError as error:
            logger.warning("the role is not kept for the next start reason=%s", error)
            return error
        return None

    async def gather_before_hand_over(self) -> None:
        """Gather what was committed at other slaves: the successor takes writes once it has this broker's offsets."""
        await self._gather(None, (), HANDS_OVER_GATHER_LIMIT, self._taken)

    async def _gather_again(self) -> None:
        """Gather what was committed at a slave before this master was registered.

        A slave that follows changes no topics and groups itself: they are taken of slaves that have come since, alone.
        """
        await trio.sleep(GATHER_AGAIN_AFTER)
        await self._gather(None, (), GATHER_LIMIT, self._taken)

    async def _restore_topics(self, known_to: int) -> None:
        """Create and store topics; while the disk is full no message can be taken either: only reads are served."""
        while True:
            try:
                await self._create_missing_topics(known_to)
                await self._broker.sync_tables()
                return
            except ConfigFileError as error:
                logger.error("no writes are taken reason=%s", error)
                self._serve_without_writes(str(error))
                await trio.sleep(ROOM_CHECK_INTERVAL)

    async def _open_epoch(self, why: str = NOT_TAKEN_OVER) -> None:
        """Open the epoch for the present mode; no message is taken before its line is on the disk."""
        refusals = self._store.refusals
        async with self._opening:
            refusals.refuse(Refuser.EPOCH, why)
            while True:
                # The mode may change while the line is written; its messages belong to an epoch of their own.
                role = self._config.broker.role
                try:
                    await self._opener.open()
                    if role == self._config.broker.role:
                        break
                except OSError as error:
                    reason = f"the epoch file cannot be written: {error}"
                    logger.error("no writes are taken reason=%s", reason)
                    refusals.refuse(Refuser.EPOCH, reason)
                    self._serve_without_writes(reason)
                    await trio.sleep(ROOM_CHECK_INTERVAL)
            self._epoch_role = role
            refusals.lift(Refuser.EPOCH)

    async def _create_missing_topics(self, known_to: int) -> None:
        """Create topics for messages from this address on that came from another broker without their topics.

        Also for those that are parked: delivered to a topic that is unknown, they could not be read.
        """
        topics = self._broker.topics
        last_ids = {
            topic: max(queues)
            for topic, queues in self._store.queues().items()
            if any(queue.last_physical_end > known_to for queue in queues.values())
        }
        for count, put in enumerate(parked_from(self._store, known_to), start=1):
            last_ids[put.topic] = max(put.queue_id, last_ids.get(put.topic, 0))
            if count % PARKED_TURN == 0:
                # A directory without epochs has all of its parked messages read, while reads are served.
                await trio.lowlevel.checkpoint()
        for topic, last_id in last_ids.items():
            if topics.topic_config(topic) is not None:
                continue
            count = max(last_id + 1, LEAST_QUEUES)
            topics.update(TopicConfig(topic, read_queue_nums=count, write_queue_nums=count))
            logger.warning(
                "topic of replicated messages was unknown and is created topic=%s queues=%d",
                topic, count,
            )  # fmt: skip

    def _wait(self, reason: str) -> None:
        """Serve reads, because it takes long to find out what this broker lacks."""
        if not self._scope.cancel_called:
            self._switchboard.note(Event.TAKES_LONG, reason)
            self._mark_ready()

    def _serve_without_writes(self, reason: str) -> None:
        """Lead without taking writes, until the disk has room; one that leads refuses them for another reason."""
        if self._standing.now in (CLAIMING, SHORT_OF_ROOM) and not self._scope.cancel_called:
            self._switchboard.note(Event.HAS_NO_ROOM, reason)
        self._mark_ready()

    def _open(self) -> bool:
        """Admit requests, if this is the start, because other brokers ask for the state of this one."""
        status, self._task_status = self._task_status, trio.TASK_STATUS_IGNORED
        status.started()
        return status is not trio.TASK_STATUS_IGNORED

    def _mark_ready(self) -> None:
        """Note that the role serves."""
        self._reverts_to = None
        self._open()
        self._switchboard.serve()


def alarm(other: str) -> str:
    """Say that a name server lists another master than this one, which leads."""
    return (
        f"a name server lists {other} as master instead, and nothing shows that it has taken over: no slave that this "
        "broker knew, and no proof over the replication link; this one continues. If it should not, stop it, or make "
        "it a slave; otherwise find out what registered there"
    )
