"""A cell joins: a join token and a key become a Cluster, what the hub needs to reach the cell, and
the cell's certificate. With the certificate itself it is renewed, and the hub's token and the
address of the cell may change.

Rules it keeps:
- Everything is looked at before anything is written; whoever is refused leaves no trace.
- The first write gives the token to the key that came with it. From then on it is worth something
  to the holder of that key only, so an answer that was lost can be asked for again.
- The Cluster is written last: without it nothing that was written before counts.
- A name that is taken stays with its key, unless the token is for that very name.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from datum_compute.admission.findings import invalid
from datum_compute.api.errors import Cause, Forbidden, MethodNotAllowed, NotFound, from_status
from datum_compute.api.http import JSON, MERGE_PATCH, Request, Response
from datum_compute.api.karmada import CREDENTIALS_NAMESPACE
from datum_compute.api.kinds import CLUSTER, JOIN_TOKEN, NAMESPACE, SECRET
from datum_compute.api.labels import CLUSTER_FINALIZER, TOPOLOGY_CITY
from datum_compute.api.membership import (
    CELL_JOIN,
    CELLS_GROUP,
    JOINERS_GROUP,
    KEY_HASH,
    CellJoinSpec,
    cell_of_user,
    cell_user_of,
    join_token_name,
    join_token_of_user,
    join_token_user,
)
from datum_compute.api.meta.codec import JsonObject, decode, encode, from_json
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import (
    HUB,
    cell_plane,
    execution_namespace,
    normalize_city,
    path_prefix,
)
from datum_compute.server.access.authentication import EVERY_PLANE, MASTERS, User, authenticated
from datum_compute.server.access.client_certificates import SigningRequest, read_request
from datum_compute.server.access.reviews import read_review
from datum_compute.server.encoding.request_options import dry_run
from datum_compute.server.encoding.responses import conflict, field_error, json_answer
from datum_compute.server.routing import ResourceRequest
from datum_compute.store.journal import ObjectKey
from datum_compute.store.store import Store

# In whose name the hub's objects are written; no token or certificate gives this identity.
REGISTRAR = User("system:cell-registrar", (MASTERS,), frozenset({EVERY_PLANE}))

Send = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate as PEM, the authority that signed it, and when it ends."""

    certificate: str
    authority: str
    until_s: float


# Signs a request for a user of some groups.
Certify = Callable[[SigningRequest, str, tuple[str, ...]], IssuedCertificate]


@dataclass(frozen=True, slots=True)
class CellJoinHandler:
    """``send`` carries out a request as REGISTRAR."""

    store: Store
    clock: Callable[[], float]
    send: Send
    certify: Certify | None

    async def answer(self, call: ResourceRequest) -> Response:
        if self.certify is None or call.plane != HUB:
            raise MethodNotAllowed("cells join on the hub of a platform that keeps an authority")
        obj, headers = read_review(call, call.served)
        spec = from_json(obj["spec"], CellJoinSpec)
        requested = read_request(spec.request)
        renews = cell_of_user(call.user.name) == spec.cell and CELLS_GROUP in call.user.groups
        _check(spec, requested, renews=renews)
        assert requested is not None
        if renews:
            self._check_renewal(call, requested)
            if not dry_run(call.query):
                await self._change_way(spec)
        else:
            await self._join(call, spec, requested, dry=dry_run(call.query))
        signed = self.certify(requested, cell_user_of(spec.cell), (CELLS_GROUP,))
        status = {
            "certificate": signed.certificate,
            "authority": signed.authority,
            "expiresAt": timestamp(signed.until_s),
        }
        shown = {"cell": spec.cell, "city": spec.city, "request": spec.request}
        answered = {**obj, "spec": shown, "metadata": {"creationTimestamp": None}, "status": status}
        return json_answer(answered, status=201, headers=headers)

    def _check_renewal(self, call: ResourceRequest, requested: SigningRequest) -> None:
        """With the same key only: the Cluster knows no other."""
        if dict(call.user.extra).get(KEY_HASH) != (requested.key_hash,):
            raise _refused(call.user, "a certificate is renewed for the key that it was given to")

    async def _change_way(self, spec: CellJoinSpec) -> None:
        """The cell lets the hub in by another token or at another address from now on."""
        if spec.hub_token:
            data = {"token": base64.b64encode(spec.hub_token.encode()).decode()}
            await self._change(SECRET, CREDENTIALS_NAMESPACE, spec.cell, {"data": data})
        if spec.endpoint:
            address = {"spec": {"apiEndpoint": spec.endpoint}}
            await self._change(CLUSTER, "", spec.cell, address)

    async def _change(
        self, kind: KindInfo[Any], namespace: str, name: str, change: JsonObject
    ) -> None:
        """What is not there any more, because the cell is leaving, is not made again."""
        if self._object(kind, namespace, name) is not None:
            await self._sent("PATCH", f"{_path(kind, namespace)}/{name}", change, MERGE_PATCH)

    async def _join(
        self, call: ResourceRequest, spec: CellJoinSpec, requested: SigningRequest, *, dry: bool
    ) -> None:
        token = self._token(call.user, spec, requested)
        present = self._object(CLUSTER, "", spec.cell)
        self._check_place(spec, requested, present, named=token["spec"].get("cell") == spec.cell)
        if dry:
            return
        await self._use(token, spec, requested)
        namespace = {"metadata": {"name": execution_namespace(spec.cell)}}
        await self._ensure(NAMESPACE, "", namespace)
        await self._put(SECRET, CREDENTIALS_NAMESPACE, _secret(spec))
        await self._put(CLUSTER, "", _cluster(spec, requested))

    def _token(self, user: User, spec: CellJoinSpec, requested: SigningRequest) -> JsonObject:
        """The token of the caller, if it lets this cell in."""
        name = join_token_of_user(user.name)
        token = self._object(JOIN_TOKEN, "", name) if JOINERS_GROUP in user.groups else None
        if token is None:
            raise _refused(user, "only who holds a join token may join a cell")
        expires = datetime.fromisoformat(token["spec"]["expiresAt"]).timestamp()
        if self.clock() >= expires:
            raise _refused(user, f"the join token has expired at {token['spec']['expiresAt']}")
        meant = token["spec"].get("cell", "")
        if meant not in ("", spec.cell):
            raise _refused(user, f"the join token is for cell {meant}")
        used = token.get("status", {})
        if used.get("keyHash", requested.key_hash) != requested.key_hash or (
            used.get("usedBy", "") not in ("", spec.cell)
        ):
            who, when = used.get("usedBy"), used.get("usedAt")
            raise _refused(user, f"the join token was used by cell {who} at {when}")
        return token

    def _check_place(
        self,
        spec: CellJoinSpec,
        requested: SigningRequest,
        present: JsonObject | None,
        *,
        named: bool,
    ) -> None:
        city = normalize_city(spec.city)
        if present is not None:
            metadata = present["metadata"]
            if "deletionTimestamp" in metadata:
                raise conflict(CLUSTER, spec.cell, "a cell of that name is leaving")
            key = metadata.get("annotations", {}).get(KEY_HASH)
            if key != requested.key_hash and not named:
                why = (
                    "a cell of that name has joined with another key; let it leave first, or make "
                    f"a token for it: datumctl compute cell token --cell {spec.cell}"
                )
                raise conflict(CLUSTER, spec.cell, why)
        for record in self.store.snapshot(HUB, CLUSTER.storage, None).records:
            other = decode(record.body)["metadata"]
            if other["name"] != spec.cell and other.get("labels", {}).get(TOPOLOGY_CITY) == city:
                why = f"city {city} is served by cell {other['name']}: one cell for each city"
                raise conflict(CLUSTER, spec.cell, why)

    async def _use(self, token: JsonObject, spec: CellJoinSpec, requested: SigningRequest) -> None:
        """Give the token to this key; one of two at the same moment is refused."""
        if token.get("status", {}).get("keyHash"):
            return
        now = timestamp(self.clock())
        status = {"usedBy": spec.cell, "keyHash": requested.key_hash, "usedAt": now}
        metadata = {"resourceVersion": token["metadata"]["resourceVersion"]}
        path = f"{_path(JOIN_TOKEN, '')}/{token['metadata']['name']}/status"
        await self._sent("PATCH", path, {"metadata": metadata, "status": status}, MERGE_PATCH)

    # --- objects of the hub

    def _object(self, kind: KindInfo[Any], namespace: str, name: str) -> JsonObject | None:
        record = self.store.get(HUB, ObjectKey(kind.storage, namespace, name))
        return decode(record.body) if record is not None else None

    async def _ensure(self, kind: KindInfo[Any], namespace: str, obj: JsonObject) -> bool:
        """Whether it had to be made."""
        if self._object(kind, namespace, obj["metadata"]["name"]) is not None:
            return False
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        await self._sent("POST", _path(kind, namespace), whole)
        return True

    async def _put(self, kind: KindInfo[Any], namespace: str, obj: JsonObject) -> None:
        if not await self._ensure(kind, namespace, obj):
            path = f"{_path(kind, namespace)}/{obj['metadata']['name']}"
            await self._sent("PATCH", path, obj, MERGE_PATCH)

    async def _sent(self, method: str, path: str, body: JsonObject, content: str = JSON) -> None:
        headers = {"content-type": content, "user-agent": "cell-registrar"}
        response = await self.send(Request(method, path, {}, headers, encode(body)))
        if response.status >= 300:
            raise from_status(response.status, decode(response.body))


def _check(spec: CellJoinSpec, requested: SigningRequest | None, *, renews: bool) -> None:
    found = []
    try:
        cell_plane(spec.cell)
    except ValueError as error:
        found.append(field_error("spec.cell", spec.cell, str(error)))
    if requested is None:
        why = "must be a certificate signing request (PEM), signed by its own P-256 key"
        found.append(Cause("spec.request", "FieldValueInvalid", f"Invalid value: {why}"))
    if not renews:
        found += _membership_problems(spec)
    found += _address_problems(spec)
    if found:
        raise invalid(CELL_JOIN, spec.cell, found)


def _membership_problems(spec: CellJoinSpec) -> list[Cause]:
    found = []
    for field in ("city", "endpoint", "hub_token"):
        if not getattr(spec, field):
            name = {"hub_token": "hubToken"}.get(field, field)
            found.append(Cause(f"spec.{name}", "FieldValueRequired", "Required value"))
    if spec.city and not normalize_city(spec.city).isalnum():
        why = "must be the code of a city, such as DFW"
        found.append(field_error("spec.city", spec.city, why))
    return found


def _address_problems(spec: CellJoinSpec) -> list[Cause]:
    if not spec.endpoint or _is_https_address(spec.endpoint):
        return []
    return [field_error("spec.endpoint", spec.endpoint, "must be an https address")]


def _is_https_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets or a port that are none
        return False


def _secret(spec: CellJoinSpec) -> JsonObject:
    """In the form that Karmada keeps it."""
    data = {"token": spec.hub_token, "caBundle": spec.authority}
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
    return {"metadata": {"name": spec.cell}, "type": "Opaque", "data": encoded}


def _cluster(spec: CellJoinSpec, requested: SigningRequest) -> JsonObject:
    return {
        "metadata": {
            "name": spec.cell,
            "labels": {TOPOLOGY_CITY: normalize_city(spec.city)},
            "annotations": {KEY_HASH: requested.key_hash},
            "finalizers": [CLUSTER_FINALIZER],
        },
        "spec": {
            "syncMode": "Push",
            "apiEndpoint": spec.endpoint,
            "secretRef": {"namespace": CREDENTIALS_NAMESPACE, "name": spec.cell},
        },
    }


def _path(kind: KindInfo[Any], namespace: str) -> str:
    start = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{path_prefix(HUB)}{start}{within}/{kind.plural}"


def _refused(user: User, why: str) -> Forbidden:
    more = "make another: datumctl compute cell token"
    return Forbidden(f'User "{user.name}" cannot join a cell: {why}; {more}')


# --- Join tokens as a proof of who calls. It only says that the holder knows the secret of a
# JoinToken of the hub; whether that token still opens anything is for the joining itself to say, so
# that its
# holder hears why not.


def authenticate_join_token(store: Store, token: str) -> User | None:
    """The holder of a join token; None for any other text."""
    name = join_token_name(token)
    if not name:
        return None
    try:
        record = store.get(HUB, ObjectKey(JOIN_TOKEN.storage, "", name))
    except NotFound:
        return None
    if record is None:
        return None
    kept: str = decode(record.body)["spec"]["tokenHash"]
    shown = hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
    if not hmac.compare_digest(kept, shown):
        return None
    return authenticated(User(join_token_user(name), (JOINERS_GROUP,), frozenset({HUB})))
