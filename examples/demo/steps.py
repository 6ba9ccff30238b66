"""The six steps of the demo, in the order they run; each prints as it goes and notes what was true in the report.

Numbers chosen for the demo: a memory bound of 16 MiB makes the broker call anything older cold, as 40 % of a real
machine's memory would; the outage begins at two fifths and ends at four fifths of the topic.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from time import perf_counter

import attrs
import trio
from flights import AirportDelay, Flight
from processes import Processes, Server
from report import Report

from rocketrio import (
    MASTER_ID,
    Consumer,
    Message,
    MessageQueue,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)

TOPIC = "flights"
QUEUES = 4
ANY_PORT = "127.0.0.1:0"
IN_MEMORY_MAX_BYTES = 16 * 1024 * 1024
BATCH = 2000
"""Messages handed out at once."""
CATCH_UP_LIMIT = 60.0
"""Seconds the slave may take to have every byte, and a reader to go on after a kill."""
READ_LIMIT = 180.0
"""Seconds for reading the whole topic."""
SPARK_LIMIT = 240.0
MASTER_HOME, SLAVE_HOME = "the master", "the slave"
JAVA_VERSION = 17


@attrs.define
class Demo:
    """What the steps share."""

    report: Report
    processes: Processes
    data: Path
    name_server: Server | None = None
    master: Server | None = None
    slave: Server | None = None

    @property
    def name_servers(self) -> list[str]:
        """Where clients begin."""
        assert self.name_server is not None
        return [self.name_server.address]

    # ------------------------------------------------------------------------------------- 1. start

    async def start_cluster(self) -> None:
        """A name server, a master and a slave, each a process of its own."""
        self.report.step(1, "A name server, a master and a slave, each a process of its own")
        self.name_server = await self.processes.start("namesrv", "namesrv", "--listen", ANY_PORT)
        self.master = await self._start_broker("master", broker_id=0)
        self.slave = await self._start_broker("slave", broker_id=1)
        for server in (self.name_server, self.master, self.slave):
            fields = " ".join(f"{name}={value}" for name, value in server.ready.items())
            self.report.say(f"{fields} pid={server.process.pid}")
        self.report.say(f"data under {self.data}")

    async def _start_broker(
        self, name: str, *, broker_id: int, listen: str = ANY_PORT, ha_listen: str = ANY_PORT
    ) -> Server:
        settings = (
            "slave_read_enable=true",
            f"store.access_message_in_memory_max_bytes={IN_MEMORY_MAX_BYTES}",
            "store.mapped_file_size_commit_log=67108864",
        )
        return await self.processes.start(
            name,
            *("run", "--namesrv", self.name_servers[0]),
            *("--listen", listen, "--ha-listen", ha_listen),
            *("--cluster", "demo", "--name", "broker-a", "--id", str(broker_id)),
            *("--role", "slave" if broker_id else "async-master"),
            *("--data", str(self.data / name)),
            *(word for setting in settings for word in ("--set", setting)),
        )

    # ----------------------------------------------------------------------------------- 2. publish

    async def publish(self, flights: list[Flight]) -> None:
        """Every flight as one message, ordered by aircraft."""
        self.report.step(2, f"Publish {len(flights):,} flights, ordered by aircraft")
        started = perf_counter()
        async with open_admin(name_servers=self.name_servers) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES, cluster="demo")
        async with open_producer(group="demo", name_servers=self.name_servers) as producer:
            with self.report.progress("sent", len(flights), "messages") as bar:
                async with producer.pipeline() as pipeline:
                    for number, flight in enumerate(flights, start=1):
                        message = Message(TOPIC, flight.body, keys=flight.key, tags=flight.tag)
                        await pipeline.send(message, sharding_key=flight.order_key)
                        if number % BATCH == 0:
                            bar.advance(BATCH)
                    await pipeline.flush()
                    bar.advance(len(flights) % BATCH)
                    stored = {
                        status.name: count for status, count in pipeline.statistics().stored.items()
                    }
        rate = len(flights) / (perf_counter() - started)
        self.report.check(
            "every flight is stored",
            holds=stored == {"SEND_OK": len(flights)},
            detail=f"{stored}, {rate:,.0f} messages/s over {QUEUES} queues",
        )

    # --------------------------------------------------------------------------------- 3. replicate

    async def watch_replication(self) -> None:
        """The slave has the same bytes."""
        assert self.master is not None
        assert self.slave is not None
        self.report.step(3, "The slave catches up, byte for byte")
        async with open_admin(name_servers=self.name_servers) as admin:
            ends: tuple[int, ...] = (0, -1)
            with self.report.progress("bytes at the slave", 1, "B") as bar:
                with trio.move_on_after(CATCH_UP_LIMIT):
                    while ends[0] != ends[1]:
                        brokers = {broker.id: broker for broker in await admin.brokers()}
                        ends = tuple(
                            brokers[broker_id].max_physical_offset or 0 for broker_id in (0, 1)
                        )
                        bar.reached(ends[1], of=ends[0])
                        await trio.sleep(0.1)
        self.report.check(
            "the slave has every byte",
            holds=ends[0] == ends[1] > 0,
            detail=f"physical offsets: master {ends[0]:,}, slave {ends[1]:,}",
        )
        sums = [
            await trio.to_thread.run_sync(_checksum, self.data / name / "commitlog", ends[0])
            for name in ("master", "slave")
        ]
        self.report.check(
            "both commit logs are the same",
            holds=sums[0] == sums[1],
            detail=f"sha256 {sums[0][:16]}… and {sums[1][:16]}…",
        )

    # ------------------------------------------------------------------------- 4. consume, be moved

    async def consume_group(self, total: int) -> None:
        """A group reads everything; the broker moves it to the slave and, caught up, back."""
        self.report.step(4, "A consumer group reads it all: master, slave, and back")
        homes: list[str] = []
        airports: Counter[str] = Counter()
        read = 0
        async with open_consumer(
            TOPIC, group="demo-board", start_from="first", name_servers=self.name_servers
        ) as consumer:

            def look() -> None:
                home = _home(consumer)
                if homes[-1:] != [home]:
                    homes.append(home)
                    self._show_tables(f"after {read:,} messages: {home}", consumer)

            look()
            with (
                self.report.progress("read", total, "messages") as bar,
                trio.move_on_after(READ_LIMIT),
            ):
                while read < total:
                    batch = await consumer.receive_batch(BATCH)
                    read += len(batch)
                    bar.advance(len(batch))
                    airports.update(message.tags or "" for message in batch)
                    look()
                while homes[-1] != MASTER_HOME:
                    await trio.sleep(0.1)
                    look()
            await consumer.commit()
        self.report.check(
            "the group has read every message once",
            holds=airports.total() == total,
            detail=f"{read:,} messages, by airport {dict(sorted(airports.items()))}",
        )
        self.report.check(
            "pulls moved to the slave and back to the master",
            holds=homes[0] == homes[-1] == MASTER_HOME and SLAVE_HOME in homes,
            detail=" → ".join(homes),
        )

    def _show_tables(self, title: str, consumer: Consumer) -> None:
        self.report.routing_tables(
            title,
            consumer.client.routing.broker_addr_table,
            {
                f"{queue.broker_name}/{queue.queue_id}": node
                for queue, node in consumer.pull_from_which_node_table.items()
            },
        )

    # ------------------------------------------------------------------------------------ 5. outage

    async def survive_outage(self, total: int) -> None:
        """The master is killed mid-way and comes back; no offset goes backwards."""
        assert self.master is not None
        self.report.step(5, "kill -9 of the master mid-way, and its return")
        history: dict[MessageQueue, list[int]] = {}
        moments: list[str] = []
        async with open_consumer(
            TOPIC,
            group="demo-outage",
            start_from="first",
            auto_commit=False,
            name_servers=self.name_servers,
        ) as consumer:

            async def note(moment: str) -> None:
                moments.append(moment)
                for queue in consumer.assignment:
                    history.setdefault(queue, []).append(await consumer.committed(queue))

            read = await self._read_until(consumer, 0, total * 2 // 5)
            await consumer.commit()
            await note("before the kill")
            await self.master.kill()
            killed = perf_counter()
            self.report.say(f"killed the master (pid {self.master.process.pid}) at {read:,}")
            cached = sum(queue.cached_messages for queue in consumer.statistics().queues.values())
            read = await self._read_until(consumer, read, read + cached + 1)
            gap = perf_counter() - killed
            read = await self._read_until(consumer, read, total * 4 // 5)
            await consumer.commit()
            await note("at the slave, the master down")
            self._show_tables("while the master is down", consumer)
            self.report.check(
                "reading went on from the slave",
                holds=read >= total * 4 // 5,
                detail=f"{read:,} messages; the first one not yet pulled before the kill came "
                f"{gap * 1000:,.0f} ms after it",
            )
            self.master = await self._start_broker(
                "master",
                broker_id=0,
                listen=self.master.address,
                ha_listen=self.master.ready["ha_address"],
            )
            self.report.say(f"the master is back (pid {self.master.process.pid})")
            await note("the master back")
            read = await self._read_until(consumer, read, total)
            await consumer.commit()
            await note("at the end")
            at_master = await self._committed_at_master("demo-outage", list(history))
        for queue, offsets in sorted(history.items()):
            steps = " → ".join(f"{offset:,}" for offset in offsets)
            self.report.say(f"queue {queue.queue_id}: {steps}   ({', '.join(moments)})")
        self.report.check(
            "no offset went backwards",
            holds=bool(history) and all(offsets == sorted(offsets) for offsets in history.values()),
            detail=f"{len(history)} queues, {len(moments)} looks each",
        )
        self.report.check(
            "commits are back at the master",
            holds=sum(at_master.values()) == total,
            detail=f"the master holds {sum(at_master.values()):,} of {total:,}",
        )

    @staticmethod
    async def _read_until(consumer: Consumer, read: int, goal: int) -> int:
        with trio.move_on_after(READ_LIMIT):
            while read < goal:
                read += len(await consumer.receive_batch(min(BATCH, goal - read)))
        return read

    async def _committed_at_master(
        self, group: str, queues: list[MessageQueue]
    ) -> dict[MessageQueue, int]:
        assert self.master is not None
        async with open_client(name_servers=self.name_servers) as client:
            api = client.api
            return {
                queue: await api.query_consumer_offset(self.master.address, group, queue)
                for queue in queues
            }

    # ------------------------------------------------------------------------------------- 6. Spark

    async def read_with_spark(self, expected: dict[str, AirportDelay]) -> bool:
        """The topic as a DataFrame; False when Java is missing."""
        self.report.step(6, "The topic as a Spark DataFrame")
        claim = "Spark and pandas agree"
        missing = await trio.to_thread.run_sync(_java_problem)
        if missing:
            self.report.leave_out(claim, missing)
            return False
        started = perf_counter()
        command = [
            sys.executable,
            str(Path(__file__).with_name("spark_step.py")),
            self.name_servers[0],
            TOPIC,
        ]
        done = None
        with trio.move_on_after(SPARK_LIMIT):
            done = await trio.run_process(
                command,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                start_new_session=True,
                deliver_cancel=partial(_kill_group),
            )
        result = _spark_result(done.stdout) if done is not None else None
        if result is None:
            said = done.stderr.decode(errors="replace")[-600:] if done else "it took too long"
            self.report.check(claim, holds=False, detail=f"the Spark job failed: {said}")
            return True
        for airport, delay in sorted(expected.items()):
            found = result.get(airport)
            self.report.say(
                f"{airport}  pandas {_spelled(delay)}   Spark {_spelled(found) if found else '-'}"
            )
        agree = result.keys() == expected.keys() and all(
            (found.flights, found.departures) == (delay.flights, delay.departures)
            and abs(found.mean_delay - delay.mean_delay) < 1e-9
            for airport, delay in expected.items()
            for found in [result[airport]]
        )
        self.report.check(
            claim,
            holds=agree,
            detail=f"{sum(found.flights for found in result.values()):,} rows in "
            f"{perf_counter() - started:.1f} s, the start of Spark included",
        )
        return True


def _checksum(folder: Path, size: int) -> str:
    """sha256 of the first `size` bytes of a commit log."""
    digest, left = hashlib.sha256(), size
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            while left and (chunk := file.read(min(left, 1 << 20))):
                digest.update(chunk)
                left -= len(chunk)
    return digest.hexdigest()


def _home(consumer: Consumer) -> str:
    """Where the next pulls go to."""
    nodes = set(consumer.pull_from_which_node_table.values())
    if nodes == {MASTER_ID}:
        return MASTER_HOME
    return SLAVE_HOME if MASTER_ID not in nodes else "both"


def _spelled(delay: AirportDelay) -> str:
    return f"{delay.flights:,} flights, {delay.departures:,} departures, {delay.mean_delay:.4f} min"


def _spark_result(output: bytes) -> dict[str, AirportDelay] | None:
    for line in output.decode(errors="replace").splitlines():
        if line.startswith("RESULT "):
            found = json.loads(line.removeprefix("RESULT "))
            return {airport: AirportDelay(**numbers) for airport, numbers in found.items()}
    return None


def _java_problem() -> str | None:
    """Why Spark cannot run here and what to install, or None."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    advice = f"install Java {JAVA_VERSION} (Debian, Ubuntu: openjdk-{JAVA_VERSION}-jre-headless)"
    if java is None:
        return f"no Java was found; {advice}"
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = done.stderr.split('"')[1] if '"' in done.stderr else ""
    major = version.split(".")[0]
    if not major.isdigit() or int(major) < JAVA_VERSION:
        return f"{java} is version {version or 'unknown'}; {advice}"
    return None


async def _kill_group(process: trio.Process) -> None:
    """End Spark with its JVM and its Python workers."""
    os.killpg(process.pid, signal.SIGKILL)
