"""Limits the permissions of cells: which objects of the hub and of projects a cell may reach.

RBAC determines what cells may do. This authorizer determines to which objects they may do it, for
members of ``system:cells``. As for nodes of Kubernetes, a list or a watch must select the objects
of the cell by label. For all other verbs the object itself is looked up. A cell reaches:

- Its own Cluster and its own Lease, by name.
- Deployments of the hub that are bound to it, which means that the hub has a Work for them in the
  execution namespace of the cell. A list must select the deployments of its city.
- Instances of the hub that it wrote, as their label states, or whose deployment is bound to it.
- Quota claims with its name, in projects, for deployments that are bound to it.

A request for an object that does not exist is allowed, and receives 404. A credential is valid only
while the Cluster of the cell exists and names its key. When that changes, open watches end.

To let cells reach another kind: add a rule to ``_REQUEST_RULES``, and the verbs to their role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from datum_compute.api.errors import BadRequest, NotFound
from datum_compute.api.karmada import CREDENTIALS_NAMESPACE
from datum_compute.api.kinds import CLAIM, CLUSTER, DEPLOYMENT, INSTANCE, LEASE, NAMESPACE, WORK
from datum_compute.api.labels import (
    CELL,
    DEPLOYMENT_NAME,
    INSTANCE_NAMESPACE,
    SOURCE_CLUSTER,
    TOPOLOGY_CITY,
    UPSTREAM_CLUSTER,
    UPSTREAM_NAMESPACE,
)
from datum_compute.api.membership import CELLS_GROUP, KEY_HASH, cell_of_user
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.label_selector import parse_label_selector
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.planes import (
    HUB,
    PlaneName,
    decode_project_label,
    deployment_of,
    execution_namespace,
    member_name,
    plane_role,
    work_name,
)
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import User
from datum_compute.server.encoding.responses import forbidden
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record
from datum_compute.store.store import Store

_COLLECTION_VERBS = ("list", "watch", "deletecollection")
# Reviews concern the caller or the server itself, not an object.
_REVIEW_GROUPS = ("authorization.k8s.io", "authentication.k8s.io")
_OUT_OF_REACH = "cells may not reach this kind"
_CLAIM_PREFIX = "instance-"


@dataclass(frozen=True, slots=True)
class _Cell:
    name: str
    city: str
    keys: tuple[str, ...]
    version: int


class CellAuthorizer:
    """Calls ``on_change`` with every plane when a cell may have lost permissions."""

    def __init__(self, store: Store, on_change: Callable[[PlaneName], None]) -> None:
        self._store = store
        self._on_change = on_change
        self._cells: dict[str, _Cell] = {}
        self._is_subscribed = False

    def deny_reason(self, user: User, plane: PlaneName, attributes: Attributes) -> str:
        """Return why a cell may not do this; an empty string if it may."""
        if attributes.path:
            return ""
        role = plane_role(plane)
        if role == "cell" or attributes.group in _REVIEW_GROUPS:
            return ""  # the roles of a cell plane apply to one cell only
        cell = self._find_cell(user)
        if cell is None:
            return "no cell of that name has joined with this key, or it has left"
        rule = _REQUEST_RULES.get((role, attributes.group, attributes.resource))
        return rule(self, cell, plane, attributes) if rule else _OUT_OF_REACH

    def check_written(
        self, user: User, plane: PlaneName, kind: KindInfo[Any], obj: JsonObject
    ) -> None:
        """Raise Forbidden if the object that a cell is about to store belongs to another cell."""
        if CELLS_GROUP not in user.groups or plane_role(plane) == "cell":
            return
        rule = _OBJECT_RULES.get((plane_role(plane), kind.resource))
        cell = self._find_cell(user)
        reason = _OUT_OF_REACH
        if rule is not None and cell is not None:
            reason = rule(self, cell, plane, obj)
        if reason:
            raise forbidden(kind, obj["metadata"].get("name", ""), reason)

    # --- State of the hub

    def _find_cell(self, user: User) -> _Cell | None:
        """Return the cell of a user if its Cluster names the key of the certificate."""
        name = cell_of_user(user.name)
        try:
            record = self._store.get(HUB, ObjectKey(CLUSTER.storage, "", name)) if name else None
        except NotFound:
            return None
        if record is None:
            return None
        self._subscribe()
        known = self._cells.get(name)
        if known is None or known.version != record.version:
            known = self._cells[name] = _decode_cell(name, record)
        keys = dict(user.extra).get(KEY_HASH, ())
        return known if any(key in known.keys for key in keys) else None

    def _subscribe(self) -> None:
        """Subscribe to Clusters at the first request of a cell."""
        if not self._is_subscribed:
            self._is_subscribed = True
            self._store.subscribe(HUB, CLUSTER.storage, self._clusters_changed)

    def _clusters_changed(self) -> None:
        """Report changes that affect the validity of a credential. Heartbeats do not."""
        for name, known in list(self._cells.items()):
            record = self._store.get(HUB, ObjectKey(CLUSTER.storage, "", name))
            current = _decode_cell(name, record) if record is not None else None
            if current is not None:
                self._cells[name] = current
            else:
                del self._cells[name]
            if current is None or (current.keys, current.city) != (known.keys, known.city):
                for plane in self._store.planes():
                    self._on_change(PlaneName(plane))

    def is_bound(self, cell: _Cell, ref: Ref) -> bool:
        """Return True if the hub has placed this deployment on the cell."""
        work = Ref(execution_namespace(cell.name), work_name(DEPLOYMENT, ref))
        return self._record(HUB, WORK, work) is not None

    def labels_of(
        self, plane: PlaneName, kind: KindInfo[Any], ref: Ref
    ) -> Mapping[str, str] | None:
        """Return the labels of an object; None if it does not exist."""
        record = self._record(plane, kind, ref)
        return record.labels if record is not None else None

    def _record(self, plane: PlaneName, kind: KindInfo[Any], ref: Ref) -> Record | None:
        try:
            return self._store.get(plane, ObjectKey(kind.storage, ref.namespace, ref.name))
        except NotFound:
            return None


def _decode_cell(name: str, record: Record) -> _Cell:
    metadata = decode(record.body)["metadata"]
    key = metadata.get("annotations", {}).get(KEY_HASH)
    city = metadata.get("labels", {}).get(TOPOLOGY_CITY, "")
    return _Cell(name, city, (key,) if key else (), record.version)


# --- Rules for requests: each returns the reason to deny, or an empty string

_RequestRule = Callable[[CellAuthorizer, _Cell, PlaneName, Attributes], str]


def _deny_other_cluster(
    _cells: CellAuthorizer, cell: _Cell, _plane: PlaneName, attributes: Attributes
) -> str:
    return "" if attributes.name == cell.name else "the Cluster belongs to another cell"


def _deny_other_lease(
    _cells: CellAuthorizer, cell: _Cell, _plane: PlaneName, attributes: Attributes
) -> str:
    # A create names the object in its body, which ``_OBJECT_RULES`` check.
    is_own = attributes.name == cell.name or attributes.verb == "create"
    if attributes.namespace == CREDENTIALS_NAMESPACE and is_own:
        return ""
    return f"a cell may only use its own Lease, {CREDENTIALS_NAMESPACE}/{cell.name}"


def _deny_other_deployments(
    cells: CellAuthorizer, cell: _Cell, plane: PlaneName, attributes: Attributes
) -> str:
    if attributes.verb in _COLLECTION_VERBS:
        return _require_selector(attributes, TOPOLOGY_CITY, cell.city)
    ref = Ref(attributes.namespace, attributes.name)
    if cells.is_bound(cell, ref) or cells.labels_of(plane, DEPLOYMENT, ref) is None:
        return ""
    return "the deployment is not bound to the cell"


def _deny_other_instances(
    cells: CellAuthorizer, cell: _Cell, plane: PlaneName, attributes: Attributes
) -> str:
    if attributes.verb in _COLLECTION_VERBS:
        return _require_selector(attributes, CELL, cell.name)
    if not attributes.name:
        return ""  # a create: ``_OBJECT_RULES`` check the object
    labels = cells.labels_of(plane, INSTANCE, Ref(attributes.namespace, attributes.name))
    if labels is None or labels.get(CELL) == cell.name:
        return ""
    if cells.is_bound(cell, Ref(attributes.namespace, deployment_of(attributes.name))):
        return ""
    return "the instance belongs to another cell"


def _deny_other_claims(
    cells: CellAuthorizer, cell: _Cell, plane: PlaneName, attributes: Attributes
) -> str:
    if attributes.verb in _COLLECTION_VERBS:
        return _require_selector(attributes, SOURCE_CLUSTER, cell.name)
    if not attributes.name:
        return ""
    labels = cells.labels_of(plane, CLAIM, Ref(attributes.namespace, attributes.name))
    if labels is None or labels.get(SOURCE_CLUSTER) == cell.name:
        return ""
    return "the claim belongs to another cell"


def _allow(_cells: CellAuthorizer, _cell: _Cell, _plane: PlaneName, _attributes: Attributes) -> str:
    return ""


def _require_selector(attributes: Attributes, label: str, value: str) -> str:
    try:
        terms = parse_label_selector(attributes.label_selector)
    except BadRequest:
        terms = ()
    values = frozenset({value})
    if any(t.key == label and not t.negative and t.values == values for t in terms):
        return ""
    return f"a cell must select its own objects with labelSelector={label}={value}"


_REQUEST_RULES: Mapping[tuple[str, str, str], _RequestRule] = {
    ("hub", CLUSTER.group, CLUSTER.plural): _deny_other_cluster,
    ("hub", LEASE.group, LEASE.plural): _deny_other_lease,
    ("hub", DEPLOYMENT.group, DEPLOYMENT.plural): _deny_other_deployments,
    ("hub", INSTANCE.group, INSTANCE.plural): _deny_other_instances,
    ("hub", INSTANCE.group, "celljoins"): _allow,  # the handler of a renewal checks the name
    ("project", CLAIM.group, CLAIM.plural): _deny_other_claims,
}

# --- Rules for objects that a cell is about to store

_ObjectRule = Callable[[CellAuthorizer, _Cell, PlaneName, JsonObject], str]


def _check_lease(_cells: CellAuthorizer, cell: _Cell, _plane: PlaneName, obj: JsonObject) -> str:
    metadata = obj["metadata"]
    is_own = (metadata.get("namespace"), metadata["name"]) == (CREDENTIALS_NAMESPACE, cell.name)
    return (
        "" if is_own else f"a cell may only use its own Lease, {CREDENTIALS_NAMESPACE}/{cell.name}"
    )


def _check_cluster(_cells: CellAuthorizer, cell: _Cell, _plane: PlaneName, obj: JsonObject) -> str:
    return "" if obj["metadata"]["name"] == cell.name else "the Cluster belongs to another cell"


def _check_instance(cells: CellAuthorizer, cell: _Cell, _plane: PlaneName, obj: JsonObject) -> str:
    metadata = obj["metadata"]
    labels = metadata.get("labels", {})
    if labels.get(CELL) != cell.name:
        return f"an instance of a cell must have the label {CELL}={cell.name}"
    deployment = Ref(metadata["namespace"], deployment_of(metadata["name"]))
    if labels.get(DEPLOYMENT_NAME, deployment.name) != deployment.name:
        return (
            f"the name of the instance refers to deployment {deployment.name}, "
            f"but the label {DEPLOYMENT_NAME} refers to another"
        )
    namespace_labels = cells.labels_of(HUB, NAMESPACE, Ref("", deployment.namespace)) or {}
    for label in (UPSTREAM_CLUSTER, UPSTREAM_NAMESPACE):
        if labels.get(label, "") not in ("", namespace_labels.get(label, "")):
            return f"namespace {deployment.namespace} has another value of the label {label}"
    if cells.is_bound(cell, deployment) or "deletionTimestamp" in metadata:
        return ""
    return "the deployment is not bound to the cell"


def _check_claim(cells: CellAuthorizer, cell: _Cell, plane: PlaneName, obj: JsonObject) -> str:
    metadata = obj["metadata"]
    labels = metadata.get("labels", {})
    if labels.get(SOURCE_CLUSTER) != cell.name:
        return f"a claim of a cell must have the label {SOURCE_CLUSTER}={cell.name}"
    if "deletionTimestamp" in metadata:
        return ""
    namespace = labels.get(INSTANCE_NAMESPACE, "")
    deployment = deployment_of(metadata["name"].removeprefix(_CLAIM_PREFIX))
    is_named = labels.get(DEPLOYMENT_NAME, deployment) == deployment
    if not is_named or not cells.is_bound(cell, Ref(namespace, deployment)):
        return "the deployment is not bound to the cell"
    namespace_labels = cells.labels_of(HUB, NAMESPACE, Ref("", namespace)) or {}
    project = decode_project_label(namespace_labels.get(UPSTREAM_CLUSTER, ""))
    upstream = (project, namespace_labels.get(UPSTREAM_NAMESPACE))
    if upstream != (member_name(plane), metadata["namespace"]):
        return f"namespace {namespace} of the hub belongs to another project or namespace"
    return ""


_OBJECT_RULES: Mapping[tuple[str, str], _ObjectRule] = {
    ("hub", LEASE.resource): _check_lease,
    ("hub", CLUSTER.resource): _check_cluster,
    ("hub", INSTANCE.resource): _check_instance,
    ("project", CLAIM.resource): _check_claim,
}
