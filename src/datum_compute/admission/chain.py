"""Which rules a write of each kind passes, in order: first the defaults, then the validations.

Rules are pure functions of (new, old); ``old`` is None on create. They run after the structural
schema found no error, so they may rely on the shape it promises, and only when something besides
metadata and status changed: a stored object that a newer rule dislikes can still lose a finalizer.
To add a rule: write it in the file of its kind and list it in ``CHAIN``. Immutable fields need no
line: their model says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from datum_compute.admission.findings import name_at_most, with_times
from datum_compute.admission.rules import rbac, template, workload
from datum_compute.admission.rules import services as service
from datum_compute.admission.rules.core import (
    CORE,
    NEW,
    EventRules,
    Words,
    docker_config_is_json,
    fits_the_limit,
    frozen_stays_frozen,
    has_the_keys_of_its_type,
    keys_are_file_names,
    keys_differ,
    type_is_immutable,
    with_string_data_merged,
)
from datum_compute.admission.rules.crd import (
    check_immutable_fields,
    names_fit,
    nothing_is_asked_that_is_not_supported,
    protected_groups_are_approved,
    versions_fit,
    with_default_names,
)
from datum_compute.admission.rules.instance_type import (
    a_new_one_is_active,
    phase_goes_forward,
    replacement_is_named,
)
from datum_compute.admission.rules.network import prefix_fits_its_family, ranges_are_prefixes
from datum_compute.admission.rules.services import (
    name_is_a_label,
    named_as_its_service,
    with_organization,
)
from datum_compute.admission.rules.workload import (
    groups_come_with_users,
    idle_times_make_sense,
    probes_ask_one_thing,
    sleepers_can_be_woken,
    template_leaves_platform_names_alone,
)
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
from datum_compute.api.meta.fields import IMMUTABLE_RULE, VALIDATIONS
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.derive import structural_schema
from datum_compute.api.schema.report import limit_causes
from datum_compute.api.schema.validate import Check, Report, compile_check

# --- Fields of the public API that nothing here can carry out yet: refused by name
# Other fields that a schema does not know are dropped with a warning; these are known to mean
# something, and a workload without them would not be what was asked for.


_TEMPLATE = r"spec\.template\.spec\."
_SCALE = r"spec\.placements\[\d+\]\.scaleSettings\."
_UNSUPPORTED: Mapping[str, Mapping[str, str]] = {
    WORKLOAD.resource: {
        rf"{_TEMPLATE}runtime\.virtualMachine": (
            "virtual machines are not supported yet; describe containers in sandbox"
        ),
        rf"{_TEMPLATE}runtime\.class": "runtime classes are not supported yet; leave it out",
        rf"{_TEMPLATE}volumes\[\d+\]\.disk": (
            "disks are not supported yet; volumes come from a configMap or a secret"
        ),
        rf"{_TEMPLATE}networkInterfaces\[\d+\]\.networkPolicy": (
            "network policies are not enforced yet; leave it out"
        ),
        rf"{_TEMPLATE}controller": "it belongs to the platform and is not part of a template",
        rf"{_SCALE}(maxReplicas|metrics)": "autoscaling is not supported yet; set minReplicas",
    }
}


def unsupported_fields(kind: KindInfo[Any], unknown: Iterable[str]) -> dict[str, Cause]:
    """Those of the unknown fields that are refused, and why."""
    patterns = _UNSUPPORTED.get(kind.resource, {})
    return {
        path: Cause(path, "FieldValueForbidden", f"Forbidden: {why}")
        for path in unknown
        for pattern, why in patterns.items()
        if re.fullmatch(pattern, path)
    }


# --- Fields that keep their first value, for every kind: read off the rules that its schema carries
# A real API server evaluates those rules itself; this is the same for the embedded one. As there, a
# field is compared with its defaults filled in, so that a new default changes nothing.


@dataclass(frozen=True, slots=True)
class ImmutableField:
    path: tuple[str, ...]
    message: str
    check: Check

    def value_in(self, obj: JsonObject) -> Any:
        """The value with its defaults, or None where there is none."""
        value: Any = obj
        for name in self.path:
            value = value.get(name) if isinstance(value, dict) else None
        return None if value is None else self.check(value, "", Report())


def immutable_fields_stay(
    kind: KindInfo[Any], new: JsonObject, old: JsonObject | None
) -> Iterable[Cause]:
    if old is None:
        return
    report = Report()
    for field in _immutable_fields(kind):
        before, now = field.value_in(old), field.value_in(new)
        if before is not None and now is not None and before != now:
            said = f' (it is "{before}")' if isinstance(before, str) else ""
            report.invalid(".".join(field.path), now, field.message + said)
    yield from report.errors


@cache
def _immutable_fields(kind: KindInfo[Any]) -> tuple[ImmutableField, ...]:
    return tuple(_found(structural_schema(kind), ()))


def _found(schema: JsonObject, path: tuple[str, ...]) -> Iterator[ImmutableField]:
    for rule in schema.get(VALIDATIONS, ()):
        if rule["rule"] == IMMUTABLE_RULE:
            yield ImmutableField(path, rule["message"], compile_check(schema))
    for name, inner in schema.get("properties", {}).items():
        yield from _found(inner, (*path, name))


# --- chain


Default = Callable[[JsonObject, JsonObject | None], JsonObject]
Validation = Callable[[JsonObject, JsonObject | None], Iterable[Cause]]


@dataclass(frozen=True, slots=True)
class Rules:
    defaults: tuple[Default, ...] = ()
    validations: tuple[Validation, ...] = ()


_NO_RULES = Rules()


def _event_rules(words: Words) -> Rules:
    rules = EventRules(words)
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
            template_leaves_platform_names_alone,
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
            probes_ask_one_thing,
            groups_come_with_users,
            idle_times_make_sense,
            sleepers_can_be_woken,
        ),
    ),
    CONFIG_MAP.resource: Rules(
        validations=(
            keys_are_file_names,
            keys_differ,
            fits_the_limit,
            frozen_stays_frozen,
        ),
    ),
    SECRET.resource: Rules(
        defaults=(with_string_data_merged,),
        validations=(
            keys_are_file_names,
            fits_the_limit,
            frozen_stays_frozen,
            type_is_immutable,
            has_the_keys_of_its_type,
            docker_config_is_json,
        ),
    ),
    EVENT.resource: _event_rules(CORE),
    EVENTS_V1.resource: _event_rules(NEW),
    DEFINITION.resource: Rules(
        defaults=(with_default_names,),
        validations=(
            names_fit,
            protected_groups_are_approved,
            nothing_is_asked_that_is_not_supported,
            versions_fit,
            check_immutable_fields,
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
        defaults=(with_organization,),
        validations=(
            name_at_most(55, "names that are made from it have a limit of 63"),
            name_is_a_label,
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
