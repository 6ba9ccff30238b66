"""Installs the spans and metrics by hand or by `opentelemetry-instrument`, which finds the class by its entry point."""

from collections.abc import Collection
from typing import Any, Final, get_args

from opentelemetry import metrics, trace
from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]
    BaseInstrumentor,
)

import rocketrio
from rocketrio.hooks import install
from rocketrio.otel.meters import Meters
from rocketrio.otel.propagation import Inject
from rocketrio.otel.spans import Parent, Spans
from rocketrio_protocol.errors import ConfigError

_CHOICES: Final = {"inject": get_args(Inject), "parent": get_args(Parent)}


class RocketrioInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Makes spans of what clients do that are opened after `instrument()`.

    All arguments of `instrument` are optional: `tracer_provider=` and `meter_provider=`; `inject=` "sampled", "always"
    or "never"; `parent=` "current" or "message"; `create_spans=True` for a span of each message of a pipeline;
    `commit_spans=True` for one of each `consumer.commit()`; `body_sizes=True` for the size of each body; and
    `send_hook=`, `receive_hook=`, `process_hook=`, which are called with a span and its message or messages.
    docs/tracing.md explains them.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: what is instrumented is the package that this class is in."""
        return ()

    def _instrument(self, **options: Any) -> None:
        for name, choices in _CHOICES.items():
            if options.get(name, choices[0]) not in choices:
                raise ConfigError(f"{name}={options[name]!r} must be one of {', '.join(choices)}")
        tracer = trace.get_tracer(
            "rocketrio",
            rocketrio.__version__,
            tracer_provider=options.pop("tracer_provider", None),
        )
        meter = metrics.get_meter(
            "rocketrio",
            rocketrio.__version__,
            meter_provider=options.pop("meter_provider", None),
        )
        install(Spans(tracer=tracer, meters=Meters(meter), **options))

    def _uninstrument(self, **options: Any) -> None:
        install(None)
