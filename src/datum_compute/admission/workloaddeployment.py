"""Rules for WorkloadDeployments: a deployment stays in its city, a move is a new deployment."""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Cause


def city_is_immutable(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    if old is None:
        return
    before, now = old["spec"]["cityCode"], new["spec"]["cityCode"]
    if before != now:
        why = f'is immutable (it is "{before}"); create a deployment for the other city instead'
        yield Cause("spec.cityCode", "FieldValueInvalid", f'Invalid value: "{now}": {why}')
