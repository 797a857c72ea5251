"""Access to services: what may be requested, and that Workloads need it.

Only of projects that have a platform beside them, with a catalogue that offers compute. Where the
catalogue lies on the same plane (the platform itself, or the one API server of single-cluster mode)
there is nobody to ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from datum_compute.admission.findings import hint, one_step_forward
from datum_compute.admission.questions import Answers, ListQuery, Write
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
_SEE = "datumctl compute access"


# --- requests


def named_as_its_service(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """So there is one request for a service, and everybody finds it."""
    name, service = new["metadata"].get("name", ""), new["spec"]["serviceRef"]["name"]
    if old is None and name != service:
        why = f'must be the name of the service, "{service}"'
        yield Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {why}')


def asks_for_services(write: Write) -> Iterable[ListQuery]:
    if write.old is None:
        yield SERVICES


def service_is_offered(write: Write, answers: Answers) -> Iterable[Cause]:
    if write.old is not None:
        return
    name = write.new["spec"]["serviceRef"]["name"]
    offered = sorted(
        service["metadata"]["name"]
        for service in answers.listed[SERVICES]
        if service["spec"].get("phase") == PUBLISHED
    )
    if name not in offered:
        why = f"the platform does not offer it; {hint(name, offered)}" if offered else "none is"
        message = f'Unsupported value: "{name}": {why}'
        yield Cause("spec.serviceRef.name", "FieldValueNotSupported", message)


# --- use


def asks_for_access(write: Write) -> Iterable[ListQuery]:
    if write.old is None:
        yield SERVICES
        yield OWN_SERVICES
        yield ENTITLEMENTS


def project_has_access(write: Write, answers: Answers) -> Iterable[Cause]:
    """A new Workload needs access; what is there can still be changed and deleted."""
    if write.old is not None or not _is_offered(answers):
        return
    found = [
        one for one in answers.listed[ENTITLEMENTS] if one["spec"]["serviceRef"]["name"] == COMPUTE
    ]
    why = _missing_access(found[0]) if found else _never_asked()
    if why:
        yield Cause("", "FieldValueForbidden", f"Forbidden: {why}")


def _is_offered(answers: Answers) -> bool:
    """By a platform that is not this plane."""
    if answers.listed[OWN_SERVICES]:
        return False
    return any(one["metadata"]["name"] == COMPUTE for one in answers.listed[SERVICES])


def _never_asked() -> str:
    return f"this project has no access to compute: it was not requested. Next: {_REQUEST}"


def _missing_access(entitlement: JsonObject) -> str:
    """Empty if there is access."""
    status = entitlement.get("status") or {}
    phase, said = status.get("phase"), _said(status)
    if entitlement["metadata"].get("deletionTimestamp"):
        return f"access of this project to compute is ending. Next: {_REQUEST}, when it has ended"
    if phase == ACTIVE:
        return ""
    if phase is None:
        return f"access of this project to compute is being activated. Next: {_SEE}"
    if phase == PENDING_APPROVAL:
        return f"access of this project to compute waits for approval{said}. Next: {_SEE}"
    if _reason(status) == AccessReason.NOT_PUBLISHED:
        return f"compute is not available on this platform{said}. Next: ask an operator"
    gone = "was revoked" if status.get("entitledAt") else "was denied"
    return f"access of this project to compute {gone}{said}. Next: {_RENEW}"


def _said(status: JsonObject) -> str:
    message = str(_ready(status).get("message", ""))
    return f" ({message})" if message else ""


def _reason(status: JsonObject) -> str:
    return str(_ready(status).get("reason", ""))


def _ready(status: JsonObject) -> JsonObject:
    found = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    return dict(found[0]) if found and found[0].get("status") != TRUE else {}


# --- Rules for Services and their configurations: phases, and metrics that are declared before use


phase_goes_forward = one_step_forward(
    "spec.phase", get_args(ServicePhase), lambda obj: str(obj["spec"]["phase"])
)


def metrics_are_declared(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """A limit or a cost of a metric that nobody declared would never count anything."""
    declared = [metric["name"] for metric in new["spec"].get("metrics", ())]
    listed = ", ".join(f'"{name}"' for name in declared) or "none"
    for path, name in _used_metrics(new["spec"].get("quota", {})):
        if name not in declared:
            why = f"is not declared in spec.metrics (declared: {listed})"
            yield Cause(path, "FieldValueInvalid", f'Invalid value: "{name}": {why}')


def limits_are_in_order(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for index, limit in enumerate(new["spec"].get("quota", {}).get("limits", ())):
        given, most = limit["defaultLimit"], limit.get("maxLimit")
        if most is not None and given > most:
            path = f"spec.quota.limits[{index}].defaultLimit"
            why = f"must be no more than maxLimit ({most})"
            yield Cause(path, "FieldValueInvalid", f"Invalid value: {given}: {why}")


def nothing_is_provisioned(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """What would be accepted and never made."""
    if new["spec"].get("provisioning", {}).get("resources"):
        why = "objects for entitled projects are not supported yet; leave it out"
        yield Cause("spec.provisioning.resources", "FieldValueForbidden", f"Forbidden: {why}")


def _used_metrics(quota: JsonObject) -> Iterator[tuple[str, str]]:
    for index, limit in enumerate(quota.get("limits", ())):
        yield f"spec.quota.limits[{index}].metric", limit["metric"]
    for index, rule in enumerate(quota.get("metricRules", ())):
        for name in rule["metricCosts"]:
            yield f"spec.quota.metricRules[{index}].metricCosts", name


# --- Rules for Projects: a name that can be part of a path and of labels, and whose they are


ORGANIZATIONS = ListQuery(ORGANIZATION_KIND)
_OWNER = "spec.ownerRef.name"


def with_organization(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """The label says what the spec says, whatever was sent."""
    owner, metadata = new["spec"].get("ownerRef", {}).get("name"), new["metadata"]
    told = metadata.get("labels") or {}
    if not owner or told.get(ORGANIZATION) == owner:
        return new
    return {**new, "metadata": {**metadata, "labels": {**told, ORGANIZATION: owner}}}


def name_is_a_label(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    name = new["metadata"].get("name", "")
    problem = dns_label_problem(name) if old is None and name else ""
    if problem:
        why = f"{problem}; it is part of the path of the project's API"
        yield Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {why}')


def asks_for_organizations(write: Write) -> Iterable[ListQuery]:
    if write.old is None:
        yield ORGANIZATIONS


def organization_is_there(write: Write, answers: Answers) -> Iterable[Cause]:
    if write.old is not None:
        return
    name = write.new["spec"]["ownerRef"]["name"]
    known = sorted(
        found["metadata"]["name"]
        for found in answers.listed[ORGANIZATIONS]
        if not found["metadata"].get("deletionTimestamp")
    )
    if name not in known:
        why = f"there is no such organization; {hint(name, known)}" if known else "there is none"
        yield Cause(_OWNER, "FieldValueNotFound", f'Not found: "{name}": {why}')
