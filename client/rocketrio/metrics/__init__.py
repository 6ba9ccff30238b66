"""Metrics of a client for Prometheus; needs the extra `metrics`.

    async with open_client(metrics=True) as client:
        REGISTRY.register(collector(client))

`collector.py` reads what the client knows when Prometheus asks; `measured.py` times sends and handlers, which costs a
little, and happens only with `metrics=True`.
"""

from rocketrio.metrics.collector import ClientCollector, collector

__all__ = ["ClientCollector", "collector"]
