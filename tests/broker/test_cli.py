"""The command as scripts use it: its ready lines, its exit codes, one line for what is wrong."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from click.testing import CliRunner
from tests.support.private_files import account_file, private_file
from tests.support.processes import free_port
from tests.support.tls import write_files
from tests.support.waiting import wait_until

from rocketrio_broker.cli import main
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import HeartbeatData, ProducerData
from rocketrio_protocol.bodies.registration import RegisterBrokerBody, encode_register_body
from rocketrio_protocol.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.cluster import (
    GetBrokerClusterInfoRequestHeader,
    RegisterBrokerRequestHeader,
)
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.ports import split_addr
from rocketrio_protocol.remoting.tcp import dial_tcp
from rocketrio_protocol.remoting.tls_files import TlsOptions
from rocketrio_protocol.signature import Signer

READY_NAME_SERVER = re.compile(r"ready role=namesrv address=(127\.0\.0\.1:\d+)")
READY_BROKER = re.compile(
    r"ready role=(master|slave) name=([\w-]+) address=(127\.0\.0\.1:\d+) ha_address=127\.0\.0\.1:\d+"
)
MEMBER_OF = re.compile(r'member(?:=|": ")([\w-]+)')
PATIENCE = 90  # Seconds a process may take to start or stop on a busy machine.
COMMAND = ("-m", "rocketrio_broker.cli")
COMMAND_THAT_CHECKS_NO_FILES = (
    "-c",
    "from rocketrio_broker.cli import main; from rocketrio_protocol.remoting import reloaded_files;"
    "reloaded_files.RELOAD_PERIOD = 1e6; main()",
)
"""It reads files again on the signal, and never on its period."""


@attrs.define
class Running:
    """A process of the command."""

    process: "subprocess.Popen[str]"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def ended(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Its exit code and what it said on standard error."""
        if number is not None:
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said


class Launcher:
    """Starts processes, and leaves none behind."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, command: tuple[str, ...] = COMMAND) -> Running:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ROCKETRIO_", "NAMESRV_"))
        }
        process = subprocess.Popen(
            [sys.executable, *command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._started.append(process)
        return Running(process)

    def end_all(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE)


def has_slaves(remembered: Path, addrs: set[str]) -> bool:
    """Return whether a broker's file of known slaves names these slaves and no others."""
    return remembered.exists() and set(json.loads(remembered.read_text())["slaves"]) == addrs


def ready_members(cluster: Running, count: int = 2) -> dict[str, set[str]]:
    """The addresses of the first brokers that are ready, by their role."""
    found: dict[str, set[str]] = {}
    for _ in range(count):
        ready = READY_BROKER.fullmatch(cluster.line())
        assert ready
        assert ready[2] == "broker-a"
        found.setdefault(ready[1], set()).add(ready[3])
    return found


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    made = Launcher()
    yield made
    made.end_all()


def invoked(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, arguments, env={"NAMESRV_ADDR": None})
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "--listen", "10911"], "host:port"),
        (["run", "--listen", "127.0.0.1:1;127.0.0.1:2"], "host:port"),
        (["run", "--namesrv", "a:9876;http://b"], "name server 'http://b' is not HOST:PORT"),
        (["run", "--role", "boss"], "async-master"),
        (["run", "--role", "slave"], "a master has id 0"),
        (["run", "--set", "store.flush_disk_typ=sync"], "store.flush_disk_type"),
        (["run", "--set", "nonsense"], "KEY=VALUE"),
        (["run", "--set", "store.flush_disk_type=x"], "one of async, sync"),
        (["run", "--config", "/nowhere.toml"], "/nowhere.toml"),
        (["run", "--id", "-1"], "--id"),
        (["cluster"], "--data"),
        (["cluster", "--data", "d", "--slaves", "99"], "--slaves"),
        (["cluster", "--data", "d", "--role", "slave"], "sync-master"),
        (["nonsense"], "nonsense"),
        (["run", "nonsense"], "nonsense"),
    ],
)
def test_wrong_usage_exits_with_2_and_names_the_right_one(arguments: list[str], told: str) -> None:
    code, output = invoked(*arguments)
    assert code == 2
    assert told in output


@pytest.mark.real
def test_a_full_disk_for_its_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rocketrio_broker.cli", "settings"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "rocketrio-broker: standard output cannot be written: No space left on device\n"
    )


def test_version_option_prints_the_version() -> None:
    code, output = invoked("--version")
    assert code == 0
    assert re.search(r"version \d+\.\d+", output)


@pytest.mark.real
def test_a_name_server_has_the_limits_that_it_is_given(launcher: Launcher) -> None:
    options = ("--listen", "127.0.0.1:0", "--broker-limit", "2", "--topic-limit", "8")
    found = READY_NAME_SERVER.fullmatch(launcher.start("namesrv", *options).line())
    assert found
    topics = {f"T{number}": TopicConfig(f"T{number}") for number in range(5)}
    body = encode_register_body(
        RegisterBrokerBody(TopicConfigSerializeWrapper(DataVersion(1), topics))
    )

    async def register_two() -> list[RemotingCommand]:
        async with open_channel_pool(dial_tcp) as pool:
            headers = [
                RegisterBrokerRequestHeader(
                    broker_name=f"b{number}",
                    broker_addr=f"10.0.0.{number}:10911",
                    cluster_name="lab",
                    ha_server_addr="",
                    broker_id=0,
                )
                for number in (1, 2)
            ]
            return [await pool.call(found[1], header, body) for header in headers]

    first, second = trio.run(register_two)
    assert (first.code, first.remark) == (0, "1 topics found no room in this name server's tables")
    assert second.code == 1
    assert "no room for another broker" in (second.remark or "")


@pytest.mark.real
def test_a_name_server_does_not_read_a_file_that_is_too_large(
    launcher: Launcher, tmp_path: Path
) -> None:
    with (tmp_path / "kvConfig.json").open("wb") as file:
        file.truncate(1 << 30)
    options = ("--listen", "127.0.0.1:0", "--data", str(tmp_path))
    code, said = launcher.start("namesrv", *options).ended()
    assert code == 1
    assert "kvConfig.json has 1073741824 bytes" in said
    assert "8388608" in said


@pytest.mark.parametrize("command", ["namesrv", "run", "cluster", "settings"])
def test_help_has_an_example(command: str) -> None:
    code, output = invoked(command, "--help")
    assert code == 0
    assert f"rocketrio-broker {command} " in output


def test_settings_are_listed_with_their_meaning() -> None:
    code, output = invoked("settings", "flush_disk")
    assert code == 0
    assert 'store.flush_disk_type = "async"\n    async' in output
    assert "broker_name" not in output


def test_an_address_in_use_is_one_line_and_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        addr = f"127.0.0.1:{taken.getsockname()[1]}"
        code, output = invoked("namesrv", "--listen", addr)
    assert code == 1
    assert addr in output
    assert output.count("\n") == 1


def test_a_directory_that_cannot_be_used_is_one_line_and_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, output = invoked(
        "run", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "file"), "--log-level", "error"
    )
    assert code in (1, 2)
    assert str(tmp_path / "file") in output


@pytest.mark.real
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cluster_serves_and_ends_clean(
    launcher: Launcher, tmp_path: Path, number: signal.Signals
) -> None:
    cluster = launcher.start(
        "cluster", "--listen", "127.0.0.1:0", "--data", str(tmp_path), "--slaves", "1"
    )
    assert READY_NAME_SERVER.fullmatch(cluster.line())
    assert ready_members(cluster).keys() == {"master", "slave"}
    code, said = cluster.ended(number)
    assert code == 0, said
    assert "Traceback" not in said
    assert "unregistration failed" not in said
    assert not list(tmp_path.rglob("abort"))


@pytest.mark.real
def test_cluster_that_listens_on_all_addresses_advertises_the_given_host(
    launcher: Launcher, tmp_path: Path
) -> None:
    options = ("--listen", "0.0.0.0:0", "--data", str(tmp_path), "--slaves", "1")
    code, output = invoked("cluster", *options)
    assert code == 2
    assert "--host" in output
    cluster = launcher.start("cluster", *options, "--host", "127.0.0.1")
    cluster.line()
    assert ready_members(cluster).keys() == {"master", "slave"}
    code, said = cluster.ended(signal.SIGTERM)
    assert code == 0, said


@pytest.mark.real
def test_a_cluster_returns_to_its_addresses_without_waiting_or_alarms(
    launcher: Launcher, tmp_path: Path
) -> None:
    options = ("--listen", "127.0.0.1:0", "--data", str(tmp_path), "--slaves", "2")
    remembered = tmp_path / "broker-a-0" / "config" / "slaves.json"
    # A connection of another program could be given any other port between the two starts.
    port = free_port(-2, 1, 8, 10, 11, 18, 20, 21)
    ports = {
        f"broker-a-{number}": (port + 10 * number, port + 10 * number + 1) for number in range(3)
    }
    (tmp_path / "ports.json").write_text(json.dumps(ports))
    starts = []
    for _ in range(2):
        cluster = launcher.start("cluster", *options)
        cluster.line()
        starts.append(ready_members(cluster, 3))
        # The file has one of them until the other one has registered.
        wait_until(partial(has_slaves, remembered, starts[0]["slave"]), "remembered")
        code, said = cluster.ended(signal.SIGTERM)
        assert code == 0, said
        assert "WARNING" not in said
    assert starts[0] == starts[1]


@pytest.mark.real
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_each_line_of_a_cluster_names_its_member(
    launcher: Launcher, tmp_path: Path, log_format: str
) -> None:
    options = ("--listen", "127.0.0.1:0", "--data", str(tmp_path), "--log-format", log_format)
    cluster = launcher.start("cluster", *options)
    cluster.line()
    ready_members(cluster)
    code, said = cluster.ended(signal.SIGTERM)
    assert code == 0, said
    by_members = [line for line in said.splitlines() if "stopping" not in line]
    found = [MEMBER_OF.search(line) for line in by_members]
    assert all(found), said
    assert {one[1] for one in found if one} == {"namesrv", "broker-a-0", "broker-a-1"}


@pytest.mark.real
def test_members_run_in_processes_of_their_own(launcher: Launcher, tmp_path: Path) -> None:
    name_server = launcher.start("namesrv", "--listen", "127.0.0.1:0")
    found = READY_NAME_SERVER.fullmatch(name_server.line())
    assert found
    common = ("--namesrv", found[1], "--name", "b", "--cluster", "c", "--listen", "127.0.0.1:0")
    master = launcher.start("run", *common, "--data", str(tmp_path / "m"))
    ready = READY_BROKER.fullmatch(master.line())
    assert ready
    assert ready.group(1, 2) == ("master", "b")
    locked = launcher.start("run", *common, "--data", str(tmp_path / "m"))
    code, said = locked.ended()
    assert code == 1
    assert "another broker" in said.lower()
    slave = launcher.start(
        "run", *common, "--role", "slave", "--id", "1", "--data", str(tmp_path / "s")
    )
    ready = READY_BROKER.fullmatch(slave.line())
    assert ready
    assert ready[1] == "slave"
    for member in (slave, master, name_server):
        assert member.ended(signal.SIGTERM)[0] == 0


@pytest.mark.real
def test_a_broker_without_its_name_server_warns_and_serves(
    launcher: Launcher, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
    broker = launcher.start(
        "run", "--namesrv", nobody, "--listen", "127.0.0.1:0", "--data", str(tmp_path)
    )
    assert READY_BROKER.fullmatch(broker.line())
    code, said = broker.ended(signal.SIGTERM)
    assert code == 0
    assert said.count("cannot register") == 1
    assert "not serving yet, asking again for messages that only a slave may have" in said
    assert f'unreachable="name server {nobody}" ha_return_wait=' in said
    assert nobody in said


@pytest.mark.real
def test_a_client_id_with_line_ends_adds_one_line_to_the_log(
    launcher: Launcher, tmp_path: Path
) -> None:
    forged = "x\n2025-01-01 00:00:00,000 INFO rocketrio_broker all is well"
    heartbeat = HeartbeatData(forged, producer_data_set=[ProducerData("producers")])
    request = RemotingCommand(RequestCode.HEART_BEAT, body=fastjson.dumps(heartbeat))
    broker = launcher.start("run", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    found = READY_BROKER.match(broker.line())
    assert found is not None
    with socket.create_connection(split_addr(found[3]), timeout=PATIENCE) as connection:
        connection.sendall(request.encode())
        assert connection.recv(4096)
    _, said = broker.ended(signal.SIGTERM)
    (line,) = [line for line in said.splitlines() if "all is well" in line]
    assert "producer connected" in line
    assert not any(line.startswith("2025-01-01") for line in said.splitlines())


@pytest.mark.real
def test_cluster_with_users_refuses_strangers_on_every_port(
    launcher: Launcher, tmp_path: Path
) -> None:
    accounts = private_file(
        tmp_path / "plain_acl.yml", "accounts:\n- {accessKey: producer1, secretKey: secret-1}\n"
    )
    inner = account_file(tmp_path / "inner.yml", Credentials("inner-1", "inner-secret"))
    cluster = launcher.start(
        "cluster", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--slaves", "1",
        "--acl-file", str(accounts), "--inner-credentials", str(inner),
    )  # fmt: skip
    name_server = READY_NAME_SERVER.fullmatch(cluster.line())
    assert name_server
    members = ready_members(cluster)

    async def ask(addr: str, signer: Signer | None) -> int:
        async with open_channel_pool(dial_tcp, signer=signer) as pool:
            return (await pool.call(addr, GetBrokerClusterInfoRequestHeader())).code

    user = Signer(Credentials("producer1", "secret-1"))
    addrs = {addr for some in members.values() for addr in some} | {name_server[1]}
    assert {trio.run(ask, addr, None) for addr in addrs} == {ResponseCode.NO_PERMISSION}
    assert trio.run(ask, name_server[1], user) == ResponseCode.SUCCESS
    code, said = cluster.ended(signal.SIGTERM)
    assert code == 0
    assert "inner-secret" not in said


def test_cluster_with_users_needs_an_account_for_its_brokers(tmp_path: Path) -> None:
    accounts = private_file(tmp_path / "plain_acl.yml", "")
    code, output = invoked("cluster", "--data", str(tmp_path), "--acl-file", str(accounts))
    assert code == 2
    assert "--inner-credentials" in output


def test_cluster_whose_brokers_all_fail_says_why_in_one_line(tmp_path: Path) -> None:
    inner = tmp_path / "inner.yml"
    inner.write_text("accessKey: inner-1\nsecretKey: inner-secret\n")
    inner.chmod(0o644)
    code, output = invoked(
        "cluster", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--slaves", "1",
        "--set", "acl_enable=true", "--inner-credentials", str(inner),
    )  # fmt: skip
    assert code == 1
    [said] = [line for line in output.splitlines() if line.startswith("rocketrio-broker: ")]
    assert f"{inner} is open to others" in said
    assert "Traceback" not in output


@pytest.mark.slow
@pytest.mark.real
def test_cluster_with_a_certificate_serves_the_command_and_reads_a_new_one_at_sighup(
    launcher: Launcher, tmp_path: Path
) -> None:
    files = write_files(tmp_path)
    running = launcher.start(
        "cluster", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--slaves", "0",
        "--tls-cert", str(files.certificate), "--tls-key", str(files.key),
        "--set", f"peer_tls_authority_file={files.authority}",
        command=COMMAND_THAT_CHECKS_NO_FILES,
    )  # fmt: skip
    ready = READY_NAME_SERVER.fullmatch(running.line())
    assert ready
    [address] = ready_members(running, 1)["master"]
    for more, code in ((["--tls-ca", str(files.authority)], 0), ([], 1)):
        listed = subprocess.run(
            [sys.executable, "-c", "from rocketrio.cli import main; main()",
             "topic", "create", "orders", "--namesrv", ready[1], *more],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert listed.returncode == code, listed.stderr
    assert "speaks TLS" in listed.stderr
    context = TlsOptions(files.authority).context()
    former = [shown_certificate(addr, context) for addr in (ready[1], address)]
    write_files(tmp_path)
    running.process.send_signal(signal.SIGHUP)

    def are_renewed() -> bool:
        return all(
            shown_certificate(addr, context) != each
            for addr, each in zip((ready[1], address), former, strict=True)
        )

    wait_until(are_renewed, "showing the new certificate")
    code, said = running.ended(signal.SIGTERM)
    assert code == 0, said
    assert "days_left=" in said


def shown_certificate(address: str, context: ssl.SSLContext) -> bytes | None:
    host, port = split_addr(address)
    with (
        socket.create_connection((host, port), timeout=PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        return secured.getpeercert(binary_form=True)


@pytest.mark.real
def test_log_in_json_is_one_object_a_line(launcher: Launcher, tmp_path: Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--data", str(tmp_path), "--log-format", "json")
    cluster = launcher.start("cluster", *arguments)
    cluster.line()  # The name server.
    ready_members(cluster, 1)
    code, said = cluster.ended(signal.SIGTERM)
    assert code == 0
    lines = [json.loads(line) for line in said.splitlines()]
    assert {"time", "level", "logger", "event"} <= set.intersection(*map(set, lines))
    assert {"serving", "stopping"} <= {line["event"] for line in lines}
