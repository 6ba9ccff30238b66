"""Apache's Java client as a child process that takes orders, a JSON line each way.

The sources under `java/` are compiled against the jars of the wanted version. `java/Client.java` says
what the lines look like; each op is a method call here: `client.call("send", topic="orders", body="one")`.
"""

import itertools
from pathlib import Path
from typing import Any, Self

import attrs
import trio

from tests.interop.apache import JVM_OPTIONS, SerializeType
from tests.interop.jars import apache_jars
from tests.interop.java_sources import compiled
from tests.interop.line_client import ClientError, LineClient

SOURCES = Path(__file__).parent / "java"
_MEMORY = ("-Xms32m", "-Xmx256m")


class JavaError(ClientError):
    """What the Java client threw."""


def compiled_client(version: str) -> Path:
    """The folder with the classes of `java/` for one version, compiled at first use."""
    jars = apache_jars(version)
    return compiled(f"client-{version}", sorted(SOURCES.glob("*.java")), f"{jars}/*")


@attrs.define
class JavaClient(LineClient):
    """One client process of one version; `with` starts it and ends it."""

    error = JavaError
    version: str
    name_server: str
    home: Path
    serialize_type: SerializeType = "JSON"
    jvm_options: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        self.start(
            [
                "java",
                *JVM_OPTIONS,
                *_MEMORY,
                f"-Duser.home={self.home}",
                f"-Drocketmq.serialize.type={self.serialize_type}",
                "-Dcom.rocketmq.sendMessageWithVIPChannel=false",
                *self.jvm_options,  # Of two that are the same the last one counts.
                "-cp",
                f"{compiled_client(self.version)}:{apache_jars(self.version)}/*",
                "Client",
                self.name_server,
            ],
            log=self.home / "client.log",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def create_topic(self, name: str, *, at: str, queues: int = 1) -> str:
        """Create a topic on the broker at this address, and return its name once the client has the route."""
        self.call("create_topic", address=at, topic=name, queues=queues)
        self.until("publish_queues", topic=name)
        return name

    def mqadmin(self, *words: str, **options: bool) -> str:
        """Return what Apache's tool prints."""
        text: str = self.call("mqadmin", words=[*words], **options)
        return text

    async def seen(self, member: str, count: int, limit: float) -> list[dict[str, Any]]:
        """What a member (of `work_start`) was handed, once there are `count`; TooSlowError after `limit` seconds."""
        with trio.fail_after(limit):
            while True:
                found: list[dict[str, Any]] = await self.acall("work_seen", member=member)
                if len(found) >= count:
                    return found
                await trio.sleep(0.2)


TOPIC_NUMBERS = itertools.count()
JOIN_TIMEOUT = 75.0
"""Seconds; one in ten 5.3.3 consumers gets no queue at first, on Apache too, and looks again 20 s later. One that
rebalances while its heartbeat is under way reports its new subscription 30 s later, and gets code 25 until then."""


def make_topic(java: JavaClient, master: str) -> str:
    return java.create_topic(f"story-{next(TOPIC_NUMBERS)}", at=master, queues=2)


def read_by_a_member(
    java: JavaClient, master: str, topic: str, group: str, *, tags: str = "", **options: object
) -> list[dict[str, Any]]:
    """Fill a new topic, three messages in each of two queues, for a member that stays; return what sends told."""
    java.create_topic(topic, at=master, queues=2)
    sent = [
        java.call(
            "send", topic=topic, broker="broker-a", queue_id=queue_id, body=f"{number}",
            keys=f"k{queue_id}-{number}", tags=tags, properties={},
        )
        for queue_id in range(2)
        for number in range(3)
    ]  # fmt: skip
    java.call("push_start", group=group, topic=topic, **options)
    taken = java.call("push_take", group=group, count=len(sent), timeout=JOIN_TIMEOUT)
    assert len(taken) == len(sent)
    return sent


def queue_of(topic: str, number: int = 0) -> dict[str, Any]:
    """Return a queue as calls want it."""
    return {"topic": topic, "broker": "broker-a", "queue_id": number}


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]
