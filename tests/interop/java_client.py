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
    name = f"story-{next(TOPIC_NUMBERS)}"
    java.call("create_topic", address=master, topic=name, queues=2)
    java.until("publish_queues", topic=name)
    return name


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]
