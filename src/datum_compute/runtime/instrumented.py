"""A controller whose reconciles can be told apart: in log lines, and as spans where wanted."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TypeVar

from datum_compute.runtime.controller import Controller
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Outcome
from datum_compute.telemetry.scope import RECONCILE
from datum_compute.telemetry.traces import Tracer

C = TypeVar("C")


def instrument(controller: Controller[C], tracer: Tracer | None = None) -> Controller[C]:
    """The same controller; while it reconciles, and until it reconciles the next key, everything
    that is logged in its task carries what it was about."""
    reconcile, numbers = controller.reconcile, count(1)
    kind = controller.kind.kind if controller.kind is not None else ""

    def described(key: Key, number: int) -> dict[str, str]:
        return {
            "controller": controller.name,
            "plane": key.plane,
            "kind": kind or key.resource,
            "object": str(key.ref),
            "reconcile": f"{controller.name}-{number}",
        }

    def logged(context: C, key: Key) -> Awaitable[Outcome]:
        RECONCILE.set(partial(described, key, next(numbers)))
        return reconcile(context, key)

    async def traced(context: C, key: Key) -> Outcome:
        assert tracer is not None
        fields = partial(described, key, next(numbers))
        RECONCILE.set(fields)
        with tracer("reconcile", {f"datum.{k}": v for k, v in fields().items()}, ""):
            return await reconcile(context, key)

    return replace(controller, reconcile=logged if tracer is None else traced)
