"""Measures a cluster from here: how many messages it takes and gives, and how long each one waits.

async with open_admin(...) as admin:
    figures = await measure_sends([admin.client], "probe", Load(messages=10_000, rate=2_000))
"""

from rocketrio.bench.figures import Figures, Recorder
from rocketrio.bench.runs import (
    Load,
    measure_receives,
    measure_replication,
    measure_round_trips,
    measure_sends,
)

__all__ = [
    "Figures",
    "Load",
    "Recorder",
    "measure_receives",
    "measure_replication",
    "measure_round_trips",
    "measure_sends",
]
