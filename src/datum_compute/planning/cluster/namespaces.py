"""Contents and status of namespaces on planes of the embedded server.

- The contents of a terminating namespace are deleted, then the namespace. Until then its status
  lists the remaining objects and finalizers, as in Kubernetes.
- Quota claims are deleted last. Machines that use the quota may still be stopping, and their claims
  are released after they have stopped.
- Every other namespace has the ServiceAccount ``default`` and a ConfigMap with the trusted
  certificates. Clients and test suites wait for both before they use a namespace.

Equal contents give equal conditions, independently of their order, so that the status is written
only after a change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from datum_compute.api.conditions import FALSE, TRUE
from datum_compute.api.core import (
    DEFAULT_SERVICE_ACCOUNT,
    ROOT_CA_CONFIG_MAP,
    ConfigMap,
    Namespace,
    NamespaceCondition,
    ServiceAccount,
)
from datum_compute.api.inventory import StoredObject
from datum_compute.api.kinds import CLAIM, CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.api.planes import PlaneName
from datum_compute.planning.plan import Action, Create, Patch, PatchStatus, Plan

CONTENT, FINALIZERS = "NamespaceContentRemaining", "NamespaceFinalizersRemaining"
# Deletions cause events. This interval covers a missed one.
RECHECK_S = 10.0
_DELETED_LAST = (CLAIM.storage,)

CA_KEY = "ca.crt"


@dataclass(frozen=True, slots=True)
class FinalizeNamespace:
    """Remove a terminating namespace, because it is empty."""


def select_contents_to_delete(contents: Sequence[StoredObject]) -> list[StoredObject]:
    """Return the objects of a terminating namespace to delete now."""
    first = [held for held in contents if held.kind.storage not in _DELETED_LAST]
    return [held for held in first or contents if not held.terminating]


def plan_namespace_removal(
    plane: PlaneName, namespace: Namespace, remaining: Sequence[StoredObject], now: str
) -> Plan | FinalizeNamespace:
    """Report what remains in a terminating namespace, or remove the namespace."""
    if not remaining:
        return FinalizeNamespace()
    before = namespace.status.conditions
    conditions = namespace_conditions(before, remaining, now)
    if conditions == before:
        return Plan(requeue_after_s=RECHECK_S)
    status = {"conditions": [to_json(condition) for condition in conditions]}
    version = namespace.metadata.resource_version
    report = PatchStatus(plane, NAMESPACE, ref_of(namespace), version, status, "what remains")
    return Plan((report,), requeue_after_s=RECHECK_S)


def plan_default_objects(
    plane: PlaneName,
    namespace: str,
    *,
    has_account: bool,
    ca_certificates: str | None,
    trusted_certificates: str,
) -> Plan:
    """Create the missing default objects of a namespace, and restore the certificates.

    ``ca_certificates`` is the value in the ConfigMap; None if the ConfigMap does not exist.
    """
    actions: list[Action] = []
    if not has_account:
        account = ServiceAccount(
            metadata=ObjectMeta(name=DEFAULT_SERVICE_ACCOUNT, namespace=namespace)
        )
        actions.append(Create(plane, SERVICE_ACCOUNT, account, "every namespace has one"))
    data = {CA_KEY: trusted_certificates}
    if ca_certificates is None:
        metadata = ObjectMeta(name=ROOT_CA_CONFIG_MAP, namespace=namespace)
        config_map = ConfigMap(metadata=metadata, data=data)
        actions.append(Create(plane, CONFIG_MAP, config_map, "every namespace has one"))
    elif ca_certificates != trusted_certificates:
        ref, reason = Ref(namespace, ROOT_CA_CONFIG_MAP), "the trusted certificates differ"
        actions.append(Patch(plane, CONFIG_MAP, ref, {"data": data}, reason))
    return Plan(tuple(actions))


def namespace_conditions(
    before: Sequence[NamespaceCondition], remaining: Sequence[StoredObject], now: str
) -> list[NamespaceCondition]:
    kinds = Counter(held.kind.resource for held in remaining)
    finalizers = Counter(name for held in remaining for name in held.finalizers)
    content = _content_condition(
        CONTENT,
        ("SomeResourcesRemain", "ContentRemoved"),
        ("Some resources are remaining: ", "All content successfully removed"),
        [f"{kind} has {count} resource instances" for kind, count in sorted(kinds.items())],
    )
    held_by = _content_condition(
        FINALIZERS,
        ("SomeFinalizersRemain", "ContentHasNoFinalizers"),
        (
            "Some content in the namespace has finalizers remaining: ",
            "All content-preserving finalizers finished",
        ),
        [f"{name} in {count} resource instances" for name, count in sorted(finalizers.items())],
    )
    return [_with_transition_time(before, condition, now) for condition in (content, held_by)]


def _content_condition(
    type_: str, reasons: tuple[str, str], messages: tuple[str, str], found: list[str]
) -> NamespaceCondition:
    """Use the first reason and message if ``found`` is not empty, the second otherwise."""
    if not found:
        return NamespaceCondition(type=type_, status=FALSE, reason=reasons[1], message=messages[1])
    message = messages[0] + ", ".join(found)
    return NamespaceCondition(type=type_, status=TRUE, reason=reasons[0], message=message)


def _with_transition_time(
    before: Sequence[NamespaceCondition], condition: NamespaceCondition, now: str
) -> NamespaceCondition:
    old = next((c for c in before if c.type == condition.type), None)
    kept = old is not None and old.status == condition.status
    since = old.last_transition_time if old is not None and kept else now
    return NamespaceCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        last_transition_time=since,
    )
