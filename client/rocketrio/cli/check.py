"""The commands `rocketrio check …`, for Nagios, Icinga, cron and probes: one line, and an exit code that they know.

Exit codes: 0 ok, 1 warning, 2 critical, 3 unknown. Unlike those of all other commands, wrong usage has 3 here, because
2 would be read as critical. The rules are in rocketrio.admin.checks.
"""

import functools
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import click
import trio

from rocketrio.admin.admin import Admin, open_admin
from rocketrio.admin.certificates import certificate_ends
from rocketrio.admin.checks import (
    CheckResult,
    Status,
    Thresholds,
    Value,
    check_brokers,
    check_certificates,
    check_connection,
    check_dead_letters,
    check_disks,
    check_errors,
    check_lag,
    check_replication,
    check_roundtrip,
    check_routes,
    check_transactions,
    nagios_line,
    unsafe_sends,
)
from rocketrio.admin.doctor_answers import ask_routes
from rocketrio.admin.health import ClusterAnswers
from rocketrio.admin.lag import lag_report
from rocketrio.cli.call import Call, Callback, reads_alone, sends, whole_timeout
from rocketrio.cli.commands import Group
from rocketrio.cli.json_values import json_text
from rocketrio.cli.refining import refined, seconds_of, window_options
from rocketrio.cli.replaced_file import replace_file
from rocketrio.cli.types import ADDRESS, GROUP, TOPIC
from rocketrio.producing.produce import open_producer
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import Message

TIMEOUT: Final = 30.0
"""Seconds for a check, beside the window that a check of lag watches."""
ROUNDTRIP_BODY: Final = b"rocketrio check roundtrip"

Form = Literal["nagios", "json", "prometheus", "text"]
Work = Callable[[Admin], Awaitable[CheckResult]]


class _Checks(Group):
    """The checks; wrong usage is unknown, exit code 3."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.show()
            ctx.exit(Status.UNKNOWN)


class _Thresholds(click.ParamType[Thresholds]):
    """`W:C`; if C is below W, small numbers are bad."""

    name = "WARN:CRIT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Thresholds:
        if isinstance(value, Thresholds):
            return value
        try:
            warning, critical = map(float, str(value).split(":"))
        except ValueError:
            self.fail(f"{value!r} is not two numbers like 10:60", param, ctx)
        return Thresholds(warning, critical)


_LIMITS: Final = _Thresholds()


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
    function: Callable[..., Any], *, effect: Callable[[Callback], Callback] = reads_alone
) -> Callback:
    """Add the options of all checks, and run what a check returns, a function of an open admin."""

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
        name = click.get_current_context().info_name or ""
        work: Work = function(**options)
        found: list[CheckResult] = []

        async def ask() -> None:
            timeout = whole_timeout()
            call.limit.deadline = inf  # A check that takes longer is unknown, and no error.
            try:
                with trio.fail_after(timeout):
                    async with open_admin(**call.client) as admin:
                        found.append(await work(admin))
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


def _state_file(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--state-file", type=click.Path(dir_okay=False, path_type=Path), help=text)


def _limited(name: str, work: Work) -> Work:
    """Return the check `name` with a limit of time, after which its result is unknown."""

    async def limited(admin: Admin) -> CheckResult:
        with trio.move_on_after(TIMEOUT):
            return await work(admin)
        return CheckResult(name, Status.UNKNOWN, f"the cluster took more than {TIMEOUT:g} s")

    return limited


def _about_answers(judge: Callable[[ClusterAnswers], CheckResult]) -> Work:
    async def work(admin: Admin) -> CheckResult:
        return judge(await admin.answers())

    return _limited("check", work)


@check.command()
@check_options
def connection() -> Work:
    """Check that all name servers answer, and know the same brokers.

    It is critical if none answers.
    """

    async def work(admin: Admin) -> CheckResult:
        servers = await admin.client.name_servers.cluster_info_of_each()
        return check_connection(ClusterAnswers(servers, ()))

    return work


@check.command()
@check_options
def health() -> Work:
    """Check all that `rocketrio cluster health` looks at: its errors are critical."""
    return _about_answers(check_errors)


@check.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--wait",
    type=_LIMITS,
    default="100:500",
    show_default=True,
    help="Milliseconds that sends wait before a broker handles them.",
)
@check_options
def broker(names: tuple[str, ...], wait: Thresholds) -> Work:
    """Check that brokers answer and take writes: all that are registered, or those of these names."""
    return _about_answers(lambda answers: check_brokers(answers, names, wait))


@check.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--seconds",
    type=_LIMITS,
    default="10:60",
    show_default=True,
    help="How far slaves are behind.",
)
@_state_file(
    "Keep counts here, and judge the sends that were answered unsafe since the last check."
)
@check_options
def replication(names: tuple[str, ...], seconds: Thresholds, state_file: Path | None) -> Work:
    """Check that slaves follow their masters, and how far they are behind.

    Apache's masters report no seconds; then 256 MiB behind are a warning. With a state file, sends that a rocketrio
    broker has answered with less safety than was asked for since the last check are critical.
    """

    def judge(answers: ClusterAnswers) -> CheckResult:
        if state_file is None:
            return check_replication(answers.brokers, names, seconds)
        before = _state(state_file)
        replace_file(state_file, json.dumps({**before, **unsafe_sends(answers.brokers)}))
        return check_replication(answers.brokers, names, seconds, unsafe_before=before)

    return _about_answers(judge)


@check.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--percent",
    type=_LIMITS,
    default="75:85",
    show_default=True,
    help="How full disks are; at 85 brokers delete log files early, or refuse messages.",
)
@click.option(
    "--days",
    type=_LIMITS,
    help="How many days the free bytes last at the rate at which the log has grown, as 7:2.",
)
@check_options
def disk(names: tuple[str, ...], percent: Thresholds, days: Thresholds | None) -> Work:
    """Check how full the disks of brokers are, and with --days how long they last."""

    async def work(admin: Admin) -> CheckResult:
        now_ms = admin.client.wall_clock.now_ms()
        return check_disks(await admin.answers(), names, percent, days=days, now_ms=now_ms)

    return _limited("disk", work)


@check.command()
@click.option(
    "--given-up",
    type=_LIMITS,
    default="1:100",
    show_default=True,
    help="Transactions that no producer decided.",
)
@click.option("--open", "open_limits", type=_LIMITS, help="Thresholds on undecided transactions.")
@_state_file("Keep the counts here, and judge only what was given up since the last check.")
@check_options
def transactions(
    given_up: Thresholds, open_limits: Thresholds | None, state_file: Path | None
) -> Work:
    """Check how many transactions brokers have given up, because no producer decided them.

    The first check with a state file counts nothing as new.
    """

    async def work(admin: Admin) -> CheckResult:
        found = await admin.transactions()
        if state_file is None:
            return check_transactions(found, None, given_up, open_limits)
        before = _state(state_file)
        counts = {name: one.given_up for name, one in found.items()}
        replace_file(state_file, json.dumps({**before, **counts}))
        return check_transactions(found, before, given_up, open_limits)

    return _limited("transactions", work)


@check.command()
@click.option(
    "--days",
    type=_LIMITS,
    default="30:7",
    show_default=True,
    help="Days until a certificate ends.",
)
@click.option(
    "--address", "also", type=ADDRESS, multiple=True, help="A further server; several are possible."
)
@check_options
def certificate(days: Thresholds, also: tuple[str, ...]) -> Work:
    """Check until when the certificates of name servers, brokers and their replication are valid.

    Each server is connected to; one that shows no certificate is unknown. Certificates are not verified here, so that
    one that has ended is seen too.
    """

    async def work(admin: Admin) -> CheckResult:
        ends = await certificate_ends(admin, also)
        return check_certificates(ends, admin.client.wall_clock.now_ms(), days)

    return work


@check.command()
@check_options
def routes() -> Work:
    """Check that clients find all topics, with the queues and permissions that brokers have.

    A topic on no master, or a name without a master, is critical; a route that differs from what a broker has (as after
    `broker drain`) and a missing system topic are warnings.
    """

    async def work(admin: Admin) -> CheckResult:
        answers = await admin.answers()
        return check_routes(await ask_routes(admin.client, admin.calls, answers))

    return _limited("routes", work)


@check.command()
@click.option(
    "--group",
    "groups",
    type=GROUP,
    multiple=True,
    help="A group; several are possible.  [default: all]",
)
@click.option("--topic", type=TOPIC, help="Only this topic.")
@window_options
@click.option(
    "--messages", type=_LIMITS, help="Thresholds on unread messages, beside the verdicts."
)
@click.option(
    "--age", type=_LIMITS, help="Thresholds on the oldest unread message's age in seconds."
)
@check_options
def lag(
    groups: tuple[str, ...],
    topic: str | None,
    window: float | None,
    once: bool,
    messages: Thresholds | None,
    age: Thresholds | None,
) -> Work:
    """Check how groups keep up, by the verdicts of `rocketrio lag`.

    `behind` and `rewound` are warnings; `stalled`, `stopped`, `ahead` and `losing` are critical. The check answers at
    once; a verdict that one sample does not show is unknown then, unless --messages or --age decide. With --window it
    watches for so long, or until every group is ok.
    """
    length = seconds_of(window, once=once)

    async def work(admin: Admin) -> CheckResult:
        samples = admin.lag_window(*groups, topic=topic, seconds=length)
        return check_lag(await refined(samples, lambda: lag_report(samples)), messages, age)

    return work


@check.command(name="dead-letters")
@click.option(
    "--group",
    "groups",
    type=GROUP,
    multiple=True,
    required=True,
    help="A group; several are possible.",
)
@click.option("--new", type=_LIMITS, default="1:100", show_default=True, help="Dead letters.")
@_state_file("Keep the counts here, and judge only what is new since the last check.")
@check_options
def dead_letters(groups: tuple[str, ...], new: Thresholds, state_file: Path | None) -> Work:
    """Check how many messages groups could not handle.

    The first check with a state file counts nothing as new.
    """

    async def work(admin: Admin) -> CheckResult:
        ever = {group: await admin.dead_letters(group).ever() for group in groups}
        if state_file is None:
            kept = {group: await admin.dead_letters(group).count() for group in groups}
            return check_dead_letters(kept, None, new)
        before = _state(state_file)
        replace_file(state_file, json.dumps({**before, **ever}))
        return check_dead_letters(ever, {**ever, **before}, new)

    return work


@check.command()
@click.option("--topic", type=TOPIC, required=True, help="The topic that gets the message.")
@click.option(
    "--milliseconds",
    "limits",
    type=_LIMITS,
    default="200:1000",
    show_default=True,
    help="The time that it takes.",
)
@functools.partial(check_options, effect=sends)
def roundtrip(topic: str, limits: Thresholds) -> Work:
    """Send a message, and read it again where it was stored; no group is needed.

    Every check stores one message in the topic, so use a topic for checks alone.
    """

    async def work(admin: Admin) -> CheckResult:
        async with open_producer(client=admin.client) as producer:
            await producer.send(Message(topic, ROUNDTRIP_BODY))  # Connects, and learns the route.
            began = trio.current_time()
            with trio.move_on_after(TIMEOUT):
                sent = await producer.send(Message(topic, ROUNDTRIP_BODY))
                await admin.view_message(sent.offset_message_id)
                return check_roundtrip(topic, (trio.current_time() - began) * 1000, limits)
        text = f"a message through {topic} took more than {TIMEOUT:g} s"
        return CheckResult("roundtrip", Status.CRITICAL, text)

    return work


# ---------------------------------------------------------------------------------------- output


def _shown(result: CheckResult, form: Form) -> str:
    if form == "nagios":
        return nagios_line(result)
    if form == "text":
        return f"{result.status.name.lower()} {result.text}"
    if form == "prometheus":
        return "\n".join(_samples(result))
    values = [
        {"name": value.name, "value": value.value, "unit": value.unit, "labels": dict(value.labels)}
        | ({} if value.thresholds is None else attrs.asdict(value.thresholds))
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


def _labels(value: Value) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    inner = ",".join(f'{key}="{escaped(text)}"' for key, text in value.labels.items())
    return f"{{{inner}}}" if inner else ""


def _state(path: Path) -> Mapping[str, int]:
    """Return what an earlier check has kept; nothing if there was none."""
    try:
        found = json.loads(path.read_text())
        return {str(group): int(count) for group, count in found.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise click.UsageError(f"{path} holds no counts of an earlier check: {error}") from error
