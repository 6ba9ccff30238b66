"""The commands `rocketrio broker role|hand-over|settings|verify|cut`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs
import click

from rocketrio.cli.addresses import address_of, addresses_of
from rocketrio.cli.broker_drain import drain, undrain
from rocketrio.cli.broker_show import clean, show, stats
from rocketrio.cli.call import Call, changes, changes_with, reads
from rocketrio.cli.commands import Group
from rocketrio.cli.cut import cut
from rocketrio.cli.numbers import Whole
from rocketrio.cli.say import unguarded
from rocketrio.cli.shell import fail
from rocketrio.cli.types import BROKER, BROKER_OR_ADDRESS
from rocketrio.counts import counted
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.log_lines import printable

if TYPE_CHECKING:
    from rocketrio_protocol.bodies.log_check import LogCheckStatus

ROLES = ("async-master", "sync-master", "slave")


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
broker.add_command(drain)
broker.add_command(undrain)
broker.add_command(show)
broker.add_command(stats)
broker.add_command(clean)


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
