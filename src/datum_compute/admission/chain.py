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
from itertools import chain
from typing import Any

from datum_compute.admission import (
    configdata,
    event,
    probes,
    project,
    reservednames,
    service,
    sleeping,
)
from datum_compute.admission.immutability import immutable_fields_stay
from datum_compute.admission.names import name_at_most
from datum_compute.admission.rules import rbac, template, workload
from datum_compute.admission.rules.core import (
    docker_config_is_json,
    has_the_keys_of_its_type,
    type_is_immutable,
    with_string_data_merged,
)
from datum_compute.admission.rules.crd import (
    names_fit,
    nothing_is_asked_that_is_not_supported,
    protected_groups_are_approved,
    versions_fit,
    what_stays,
    with_default_names,
)
from datum_compute.admission.rules.instance_type import (
    a_new_one_is_active,
    phase_goes_forward,
    replacement_is_named,
)
from datum_compute.admission.rules.network import prefix_fits_its_family, ranges_are_prefixes
from datum_compute.admission.rules.services import named_as_its_service
from datum_compute.admission.times import with_times
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    DEFINITION,
    ENTITLEMENT,
    EVENT,
    EVENTS_V1,
    INSTANCE_TYPE,
    LEASE,
    NETWORK,
    ORGANIZATION,
    PROJECT,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_CONFIGURATION,
    SUBNET,
    SUBNET_CLAIM,
    WORKLOAD,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.report import limit_causes

Default = Callable[[JsonObject, JsonObject | None], JsonObject]
Validation = Callable[[JsonObject, JsonObject | None], Iterable[Cause]]


@dataclass(frozen=True, slots=True)
class Rules:
    defaults: tuple[Default, ...] = ()
    validations: tuple[Validation, ...] = ()


_NO_RULES = Rules()


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
            name_at_most(63, "it becomes a label value"),
            workload.template_fits,
            workload.template_labels_are_labels,
            reservednames.template_leaves_platform_names_alone,
            workload.cities_are_unique,
            workload.floors_can_be_kept,
            workload.port_names_are_unique,
            workload.env_names_are_unique,
            template.variables_have_one_source,
            template.variables_can_be_set,
            template.volumes_have_one_source,
            template.volumes_and_attachments_match,
            template.texts_have_no_nul,
            template.mount_paths_are_valid,
            template.networks_are_names,
            template.requests_are_whole,
            template.requests_fit_limits,
            probes.probes_ask_one_thing,
            probes.groups_come_with_users,
            sleeping.idle_times_make_sense,
            sleeping.sleepers_can_be_woken,
        ),
    ),
    CONFIG_MAP.resource: Rules(
        validations=(
            configdata.keys_are_file_names,
            configdata.keys_differ,
            configdata.fits_the_limit,
            configdata.frozen_stays_frozen,
        ),
    ),
    SECRET.resource: Rules(
        defaults=(with_string_data_merged,),
        validations=(
            configdata.keys_are_file_names,
            configdata.fits_the_limit,
            configdata.frozen_stays_frozen,
            type_is_immutable,
            has_the_keys_of_its_type,
            docker_config_is_json,
        ),
    ),
    EVENT.resource: _event_rules(event.CORE),
    EVENTS_V1.resource: _event_rules(event.NEW),
    DEFINITION.resource: Rules(
        defaults=(with_default_names,),
        validations=(
            names_fit,
            protected_groups_are_approved,
            nothing_is_asked_that_is_not_supported,
            versions_fit,
            what_stays,
        ),
    ),
    LEASE.resource: Rules(
        defaults=(with_times(micro=[("spec", "acquireTime"), ("spec", "renewTime")]),)
    ),
    ROLE.resource: Rules(validations=(rbac.rules_are_few, rbac.rules_of_a_role)),
    CLUSTER_ROLE.resource: Rules(
        validations=(
            rbac.rules_are_few,
            rbac.rules_of_a_cluster_role,
            rbac.selectors_of_a_cluster_role,
        )
    ),
    ROLE_BINDING.resource: Rules(
        defaults=(rbac.with_api_groups,),
        validations=(
            rbac.subjects_are_few,
            rbac.role_is_immutable,
            rbac.role_of_a_binding,
            rbac.subjects_of_a_binding,
        ),
    ),
    CLUSTER_ROLE_BINDING.resource: Rules(
        defaults=(rbac.with_api_groups,),
        validations=(
            rbac.subjects_are_few,
            rbac.role_is_immutable,
            rbac.role_of_a_cluster_binding,
            rbac.subjects_of_a_binding,
        ),
    ),
    INSTANCE_TYPE.resource: Rules(
        validations=(
            a_new_one_is_active,
            phase_goes_forward,
            replacement_is_named,
        )
    ),
    NETWORK.resource: Rules(validations=(ranges_are_prefixes,)),
    SUBNET.resource: Rules(validations=(prefix_fits_its_family,)),
    SUBNET_CLAIM.resource: Rules(validations=(prefix_fits_its_family,)),
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
            service.nothing_is_provisioned,
        )
    ),
    ORGANIZATION.resource: Rules(
        validations=(name_at_most(50, "its namespace is organization-<name>"),)
    ),
    PROJECT.resource: Rules(
        defaults=(project.with_organization,),
        validations=(
            name_at_most(55, "names that are made from it have a limit of 63"),
            project.name_is_a_label,
        ),
    ),
    ENTITLEMENT.resource: Rules(validations=(named_as_its_service,)),
}


def admit(
    kind: KindInfo[Any], new: JsonObject, old: JsonObject | None
) -> tuple[JsonObject, list[Cause]]:
    """The object with its defaults, and everything that is wrong with it."""
    new = defaulted(kind, new, old)
    return new, faults(kind, new, old)


def defaulted(kind: KindInfo[Any], new: JsonObject, old: JsonObject | None) -> JsonObject:
    for default in CHAIN.get(kind.resource, _NO_RULES).defaults:
        new = default(new, old)
    return new


def faults(kind: KindInfo[Any], new: JsonObject, old: JsonObject | None) -> list[Cause]:
    """Return the first ERRORS_MAX errors. The search stops there, so that many invalid items do
    not cost a long search and a large response."""
    validations = CHAIN.get(kind.resource, _NO_RULES).validations
    return limit_causes(
        chain(
            immutable_fields_stay(kind, new, old),
            (cause for validation in validations for cause in validation(new, old)),
        )
    )
