"""OpenTelemetry spans and metrics for what a client does with messages; needs the extra `otel`.

    RocketrioInstrumentor().instrument()          before clients are opened; or: opentelemetry-instrument python app.py
    context_of(message)                           the context that a message carries, for spans of your own

`rocketrio.hooks` calls `spans.py`, which tells `meters.py`; `propagation.py` puts contexts into messages and reads
them, `attributes.py` has the names of OpenTelemetry's conventions.
"""

from rocketrio.otel.instrumentor import RocketrioInstrumentor
from rocketrio.otel.propagation import Inject, context_of
from rocketrio.otel.spans import Parent

__all__ = ["Inject", "Parent", "RocketrioInstrumentor", "context_of"]
