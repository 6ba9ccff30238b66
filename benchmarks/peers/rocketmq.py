"""Apache RocketMQ 5.3.3 with its Java client against our cluster with our client, both clusters up at once.

The pairs take turns; each line is the median of the rounds after a warm-up. CPU is that of master, slave and client,
for each message; of the client alone in the lines `..._on_apache`, where both clients use Apache's cluster, and of the
servers alone in the lines `..._java_on_ours`, where the Java client uses both.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median

from peers import our_client
from peers.clusters import Member
from peers.figures import Goal, alternate, anonymous_mib, resident_mib, tell, tell_rates
from peers.sides import Scale, Sides, both, of_client, tell_java_on_ours, topic

SIZE = 128
"""Of the bodies that goals are set for."""
BATCH = 100
IN_FLIGHT = 64
SINGLES_WARM_UPS = 3
"""Times as many rounds: the JIT compiler needs some 100,000 sends until its code is good."""
START_HOLD_S, START_AIM_S = 1.5, 0.7
"""Of our broker, in seconds and not as a ratio."""
AWAITED_DIVISOR = 10
"""Sends one after the other take longer."""

CONSUMING: dict[str, tuple[Callable[..., Awaitable[float]], str, Goal | None]] = {
    "one_by_one": (our_client.consume_one_by_one, "lite", Goal(1, 1.6)),
    "batches": (our_client.consume_batches, "lite", None),
    "columns": (our_client.consume_columns, "lite", Goal(5, 10)),
    "columns_of_spark": (our_client.consume_columns_of_spark, "lite", Goal(5, 10)),
    "by_handlers": (our_client.consume_by_handlers, "push", None),
}
"""Our way, what of the Java client's it is held against, and what is asked for at 128 B."""


def measure(scale: Scale) -> None:
    """Sends and consuming."""
    with both(list(scale.batched)) as sides:
        for size in scale.batched:
            _singles(sides, scale, "send_in_flight_64", size, Goal(1.3, 2))
            _awaited(sides, scale, size)  # With the JIT compiler done: it is too few to warm up.
            _automatic_batches(sides, scale, size)
            _batches(sides, scale, size)
            _consume(sides, scale, size)


def measure_servers(scale: Scale) -> None:
    """What the masters cost: each cluster holds the same, and nothing else was done."""
    with both([SIZE]) as sides:
        masters = (sides.ours.master, sides.apache.master)
        goal = Goal(0.125, 0.083)  # Here less is better.
        idle = [resident_mib(master.pid) for master in masters]
        tell("resident_idle", *idle, of="MiB of the master", goal=goal)
        own = [anonymous_mib(master.pid) for master in masters]
        tell("anonymous_idle", *own, of="MiB of the master, without libraries and log")
        count, name = scale.stored, topic("batches", SIZE)
        job = partial(our_client.send_batches, topic=name, count=count, batch=BATCH, size=SIZE)
        for cluster in (sides.ours, sides.apache):
            sides.mine(count, job, on=cluster)()
        full = [resident_mib(master.pid) for master in masters]
        tell("resident_full", *full, of="MiB of the master", goal=goal, messages=count)
        _restarts(sides, scale)


def measure_synchronous(scale: Scale) -> None:
    """Single sends that a slave has acknowledged, in clusters of their own."""
    with both([SIZE], synchronous=True) as sides:
        _singles(sides, scale, "send_synchronous_in_flight_64", SIZE, Goal(1.2, 1.8))


def _awaited(sides: Sides, scale: Scale, size: int) -> None:
    """One after the other."""
    name, count = topic("singles", size), scale.singles // AWAITED_DIVISOR
    job = partial(our_client.send_singles, topic=name, count=count, in_flight=1, size=size)
    words = ("awaited", name, count, size)
    sides.compare(scale, "send_awaited", count, job, words, size=size)


def _singles(sides: Sides, scale: Scale, name: str, size: int, goal: Goal) -> None:
    """Each in a request of its own: what the Java client's callbacks are for."""
    to, count = topic("singles", size), scale.singles
    job = partial(our_client.send_singles, topic=to, count=count, in_flight=IN_FLIGHT, size=size)
    words = ("singles", to, count, IN_FLIGHT, size)
    wanted = goal if size == SIZE else None
    sides.compare(scale, name, count, job, words, size=size, goal=wanted, warm_ups=SINGLES_WARM_UPS)


def _automatic_batches(sides: Sides, scale: Scale, size: int) -> None:
    name, count = topic("auto", size), scale.batched[size]
    job = partial(our_client.send_pipelined, topic=name, count=count, size=size)
    words = ("auto", name, count, size)
    sides.compare(scale, "send_batched_by_the_client", count, job, words, size=size)


def _batches(sides: Sides, scale: Scale, size: int) -> None:
    name, count = topic("batches", size), scale.batched[size]
    job = partial(our_client.send_batches, topic=name, count=count, batch=BATCH, size=size)
    words = ("batches", name, count, BATCH, size)
    goal = Goal(1.5, 2.5) if size == SIZE else None
    sides.compare(scale, "send_batches_of_100", count, job, words, goal=goal, size=size)


def _consume(sides: Sides, scale: Scale, size: int) -> None:
    """All of our ways in one round, and both of theirs."""
    name, count = topic("batches", size), scale.batched[size]
    work = {word: sides.theirs(count, word, name, count) for word in ("lite", "push")}
    work["lite_java_on_ours"] = sides.crossed(count, "lite", name, count)
    for way, (consume, _, _) in CONSUMING.items():
        job = partial(consume, topic=name, count=count)
        work[way] = sides.mine(count, job)
        work[f"{way}_on_apache"] = sides.mine(count, job, on=sides.apache)
    runs = alternate(scale.rounds, work, warm_up=scale.warm_up)
    for way, (_, word, goal) in CONSUMING.items():
        wanted = goal if size == SIZE else None
        tell_rates(f"consume_{way}", runs[way], runs[word], goal=wanted, body=size, java=word)
        on_apache, java = of_client(runs[f"{way}_on_apache"]), of_client(runs[word])
        tell_rates(f"consume_{way}_on_apache", on_apache, java, body=size, java=word)
    tell_java_on_ours("consume_lite", runs["lite_java_on_ours"], runs["lite"], body=size)


def _restarts(sides: Sides, scale: Scale) -> None:
    """From the start of the process to its first answer, after a clean stop."""
    taken: dict[str, list[float]] = {"ours": [], "theirs": []}
    masters: dict[str, Member] = {"ours": sides.ours.master, "theirs": sides.apache.master}
    for _ in range(scale.rounds):
        for name, member in masters.items():
            taken[name].append(member.restart())
    ours, theirs = median(taken["ours"]), median(taken["theirs"])
    tell(
        "start_to_serving", ours, theirs, of="s",
        messages=scale.stored, hold_s=START_HOLD_S, aim_s=START_AIM_S,
    )  # fmt: skip
