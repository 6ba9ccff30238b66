"""What servers and messages say is printed, not obeyed: each command at a hostile name server and broker, byte by byte.

Names, remarks, keys, tags, properties and bodies have an escape sequence of a terminal, a line end, a change of the
direction of writing, and markup of the library that draws tables.
"""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from click.testing import Result
from tests.client.cli.filled import COMMANDS, cut_words, options_of, run_filled
from tests.client.cli.hostile_servers import EVIL, HOSTILE, Relay, relays
from tests.client.cli.terminals import terminal
from tests.support.caller import Caller, accepted
from tests.support.commands import LIMIT
from tests.support.private_files import private_file
from tests.support.running_cluster import Running, channel_pool, create_topic, running_cluster
from tests.support.waiting import eventually

from rocketrio import GIVE_UP, ConsumeLater, MessageExt, open_client, open_consumer
from rocketrio.admin.admin import open_admin

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOPIC, PLAIN, GROUP = f"{EVIL}-t", f"{EVIL}-plain", f"{EVIL}-g"
MEMBER = f"{EVIL}-member"
NOT_RUN: Final = {
    "exporter": "it serves until it is stopped; tests/client/exporter has its page",
    "top": "it needs a terminal; what it draws goes through the same console",
}
ARGUMENTS: Final = {
    "acl account delete": "user --yes",
    "acl account update": "user --pub-all --yes",
    "acl account versions": "",
    "acl account white-addresses": "10.0.0.1 --yes",
    "acl check": "user --action Pub --topic {topic}",
    "acl grant": "user --actions Pub --topic {topic} --yes",
    "acl import": "{file} --apply --yes",
    "acl list": "",
    "acl revoke": "user --all --yes",
    "acl sign": "a=b --access-key k",
    "acl user create": "user --password-file {secret} --yes",
    "acl user delete": "user --yes",
    "acl user list": "",
    "acl user show": "user",
    "acl user update": "user --disable --yes",
    "apply": "{toml} --dry-run",
    "bench consume": "{plain} --messages 1 --yes",
    "bench pingpong": "{plain} --messages 1 --yes",
    "bench produce": "{plain} --messages 1 --yes",
    "bench replication": "{plain} --messages 1 --yes",
    "broker clean": "{broker} queues --dry-run",
    "broker cut list": "{data}",
    "broker cut resend": "{data} {cut} --yes",
    "broker cut show": "{data} {cut}",
    "broker drain": "{name} --dry-run",
    "broker hand-over": "{name} --dry-run",
    "broker role": "{broker} slave --dry-run",
    "broker settings": "{broker}",
    "broker show": "{broker}",
    "broker stats": "{broker}",
    "broker undrain": "{name} --yes",
    "broker verify": "{broker}",
    "check broker": "",
    "check certificate": "",
    "check connection": "",
    "check dead-letters": "--group {group}",
    "check disk": "",
    "check health": "",
    "check lag": "",
    "check replication": "",
    "check roundtrip": "--topic {plain}",
    "check routes": "",
    "check transactions": "",
    "clients": "",
    "cluster events": "",
    "cluster health": "",
    "cluster list": "",
    "cluster rtt": "--count 1",
    "cluster status": "",
    "completion": "bash",
    "consume": "{plain} --group fresh --until-caught-up --json --yes",
    "context add": "new --namesrv 127.0.0.1:1",
    "context check": "",
    "context copy": "new other",
    "context edit": "new --namesrv 127.0.0.1:2",
    "context list": "",
    "context remove": "other",
    "context rename": "new newer",
    "context show": "newer",
    "context unuse": "",
    "context use": "newer",
    "dead-letters count": "--all-groups",
    "dead-letters export": "{group} {folder}",
    "dead-letters list": "{group}",
    "dead-letters resend": "{group} --all --dry-run",
    "doctor": "--once",
    "export": "",
    "group check": "{group}",
    "group create": "{group} --yes",
    "group delete": "{group} --dry-run",
    "group list": "--long",
    "group members": "{group} --queues --subscription",
    "group mode": "{group} {topic} pull --yes",
    "group show": "{group}",
    "group stacks": "{group} {member}",
    "lag": "--once",
    "message at": "{topic} {name}/0 0",
    "message browse": "{topic}",
    "message deliver": "U --topic {topic} --group {group} --client {member} --dry-run",
    "message find": "{topic} --key k",
    "message get": "U --topic {topic}",
    "message status": "U --topic {topic}",
    "message tail": "{topic} --from first",
    "message trace": "MID --trace-topic traces",
    "namesrv kv delete": "EVIL-space EVIL-key --dry-run",
    "namesrv kv get": "EVIL-space",
    "namesrv kv set": "EVIL-space EVIL-key EVIL-value --yes",
    "namesrv settings": "",
    "namesrv show": "",
    "offsets delete": "{group} --dry-run",
    "offsets export": "{group}",
    "offsets reset": "{group} --topic {topic} --to first --dry-run",
    "offsets show": "{topic} --group {group}",
    "produce": "{plain} --count 1 --yes",
    "producers": "{topic}",
    "topic create": "{topic} --yes",
    "topic delete": "{topic} --dry-run",
    "topic groups": "{topic}",
    "topic list": "",
    "topic order": "{topic}",
    "topic perm": "{topic} rw --yes",
    "topic show": "{topic}",
    "topic stats": "{topic}",
}


def test_each_command_meets_the_hostile_servers() -> None:
    """A new command belongs into the table, or has a reason why it is not run."""
    assert ARGUMENTS.keys() | NOT_RUN == COMMANDS.keys()


@attrs.frozen
class Place:
    name_server: Relay
    broker: Relay
    words: dict[str, str]

    def run(self, name: str, *more: str) -> Result:
        """Run a command at the relays."""
        at = ("--namesrv", self.name_server.address, "--timeout", "5s", "--per-broker", "2s")
        env = {"XDG_CONFIG_HOME": self.words["config"], "TERM": "xterm"}
        return run_filled(name, ARGUMENTS[name], self.words, *more, at=at, env=env)


async def _fill(cluster: Running) -> None:
    async with channel_pool() as pool:
        call = Caller(pool)
        properties = f"KEYS\1k {HOSTILE}\2TAGS\1{HOSTILE}\2UNIQ_KEY\1U\2evil{HOSTILE}\1{HOSTILE}\2"
        record = f"Pub\1{1_700_000_000_000}\1{HOSTILE}\1{HOSTILE}\1{HOSTILE}\1MID\1\1\1{HOSTILE}"
        record += "\0015\0013\0010\1OFF\1true\2"
        for topic, body, text in (
            (TOPIC, HOSTILE.replace("\r\n", ""), properties),  # `message get` prints its lines.
            (PLAIN, "plain", properties),
            ("traces", record, "KEYS\1MID\2"),
        ):
            await create_topic(pool, cluster.master, topic, 1)
            accepted(await call.send(cluster.master, body.encode(), topic=topic, properties=text))
    async with open_admin(name_servers=[cluster.name_server]) as admin:
        await admin.put_name_server_text("EVIL-space", "EVIL-key", "EVIL-value")


async def _consume(cluster: Running, ready: threading.Event, over: threading.Event) -> None:
    """Be a member of the group, which gives its first message up."""

    async def handle(message: MessageExt) -> None:
        if message.reconsume_times == 0:
            raise ConsumeLater(GIVE_UP)

    async with (
        open_client(name_servers=[cluster.name_server], client_id=MEMBER) as client,
        open_admin(client=client) as admin,
        open_consumer(TOPIC, group=GROUP, start_from="earliest", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, handle)
        await eventually(admin.dead_letters(GROUP).ever)
        ready.set()
        await trio.to_thread.run_sync(over.wait)
        nursery.cancel_scope.cancel()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    options = ("--name", f"{EVIL}-b", "--cluster", f"{EVIL}-c")
    with running_cluster(folder / "cluster", options=options) as cluster:
        trio.run(_fill, cluster)
        ready, over = threading.Event(), threading.Event()
        member = threading.Thread(target=trio.run, args=(_consume, cluster, ready, over))
        member.start()
        try:
            assert ready.wait(120)
            with relays(cluster.name_server, cluster.master) as (name_server, broker):
                yield Place(name_server, broker, _words(folder, broker.address))
        finally:
            over.set()
            member.join()


def _words(folder: Path, broker: str) -> dict[str, str]:
    private_file(folder / "secret", "Password1234\n")
    (folder / "acl.yml").write_text("accounts:\n- accessKey: user12345\n  secretKey: secret1234\n")
    (folder / "some.toml").write_text(f'[[topics]]\nname = "{TOPIC}"\nbrokers = ["{EVIL}-b"]\n')
    return {
        "topic": TOPIC, "plain": PLAIN, "group": GROUP, "member": MEMBER, "name": f"{EVIL}-b",
        "broker": broker, "folder": str(folder / "letters"), **cut_words(folder / "cluster", folder / "broker"),
        "secret": str(folder / "secret"), "file": str(folder / "acl.yml"),
        "toml": str(folder / "some.toml"), "config": str(folder / "config"),
    }  # fmt: skip


OBEYED: Final = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def is_harmless(done: Result, *, has_lines: bool = True) -> None:
    """Look at the bytes of both outputs, and at how the command ended. A field of CSV may have several lines."""
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    for said in (done.stdout_bytes, done.stderr_bytes):
        text = said.decode()
        found = OBEYED.search(text)
        assert found is None, text[max(0, found.start() - 200) : found.end() + 200]
        forged = [line for line in text.splitlines() if line.startswith("FORGED")]
        assert not (forged and has_lines), text
        assert text.count("FORGED") == text.count("[bold]x[/bold]"), text


@pytest.mark.parametrize("name", ARGUMENTS)
def test_names_steer_no_terminal(place: Place, name: str) -> None:
    place.name_server.mode = place.broker.mode = "names"
    is_harmless(place.run(name))
    options = options_of(name)
    if "--json" in options and "--json" not in ARGUMENTS[name]:
        done = place.run(name, "--json")
        is_harmless(done)
        if done.exit_code == 0:
            assert isinstance(json_of(done.stdout), list)
    if "--columns" in options:
        is_harmless(place.run(name, "--format", "csv"), has_lines=False)


def json_of(text: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("who", ["name_server", "broker"])
def test_remarks_steer_no_terminal(place: Place, who: str, name: str) -> None:
    place.name_server.mode = place.broker.mode = "names"
    relay: Relay = getattr(place, who)
    relay.mode = "refuses"
    is_harmless(place.run(name))


def test_hostile_names_are_shown_nevertheless(place: Place) -> None:
    """The test above would pass if nothing was shown at all."""
    place.name_server.mode = place.broker.mode = "names"
    shown = "\\x1b]0;PWNED\\x07\\x1b[31m\\r\\nFORGED\\u202e\\x9b[bold]x[/bold]"
    for name in ("topic list", "cluster status", "cluster list", "group list", "message browse"):
        assert shown in place.run(name).stdout, name
    place.broker.mode = "refuses"
    refused = place.run("topic show")
    assert "FORGED" in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        "top cluster",
        "top groups",
        "top topics",
        "cluster status",
        "lag --once",
        "doctor --once",
        "topic list",
        "message browse {topic}",
        "consume {topic} --group terminal --until-caught-up --yes",
    ],
)
async def test_terminal_gets_nothing_but_what_the_command_draws(place: Place, words: str) -> None:
    """In a pipe click takes colors away; here they are, and those of a stranger must not be among them."""
    place.name_server.mode = place.broker.mode = "names"
    filled = [word.format(**place.words) for word in words.split()]
    with trio.fail_after(LIMIT):
        async with terminal(*filled, namesrv=place.name_server.address, width=200) as there:
            await there.until(lambda seen: b"PWNED" in seen)
            seen = there.seen
            if words.startswith("top "):
                there.press(b"q")
            await there.ended()
            seen += there.seen
    text = seen.decode("utf-8", "replace")
    assert "\\x1b]0;PWNED\\x07" in text
    assert not {"\x07", "\u202e", "\u009b"} & set(text), text
    assert "\x1b]" not in text


def test_refusals_of_several_questions_at_once_are_one_line(place: Place) -> None:
    place.name_server.mode, place.broker.mode = "names", "refuses"
    done = place.run("export")
    assert (done.exit_code, done.stderr.count("\n"), done.stdout) == (1, 1, "")
    assert done.stderr.startswith("error: ")
