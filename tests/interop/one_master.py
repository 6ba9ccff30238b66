"""Apache's name server, one master and its client, for the tests of a module; each has topics of its own."""

import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.interop.java_client import JavaClient

_NUMBERS = itertools.count()


@attrs.frozen
class OneMaster:
    """What runs."""

    name_server: str
    master: ApacheBroker
    java: JavaClient

    def new_topic(self, *, queues: int = 1) -> str:
        """A topic that was not used yet, and that Java's client knows."""
        topic = f"topic-{next(_NUMBERS)}"
        self.java.create_topic(topic, at=self.master.address, queues=queues)
        return topic


def one_master_fixture(**settings: str) -> Any:
    """Make a fixture of it for the tests of one file; the broker has these settings beside its defaults."""

    @pytest.fixture(scope="module")
    def cluster(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneMaster]:
        folder = tmp_path_factory.mktemp(f"one-master-{version}")
        with (
            ApacheNameServer(version, folder / "names") as names,
            ApacheBroker(version, folder / "master", names.address, settings=settings) as master,
            JavaClient(version, names.address, folder / "java") as java,
        ):
            yield OneMaster(names.address, master, java)

    return cluster
