"""The commands `rocketrio check …`, for Nagios, Icinga, cron and probes: one line, and an exit code that they know.

Exit codes: 0 ok, 1 warning, 2 critical, 3 unknown. Unlike those of all other commands, wrong usage has 3 here, because
2 would be read as critical. The rules are in rocketrio.admin.diagnosis.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs
import click

from rocketrio.cli.call import Call, Callback, reads_alone, sends, whole_timeout
from rocketrio.cli.commands import CallableT, Group
from rocketrio.cli.json_values import json_text
from rocketrio.cli.refining import refined, seconds_of, window_options
from rocketrio.cli.replaced_file import replace_file
from rocketrio.cli.types import ADDRESS, GROUP, TOPIC
from rocketrio.thresholds import (
    CERTIFICATE_DAYS,
    DEAD_LETTERS,
    DISK_PERCENT,
    GIVEN_UP,
    ROUNDTRIP_MS,
    SECONDS_BEHIND,
    SEND_WAIT,
    Limits,
    Status,
)
from rocketrio_protocol.errors import Error

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.admin.diagnosis.checks import CheckResult, CheckValue

TIMEOUT: Final = 30.0
"""Seconds for a check, beside the window that a check of lag watches."""
ROUNDTRIP_BODY: Final = b"rocketrio check roundtrip"

Form = Literal["nagios", "json", "prometheus", "text"]
Check = Callable[..., "Awaitable[CheckResult]"]
"""A check: it gets an open admin and its options."""


class _Checks(Group):
    """The checks; wrong usage is unknown, exit code 3."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.show()
            ctx.exit(Status.UNKNOWN)


class _Limits(click.ParamType[Limits]):
    """`W:C`; if C is below W, small numbers are bad."""

    name = "WARN:CRIT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Limits:
        if isinstance(value, Limits):
            return value
        try:
            warning, critical = map(float, str(value).split(":"))
        except ValueError:
            self.fail(f"{value!r} is not two numbers like 10:60", param, ctx)
        return Limits(warning, critical)


def _limits(
    option: str, default: Limits | None, text: str, *names: str
) -> Callable[[CallableT], CallableT]:
    shown = None if default is None else str(default)
    return click.option(
        option, *names, type=_Limits(), default=shown, show_default=shown is not None, help=text
    )


_NAMES: Final = click.argument("names", nargs=-1, metavar="[NAME]...")


@click.group(cls=_Checks, most_used=("health", "replication", "lag"))
def check() -> None:
    """Check one side of a cluster for Nagios, Icinga, cron or a probe.

    Each check prints one line. The exit code is 0 for ok, 1 for a warning, 2 for critical, and 3 if it is unknown,
    also after wrong usage.

    \b
    Examples:
      rocketrio check connection
      rocketrio check replication broker-a --seconds 10:60
      rocketrio check lag --group billing --age 60:300
      rocketrio check dead-letters --group billing --state-file /var/tmp/billing.json
    """


def check_options(
    function: Check, *, effect: Callable[[Callback], Callback] = reads_alone
) -> Callback:
    """Add the options of all checks, and make a command of a check, which gets an open admin."""

    @effect
    @click.option(
        "--format",
        "form",
        type=click.Choice(["nagios", "json", "prometheus", "text"]),
        default="nagios",
        show_default=True,
        help="How to print the result. With `prometheus` the exit code is 0.",
    )
    @click.option(
        "--outfile",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write the result to this file, which is replaced when it is whole.",
    )
    @functools.wraps(function)
    def command(call: Call, *, form: Form, outfile: Path | None, **options: Any) -> None:
        import trio

        from rocketrio.admin.admin import open_admin
        from rocketrio.admin.diagnosis.checks import CheckResult

        name = click.get_current_context().info_name or ""
        found: list[CheckResult] = []

        async def ask() -> None:
            timeout = whole_timeout()
            call.limit.deadline = inf  # A check that takes longer is unknown, and no error.
            try:
                with trio.fail_after(timeout):
                    async with open_admin(**call.client) as admin:
                        found.append(await function(admin, **options))
            except Error as error:
                found.append(CheckResult(name, Status.UNKNOWN, str(error)))
            except trio.TooSlowError:
                found.append(CheckResult(name, Status.UNKNOWN, f"not done within {timeout:g} s"))

        call.run(ask, with_admin=False)
        text = _shown(found[0], form)
        if outfile is None:
            click.echo(text)
        else:
            replace_file(outfile, f"{text}\n")
        sys.exit(Status.OK if form == "prometheus" else found[0].status)

    return command


def _timed(function: Check) -> Check:
    """Limit the time of a check, after which its result is unknown."""

    @functools.wraps(function)
    async def timed(admin: Admin, **options: Any) -> CheckResult:
        import trio

        from rocketrio.admin.diagnosis.checks import CheckResult

        with trio.move_on_after(TIMEOUT):
            return await function(admin, **options)
        name = click.get_current_context().info_name or ""
        return CheckResult(name, Status.UNKNOWN, f"the cluster took more than {TIMEOUT:g} s")

    return timed


def _groups(text: str, *, required: bool = False) -> Callable[[CallableT], CallableT]:
    return click.option(
        "--group", "groups", type=GROUP, multiple=True, required=required, help=text
    )


def _state_file(text: str) -> Callable[[CallableT], CallableT]:
    return click.option("--state-file", type=click.Path(dir_okay=False, path_type=Path), help=text)


@check.command()
@check_options
async def connection(admin: Admin) -> CheckResult:
    """Check that all name servers answer, and know the same brokers.

    It is critical if none answers.
    """
    from rocketrio.admin.diagnosis import checks
    from rocketrio.admin.diagnosis.snapshot import Snapshot

    servers = await admin.client.name_servers.cluster_info_of_each()
    return checks.check_connection(Snapshot(servers, ()))


@check.command()
@check_options
@_timed
async def health(admin: Admin) -> CheckResult:
    """Check all that `rocketrio cluster health` looks at: its errors are critical."""
    from rocketrio.admin.diagnosis import checks

    return checks.check_errors(await admin.snapshot())


@check.command()
@_NAMES
@_limits("--wait", SEND_WAIT, "Milliseconds that sends wait before a broker handles them.")
@check_options
@_timed
async def broker(admin: Admin, names: tuple[str, ...], wait: Limits) -> CheckResult:
    """Check that brokers answer and take writes: all that are registered, or those of these names."""
    from rocketrio.admin.diagnosis import checks

    return checks.check_brokers(await admin.snapshot(), names, wait)


@check.command()
@_NAMES
@_limits("--seconds", SECONDS_BEHIND, "How far slaves are behind.")
@_state_file(
    "Keep counts here, and judge the sends that were answered unsafe since the last check."
)
@check_options
@_timed
async def replication(
    admin: Admin, names: tuple[str, ...], seconds: Limits, state_file: Path | None
) -> CheckResult:
    """Check that slaves follow their masters, and how far they are behind.

    Apache's masters report no seconds; then 256 MiB behind are a warning. With a state file, sends that a rocketrio
    broker has answered with less safety than was asked for since the last check are critical.
    """
    from rocketrio.admin.diagnosis import checks

    seen = await admin.snapshot()
    before = _exchanged(state_file, checks.unsafe_sends(seen))
    return checks.check_replication(seen, names, seconds, unsafe_before=before)


@check.command()
@_NAMES
@_limits(
    "--percent",
    DISK_PERCENT,
    "How full disks are; at 85 brokers delete log files early, or refuse messages.",
)
@_limits(
    "--days",
    None,
    "How many days the free bytes last at the rate at which the log has grown, as 7:2.",
)
@check_options
@_timed
async def disk(
    admin: Admin, names: tuple[str, ...], percent: Limits, days: Limits | None
) -> CheckResult:
    """Check how full the disks of brokers are, and with --days how long they last."""
    from rocketrio.admin.diagnosis import checks

    return checks.check_disks(await admin.snapshot(), names, percent, days=days)


@check.command()
@_limits("--given-up", GIVEN_UP, "Transactions that no producer decided.")
@_limits("--open", None, "Thresholds on undecided transactions.", "open_limits")
@_state_file("Keep the counts here, and judge only what was given up since the last check.")
@check_options
@_timed
async def transactions(
    admin: Admin, given_up: Limits, open_limits: Limits | None, state_file: Path | None
) -> CheckResult:
    """Check how many transactions brokers have given up, because no producer decided them.

    The first check with a state file counts nothing as new.
    """
    from rocketrio.admin.diagnosis import checks

    found = await admin.transactions()
    before = _exchanged(state_file, {name: one.given_up for name, one in found.items()})
    return checks.check_transactions(found, before, given_up, open_limits)


@check.command()
@_limits("--days", CERTIFICATE_DAYS, "Days until a certificate ends.")
@click.option(
    "--address", "also", type=ADDRESS, multiple=True, help="A further server; several are possible."
)
@check_options
async def certificate(admin: Admin, days: Limits, also: tuple[str, ...]) -> CheckResult:
    """Check until when the certificates of name servers, brokers and their replication are valid.

    Each server is connected to; one that shows no certificate is unknown. Certificates are not verified here, so that
    one that has ended is seen too.
    """
    from rocketrio.admin.diagnosis import checks

    ends = await admin.certificate_ends(also)
    return checks.check_certificates(ends, admin.client.wall_clock.now_ms(), days)


@check.command()
@check_options
@_timed
async def routes(admin: Admin) -> CheckResult:
    """Check that clients find all topics, with the queues and permissions that brokers have.

    A topic on no master, or a name without a master, is critical; a route that differs from what a broker has (as after
    `broker drain`) and a missing system topic are warnings.
    """
    from rocketrio.admin.diagnosis import checks
    from rocketrio.admin.diagnosis.snapshot import completed

    seen = await completed(admin.client, admin.calls, await admin.snapshot(), None)
    return checks.check_routes(seen)


@check.command()
@_groups("A group; several are possible.  [default: all]")
@click.option("--topic", type=TOPIC, help="Only this topic.")
@window_options
@_limits("--messages", None, "Thresholds on unread messages, beside the verdicts.")
@_limits("--age", None, "Thresholds on the oldest unread message's age in seconds.")
@check_options
async def lag(
    admin: Admin,
    groups: tuple[str, ...],
    topic: str | None,
    window: float | None,
    once: bool,
    messages: Limits | None,
    age: Limits | None,
) -> CheckResult:
    """Check how groups keep up, by the verdicts of `rocketrio lag`.

    `behind` and `rewound` are warnings; `stalled`, `stopped`, `ahead` and `losing` are critical. The check answers at
    once; a verdict that one sample does not show is unknown then, unless --messages or --age decide. With --window it
    watches for so long, or until every group is ok.
    """
    from rocketrio.admin.diagnosis import checks

    samples = admin.lag_window(*groups, topic=topic, seconds=seconds_of(window, once=once))
    return checks.check_lag(await refined(samples, samples.report), messages, age)


@check.command(name="dead-letters")
@_groups("A group; several are possible.", required=True)
@_limits("--new", DEAD_LETTERS, "Dead letters.")
@_state_file("Keep the counts here, and judge only what is new since the last check.")
@check_options
async def dead_letters(
    admin: Admin, groups: tuple[str, ...], new: Limits, state_file: Path | None
) -> CheckResult:
    """Check how many messages groups could not handle.

    The first check with a state file counts nothing as new.
    """
    from rocketrio.admin.diagnosis import checks

    ever = {group: await admin.dead_letters(group).ever() for group in groups}
    before = _exchanged(state_file, ever)
    if before is not None:
        return checks.check_dead_letters(ever, {**ever, **before}, new)
    kept = {group: await admin.dead_letters(group).count() for group in groups}
    return checks.check_dead_letters(kept, None, new)


@check.command()
@click.option("--topic", type=TOPIC, required=True, help="The topic that gets the message.")
@_limits("--milliseconds", ROUNDTRIP_MS, "The time that it takes.", "limits")
@functools.partial(check_options, effect=sends)
async def roundtrip(admin: Admin, topic: str, limits: Limits) -> CheckResult:
    """Send a message, and read it again where it was stored; no group is needed.

    Every check stores one message in the topic, so use a topic for checks alone.
    """
    import trio

    from rocketrio.admin.diagnosis import checks
    from rocketrio.producing.produce import open_producer
    from rocketrio_protocol.message import Message

    async with open_producer(client=admin.client) as producer:
        await producer.send(Message(topic, ROUNDTRIP_BODY))  # Connects, and learns the route.
        began = trio.current_time()
        with trio.move_on_after(TIMEOUT):
            sent = await producer.send(Message(topic, ROUNDTRIP_BODY))
            await admin.view_message(sent.offset_message_id)
            return checks.check_roundtrip(topic, (trio.current_time() - began) * 1000, limits)
    text = f"a message through {topic} took more than {TIMEOUT:g} s"
    return checks.CheckResult("roundtrip", Status.CRITICAL, text)


# ---------------------------------------------------------------------------------------- output


def _shown(result: CheckResult, form: Form) -> str:
    from rocketrio.admin.diagnosis import checks

    if form == "nagios":
        return checks.nagios_line(result)
    if form == "text":
        return f"{result.status.name.lower()} {result.text}"
    if form == "prometheus":
        return "\n".join(_samples(result))
    values = [
        {"name": value.name, "value": value.value, "unit": value.unit, "labels": dict(value.labels)}
        | ({} if value.limits is None else attrs.asdict(value.limits))
        for value in result.values
    ]
    return json_text(
        {"check": result.name, "status": result.status.name, "text": result.text, "values": values}
    )


def _samples(result: CheckResult) -> Sequence[str]:
    name = result.name.replace("-", "_")
    lines = [f'rocketrio_check_status{{check="{name}"}} {int(result.status)}']
    return lines + [
        f"rocketrio_check_{value.name}{_labels(value)} {value.value:g}"
        for value in sorted(result.values, key=lambda value: value.name)
        if value.value is not None
    ]


def _labels(value: CheckValue) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    inner = ",".join(f'{key}="{escaped(text)}"' for key, text in value.labels.items())
    return f"{{{inner}}}" if inner else ""


def _exchanged(path: Path | None, counts: Mapping[str, int]) -> Mapping[str, int] | None:
    """Return the counts that an earlier check has kept, and keep these for the next; None without a file."""
    if path is None:
        return None
    before: dict[str, int] = {}
    try:
        found = json.loads(path.read_text())
        before = {str(name): int(count) for name, count in found.items()}
    except FileNotFoundError:
        pass
    except (ValueError, TypeError, AttributeError) as error:
        raise click.UsageError(f"{path} holds no counts of an earlier check: {error}") from error
    replace_file(path, json.dumps({**before, **counts}))
    return before
