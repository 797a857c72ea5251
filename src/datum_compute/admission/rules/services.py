"""Rules for entitlements, Services and Projects, and for the access of Workloads to compute.

Workloads need access only if a separate platform plane has a catalogue that offers compute. If the
catalogue is on the same plane (the platform itself, or the API server of single-cluster mode), no
access is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from datum_compute.admission.findings import phase_order_rule, suggest_names
from datum_compute.admission.queries import Answers, ListQuery, Write
from datum_compute.api.conditions import TRUE
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import ENTITLEMENT, SERVICE
from datum_compute.api.kinds import ORGANIZATION as ORGANIZATION_KIND
from datum_compute.api.labels import ORGANIZATION
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import ServicePhase
from datum_compute.api.meta.names import dns_label_problem
from datum_compute.api.quota import SERVICE as COMPUTE
from datum_compute.api.services import ACTIVE, PENDING_APPROVAL, PUBLISHED, AccessReason

SERVICES = ListQuery(SERVICE, catalogue=True)
OWN_SERVICES = ListQuery(SERVICE)
ENTITLEMENTS = ListQuery(ENTITLEMENT)
_REQUEST = "datumctl compute access request"
_RENEW = "datumctl compute access renew"
_SHOW = "datumctl compute access"


# --- Entitlements


def check_entitlement_name(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """The name of an entitlement is that of its service, so that there is one per service."""
    name, service = new["metadata"].get("name", ""), new["spec"]["serviceRef"]["name"]
    if old is None and name != service:
        why = f'must be the name of the service, "{service}"'
        yield Cause.invalid("metadata.name", why, name)


def query_offered_services(write: Write) -> Iterable[ListQuery]:
    return (SERVICES,) if write.old is None else ()


def check_service_offered(write: Write, answers: Answers) -> Iterable[Cause]:
    if write.old is not None:
        return
    name = write.new["spec"]["serviceRef"]["name"]
    offered = sorted(
        service["metadata"]["name"]
        for service in answers.listed[SERVICES]
        if service["spec"].get("phase") == PUBLISHED
    )
    if name not in offered:
        hint = suggest_names(name, offered) if offered else "no services are offered"
        why = f"the platform does not offer this service; {hint}"
        yield Cause.unsupported("spec.serviceRef.name", name, why=why)


# --- Access of Workloads


def query_entitlements(write: Write) -> Iterable[ListQuery]:
    return (SERVICES, OWN_SERVICES, ENTITLEMENTS) if write.old is None else ()


def check_project_access(write: Write, answers: Answers) -> Iterable[Cause]:
    """A new Workload needs access. Existing Workloads can be changed and deleted without it."""
    if write.old is not None or not _is_offered(answers):
        return
    found = [
        one for one in answers.listed[ENTITLEMENTS] if one["spec"]["serviceRef"]["name"] == COMPUTE
    ]
    why = _describe_missing_access(found[0]) if found else _describe_no_request()
    if why:
        yield Cause.forbidden("", why)


def _is_offered(answers: Answers) -> bool:
    """Return True if a platform on another plane offers compute."""
    if answers.listed[OWN_SERVICES]:
        return False
    return any(one["metadata"]["name"] == COMPUTE for one in answers.listed[SERVICES])


def _describe_no_request() -> str:
    return f"this project has no access to compute: it was not requested. Next: {_REQUEST}"


def _describe_missing_access(entitlement: JsonObject) -> str:
    """Return why the project has no access, or an empty string if it has."""
    status = entitlement.get("status") or {}
    phase = status.get("phase")
    if entitlement["metadata"].get("deletionTimestamp"):
        return f"access of this project to compute is ending. Next: {_REQUEST}, when it has ended"
    if phase == ACTIVE:
        return ""
    if phase is None:
        return f"access of this project to compute is being activated. Next: {_SHOW}"
    detail = _describe_condition(status)
    if phase == PENDING_APPROVAL:
        return f"access of this project to compute waits for approval{detail}. Next: {_SHOW}"
    if _reason(status) == AccessReason.NOT_PUBLISHED:
        return f"compute is not available on this platform{detail}. Next: ask an operator"
    ended = "was revoked" if status.get("entitledAt") else "was denied"
    return f"access of this project to compute {ended}{detail}. Next: {_RENEW}"


def _describe_condition(status: JsonObject) -> str:
    message = str(_ready(status).get("message", ""))
    return f" ({message})" if message else ""


def _reason(status: JsonObject) -> str:
    return str(_ready(status).get("reason", ""))


def _ready(status: JsonObject) -> JsonObject:
    found = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    return dict(found[0]) if found and found[0].get("status") != TRUE else {}


# --- Services and ServiceConfigurations


check_phase_order = phase_order_rule(
    "spec.phase", get_args(ServicePhase), lambda obj: str(obj["spec"]["phase"])
)


def check_metrics_declared(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Limits and costs refer to declared metrics: others would never be counted."""
    declared = [metric["name"] for metric in new["spec"].get("metrics", ())]
    listed = ", ".join(f'"{name}"' for name in declared) or "none"
    for path, name in _used_metrics(new["spec"].get("quota", {})):
        if name not in declared:
            why = f"is not declared in spec.metrics (declared: {listed})"
            yield Cause.invalid(path, why, name)


def check_limits(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for index, limit in enumerate(new["spec"].get("quota", {}).get("limits", ())):
        default, maximum = limit["defaultLimit"], limit.get("maxLimit")
        if maximum is not None and default > maximum:
            path = f"spec.quota.limits[{index}].defaultLimit"
            why = f"must be no more than maxLimit ({maximum})"
            yield Cause.invalid(path, why, default)


def check_no_provisioning(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Refuse objects to provision: the platform does not create them yet."""
    if new["spec"].get("provisioning", {}).get("resources"):
        why = "objects for entitled projects are not supported yet; leave it out"
        yield Cause.forbidden("spec.provisioning.resources", why)


def _used_metrics(quota: JsonObject) -> Iterator[tuple[str, str]]:
    for index, limit in enumerate(quota.get("limits", ())):
        yield f"spec.quota.limits[{index}].metric", limit["metric"]
    for index, rule in enumerate(quota.get("metricRules", ())):
        for name in rule["metricCosts"]:
            yield f"spec.quota.metricRules[{index}].metricCosts", name


# --- Projects


ORGANIZATIONS = ListQuery(ORGANIZATION_KIND)
_OWNER = "spec.ownerRef.name"


def label_organization(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """Set the organization label to the owner in the spec."""
    owner, metadata = new["spec"].get("ownerRef", {}).get("name"), new["metadata"]
    labels = metadata.get("labels") or {}
    if not owner or labels.get(ORGANIZATION) == owner:
        return new
    return {**new, "metadata": {**metadata, "labels": {**labels, ORGANIZATION: owner}}}


def check_project_name(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    name = new["metadata"].get("name", "")
    problem = dns_label_problem(name) if old is None and name else ""
    if problem:
        why = f"{problem}; it is part of the path of the project's API"
        yield Cause.invalid("metadata.name", why, name)


def query_organizations(write: Write) -> Iterable[ListQuery]:
    if write.old is None:
        yield ORGANIZATIONS


def check_organization_exists(write: Write, answers: Answers) -> Iterable[Cause]:
    if write.old is not None:
        return
    name = write.new["spec"]["ownerRef"]["name"]
    known = sorted(
        found["metadata"]["name"]
        for found in answers.listed[ORGANIZATIONS]
        if not found["metadata"].get("deletionTimestamp")
    )
    if name not in known:
        why = (
            f"there is no such organization; {suggest_names(name, known)}"
            if known
            else "there is none"
        )
        yield Cause.not_found(_OWNER, name, why)
