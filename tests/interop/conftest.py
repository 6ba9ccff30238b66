"""Clusters of both products for the interop stories; the whole suite is skipped where Apache is not to be had.

Everything of one version is started once and at the same time: on two cores most of a start is the JVM's.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.interop.jars import VERSIONS, UnavailableError, apache_jars
from tests.interop.java_client import JavaClient, compiled_client, make_topic, queue_of
from tests.interop.secured import Secured, secured_apache
from tests.support.ours import OurBroker, OurNameServer
from tests.support.server import start_together

UNAVAILABLE = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, and remember why, where a version cannot be had; later tests do not try again.

    A hook and not a fixture: all skips then come from one place, and are reported in one line.
    """
    config = item.config
    if UNAVAILABLE not in config.stash:
        version = VERSIONS[0]
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            version = str(item.callspec.params.get("version", version))
        try:
            apache_jars(version)
            compiled_client(version)
        except UnavailableError as error:
            config.stash[UNAVAILABLE] = str(error)
    if UNAVAILABLE in config.stash:
        pytest.skip(f"interop: skipped: {config.stash[UNAVAILABLE]}")


@attrs.frozen
class OnApache:
    """Apache's name server and master, our slave, and Apache's client to look in with."""

    version: str
    name_server: str
    master: ApacheBroker
    slave: OurBroker
    java: JavaClient


@attrs.frozen
class OnOurs:
    """Our name server and master, Apache's slave, and Apache's client."""

    version: str
    name_server: str
    master: OurBroker
    slave: ApacheBroker
    java: JavaClient
    java_rocketmq: JavaClient


@attrs.frozen
class World:
    """All that runs of one version: both clusters, and Apache servers that answer in ROCKETMQ."""

    on_apache: OnApache
    on_ours: OnOurs
    rocketmq_name_server: str
    rocketmq_master: ApacheBroker
    rocketmq_java: JavaClient


@pytest.fixture(scope="session", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="session")
def world(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp(f"apache-{version}")
    with ExitStack() as stack:
        yield _start(version, folder, stack)


@pytest.fixture(autouse=True)
def brokers_live(request: pytest.FixtureRequest) -> Iterator[None]:
    """A broker that ended is reported with its last words, and not by what others say of it."""
    world: World | None = None
    if "world" in request.fixturenames:
        world = request.getfixturevalue("world")
    yield
    if world is not None:
        on_apache, on_ours = world.on_apache, world.on_ours
        for broker in (on_apache.master, on_apache.slave, on_ours.master, on_ours.slave):
            process = broker.process
            assert process is not None
            assert process.is_running, f"{process.name} ended:\n{process.tail()}"


@pytest.fixture(scope="session")
def on_apache(world: World) -> OnApache:
    return world.on_apache


@pytest.fixture(scope="session")
def on_ours(world: World) -> OnOurs:
    return world.on_ours


@pytest.fixture(scope="module")
def secured(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Apache's name server and master with access control."""
    with secured_apache(version, tmp_path_factory.mktemp(f"secured-{version}")) as running:
        yield running


@pytest.fixture(scope="module", params=["apache", "ours"])
def side(request: pytest.FixtureRequest, world: World) -> OnApache | OnOurs:
    """The cluster of each product in turn."""
    return world.on_apache if request.param == "apache" else world.on_ours


def _start(version: str, folder: Path, stack: ExitStack) -> World:
    apache_names = ApacheNameServer(version, folder / "apache-namesrv")
    our_names = OurNameServer(folder / "our-namesrv")
    stack.enter_context(apache_names)
    stack.enter_context(our_names)
    rocketmq_names = ApacheNameServer(version, folder / "rocketmq-namesrv", "ROCKETMQ")
    stack.enter_context(rocketmq_names)
    apache_master = ApacheBroker(version, folder / "apache-master", apache_names.address)
    our_master = OurBroker(folder / "our-master", our_names.address)
    rocketmq_master = ApacheBroker(
        version,
        folder / "rocketmq-master",
        rocketmq_names.address,
        serialize_type="ROCKETMQ",
    )
    our_slave = OurBroker(folder / "our-slave", apache_names.address, role="slave", broker_id=1)
    apache_slave = ApacheBroker(
        version, folder / "apache-slave", our_names.address, role="SLAVE", broker_id=1
    )
    # A slave that finds its master registered copies metadata at once: masters first.
    start_together(stack, apache_master, rocketmq_master, our_master)
    start_together(stack, our_slave, apache_slave)
    on_apache = OnApache(
        version,
        apache_names.address,
        apache_master,
        our_slave,
        stack.enter_context(JavaClient(version, apache_names.address, folder / "java")),
    )
    on_ours = OnOurs(
        version,
        our_names.address,
        our_master,
        apache_slave,
        stack.enter_context(JavaClient(version, our_names.address, folder / "java-ours")),
        stack.enter_context(
            JavaClient(version, our_names.address, folder / "java-rocketmq", "ROCKETMQ")
        ),
    )
    return World(
        on_apache,
        on_ours,
        rocketmq_names.address,
        rocketmq_master,
        stack.enter_context(
            JavaClient(version, rocketmq_names.address, folder / "java-on-rocketmq", "ROCKETMQ")
        ),
    )


@pytest.fixture(params=["JSON", "ROCKETMQ"])
def java(request: pytest.FixtureRequest, on_ours: OnOurs) -> JavaClient:
    return on_ours.java if request.param == "JSON" else on_ours.java_rocketmq


@pytest.fixture
def topic(java: JavaClient, on_ours: OnOurs) -> str:
    """A new topic with two queues, known to the name server."""
    return make_topic(java, on_ours.master.address)


@pytest.fixture
def queue(topic: str) -> dict[str, Any]:
    """The first queue of the topic, as calls want it."""
    return queue_of(topic)
