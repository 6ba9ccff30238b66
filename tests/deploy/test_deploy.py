"""What deploy/ gives to systemd, Docker and Kubernetes: settings that brokers have, commands that exist, one set of
ports; and the pair of compose.yaml, run."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.support.processes import Process, free_port
from tests.support.waiting import wait_until

from rocketrio.cli import main as rocketrio
from rocketrio_broker.cli import main as rocketrio_broker
from rocketrio_broker.service_manager import READY, STOPPING
from rocketrio_broker.settings.loading import load_config

DEPLOY = Path(__file__).parents[2] / "deploy"
PROGRAMS: Mapping[str, click.Group] = {"rocketrio": rocketrio, "rocketrio-broker": rocketrio_broker}


def compose() -> dict[str, Any]:
    text = (DEPLOY / "compose.yaml").read_text()
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    return services


@cache
def manifests() -> list[dict[str, Any]]:
    return [
        one
        for path in sorted((DEPLOY / "kubernetes").glob("*/*.yaml"))
        for one in yaml.safe_load_all(path.read_text())
    ]


def pods() -> dict[str, dict[str, Any]]:
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in manifests()
        if one["kind"] in ("StatefulSet", "Deployment") and "selector" in one["spec"]
    }


def environment_of_pod(name: str) -> dict[str, str]:
    [container] = pods()[name]["containers"]
    shared: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        [found] = [
            one
            for one in manifests()
            if one["kind"] == "ConfigMap"
            and one["metadata"]["name"] == source["configMapRef"]["name"]
        ]
        shared |= found["data"]
    return shared | {one["name"]: one["value"] for one in container.get("env", ())}


def units() -> dict[str, str]:
    return {path.name: path.read_text() for path in (DEPLOY / "systemd").glob("*.service")}


def brokers() -> Iterator[tuple[str, dict[str, str]]]:
    for name in ("master", "slave"):
        found = {key: str(value) for key, value in compose()[name]["environment"].items()}
        yield (
            f"compose {name}",
            {key: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value) for key, value in found.items()},
        )
    for name in ("broker-a-0", "broker-a-1"):
        yield f"kubernetes {name}", environment_of_pod(name)


@pytest.mark.parametrize(("where", "environment"), list(brokers()), ids=lambda one: one)
def test_brokers_are_given_settings_that_they_have(
    where: str, environment: dict[str, str], tmp_path: Path
) -> None:
    secret = tmp_path / "ha.secret"
    secret.write_text("s" * 32)
    secret.chmod(0o400)
    if "ROCKETRIO_HA_SECRET_FILE" in environment:
        environment["ROCKETRIO_HA_SECRET_FILE"] = str(secret)
    config = load_config(file=None, given={}, environment=environment)
    assert config.broker_name == "broker-a"
    assert config.ha_hand_over_on_stop
    assert config.role == ("slave" if where.endswith(("slave", "1")) else "sync-master")
    assert (config.broker_id == 0) == (config.role != "slave")
    assert config.address is not None
    assert config.address.rpartition(":")[2] == config.listen.rpartition(":")[2]


def test_file_of_the_unit_is_one_of_a_master(tmp_path: Path) -> None:
    secret = tmp_path / "ha.secret"
    secret.write_text("s" * 32)
    secret.chmod(0o400)
    given = {"ha_secret_file": str(secret)}
    config = load_config(file=DEPLOY / "systemd" / "broker-a.toml", given=given, environment={})
    assert (config.role, config.broker_id, config.ha_hand_over_on_stop) == ("sync-master", 0, True)


def commands() -> Iterator[tuple[str, list[str]]]:
    for name, service in compose().items():
        if service["image"] == "rocketrio":
            yield f"compose {name}", service["command"]
            check = service["healthcheck"].get("test")
            if check is not None and check[1] in PROGRAMS:
                yield f"compose {name}, health", check[1:]
    for name, pod in pods().items():
        yield f"kubernetes {name}", pod["containers"][0]["args"]
    for name, text in units().items():
        [line] = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        yield (
            f"systemd {name}",
            shlex.split(line.removeprefix("/opt/rocketrio/bin/").replace(" $OPTIONS", "")),
        )
    for words in re.findall(r"^(?:HEALTHCHECK.* )?CMD (\[.*\])$", dockerfile(), re.MULTILINE):
        yield "Dockerfile", yaml.safe_load(words)


def dockerfile() -> str:
    return (DEPLOY / "Dockerfile").read_text()


@pytest.mark.parametrize(("where", "words"), list(commands()), ids=lambda one: str(one))
def test_commands_exist_with_their_options(where: str, words: list[str], tmp_path: Path) -> None:
    if words[0] == "sh":
        words = shlex.split(words[2].partition(" do ")[2].partition(" >")[0])
    words = [
        str(tmp_path) if word in ("${STATE_DIRECTORY}", "/data") else
        str(DEPLOY / "systemd" / "broker-a.toml") if word == "/etc/rocketrio/%i.toml" else word
        for word in words
    ]  # fmt: skip
    command: click.Command = PROGRAMS[words[0]]
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(click.Context(command), rest[0])
        assert found is not None, (where, rest)
        command, rest = found, rest[1:]
    if rest not in ([], ["--help"]):
        command.make_context(words[0], list(rest))


def test_no_pod_gets_variables_of_links_or_rights() -> None:
    """The variables of a Service begin like those of settings, and a broker refuses a setting that it does not have."""
    for name, pod in pods().items():
        assert pod["enableServiceLinks"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name


@pytest.mark.slow
def test_services_lead_to_one_pod_each_and_nothing_outside_reaches_replication() -> None:
    services = [one for one in manifests() if one["kind"] == "Service"]
    for one in services:
        ports = {port["port"] for port in one["spec"]["ports"]}
        outside = one["spec"].get("type") == "LoadBalancer"
        assert (10912 in ports) <= (not outside), one["metadata"]["name"]
        if ports & {10911}:
            [(label, pod)] = one["spec"]["selector"].items()
            assert label == "statefulset.kubernetes.io/pod-name"
            assert pod.removesuffix("-0") in pods()


def test_units_are_what_systemd_takes(tmp_path: Path) -> None:
    """The hardening is a drop-in for all units whose names begin alike, so that it is written once."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing")
    shutil.copytree(DEPLOY / "systemd", tmp_path, dirs_exist_ok=True)
    for path in tmp_path.glob("*.service"):
        path.write_text(
            path.read_text().replace("/opt/rocketrio/bin", str(Path(sys.prefix) / "bin"))
        )
    names = [name.replace("@.", "@broker-a.") for name in units()]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names],
        cwd=tmp_path,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.real
def test_pair_of_compose_serves_and_tells_its_manager(tmp_path: Path) -> None:
    """The commands and variables are compose.yaml's; only the hosts, which are those of its network, are this one."""
    services = compose()
    names = f"127.0.0.1:{free_port()}"
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.setblocking(False)
    shared = {**os.environ, "NAMESRV_ADDR": names, "NOTIFY_SOCKET": str(tmp_path / "notify")}
    programs = Path(sys.prefix) / "bin"
    told: list[str] = []

    def start(name: str, environment: Mapping[str, str]) -> Process:
        program, *words = (
            str(tmp_path / name) if word == "/data" else word.replace("0.0.0.0:9876", names)
            for word in services[name]["command"]
        )
        argv, log = [programs / program, *words], tmp_path / f"{name}.log"
        process = Process.start(name, argv, log=log, env={**environment, **shared})
        stack.callback(process.kill)
        return process

    def has_told(state: str, times: int) -> bool:
        with suppress(BlockingIOError):
            while True:
                told.append(manager.recv(100).decode())
        return told.count(state) == times

    def ask(*words: str) -> str:
        command = [programs / "rocketrio", *words]
        return subprocess.run(
            command, env=shared, capture_output=True, text=True, check=True
        ).stdout

    with ExitStack() as stack:
        stack.enter_context(manager)
        started = [start("namesrv", {})]
        for where, environment in brokers():
            if where.startswith("compose"):
                name = where.removeprefix("compose ")
                ports = {key: free_port() for key in ("LISTEN", "HA_LISTEN", "METRICS_LISTEN")}
                mine = {f"ROCKETRIO_{key}": f"127.0.0.1:{port}" for key, port in ports.items()}
                mine["ROCKETRIO_ADDRESS"] = mine["ROCKETRIO_LISTEN"]
                mine["ROCKETRIO_HA_ADDRESS"] = mine["ROCKETRIO_HA_LISTEN"]
                mine["ROCKETRIO_DATA"] = str(tmp_path / name)
                started.append(start(name, {**environment, **mine}))
        wait_until(lambda: has_told(READY, 3), "all ready")
        wait_until(lambda: "following" in ask("cluster", "status", "--json"), "a slave follows")
        assert "OK" in ask(*services["namesrv"]["healthcheck"]["test"][2:])
        assert [process.stop() for process in reversed(started)] == [0, 0, 0]
        assert has_told(STOPPING, 3), told
