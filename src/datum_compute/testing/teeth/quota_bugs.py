"""Bugs of quota: who gets what, and who may start because of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from datum_compute.api.conditions import TRUE, Verdict
from datum_compute.api.reasons import Reason
from datum_compute.controllers.cell.quotagate import confirm_grant
from datum_compute.planning.claims import quota_verdict
from datum_compute.planning.quota import rulings
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import function_replaced


@contextmanager
def _gate_removed_before_its_grant() -> Iterator[None]:
    """A claim that is there counts, whatever was decided about it, and nobody confirms it."""

    def make(original: Any) -> Any:
        def verdict(home: Any, instance: Any, claim: Any, size: Any) -> Verdict:
            if home is not None and claim is not None:
                return Verdict(TRUE, Reason.QUOTA_AVAILABLE, "Quota is granted")
            return original(home, instance, claim, size)  # type: ignore[no-any-return]

        return verdict

    async def unconfirmed(*_arguments: Any) -> None:
        """What the cell has in its cache is enough."""

    with (
        function_replaced(quota_verdict, make),
        function_replaced(confirm_grant, lambda _: unconfirmed),
    ):
        yield


@contextmanager
def _quota_race() -> Iterator[None]:
    """Every claim is decided by somebody who knows nothing of the others that are waiting."""

    def make(original: Any) -> Any:
        def each_alone(books: Any) -> list[Any]:
            decided = []
            for asked in original(books):
                alone = original(replace(books, waiting=[asked.claim]))
                decided += [r for r in alone if r.claim is asked.claim]
            return decided

        return each_alone

    with function_replaced(rulings, make):
        yield


BUGS = (
    PlantedBug(
        "gate-removed-before-its-grant",
        "an instance starts because it has asked, not because it may (I4)",
        _gate_removed_before_its_grant,
        meets=("tight quota",),
    ),
    PlantedBug(
        "quota-race",
        "claims that are decided at the same time share what is enough for one (I2)",
        _quota_race,
        meets=("contenders",),
    ),
)
