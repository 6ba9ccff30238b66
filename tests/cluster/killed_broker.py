"""A broker as a process that syncs each message, and everything it has."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.caller import Caller, messages

from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

QUEUES = 4
SETTINGS = (
    "store.flush_disk_type=sync",
    "store.mapped_file_size_commit_log=1048576",
    "store.mapped_file_size_consume_queue=6000",
    "store.max_hash_slot_num=1000",
    "store.max_index_num=4000",
)


@contextmanager
def broker_process(data: Path, listen: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    command = [
        *(sys.executable, "-m", "rocketrio_broker.cli", "run", "--log-level", "error"),
        *("--listen", listen, "--ha-listen", "127.0.0.1:0", "--data", str(data)),
        *(part for setting in SETTINGS for part in ("--set", setting)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready.startswith("ready role=master"), ready
            yield process, ready.split(" address=")[1].split()[0]
        finally:
            process.kill()


async def read_everything(addr: str) -> list[MessageExt]:
    found: list[MessageExt] = []
    async with open_channel_pool(dial_tcp) as pool:
        for queue_id in range(QUEUES):
            offset = 0
            while (answer := await Caller(pool).pull(addr, offset, queue_id=queue_id)).code == 0:
                found += messages(answer)
                offset = int(answer.ext_fields["nextBeginOffset"])
    return found
