"""The same work done by ours and by the real peer in one run: `python benchmarks/bench_peers.py [PART ...]`.

    rocketmq    Apache RocketMQ 5.3.3, name server + master + slave, with its Java client: sends and consuming, 128 B
                and 1 KiB; in the lines `..._on_apache` our client on Apache's cluster, against the Java client there;
                in the lines `..._java_on_ours` the Java client on our cluster, against the same on Apache's
    servers     memory of the master, time to start
    alone       a master without a slave, which a program in C sends to
    replicated  single sends with synchronous replication
    protected   a master without a slave, plain, with accounts, with TLS and with both: sends and a consumer, 128 B
    spark       Spark's Kafka source on Kafka 3.9.1 against our source, on local[2]

`value` is ours divided by theirs, `hold` the ratio to keep, `aim` that to work towards (less is better for memory). The
sides take turns, after a warm-up, and each figure is the median of the rounds; `spread` is the slowest and the fastest.
CPU µs a message or row, by process, depend less on what else the machine does, which `load_average` tells; `cpu_value`
is their ratio, more than 1 where ours is cheaper. The peers come from Maven Central, once, into a cache folder. Without
Java, Maven or a C compiler what needs it is left out, a line says why, and the exit code is 0. `--body 128` measures
sends and consuming with that size alone; `--small` is for the test of this.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import attrs

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # for tests.interop, which knows how to get and run the real peers

from arguments import parsed, part_parser  # noqa: E402
from load_generator import NoCompilerError  # noqa: E402
from peers import alone, protected, rocketmq, sides, spark  # noqa: E402
from peers.figures import tell_left_out  # noqa: E402
from tests.interop.jars import UnavailableError  # noqa: E402

PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "rocketmq": lambda given: rocketmq.measure(scale(given)),
    "servers": lambda given: rocketmq.measure_servers(scale(given)),
    "alone": lambda given: alone.measure(scale(given)),
    "protected": lambda given: protected.measure(scale(given)),
    "replicated": lambda given: rocketmq.measure_synchronous(scale(given)),
    "spark": lambda given: spark.measure(spark.SMALL if given.small else spark.FULL),
}


def scale(given: argparse.Namespace) -> sides.Scale:
    """How much is measured on RocketMQ; only `rocketmq` has bodies to choose from."""
    whole = sides.SMALL if given.small else sides.FULL
    if given.body is None:
        return whole
    return attrs.evolve(whole, batched={given.body: whole.batched[given.body]})


def main() -> int:
    parser = part_parser(__doc__, PARTS)
    parser.add_argument("--body", type=int, choices=list(sides.FULL.batched), help="bytes: all")
    given = parsed(parser, PARTS)
    for name in given.parts or PARTS:
        try:
            PARTS[name](given)
        except (UnavailableError, NoCompilerError) as error:
            tell_left_out(name, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
