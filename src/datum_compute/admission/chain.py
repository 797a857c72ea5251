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

from datum_compute.admission import (
    configdata,
    customresourcedefinition,
    event,
    rbac,
    secret,
    workload,
    workloaddeployment,
)
from datum_compute.admission.times import with_times
from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    DEFINITION,
    DEPLOYMENT,
    EVENT,
    EVENTS_V1,
    LEASE,
    ROLE,
    ROLE_BINDING,
    SECRET,
    WORKLOAD,
)
from datum_compute.api.meta import KindInfo

Default = Callable[[JsonObject, JsonObject | None], JsonObject]
Validation = Callable[[JsonObject, JsonObject | None], Iterable[Cause]]


@dataclass(frozen=True, slots=True)
class Rules:
    defaults: tuple[Default, ...] = ()
    validations: tuple[Validation, ...] = ()


def _event_rules(words: event.Words) -> Rules:
    rules = event.EventRules(words)
    return Rules(
        defaults=(rules.with_times,),
        validations=(rules.lies_with_its_object, rules.says_who_reports),
    )


CHAIN: Mapping[str, Rules] = {
    WORKLOAD.resource: Rules(
        defaults=(workload.with_upper_case_cities,),
        validations=(
            workload.name_fits_a_label,
            workload.template_labels_are_labels,
            workload.cities_are_unique,
            workload.port_names_are_unique,
            workload.env_names_are_unique,
        ),
    ),
    DEPLOYMENT.resource: Rules(validations=(workloaddeployment.city_is_immutable,)),
    CONFIG_MAP.resource: Rules(
        validations=(
            configdata.keys_are_file_names,
            configdata.keys_differ,
            configdata.fits_the_limit,
            configdata.frozen_stays_frozen,
        ),
    ),
    SECRET.resource: Rules(
        defaults=(secret.with_string_data_merged,),
        validations=(
            configdata.keys_are_file_names,
            configdata.fits_the_limit,
            configdata.frozen_stays_frozen,
            secret.type_is_immutable,
            secret.has_the_keys_of_its_type,
            secret.docker_config_is_json,
        ),
    ),
    EVENT.resource: _event_rules(event.CORE),
    EVENTS_V1.resource: _event_rules(event.NEW),
    DEFINITION.resource: Rules(
        defaults=(customresourcedefinition.with_default_names,),
        validations=(
            customresourcedefinition.names_fit,
            customresourcedefinition.protected_groups_are_approved,
            customresourcedefinition.nothing_is_asked_that_is_not_supported,
            customresourcedefinition.versions_fit,
            customresourcedefinition.what_stays,
        ),
    ),
    LEASE.resource: Rules(
        defaults=(with_times(micro=[("spec", "acquireTime"), ("spec", "renewTime")]),)
    ),
    ROLE.resource: Rules(validations=(rbac.rules_of_a_role,)),
    CLUSTER_ROLE.resource: Rules(
        validations=(rbac.rules_of_a_cluster_role, rbac.selectors_of_a_cluster_role)
    ),
    ROLE_BINDING.resource: Rules(
        defaults=(rbac.with_api_groups,),
        validations=(
            rbac.role_is_immutable,
            rbac.role_of_a_binding,
            rbac.subjects_of_a_binding,
        ),
    ),
    CLUSTER_ROLE_BINDING.resource: Rules(
        defaults=(rbac.with_api_groups,),
        validations=(
            rbac.role_is_immutable,
            rbac.role_of_a_cluster_binding,
            rbac.subjects_of_a_binding,
        ),
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
