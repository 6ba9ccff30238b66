"""--timeout for a whole command, and --per-broker for the answer of one server."""

import socket
from collections.abc import Iterator

import pytest
import trio
from click.testing import CliRunner
from tests.support.commands import in_cluster

from rocketrio.cli import main
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.namesrv.routes import Registration
from rocketrio_protocol.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper


@pytest.fixture(name="silent")
def _silent() -> Iterator[str]:
    """A server that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_whole_command_ends_after_its_timeout(silent: str) -> None:
    done = CliRunner().invoke(main, ["topic", "list", "--namesrv", silent, "--timeout", "0.2"])
    assert done.exit_code == 1
    assert done.stderr == "error: not done within 0.2 s; --timeout gives it longer\n"


def test_server_has_only_the_time_that_the_user_gives_it(silent: str) -> None:
    done = CliRunner().invoke(main, ["cluster", "list", "--namesrv", silent, "--per-broker", "0.2"])
    assert done.exit_code == 1
    assert f"no name server answered ({silent}): No answer to" in done.stderr
    assert " within 0.2 s" in done.stderr


def test_check_that_takes_too_long_is_unknown(silent: str) -> None:
    done = CliRunner().invoke(main, ["check", "health", "--namesrv", silent, "--timeout", "0.2"])
    assert (done.exit_code, done.output) == (3, "UNKNOWN health: not done within 0.2 s\n")


@pytest.mark.parametrize("option", ["--timeout", "--per-broker"])
@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_other_numbers_are_wrong_use(option: str, value: str) -> None:
    assert CliRunner().invoke(main, ["topic", "list", option, value]).exit_code == 2


@pytest.mark.real
async def test_what_silent_brokers_did_not_say_is_unknown_and_they_are_named() -> None:
    async with EmbeddedCluster(network="loopback") as cluster:
        run = in_cluster(cluster)
        await run("topic", "create", "orders", "--queues", "2")
        await run("group", "create", "billing")
        with (
            socket.create_server(("127.0.0.1", 0)) as one,
            socket.create_server(("127.0.0.1", 0)) as other,
        ):
            for name, server in (("broker-b", one), ("broker-c", other)):
                _register(cluster, name, f"127.0.0.1:{server.getsockname()[1]}")
            limit = ("--per-broker", "0.5", "--json")
            for command in (
                ("group", "list"),
                ("group", "list", "--long"),
                ("group", "show", "billing"),
                ("topic", "list", "--long"),
                ("topic", "show", "orders"),
                ("topic", "stats", "orders"),
                ("offsets", "orders", "--group", "billing"),
            ):
                done = await run(*command, *limit)
                assert done.code == 3, (command, done)
                for name in ("broker-b", "broker-c"):
                    assert f"warning: {name} did not answer: " in done.err, (command, done)


def _register(cluster: EmbeddedCluster, name: str, addr: str) -> None:
    """Register a master that has the topic as well."""
    topics = TopicConfigSerializeWrapper(DataVersion(1, 1), {"orders": TopicConfig("orders", 2, 2)})
    registration = Registration("DefaultCluster", name, 0, addr, addr, topics)
    cluster.name_server.routes.register_broker(
        registration, channel=name, host="127.0.0.1", now=trio.current_time()
    )
