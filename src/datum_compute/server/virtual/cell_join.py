"""Lets cells join: a join token and a key become a Cluster, credentials and a certificate.

A cell that has joined renews its certificate through the same kind, authenticated by the
certificate itself. It can then also send a new token and a new address for the hub.

Rules:
- Everything is checked before the first write, so a rejected join changes nothing.
- The first write assigns the token to the key of the request. From then on only the holder of that
  key can use the token, so a join whose response was lost can be repeated.
- The Cluster is written last. Without it the other objects have no effect.
- A cell name belongs to the key that joined with it, unless the token is for that very name.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from datum_compute.admission.findings import invalid
from datum_compute.api.errors import Cause, Forbidden, MethodNotAllowed, from_status
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
    join_token_of_user,
)
from datum_compute.api.meta.codec import JsonObject, decode, encode, from_json
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import (
    HUB,
    cell_plane,
    execution_namespace,
    normalize_city,
    path_prefix,
)
from datum_compute.server.access.authentication import EVERY_PLANE, MASTERS, User
from datum_compute.server.access.client_certificates import (
    Certify,
    SigningRequest,
    read_signing_request,
)
from datum_compute.server.encoding.request_options import parse_dry_run
from datum_compute.server.encoding.responses import conflict, json_response
from datum_compute.server.routing import ApiRequest
from datum_compute.server.virtual.reviews import read_review
from datum_compute.store.journal import ObjectKey
from datum_compute.store.store import Store

# The user that writes objects of the hub for a join. No token or certificate has this identity.
REGISTRAR = User("system:cell-registrar", (MASTERS,), frozenset({EVERY_PLANE}))

Send = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class CellJoinHandler:
    """``send`` runs a request as REGISTRAR."""

    store: Store
    clock: Callable[[], float]
    send: Send
    certify: Certify | None

    async def handle(self, request: ApiRequest) -> Response:
        if self.certify is None or request.plane != HUB:
            raise MethodNotAllowed(
                "cells join on the hub plane of a platform that has a certificate authority"
            )
        obj, headers = read_review(request, request.resource)
        spec = from_json(obj["spec"], CellJoinSpec)
        signing_request = read_signing_request(spec.request)
        user = request.user
        is_renewal = cell_of_user(user.name) == spec.cell and CELLS_GROUP in user.groups
        _validate(spec, signing_request, is_renewal=is_renewal)
        assert signing_request is not None
        if is_renewal:
            _check_renewal(request, signing_request)
            if not parse_dry_run(request.query):
                await self._update_endpoint(spec)
        else:
            await self._join(request, spec, signing_request)
        issued = self.certify(signing_request, cell_user_of(spec.cell), (CELLS_GROUP,))
        status = {
            "certificate": issued.certificate,
            "authority": issued.authority,
            "expiresAt": timestamp(issued.until_s),
        }
        # The response does not repeat the token of the hub.
        public_spec = {"cell": spec.cell, "city": spec.city, "request": spec.request}
        metadata = {"creationTimestamp": None}
        response = {**obj, "spec": public_spec, "metadata": metadata, "status": status}
        return json_response(response, status=201, headers=headers)

    async def _update_endpoint(self, spec: CellJoinSpec) -> None:
        """Store the token and the address with which the hub reaches the cell from now on."""
        if spec.hub_token:
            data = {"token": base64.b64encode(spec.hub_token.encode()).decode()}
            await self._patch_existing(SECRET, CREDENTIALS_NAMESPACE, spec.cell, {"data": data})
        if spec.endpoint:
            address = {"spec": {"apiEndpoint": spec.endpoint}}
            await self._patch_existing(CLUSTER, "", spec.cell, address)

    async def _patch_existing(
        self, kind: KindInfo[Any], namespace: str, name: str, patch: JsonObject
    ) -> None:
        """Patch an object, unless it was deleted because the cell is leaving."""
        if self._get(kind, namespace, name) is not None:
            await self._send("PATCH", _path(kind, namespace, name), patch, MERGE_PATCH)

    async def _join(
        self, request: ApiRequest, spec: CellJoinSpec, signing_request: SigningRequest
    ) -> None:
        token = self._check_token(request.user, spec, signing_request)
        self._check_name(spec, signing_request, is_named=token["spec"].get("cell") == spec.cell)
        self._check_city(spec)
        if parse_dry_run(request.query):
            return
        await self._claim_token(token, spec, signing_request)
        namespace = {"metadata": {"name": execution_namespace(spec.cell)}}
        await self._create_missing(NAMESPACE, "", namespace)
        await self._put(SECRET, CREDENTIALS_NAMESPACE, _build_secret(spec))
        await self._put(CLUSTER, "", _build_cluster(spec, signing_request))

    def _check_token(
        self, user: User, spec: CellJoinSpec, signing_request: SigningRequest
    ) -> JsonObject:
        """Return the join token of the caller. Raise Forbidden if this cell cannot join with it."""
        name = join_token_of_user(user.name)
        token = self._get(JOIN_TOKEN, "", name) if JOINERS_GROUP in user.groups else None
        if token is None:
            raise _forbidden(user, "the request is not authenticated by a join token")
        expires_at = token["spec"]["expiresAt"]
        if self.clock() >= datetime.fromisoformat(expires_at).timestamp():
            raise _forbidden(user, f"the join token has expired: it was valid until {expires_at}")
        token_cell = token["spec"].get("cell", "")
        if token_cell not in ("", spec.cell):
            raise _forbidden(user, f"the join token is for cell {token_cell}")
        status = token.get("status", {})
        is_other_key = status.get("keyHash", signing_request.key_hash) != signing_request.key_hash
        if is_other_key or status.get("usedBy", "") not in ("", spec.cell):
            used_by, used_at = status.get("usedBy"), status.get("usedAt")
            raise _forbidden(user, f"the join token was used by cell {used_by} at {used_at}")
        return token

    def _check_name(
        self, spec: CellJoinSpec, signing_request: SigningRequest, *, is_named: bool
    ) -> None:
        """Raise Conflict if another cell has the name. ``is_named``: the token is for the name."""
        cluster = self._get(CLUSTER, "", spec.cell)
        if cluster is None:
            return
        metadata = cluster["metadata"]
        if "deletionTimestamp" in metadata:
            raise conflict(CLUSTER, spec.cell, "a cell of that name is leaving")
        key_hash = metadata.get("annotations", {}).get(KEY_HASH)
        if key_hash != signing_request.key_hash and not is_named:
            why = (
                "a cell of that name has joined with another key; let it leave first, or create "
                f"a token for it: datumctl compute cell token --cell {spec.cell}"
            )
            raise conflict(CLUSTER, spec.cell, why)

    def _check_city(self, spec: CellJoinSpec) -> None:
        city = normalize_city(spec.city)
        for record in self.store.snapshot(HUB, CLUSTER.storage, None).records:
            other = decode(record.body)["metadata"]
            if other["name"] != spec.cell and other.get("labels", {}).get(TOPOLOGY_CITY) == city:
                why = f"city {city} is served by cell {other['name']}; a city has one cell"
                raise conflict(CLUSTER, spec.cell, why)

    async def _claim_token(
        self, token: JsonObject, spec: CellJoinSpec, signing_request: SigningRequest
    ) -> None:
        """Assign the token to the key. Of two concurrent joins one gets a conflict."""
        if token.get("status", {}).get("keyHash"):
            return
        now = timestamp(self.clock())
        status = {"usedBy": spec.cell, "keyHash": signing_request.key_hash, "usedAt": now}
        metadata = {"resourceVersion": token["metadata"]["resourceVersion"]}
        path = f"{_path(JOIN_TOKEN, '', token['metadata']['name'])}/status"
        await self._send("PATCH", path, {"metadata": metadata, "status": status}, MERGE_PATCH)

    # --- Objects of the hub

    def _get(self, kind: KindInfo[Any], namespace: str, name: str) -> JsonObject | None:
        record = self.store.get(HUB, ObjectKey(kind.storage, namespace, name))
        return decode(record.body) if record is not None else None

    async def _create_missing(self, kind: KindInfo[Any], namespace: str, obj: JsonObject) -> bool:
        """Create the object. Return False if it exists already."""
        if self._get(kind, namespace, obj["metadata"]["name"]) is not None:
            return False
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        await self._send("POST", _path(kind, namespace), whole)
        return True

    async def _put(self, kind: KindInfo[Any], namespace: str, obj: JsonObject) -> None:
        """Create the object, or patch it if it exists."""
        if not await self._create_missing(kind, namespace, obj):
            path = _path(kind, namespace, obj["metadata"]["name"])
            await self._send("PATCH", path, obj, MERGE_PATCH)

    async def _send(self, method: str, path: str, body: JsonObject, content: str = JSON) -> None:
        headers = {"content-type": content, "user-agent": "cell-registrar"}
        response = await self.send(Request(method, path, {}, headers, encode(body)))
        if response.status >= 300:
            raise from_status(response.status, decode(response.body))


def _check_renewal(request: ApiRequest, signing_request: SigningRequest) -> None:
    """Raise Forbidden for another key: the Cluster names the key with which the cell joined."""
    if dict(request.user.extra).get(KEY_HASH) != (signing_request.key_hash,):
        why = "a certificate can only be renewed for the key with which the cell joined"
        raise _forbidden(request.user, why)


def _validate(
    spec: CellJoinSpec, signing_request: SigningRequest | None, *, is_renewal: bool
) -> None:
    causes = []
    try:
        cell_plane(spec.cell)
    except ValueError as error:
        causes.append(Cause.invalid("spec.cell", str(error), spec.cell))
    if signing_request is None:
        why = "must be a certificate signing request (PEM), signed by its own P-256 key"
        causes.append(Cause.invalid("spec.request", why))
    if not is_renewal:
        causes += _validate_new_cell(spec)
    if spec.endpoint and not _is_https_address(spec.endpoint):
        causes.append(Cause.invalid("spec.endpoint", "must be an https address", spec.endpoint))
    if causes:
        raise invalid(CELL_JOIN, spec.cell, causes)


def _validate_new_cell(spec: CellJoinSpec) -> list[Cause]:
    causes = []
    for field in ("city", "endpoint", "hub_token"):
        if not getattr(spec, field):
            name = {"hub_token": "hubToken"}.get(field, field)
            causes.append(Cause.required(f"spec.{name}"))
    if spec.city and not normalize_city(spec.city).isalnum():
        why = "must be the code of a city, such as DFW"
        causes.append(Cause.invalid("spec.city", why, spec.city))
    return causes


def _is_https_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:  # invalid brackets or port
        return False


def _build_secret(spec: CellJoinSpec) -> JsonObject:
    """Return the Secret with the credentials of the hub, in the form that Karmada expects."""
    data = {"token": spec.hub_token, "caBundle": spec.authority}
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
    return {"metadata": {"name": spec.cell}, "type": "Opaque", "data": encoded}


def _build_cluster(spec: CellJoinSpec, signing_request: SigningRequest) -> JsonObject:
    return {
        "metadata": {
            "name": spec.cell,
            "labels": {TOPOLOGY_CITY: normalize_city(spec.city)},
            "annotations": {KEY_HASH: signing_request.key_hash},
            "finalizers": [CLUSTER_FINALIZER],
        },
        "spec": {
            "syncMode": "Push",
            "apiEndpoint": spec.endpoint,
            "secretRef": {"namespace": CREDENTIALS_NAMESPACE, "name": spec.cell},
        },
    }


def _path(kind: KindInfo[Any], namespace: str, name: str = "") -> str:
    return path_prefix(HUB) + kind.path(Ref(namespace, name))


def _forbidden(user: User, why: str) -> Forbidden:
    hint = "create another one: datumctl compute cell token"
    return Forbidden(f'User "{user.name}" cannot join a cell: {why}; {hint}')
