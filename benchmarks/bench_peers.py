"""The same work done by ours and by the real peer in one run: `python benchmarks/bench_peers.py [PART ...]`.

    rocketmq    Apache RocketMQ 5.3.3, name server + master + slave, with its Java client: sends and consuming, 128 B
                and 1 KiB; in the lines `..._on_apache` our client on Apache's cluster, against the Java client there;
                in the lines `..._java_on_ours` the Java client on our cluster, against the same on Apache's
    servers     memory of the master, time to start
    replicated  single sends with synchronous replication
    spark       Spark's Kafka source on Kafka 3.9.1 against our source, on local[2]

`value` is ours divided by theirs; `hold` and `aim` are what performance.md asks for (less is better for memory). The
sides take turns, after a warm-up, and each figure is the median of the rounds; `spread` is the slowest and the fastest.
CPU µs a message or row, by process, depend less on what else the machine does, which `load_average` tells; `cpu_value`
is their ratio, more than 1 where ours is cheaper. The peers come from Maven Central, once, into a cache folder. Without
Java or Maven a peer is left out, a line says why, and the exit code is 0. `--body 128` measures sends and consuming
with that size alone; `--small` is for the test of this.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import attrs

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # for tests.interop, which knows how to get and run the real peers

from peers import rocketmq, sides, spark  # noqa: E402
from peers.figures import tell_left_out  # noqa: E402
from tests.interop.jars import UnavailableError  # noqa: E402


def run_rocketmq(small: bool, body: int | None) -> None:
    scale = sides.SMALL if small else sides.FULL
    if body is not None:
        scale = attrs.evolve(scale, batched={body: scale.batched[body]})
    rocketmq.measure(scale)


def run_servers(small: bool, body: int | None) -> None:
    rocketmq.measure_servers(sides.SMALL if small else sides.FULL)


def run_replicated(small: bool, body: int | None) -> None:
    rocketmq.measure_synchronous(sides.SMALL if small else sides.FULL)


def run_spark(small: bool, body: int | None) -> None:
    spark.measure(spark.SMALL if small else spark.FULL)


PARTS: dict[str, Callable[[bool, int | None], None]] = {
    "rocketmq": run_rocketmq,
    "servers": run_servers,
    "replicated": run_replicated,
    "spark": run_spark,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}: all")
    parser.add_argument("--body", type=int, choices=list(sides.FULL.batched), help="bytes: all")
    parser.add_argument("--small", action="store_true", help="few messages, one round")
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.parts) - set(PARTS)):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for name in chosen.parts or PARTS:
        try:
            PARTS[name](chosen.small, chosen.body)
        except UnavailableError as error:
            tell_left_out(name, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
