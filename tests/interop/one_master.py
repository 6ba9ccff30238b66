"""Apache's name server, one master and its client, for the tests of a module; each has topics of its own."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

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
        self.java.call("create_topic", address=self.master.address, topic=topic, queues=queues)
        self.java.until("publish_queues", topic=topic)
        return topic


@contextmanager
def one_master(version: str, folder: Path, settings: Mapping[str, str]) -> Iterator[OneMaster]:
    """All of it, for as long as the block runs; the broker has these settings beside its defaults."""
    with ApacheNameServer(version, folder / "names") as names:
        names.wait_ready()
        with (
            ApacheBroker(
                version, folder / "master", names.address, settings=dict(settings)
            ) as master,
            JavaClient(version, names.address, folder / "java") as java,
        ):
            yield OneMaster(names.address, master, java)
