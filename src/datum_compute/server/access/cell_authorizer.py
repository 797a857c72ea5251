"""The slice of a cell: which objects of the hub and of projects its credential reaches.

Roles say what cells do at all; this says to what, for members of ``system:cells``. As with nodes of
Kubernetes a list or a watch must select the slice by its labels, and everything else is looked up:

- Its own Cluster and its own Lease, by name.
- Deployments of the hub that are bound to it: the hub holds a Work for them in its own execution
  namespace. In lists: those of its city.
- Instances of the hub that it wrote (their label says so), or whose deployment is bound to it.
- Quota claims that bear its name, in the project and for the deployments that are bound to it.

What is not there may be asked for: the answer is that it is not there. A credential counts only as
long as the Cluster of the cell is there and notes its key; when that changes, open watches end.
To let cells reach another kind: a line in ``_HUB`` or ``_PROJECT``, and the verbs in their role.
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
from datum_compute.server.encoding.selectors import label_requirements
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record
from datum_compute.store.store import Store

_SELECTING = ("list", "watch", "deletecollection")
# Asked by everybody of the server itself, about nothing that anybody owns.
_REVIEWS = ("authorization.k8s.io", "authentication.k8s.io")
_CLAIM_PREFIX = "instance-"


@dataclass(frozen=True, slots=True)
class _Cell:
    name: str
    city: str
    keys: tuple[str, ...]
    version: int


class CellAuthorizer:
    """``on_change`` hears of every plane when a cell may have lost what it had."""

    def __init__(self, store: Store, on_change: Callable[[PlaneName], None]) -> None:
        self._store = store
        self._on_change = on_change
        self._cells: dict[str, _Cell] = {}
        self._followed = False

    def refusal(self, user: User, plane: PlaneName, wanted: Attributes) -> str:
        """Why a cell may not do that; empty for what is in its slice, and for everybody else."""
        if CELLS_GROUP not in user.groups or wanted.path:
            return ""
        role = plane_role(plane)
        if role == "cell" or wanted.group in _REVIEWS:
            return ""  # roles of the plane name the one cell that it is of
        cell = self._cell(user)
        if cell is None:
            return "no cell of that name has joined with this key, or it has left"
        rule = _RULES.get((role, wanted.group, wanted.resource))
        return rule(self, cell, plane, wanted) if rule else "it is outside of the slice of a cell"

    def check_written(
        self, user: User, plane: PlaneName, kind: KindInfo[Any], obj: JsonObject
    ) -> None:
        """Raise if a cell would write what is not of its slice: what is new, or would become
        somebody else's."""
        if CELLS_GROUP not in user.groups or plane_role(plane) == "cell":
            return
        rule = _WRITTEN.get((plane_role(plane), kind.resource))
        cell = self._cell(user)
        why = "it is outside of the slice of a cell"
        if rule is not None and cell is not None:
            why = rule(self, cell, plane, obj)
        if why:
            raise forbidden(kind, obj["metadata"].get("name", ""), why)

    # --- what the hub says

    def _cell(self, user: User) -> _Cell | None:
        """The cell that a user is, by the Cluster that notes its key."""
        name = cell_of_user(user.name)
        try:
            record = self._store.get(HUB, ObjectKey(CLUSTER.storage, "", name)) if name else None
        except NotFound:
            return None
        if record is None:
            return None
        self._follow()
        known = self._cells.get(name)
        if known is None or known.version != record.version:
            known = self._cells[name] = _read(name, record)
        shown = dict(user.extra).get(KEY_HASH, ())
        return known if any(key in known.keys for key in shown) else None

    def _follow(self) -> None:
        """From the first cell on."""
        if not self._followed:
            self._followed = True
            self._store.subscribe(HUB, CLUSTER.storage, self._clusters_changed)

    def _clusters_changed(self) -> None:
        """Heartbeats are not told: only what the validity of a credential depends on."""
        for name, known in list(self._cells.items()):
            record = self._store.get(HUB, ObjectKey(CLUSTER.storage, "", name))
            now = _read(name, record) if record is not None else None
            if now is not None:
                self._cells[name] = now
            else:
                del self._cells[name]
            if now is None or (now.keys, now.city) != (known.keys, known.city):
                for plane in self._store.planes():
                    self._on_change(PlaneName(plane))

    def bound(self, cell: _Cell, ref: Ref) -> bool:
        """Whether the hub has placed this deployment on the cell."""
        work = Ref(execution_namespace(cell.name), work_name(DEPLOYMENT, ref))
        return self._record(HUB, WORK, work) is not None

    def labels(self, plane: PlaneName, kind: KindInfo[Any], ref: Ref) -> Mapping[str, str] | None:
        """They say whose an object is; None if it is not there."""
        record = self._record(plane, kind, ref)
        return record.labels if record is not None else None

    def _record(self, plane: PlaneName, kind: KindInfo[Any], ref: Ref) -> Record | None:
        try:
            return self._store.get(plane, ObjectKey(kind.storage, ref.namespace, ref.name))
        except NotFound:
            return None


def _read(name: str, record: Record) -> _Cell:
    metadata = decode(record.body)["metadata"]
    key = metadata.get("annotations", {}).get(KEY_HASH)
    city = metadata.get("labels", {}).get(TOPOLOGY_CITY, "")
    return _Cell(name, city, (key,) if key else (), record.version)


# --- requests

_Rule = Callable[[CellAuthorizer, _Cell, PlaneName, Attributes], str]


def _own_cluster(
    _slices: CellAuthorizer, cell: _Cell, _plane: PlaneName, wanted: Attributes
) -> str:
    return "" if wanted.name == cell.name else "it is the Cluster of another cell"


def _own_lease(_slices: CellAuthorizer, cell: _Cell, _plane: PlaneName, wanted: Attributes) -> str:
    in_place = wanted.namespace == CREDENTIALS_NAMESPACE
    # The name of what is created stands in the object.
    named = wanted.name == cell.name or wanted.verb == "create"
    return "" if in_place and named else f"its Lease is {CREDENTIALS_NAMESPACE}/{cell.name}"


def _deployments(slices: CellAuthorizer, cell: _Cell, plane: PlaneName, wanted: Attributes) -> str:
    if wanted.verb in _SELECTING:
        return _must_select(wanted, TOPOLOGY_CITY, cell.city)
    ref = Ref(wanted.namespace, wanted.name)
    if slices.bound(cell, ref) or slices.labels(plane, DEPLOYMENT, ref) is None:
        return ""
    return "the deployment is not bound to the cell"


def _instances(slices: CellAuthorizer, cell: _Cell, plane: PlaneName, wanted: Attributes) -> str:
    if wanted.verb in _SELECTING:
        return _must_select(wanted, CELL, cell.name)
    if not wanted.name:
        return ""  # a create; what it makes is looked at before it is stored
    found = slices.labels(plane, INSTANCE, Ref(wanted.namespace, wanted.name))
    if found is None or found.get(CELL) == cell.name:
        return ""
    if slices.bound(cell, Ref(wanted.namespace, deployment_of(wanted.name))):
        return ""
    return "the instance is of another cell"


def _claims(slices: CellAuthorizer, cell: _Cell, plane: PlaneName, wanted: Attributes) -> str:
    if wanted.verb in _SELECTING:
        return _must_select(wanted, SOURCE_CLUSTER, cell.name)
    if not wanted.name:
        return ""
    found = slices.labels(plane, CLAIM, Ref(wanted.namespace, wanted.name))
    if found is None or found.get(SOURCE_CLUSTER) == cell.name:
        return ""
    return "the claim is of another cell"


def _joins(_slices: CellAuthorizer, _cell: _Cell, _plane: PlaneName, _wanted: Attributes) -> str:
    return ""  # renewal looks at the name itself


def _must_select(wanted: Attributes, label: str, value: str) -> str:
    try:
        terms = label_requirements(wanted.labels.strip())
    except BadRequest:
        terms = ()
    wished = frozenset({value})
    if any(t.key == label and not t.negative and t.values == wished for t in terms):
        return ""
    return f"a cell must select its own with labelSelector={label}={value}"


_RULES: Mapping[tuple[str, str, str], _Rule] = {
    ("hub", CLUSTER.group, CLUSTER.plural): _own_cluster,
    ("hub", LEASE.group, LEASE.plural): _own_lease,
    ("hub", DEPLOYMENT.group, DEPLOYMENT.plural): _deployments,
    ("hub", INSTANCE.group, INSTANCE.plural): _instances,
    ("hub", INSTANCE.group, "celljoins"): _joins,
    ("project", CLAIM.group, CLAIM.plural): _claims,
}

# --- what would be written


def _written_lease(_slices: CellAuthorizer, cell: _Cell, _plane: PlaneName, obj: JsonObject) -> str:
    metadata = obj["metadata"]
    own = (metadata.get("namespace"), metadata["name"]) == (CREDENTIALS_NAMESPACE, cell.name)
    return "" if own else f"its Lease is {CREDENTIALS_NAMESPACE}/{cell.name}"


def _written_cluster(
    _slices: CellAuthorizer, cell: _Cell, _plane: PlaneName, obj: JsonObject
) -> str:
    return "" if obj["metadata"]["name"] == cell.name else "it is the Cluster of another cell"


def _written_instance(
    slices: CellAuthorizer, cell: _Cell, _plane: PlaneName, obj: JsonObject
) -> str:
    metadata = obj["metadata"]
    if metadata.get("labels", {}).get(CELL) != cell.name:
        return f"a copy of a cell says so: label {CELL}={cell.name}"
    deployment = Ref(metadata["namespace"], deployment_of(metadata["name"]))
    if metadata["labels"].get(DEPLOYMENT_NAME, deployment.name) != deployment.name:
        return f"its name says that it is of {deployment.name}, its label that it is of another"
    home = slices.labels(HUB, NAMESPACE, Ref("", deployment.namespace)) or {}
    for label in (UPSTREAM_CLUSTER, UPSTREAM_NAMESPACE):
        if metadata["labels"].get(label, "") not in ("", home.get(label, "")):
            return f"namespace {deployment.namespace} stands for another {label}"
    if slices.bound(cell, deployment) or "deletionTimestamp" in metadata:
        return ""
    return "its deployment is not bound to the cell"


def _written_claim(slices: CellAuthorizer, cell: _Cell, plane: PlaneName, obj: JsonObject) -> str:
    metadata = obj["metadata"]
    labels = metadata.get("labels", {})
    if labels.get(SOURCE_CLUSTER) != cell.name:
        return f"a claim of a cell says so: label {SOURCE_CLUSTER}={cell.name}"
    if "deletionTimestamp" in metadata:
        return ""
    home = labels.get(INSTANCE_NAMESPACE, "")
    instance = metadata["name"].removeprefix(_CLAIM_PREFIX)
    deployment = deployment_of(instance, labels)
    if not instance.startswith(f"{deployment}-") or not slices.bound(cell, Ref(home, deployment)):
        return "its deployment is not bound to the cell"
    identity = slices.labels(HUB, NAMESPACE, Ref("", home)) or {}
    whose = decode_project_label(identity.get(UPSTREAM_CLUSTER, ""))
    where = (whose, identity.get(UPSTREAM_NAMESPACE))
    if where != (member_name(plane), metadata["namespace"]):
        return f"namespace {home} of the hub is of another project or namespace"
    return ""


_WRITTEN: Mapping[
    tuple[str, str], Callable[[CellAuthorizer, _Cell, PlaneName, JsonObject], str]
] = {
    ("hub", LEASE.resource): _written_lease,
    ("hub", CLUSTER.resource): _written_cluster,
    ("hub", INSTANCE.resource): _written_instance,
    ("project", CLAIM.resource): _written_claim,
}
