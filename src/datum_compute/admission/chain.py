"""The admission rules that depend only on the object: first defaults, then validations.

Rules are pure functions of (new, old); ``old`` is None on create. They run after the structural
schema has found no error, so they can rely on its types. They do not run for a write that changes
only metadata and status, so a finalizer of an object that violates a newer rule can be removed. To
add a rule,
write it in the module of its subject and list it in ``CHAIN``. Immutable fields are declared in the
model of a kind and need no rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from datum_compute.admission.findings import normalize_times
from datum_compute.admission.rules import rbac, template, workload
from datum_compute.admission.rules import services as service
from datum_compute.admission.rules.core import (
    CORE_EVENT_FIELDS,
    NEW_EVENT_FIELDS,
    EventFieldNames,
    EventRules,
    check_data_size,
    check_docker_config,
    check_frozen_data,
    check_key_names,
    check_keys_of_type,
    check_keys_unique,
    check_type_unchanged,
    merge_string_data,
)
from datum_compute.admission.rules.crd import (
    check_definition_names,
    check_group_approved,
    check_stored_versions_kept,
    check_supported_features,
    check_versions,
    default_names,
)
from datum_compute.admission.rules.instance_type import (
    check_initial_phase,
    check_phase_order,
    check_replacement,
)
from datum_compute.admission.rules.network import check_network_ranges, check_subnet_prefix
from datum_compute.admission.rules.services import (
    check_entitlement_name,
    check_project_name,
    label_organization,
)
from datum_compute.admission.rules.workload import (
    check_can_be_woken,
    check_group_has_user,
    check_idle_time,
    check_probes,
    check_reserved_names,
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
from datum_compute.api.schema.report import ERRORS_MAX, limit_causes
from datum_compute.api.schema.validate import Check, ValidationReport, compile_check

# --- Fields of the public API that are not implemented yet
# A write that sets one of them is rejected: if the field were dropped, the workload would not run
# as its author specified. Other unknown fields are dropped with a warning.


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
        rf"{_TEMPLATE}controller": "the platform sets this field; remove it from the template",
        rf"{_SCALE}(maxReplicas|metrics)": "autoscaling is not supported yet; set minReplicas",
    }
}


def unsupported_fields(kind: KindInfo[Any], unknown: Iterable[str]) -> dict[str, Cause]:
    """Return the errors of those unknown fields that are refused, by path."""
    patterns = _UNSUPPORTED.get(kind.resource, {})
    return {
        path: Cause.forbidden(path, why)
        for path in unknown
        for pattern, why in patterns.items()
        if re.fullmatch(pattern, path)
    }


# --- Immutable fields
# Schemas declare immutable fields as validation rules, which kube-apiserver evaluates. This code
# does the same for the embedded server. Values are compared with their defaults, as kube-apiserver
# does, so that a new default is not a change.


@dataclass(frozen=True, slots=True)
class ImmutableField:
    path: tuple[str, ...]
    message: str
    check: Check

    def value_in(self, obj: JsonObject) -> Any:
        """Return the value with its defaults, or None if the object does not have the field."""
        value: Any = obj
        for name in self.path:
            value = value.get(name) if isinstance(value, dict) else None
        return None if value is None else self.check(value, "", ValidationReport())


def check_immutable_fields(kind: KindInfo[Any], new: JsonObject, old: JsonObject) -> list[Cause]:
    report = ValidationReport()
    for field in _immutable_fields(kind):
        before, now = field.value_in(old), field.value_in(new)
        if before is not None and now is not None and before != now:
            stored = f' (it is "{before}")' if isinstance(before, str) else ""
            report.fail_invalid(".".join(field.path), now, field.message + stored)
    return report.errors


@cache
def _immutable_fields(kind: KindInfo[Any]) -> tuple[ImmutableField, ...]:
    return tuple(_find_immutable_fields(structural_schema(kind), ()))


def _find_immutable_fields(schema: JsonObject, path: tuple[str, ...]) -> Iterator[ImmutableField]:
    for rule in schema.get(VALIDATIONS, ()):
        if rule["rule"] == IMMUTABLE_RULE:
            yield ImmutableField(path, rule["message"], compile_check(schema))
    for name, inner in schema.get("properties", {}).items():
        yield from _find_immutable_fields(inner, (*path, name))


# --- Rules by kind


Default = Callable[[JsonObject, JsonObject | None], JsonObject]
Validation = Callable[[JsonObject, JsonObject | None], Iterable[Cause]]


@dataclass(frozen=True, slots=True)
class Rules:
    defaults: tuple[Default, ...] = ()
    validations: tuple[Validation, ...] = ()


_NO_RULES = Rules()


def name_length_rule(
    length: int, because: str
) -> Callable[[JsonObject, JsonObject | None], Iterable[Cause]]:
    """Return a rule: the name of a new object has at most ``length`` characters."""

    def rule(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
        name = new["metadata"].get("name", "")
        if old is None and len(name) > length:
            why = f"must be no more than {length} characters, because {because}"
            yield Cause.invalid("metadata.name", why, name)

    return rule


def _event_rules(field_names: EventFieldNames) -> Rules:
    rules = EventRules(field_names)
    return Rules(
        defaults=(rules.normalize_times,),
        validations=(rules.check_namespace, rules.check_reporter),
    )


CHAIN: Mapping[str, Rules] = {
    WORKLOAD.resource: Rules(
        defaults=(workload.normalize_cities,),
        validations=(
            name_length_rule(63, "it becomes a label value"),
            workload.check_template_size,
            workload.check_template_metadata,
            check_reserved_names,
            workload.check_cities_unique,
            workload.check_city_floors,
            workload.check_canary_city,
            workload.check_rollout_can_proceed,
            template.template_rule(
                workload.check_port_names_unique,
                workload.check_env_names_unique,
                template.check_variable_sources,
                template.check_variable_names,
                template.check_volume_sources,
                template.check_volume_attachments,
                template.check_no_nul_bytes,
                template.check_mount_paths,
                template.check_network_names,
                template.check_requests_complete,
                template.check_requests_within_limits,
                check_probes,
                check_group_has_user,
                check_idle_time,
                check_can_be_woken,
            ),
        ),
    ),
    CONFIG_MAP.resource: Rules(
        validations=(
            check_key_names,
            check_keys_unique,
            check_data_size,
            check_frozen_data,
        ),
    ),
    SECRET.resource: Rules(
        defaults=(merge_string_data,),
        validations=(
            check_key_names,
            check_data_size,
            check_frozen_data,
            check_type_unchanged,
            check_keys_of_type,
            check_docker_config,
        ),
    ),
    EVENT.resource: _event_rules(CORE_EVENT_FIELDS),
    EVENTS_V1.resource: _event_rules(NEW_EVENT_FIELDS),
    DEFINITION.resource: Rules(
        defaults=(default_names,),
        validations=(
            check_definition_names,
            check_group_approved,
            check_supported_features,
            check_versions,
            check_stored_versions_kept,
        ),
    ),
    LEASE.resource: Rules(
        defaults=(normalize_times(micro=[("spec", "acquireTime"), ("spec", "renewTime")]),)
    ),
    ROLE.resource: Rules(validations=(rbac.check_rule_count, rbac.check_role_rules)),
    CLUSTER_ROLE.resource: Rules(
        validations=(
            rbac.check_rule_count,
            rbac.check_cluster_role_rules,
            rbac.check_aggregation_rule,
        )
    ),
    ROLE_BINDING.resource: Rules(
        defaults=(rbac.default_api_groups,),
        validations=(
            rbac.check_subject_count,
            rbac.check_role_ref_unchanged,
            rbac.check_role_ref,
            rbac.check_subjects,
        ),
    ),
    CLUSTER_ROLE_BINDING.resource: Rules(
        defaults=(rbac.default_api_groups,),
        validations=(
            rbac.check_subject_count,
            rbac.check_role_ref_unchanged,
            rbac.check_cluster_role_ref,
            rbac.check_subjects,
        ),
    ),
    INSTANCE_TYPE.resource: Rules(
        validations=(
            check_initial_phase,
            check_phase_order,
            check_replacement,
        )
    ),
    NETWORK.resource: Rules(validations=(check_network_ranges,)),
    SUBNET.resource: Rules(validations=(check_subnet_prefix,)),
    SUBNET_CLAIM.resource: Rules(validations=(check_subnet_prefix,)),
    SERVICE.resource: Rules(
        validations=(
            name_length_rule(63, "it becomes a label value"),
            service.check_phase_order,
        )
    ),
    SERVICE_CONFIGURATION.resource: Rules(
        validations=(
            service.check_phase_order,
            service.check_metrics_declared,
            service.check_limits,
            service.check_no_provisioning,
        )
    ),
    ORGANIZATION.resource: Rules(
        validations=(name_length_rule(50, "its namespace is organization-<name>"),)
    ),
    PROJECT.resource: Rules(
        defaults=(label_organization,),
        validations=(
            name_length_rule(55, "names that are made from it have a limit of 63"),
            check_project_name,
        ),
    ),
    ENTITLEMENT.resource: Rules(validations=(check_entitlement_name,)),
}


def admit(
    kind: KindInfo[Any], new: JsonObject, old: JsonObject | None
) -> tuple[JsonObject, list[Cause]]:
    """Return the object with its defaults, and its errors."""
    new = apply_defaults(kind, new, old)
    return new, find_errors(kind, new, old)


def apply_defaults(kind: KindInfo[Any], new: JsonObject, old: JsonObject | None) -> JsonObject:
    for default in CHAIN.get(kind.resource, _NO_RULES).defaults:
        new = default(new, old)
    return new


def find_errors(kind: KindInfo[Any], new: JsonObject, old: JsonObject | None) -> list[Cause]:
    """Return the first ERRORS_MAX errors.

    The search ends there, so that many invalid items cost neither a long search nor a large
    response.
    """
    causes: list[Cause] = []
    if old is not None:
        causes.extend(check_immutable_fields(kind, new, old))
    for validation in CHAIN.get(kind.resource, _NO_RULES).validations:
        causes.extend(islice(validation(new, old), ERRORS_MAX + 1))
        if len(causes) > ERRORS_MAX:
            return limit_causes(causes)
    return causes
