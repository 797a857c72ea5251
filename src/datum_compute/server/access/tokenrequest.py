"""POST to ``serviceaccounts/<name>/token``: a signed token for a service account."""

from __future__ import annotations

from datum_compute.api.errors import Cause, MethodNotAllowed
from datum_compute.api.http import Response
from datum_compute.api.meta.codec import JsonObject, decode, typed
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.reviews import TOKEN_REQUEST, TokenRequestSpec
from datum_compute.server import problems
from datum_compute.server.access.reviews import read_review
from datum_compute.server.access.service_accounts import ISSUER, Account, AccountTokens
from datum_compute.server.call import Call
from datum_compute.server.discovery.resources import served_review
from datum_compute.server.encoding.responses import json_answer
from datum_compute.server.options import dry_run
from datum_compute.server.ports import Ports

LIFETIME_MIN_S, LIFETIME_MAX_S = 600, 24 * 3600
_AUDIENCES_MAX = 16
_SERVED = served_review(TOKEN_REQUEST)


def token_request(ports: Ports, tokens: AccountTokens | None, call: Call) -> Response:
    if tokens is None:
        raise MethodNotAllowed("this server has no key to sign tokens with")
    obj, headers = read_review(call, _SERVED)
    spec = typed(obj.get("spec", {}), TokenRequestSpec)
    causes = _problems(spec)
    if causes:
        raise problems.invalid(TOKEN_REQUEST, call.route.name, causes)
    account = _account(ports, call)
    audiences = spec.audiences or [ISSUER]
    status: JsonObject = {"token": "", "expirationTimestamp": None}
    if not dry_run(call.query):
        token, until_s = tokens.issued(account, audiences, spec.expiration_seconds, ports.new_uid())
        status = {"token": token, "expirationTimestamp": timestamp(until_s)}
    answer = {
        "kind": TOKEN_REQUEST.kind,
        "apiVersion": TOKEN_REQUEST.api_version,
        "metadata": {
            "name": account.name,
            "namespace": account.namespace,
            "creationTimestamp": timestamp(ports.clock()),
        },
        "spec": {
            "audiences": audiences,
            "expirationSeconds": spec.expiration_seconds,
            "boundObjectRef": None,
        },
        "status": status,
    }
    return json_answer(answer, status=201, headers=headers)


def _account(ports: Ports, call: Call) -> Account:
    record = ports.store.get(call.plane, call.key)
    if record is None:
        raise problems.not_found(call.kind, call.route.name)
    if "deletionTimestamp" in decode(record.body)["metadata"]:
        raise problems.conflict(call.kind, call.route.name, "it is being deleted")
    return Account(call.plane, record.key.namespace, record.key.name, record.uid)


def _problems(spec: TokenRequestSpec) -> list[Cause]:
    found = []
    seconds = spec.expiration_seconds
    if not LIFETIME_MIN_S <= seconds <= LIFETIME_MAX_S:
        why = f"must be between {LIFETIME_MIN_S} (10 minutes) and {LIFETIME_MAX_S} (24 hours)"
        found.append(problems.field_error("spec.expirationSeconds", str(seconds), why))
    if spec.bound_object_ref is not None:
        why = "tokens are bound to their service account only"
        found.append(problems.field_forbidden("spec.boundObjectRef", why))
    if len(spec.audiences) > _AUDIENCES_MAX or not all(spec.audiences):
        why = f"must be at most {_AUDIENCES_MAX} names, none of them empty"
        found.append(problems.field_error("spec.audiences", str(len(spec.audiences)), why))
    return found
