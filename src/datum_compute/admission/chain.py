"""Which rules a write of each kind passes, in order: first the defaults, then the validations.

Rules are pure functions of (new, old); ``old`` is None on create. They run after the structural
schema found no error, so they may rely on the shape it promises, and only when something besides
metadata and status changed: a stored object that a newer rule dislikes can still lose a finalizer.
To add a rule: write it in the file of its kind and list it in ``CHAIN``. Immutable fields need no
line: their model says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from datum_compute.admission import addresses, instancetype, service, workload
from datum_compute.admission.immutability import immutable_fields_stay
from datum_compute.admission.names import name_at_most
from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import (
    INSTANCE_TYPE,
    NETWORK,
    ORGANIZATION,
    PROJECT,
    SERVICE,
    SERVICE_CONFIGURATION,
    SUBNET,
    SUBNET_CLAIM,
    WORKLOAD,
)
from datum_compute.api.meta import KindInfo

Default = Callable[[JsonObject, JsonObject | None], JsonObject]
Validation = Callable[[JsonObject, JsonObject | None], Iterable[Cause]]


@dataclass(frozen=True, slots=True)
class Rules:
    defaults: tuple[Default, ...] = ()
    validations: tuple[Validation, ...] = ()


CHAIN: Mapping[str, Rules] = {
    WORKLOAD.resource: Rules(
        defaults=(workload.with_upper_case_cities,),
        validations=(
            name_at_most(63, "it becomes a label value"),
            workload.cities_are_codes,
            workload.cities_are_unique,
            workload.port_names_are_unique,
            workload.env_names_are_unique,
        ),
    ),
    INSTANCE_TYPE.resource: Rules(
        validations=(
            instancetype.a_new_one_is_active,
            instancetype.phase_goes_forward,
            instancetype.replacement_is_named,
        )
    ),
    NETWORK.resource: Rules(validations=(addresses.ranges_are_prefixes,)),
    SUBNET.resource: Rules(validations=(addresses.prefix_fits_its_family,)),
    SUBNET_CLAIM.resource: Rules(validations=(addresses.prefix_fits_its_family,)),
    SERVICE.resource: Rules(
        validations=(
            name_at_most(63, "it becomes a label value"),
            service.phase_goes_forward,
        )
    ),
    SERVICE_CONFIGURATION.resource: Rules(
        validations=(
            service.phase_goes_forward,
            service.metrics_are_declared,
            service.limits_are_in_order,
        )
    ),
    ORGANIZATION.resource: Rules(
        validations=(name_at_most(50, "its namespace is organization-<name>"),)
    ),
    PROJECT.resource: Rules(
        validations=(name_at_most(55, "names that are made from it have a limit of 63"),)
    ),
}


def admit(
    kind: KindInfo[Any], new: JsonObject, old: JsonObject | None
) -> tuple[JsonObject, list[Cause]]:
    """The object with its defaults, and everything that is wrong with it."""
    rules = CHAIN.get(kind.resource, Rules())
    for default in rules.defaults:
        new = default(new, old)
    causes = [*immutable_fields_stay(kind, new, old)]
    return new, causes + [c for validation in rules.validations for c in validation(new, old)]
