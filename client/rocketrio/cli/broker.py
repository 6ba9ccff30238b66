"""The commands `rocketrio broker ...`; `cut.py` has `broker cut`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Final

import attrs
import click

from rocketrio.cli.call import Call, changes, changes_with, reads, whole_timeout
from rocketrio.cli.cluster_options import may_be_lost
from rocketrio.cli.columns import Column
from rocketrio.cli.commands import Group
from rocketrio.cli.cut import cut
from rocketrio.cli.numbers import Whole
from rocketrio.cli.progress import showing_progress
from rocketrio.cli.say import say, unguarded
from rocketrio.cli.shell import fail
from rocketrio.cli.types import BROKER, BROKER_OR_ADDRESS
from rocketrio.counts import counted
from rocketrio.limits import QUIET_SECONDS
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import ConfigError, NotReachableError
from rocketrio_protocol.log_lines import printable
from rocketrio_protocol.times import nearest_time

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.admin.broker_numbers import BrokerNumber
    from rocketrio.admin.drain import Held, Unread, WritePermission
    from rocketrio_protocol.bodies.log_check import LogCheckStatus

ROLES = ("async-master", "sync-master", "slave")
CLEANINGS: Final = ("queues", "topics", "log")
"""As `Cleaning` of `rocketrio.admin.brokers`, which is imported only to clean."""
_UNIT: Final = Column("unit", cell=lambda row: row["unit"] or "")
_NUMBERS: Final = ("key", "value", _UNIT)
_RAW = click.option("--raw", is_flag=True, help="All keys, as the broker reports them.")
WAIT_TIMEOUT: Final = 600.0
"""Seconds that --wait and --until-consumed wait without --timeout."""


@click.group(
    cls=Group, most_used=("show 10.0.0.1:10911", "drain broker-a --wait", "settings 10.0.0.1:10911")
)
def broker() -> None:
    """Change or check a running broker.

    \b
    Examples:
      rocketrio broker role 10.0.0.2:10911 sync-master
      rocketrio broker hand-over broker-a
      rocketrio broker settings 10.0.0.2:10911 slaveReadEnable=true
      rocketrio broker verify broker-a
      rocketrio broker cut list /var/lib/rocketrio
    """


broker.add_command(cut)


@broker.command()
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@click.argument("role", type=click.Choice(ROLES))
@click.option(
    "--id",
    "broker_id",
    type=Whole(0),
    help="Broker id: needed for a slave (1 and up, unique within the broker name); a master has 0.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Promote a slave though more than 4 MiB of its master's log is lost with that.",
)
@changes
async def role(
    call: Call, broker: str, role: str, broker_id: int | None, accept_loss: bool
) -> None:
    """Give the broker at ADDR, or the only one of a NAME, another role, and wait until it serves in it.

    A master becomes a slave: it refuses writes, answers the sends that wait, and follows the master of its name. A
    slave becomes master: it gets what other brokers have of the log, completes its queues and takes writes. If another
    master of its name answers it, or answers a name server that lists it, that is an error, and it remains a slave; a
    silent one is replaced after some ten seconds. It also remains one if it lacks more than 4 MiB of what its master
    had, unless you add --accept-loss. The broker keeps the role through restarts until it is given another one, or role
    or id change in its settings. Apache's brokers cannot change their role while they run. To swap a master and its
    slave use `hand-over`.

    \b
    Examples:
      rocketrio broker role 10.0.0.1:10911 sync-master       sends wait for slaves from now on
      rocketrio broker role 10.0.0.2:10911 async-master      the master is lost: this slave takes over
    """
    if role == "slave" and not broker_id:
        raise click.UsageError("a slave needs --id N, 1 and up and one of a kind among its slaves")
    if role != "slave" and broker_id:
        raise click.UsageError(f"a master has id {MASTER_ID}: leave --id out")
    wanted = broker_id or MASTER_ID

    if call.dry_run:
        await _show_role(call, await address_of(call.admin, broker), role, wanted)
        return
    waiting = f"{broker} becomes slave" if role == "slave" else f"{broker} asks the listed master"
    async with call.asking(waiting):
        address = await address_of(call.admin, broker)
        await call.admin.change_role(address, role, wanted, accept_loss=accept_loss)
        status = await call.admin.calls.ha_status(address)
    own = status and status.rocketrio
    if own and own.refusal:
        fail(f"{address} is {role} now, but takes no writes: {own.refusal}")
    call.output.show(
        [{"address": address, "role": role, "broker_id": wanted}],
        document=lambda rows: rows[0],
        people=f"{address} is {role} now, with id {wanted}",
    )


async def _show_role(call: Call, address: str, role: str, wanted: int) -> None:
    """Say what a broker is now, what it would become, and what would be lost with the master that it follows."""
    statuses = await call.admin.status(also=[address])
    before = next((one for one in statuses if one.address == address), None)
    if before is None or before.role is None:
        raise NotReachableError(f"{address} did not report its role")
    behind = before.bytes_behind
    row = {
        "address": address,
        "role": role,
        "broker_id": wanted,
        "role_before": before.role,
        "broker_id_before": before.broker_id,
        "bytes_behind": behind,
    }
    text = f"{address} is {before.role} with id {before.broker_id}, and would be {role} with id {wanted}"
    if before.role == "slave" and role != "slave":
        lack = "an unknown number of" if behind is None else f"{behind:,}"
        text += f"; it lacks {lack} bytes of its master's log"
    call.output.show([row], document=lambda rows: rows[0], people=text)


@broker.command("hand-over")
@click.argument("name", type=BROKER, metavar="NAME")
@click.option(
    "--to",
    type=Whole(1),
    help="Id of the slave; by default the slave that has most of the log.",
)
@changes
async def hand_over(call: Call, name: str, to: int | None) -> None:
    """Make the master of the broker NAME change places with a slave.

    Sends wait until the slave has everything and is master, usually less than a second. The old master then follows it
    under the slave's id, and both keep their roles through restarts. If the hand-over is not possible, the old master
    continues and the reason is printed: the slave is Apache's, is behind, or does not follow.

    \b
    Examples:
      rocketrio broker hand-over broker-a --dry-run
      rocketrio broker hand-over broker-a
      rocketrio broker hand-over broker-a --to 2
    """
    done = await call.admin.hand_over(name, to=to, dry_run=call.dry_run)
    if call.dry_run:
        text = (
            f"slave {done.slave_id} at {done.new_address} would become master of {name}, "
            f"{done.old_address} its slave {done.slave_id}; it is {done.bytes_behind} B behind"
        )
    else:
        text = (
            f"{done.new_address} is master of {name} now, {done.old_address} its slave {done.slave_id}; "
            f"writes waited {done.seconds:.3f} s"
        )
    call.output.show([attrs.asdict(done)], document=lambda rows: rows[0], people=text)


@broker.command()
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@click.argument("changed", nargs=-1, metavar="[KEY=VALUE]...")
@changes_with("changed")
async def settings(call: Call, broker: str, changed: tuple[str, ...]) -> None:
    """Show the settings of the broker at ADDR, or the only one of a NAME, under RocketMQ's names; change some.

    Times are in milliseconds and sizes in bytes, as in RocketMQ. A change lasts until the broker's next start; an
    Apache broker writes it to its file. It is an error if the broker accepts a change without effect.

    \b
    Examples:
      rocketrio broker settings broker-a
      rocketrio broker settings 10.0.0.1:10911 slaveReadEnable=true accessMessageInMemoryMaxRatio=20
    """
    if call.dry_run and not changed:
        raise click.UsageError("--dry-run shows what KEY=VALUE would change; give that too")
    wanted = dict(_setting(change) for change in changed)

    address = await address_of(call.admin, broker)
    if call.dry_run:
        before = await call.admin.calls.broker_config(address)
        rows = [
            {"setting": name, "before": before.get(name), "value": value}
            for name, value in wanted.items()
        ]
        call.output.show(rows, notes=["nothing was changed"])
        return
    if wanted:
        found: Mapping[str, str] = await call.admin.change_settings(address, wanted)
    else:
        found = await call.admin.calls.broker_config(address)
    shown = {name: found[name] for name in wanted} if wanted else dict(sorted(found.items()))
    call.output.show(
        [{"setting": name, "value": value} for name, value in shown.items()],
        document=lambda rows: {row["setting"]: row["value"] for row in rows},
    )


@broker.command()
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@click.option(
    "--rate",
    type=Whole(1),
    help="Bytes of the log per second.  [default: 32 MiB]",
)
@reads
async def verify(call: Call, broker: str, rate: int | None) -> None:
    """Make the broker at ADDR, or all brokers of a NAME, check the whole log; exit code 1 if anything is wrong.

    Each record is checked (lengths, address, checksum of the body), each queue entry against the record to which it
    points, and on a slave that follows a rocketrio master the whole log against the master's. Reads and writes
    continue. Brokers run the same check once a day automatically, slowly (setting log_check_rate). If this command is
    interrupted, the check continues. Apache's brokers have no such check.

    \b
    Examples:
      rocketrio broker verify 10.0.0.2:10911
      rocketrio broker verify broker-a --json
    """
    found: dict[str, LogCheckStatus] = {}
    addresses = await addresses_of(call.admin, broker)
    for address in addresses:
        async for status in call.admin.check_log(address, rate=rate):
            _show_progress(address, status)
            found[address] = status
    call.output.show(
        [_check_json(address, status) for address, status in found.items()],
        people=[line for one in found.items() for line in _check_lines(*one)],
    )
    wrong = [address for address, status in found.items() if status.problem_count]
    if wrong:
        fail(f"the log is not as it should be at {', '.join(wrong)}")


def _show_progress(address: str, status: LogCheckStatus) -> None:
    if sys.stderr.isatty():
        done, size = status.position - status.begin, status.end - status.begin
        end = "" if status.is_running else "\n"
        text = f"\r{printable(address)}: {done:,} of {size:,} bytes{end}"
        click.echo(text, nl=False, file=unguarded(sys.stderr))


def _check_json(address: str, status: LogCheckStatus) -> dict[str, object]:
    return {
        "address": address,
        "min_physical_offset": status.begin,
        "max_physical_offset": status.end,
        "compared_with": status.master_addr,
        "compared_bytes": status.compared_bytes,
        "problem_count": status.problem_count,
        "problems": [
            {"physical_offset": one.physical_offset, "problem": one.problem}
            for one in status.problems
        ],
    }


def _check_lines(address: str, status: LogCheckStatus) -> list[str]:
    lines = [
        f"{address}: {status.end - status.begin:,} bytes checked, {counted(status.problem_count, 'problem')}"
    ]
    if status.master_addr is not None:
        lines.append(f"  compared with {status.master_addr}: {status.compared_bytes:,} bytes")
    elif status.is_slave:
        lines.append("  not compared: it follows no rocketrio master now")
    lines += [f"  {one.physical_offset}: {one.problem}" for one in status.problems]
    left = status.problem_count - len(status.problems)
    return [*lines, f"  and {left} more"] if left else lines


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.UsageError(f"{text!r} is not KEY=VALUE, as slaveReadEnable=true")
    return name.strip(), value.strip()


@broker.command()
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@_RAW
@reads
async def show(call: Call, broker: str, raw: bool) -> None:
    """Show how full the log and disk of the broker at ADDR, or of all brokers of a NAME, are, and what is not written.

    \b
    Examples:
      rocketrio broker show broker-a
      rocketrio broker show 10.0.0.1:10911
      rocketrio broker show 10.0.0.1:10911 --raw --json
    """
    from rocketrio.admin.broker_numbers import state_of

    async def numbers(address: str) -> list[BrokerNumber]:
        runtime = await call.admin.calls.runtime_info(address)
        if raw:
            return _as_they_are(runtime)
        return state_of(runtime, await call.admin.calls.broker_config(address))

    await _show_numbers(call, broker, numbers)


@broker.command()
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@_RAW
@reads
async def stats(call: Call, broker: str, raw: bool) -> None:
    """Show how many messages the broker at ADDR, or each of a NAME, stores and delivers, and how long storing takes.

    Rates are of the last 10 seconds, minute and 10 minutes. What a broker has not measured yet is unknown.

    \b
    Examples:
      rocketrio broker stats broker-a
      rocketrio broker stats 10.0.0.1:10911
    """
    from rocketrio.admin.broker_numbers import counts_of

    async def numbers(address: str) -> list[BrokerNumber]:
        runtime = await call.admin.calls.runtime_info(address)
        return _as_they_are(runtime) if raw else counts_of(runtime)

    await _show_numbers(call, broker, numbers)


def _as_they_are(table: dict[str, str]) -> list[BrokerNumber]:
    from rocketrio.admin.broker_numbers import BrokerNumber

    return [BrokerNumber(key, value) for key, value in sorted(table.items())]


async def _show_numbers(
    call: Call, broker: str, numbers: Callable[[str], Awaitable[list[BrokerNumber]]]
) -> None:
    """Print the numbers of a broker, or of all of a name, each row with its address; name those that are silent."""
    from rocketrio.admin.cluster_questions import ask_each

    async with call.asking(f"asking {broker}"):
        addresses = await addresses_of(call.admin, broker)
        found, failed = await ask_each({addr: addr for addr in addresses}, numbers)
    if not found:
        raise next(iter(failed.values()))
    call.silent.update((addr, error.what) for addr, error in failed.items())
    rows = [
        {"key": one.key, "value": one.value, "unit": one.unit, "address": addr}
        for addr, each in found.items()
        for one in each
    ]
    call.output.show(rows, _NUMBERS if len(addresses) == 1 else ("address", *_NUMBERS))


@broker.command()
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@click.argument("what", type=click.Choice(CLEANINGS))
@changes
async def clean(call: Call, broker: str, what: str) -> None:
    """Have the broker at ADDR, or the only one of a NAME, delete files that it does not need, as it does once a day.

    `queues`: files of queues whose messages are no longer in the log. `topics`: queues of topics that it does not have
    any more. `log`: files of the log that are older than the retention (fileReservedTime). Apache's brokers delete
    those of the log within ten seconds after the command. In a terminal it asks first.

    \b
    Examples:
      rocketrio broker clean 10.0.0.1:10911 log --dry-run
      rocketrio broker clean broker-a queues
    """
    from rocketrio.admin.brokers import Cleaning, expected

    cleaning = Cleaning(what)

    address = await address_of(call.admin, broker)
    kept = None
    if call.dry_run:
        settings = await call.admin.calls.broker_config(address)
        kept = settings.get("fileReservedTime", "")
    else:
        await may_be_lost(f"{address} deletes files for good; --dry-run shows what they are")
    found = await call.admin.clean_broker(address, cleaning, dry_run=call.dry_run)
    now = nearest_time(call.admin.client.wall_clock.now_ms())
    notes = []
    if kept is not None:
        [oldest] = [one.before for one in found if one.what == "oldest_message"]
        hours = int(kept) if kept.isdecimal() else None
        notes = [expected(cleaning, oldest, hours, now), "nothing was deleted"]
    columns = ("what", "before", Column("after", in_table=not call.dry_run), _UNIT)
    call.output.show(found, columns, notes=notes)


@broker.command()
@click.argument("name", type=BROKER, metavar="NAME")
@click.option(
    "--wait", is_flag=True, help=f"Wait until nothing was stored for {QUIET_SECONDS:g} seconds."
)
@click.option(
    "--until-consumed",
    is_flag=True,
    help="Wait, and then until every group has read everything, no delayed message waits and no transaction is open.",
)
@changes
async def drain(call: Call, name: str, wait: bool, until_consumed: bool) -> None:
    """Take the broker NAME out of service for producers: they choose other brokers within 30 seconds.

    Name servers remove the write permission of its topics. Consumers read on. A topic whose queues are on this broker
    alone cannot be written until `undrain`. It lasts until a name server restarts, or the broker registers changed
    topics; --until-consumed does it again then. It waits for ten minutes, or for --timeout.

    \b
    Examples:
      rocketrio broker drain broker-a --dry-run
      rocketrio broker drain broker-a --wait && systemctl stop rocketrio-broker
      rocketrio broker drain broker-a --until-consumed --timeout 3h
    """
    import trio

    timeout = WAIT_TIMEOUT if whole_timeout() == inf else whole_timeout()
    call.limit.deadline = inf  # What is left is shown when the time is over.
    if not call.dry_run:
        done = await call.admin.drain(name)
        call.silent.update(done.silent)
        if call.output.for_people:
            _show_permission(done)
        with trio.move_on_after(timeout) as limit:
            async with showing_progress(f"waiting until {name} is not used"):
                if until_consumed:
                    await call.admin.wait_drained(name)
                elif wait:
                    await call.admin.wait_quiet(name)
    else:
        await call.admin.broker_addresses(name)  # Raises an error if it is not registered.
    unread, held = await _unread(call.admin, name, call.silent), await call.admin.held(name)
    call.output.show(
        [{"group": one.group, "topic": one.topic, "messages": one.messages} for one in unread],
        ("group", "topic", Column("messages", "unread")),
        document=lambda rows: {
            "broker_name": name,
            "topics": {} if call.dry_run else dict(done.topics),
            "unread": rows,
            "delayed": held.delayed,
            "open_transactions": held.transactions,
            "dead_letters": held.dead_letters,
            "silent": call.silent,
        },
        people=None if unread else f"every group has read everything that {name} stores",
        notes=_notes_of(name, held),
    )
    if not call.dry_run and limit.cancelled_caught:
        fail(f"{name} is still in use after {timeout:g} s")


@broker.command()
@click.argument("name", type=BROKER, metavar="NAME")
@changes
async def undrain(call: Call, name: str) -> None:
    """Put the broker NAME back into service for producers, after `drain`.

    \b
    Example:
      rocketrio broker undrain broker-a
    """
    if call.dry_run:
        addresses = await call.admin.broker_addresses(name)
        call.output.show(
            [{"broker_name": name, "address": address} for address in addresses],
            people=f"would give {name} ({', '.join(addresses)}) its write permission back",
        )
        return
    done = await call.admin.undrain(name)
    call.silent.update(done.silent)
    if call.output.for_people:
        _show_permission(done)
    else:
        call.output.show(
            [{"name_server": addr, "topics": count} for addr, count in done.topics.items()],
            document=lambda rows: {
                "broker_name": name,
                "topics": {row["name_server"]: row["topics"] for row in rows},
                "silent": dict(done.silent),
            },
        )


def _show_permission(done: WritePermission) -> None:
    what = "may be written again" if done.writable else "take no more messages"
    for server, topics in done.topics.items():
        say(f"{server}: {counted(topics, 'topic')} of {done.broker_name} {what}")
    if not done.writable:  # Also if the command is interrupted, or its time ends.
        say(f"until you give them back: rocketrio broker undrain {done.broker_name}")


def _notes_of(name: str, held: Held) -> list[str]:
    """Name what the broker holds beside what groups have not read, and what to do about it."""
    notes = []
    if held.delayed != 0:
        notes.append(f"not due yet on {name}: {counted(held.delayed, 'message')}")
    if held.transactions != 0:
        notes.append(f"may be open on {name}: {counted(held.transactions, 'transaction')}")
    if held.dead_letters != 0:
        letters = counted(held.dead_letters, "dead letter")
        notes.append(f"gone with {name}, unless you export or resend them: {letters}")
    return notes


async def _unread(admin: Admin, name: str, silent: dict[str, str]) -> list[Unread]:
    from rocketrio.admin.drain import unread_at

    report = await admin.lag(seconds=0)
    silent.update(report.silent)
    return unread_at(report, name)


async def addresses_of(admin: Admin, broker: str) -> list[str]:
    """Return the addresses that ADDR|NAME means: the one, or those of all brokers of the name, the master first.

    Raises RouteNotFoundError for a name that is not registered.
    """
    return [broker] if ":" in broker else await admin.broker_addresses(broker)


async def address_of(admin: Admin, broker: str) -> str:
    """Return the one address that ADDR|NAME means. Raises ConfigError for the name of several brokers."""
    addresses = await addresses_of(admin, broker)
    if len(addresses) > 1:
        raise ConfigError(
            f"{broker} is the name of {len(addresses)} brokers: give one of {', '.join(addresses)}"
        )
    return addresses[0]
