"""Bugs in who may use compute, and in what becomes of projects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from datum_compute.planning import entitlements
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import function_replaced


@contextmanager
def _entitled_at_cleared() -> Iterator[None]:
    """A revoked project looks as if it had never been let in."""

    def make(original: Any) -> Any:
        def report(requested: Any, phase: str, *others: Any, **named: Any) -> Any:
            if phase == "Rejected":
                status = msgspec.structs.replace(requested.entitlement.status, entitled_at=None)
                entitlement = msgspec.structs.replace(requested.entitlement, status=status)
                plan = original(_with(requested, entitlement), phase, *others, **named)
                for action in plan.actions:
                    action.status.setdefault("entitledAt", None)
                return plan
            return original(requested, phase, *others, **named)

        return report

    with function_replaced(entitlements._report, make):
        yield


def _with(requested: Any, entitlement: Any) -> Any:
    return replace(requested, entitlement=entitlement)


BUGS = (
    PlantedBug(
        "entitled-at-cleared",
        "a status is built anew and forgets what was said once and for good (I8)",
        _entitled_at_cleared,
        meets=("Decide",),
    ),
)
