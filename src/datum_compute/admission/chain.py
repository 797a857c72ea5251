"""Which rules a write of each kind passes, in order: first the defaults, then the validations.

Rules are pure functions of (new, old); ``old`` is None on create. They run after the structural
schema found no error, so they may rely on the shape it promises, and only when something besides
metadata and status changed: a stored object that a newer rule dislikes can still lose a finalizer.
To add a rule: write it in the file of its kind and list it in ``CHAIN``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from datum_compute.admission import rbac, workload, workloaddeployment
from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEPLOYMENT,
    ROLE,
    ROLE_BINDING,
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
            workload.name_fits_a_label,
            workload.cities_are_codes,
            workload.cities_are_unique,
            workload.port_names_are_unique,
            workload.env_names_are_unique,
        ),
    ),
    DEPLOYMENT.resource: Rules(validations=(workloaddeployment.city_is_immutable,)),
    ROLE.resource: Rules(validations=(rbac.role_rules_are_complete,)),
    CLUSTER_ROLE.resource: Rules(
        validations=(rbac.rules_are_complete, rbac.selectors_are_complete)
    ),
    ROLE_BINDING.resource: Rules(
        defaults=(rbac.with_api_groups,),
        validations=(rbac.subjects_are_known, rbac.role_is_known, rbac.role_is_immutable),
    ),
    CLUSTER_ROLE_BINDING.resource: Rules(
        defaults=(rbac.with_api_groups,),
        validations=(rbac.subjects_are_known, rbac.cluster_role_is_known, rbac.role_is_immutable),
    ),
}


def admit(
    kind: KindInfo[Any], new: JsonObject, old: JsonObject | None
) -> tuple[JsonObject, list[Cause]]:
    """The object with its defaults, and everything that is wrong with it."""
    rules = CHAIN.get(kind.resource, Rules())
    for default in rules.defaults:
        new = default(new, old)
    return new, [cause for validation in rules.validations for cause in validation(new, old)]
