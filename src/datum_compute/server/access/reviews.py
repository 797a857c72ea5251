"""Answers to reviews: may this user do that, who am I, whose token is this; and tokens.

Nothing is stored. To add a review: a function from (desk, call, spec) to its status, listed in
``_ANSWERS``, and its kind in ``api/reviews.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute.admission.findings import invalid
from datum_compute.api import reviews as kinds
from datum_compute.api.errors import Cause, MethodNotAllowed
from datum_compute.api.http import Response
from datum_compute.api.meta.codec import JsonObject, decode, from_json
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.reviews import TOKEN_REQUEST, TokenRequestSpec
from datum_compute.api.schema.validate import Report
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import User
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.access.rbac_rules import Rule
from datum_compute.server.access.request_authenticator import RequestAuthenticator
from datum_compute.server.access.service_accounts import ISSUER, Account, AccountTokens
from datum_compute.server.context import ServerContext
from datum_compute.server.discovery.resources import ServedResource, served_review
from datum_compute.server.encoding.body import decoded_body
from datum_compute.server.encoding.request_options import dry_run, field_validation
from datum_compute.server.encoding.responses import (
    conflict,
    field_error,
    field_forbidden,
    json_answer,
    not_found,
)
from datum_compute.server.routing import ResourceRequest
from datum_compute.server.verbs.prepare import check_type_meta

GROUPS_MAX = 1000  # of the user that a review asks about
RULE_VALUES_MAX = 50_000  # verbs, groups, resources, names and paths in the response to a review


@dataclass(frozen=True, slots=True)
class ReviewHandler:
    """What reviews are answered from."""

    gate: RequestAuthenticator
    authorizer: Authorizer


def review(desk: ReviewHandler, call: ResourceRequest) -> Response:
    obj, headers = read_review(call, call.served)
    dry_run(call.query)  # nothing is stored anyway; a value that makes no sense is refused
    status = _ANSWERS[call.kind.kind](desk, call, obj)
    metadata: JsonObject = {"creationTimestamp": None}
    if call.route.namespace:
        metadata["namespace"] = call.route.namespace
    answered = {**obj, "metadata": metadata, "status": status}
    return json_answer(answered, status=201, headers=headers)


def read_review(call: ResourceRequest, served: ServedResource) -> tuple[JsonObject, dict[str, str]]:
    """The object as sent, checked by the schema of its kind; headers warn of unknown fields."""
    body = check_type_meta(served.kind, decoded_body(call.request))
    report = Report()
    obj = served.check_main(body, "", report)
    validation = field_validation(call.query, call.request.body)
    headers = validation.enforce(served.kind, tuple(report.unknown))
    if report.errors:
        raise invalid(served.kind, "", report.errors)
    return obj, headers


def user_info(user: User) -> JsonObject:
    info: JsonObject = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra}
    return info


def _self_review(_desk: ReviewHandler, call: ResourceRequest, _obj: JsonObject) -> JsonObject:
    return {"userInfo": user_info(call.user)}


def _self_access(desk: ReviewHandler, call: ResourceRequest, obj: JsonObject) -> JsonObject:
    spec = from_json(obj.get("spec", {}), kinds.SelfAccessSpec)
    wanted = _wanted(call.kind, spec.resource_attributes, spec.non_resource_attributes)
    return {"allowed": desk.authorizer.allows(call.user, call.plane, wanted, cache=False)}


def _access(desk: ReviewHandler, call: ResourceRequest, obj: JsonObject) -> JsonObject:
    spec = from_json(obj.get("spec", {}), kinds.AccessSpec)
    wanted = _wanted(call.kind, spec.resource_attributes, spec.non_resource_attributes)
    if not spec.user and not spec.groups:
        raise _required(call.kind, "spec.user", "at least one of user or group must be specified")
    if len(spec.groups) > GROUPS_MAX:
        why = f"Too many: {len(spec.groups)}: must have at most {GROUPS_MAX} items"
        cause = Cause("spec.groups", "FieldValueTooMany", why)
        raise invalid(call.kind, "", [cause])
    user = User(spec.user, tuple(spec.groups), frozenset({call.plane}))
    return {"allowed": desk.authorizer.allows(user, call.plane, wanted, cache=False)}


def _local_access(desk: ReviewHandler, call: ResourceRequest, obj: JsonObject) -> JsonObject:
    spec = from_json(obj.get("spec", {}), kinds.AccessSpec)
    attributes, namespace = spec.resource_attributes, call.route.namespace
    if attributes is None:
        raise _required(call.kind, "spec.resourceAttributes", "may not be empty")
    if attributes.namespace != namespace:
        why = f"must be the namespace of the request, {namespace}"
        field = "spec.resourceAttributes.namespace"
        raise invalid(call.kind, "", [field_error(field, attributes.namespace, why)])
    return _access(desk, call, obj)


def _self_rules(desk: ReviewHandler, call: ResourceRequest, obj: JsonObject) -> JsonObject:
    namespace = obj.get("spec", {}).get("namespace", "")
    if not namespace:
        raise _required(call.kind, "spec.namespace", "no namespace on request")
    held = desk.authorizer.rules_of(call.user, call.plane, namespace)
    distinct = list(dict.fromkeys(held[:RULE_VALUES_MAX]))  # each rule has at least one value
    rules = _first_rules(distinct)
    is_complete = len(rules) == len(distinct) and len(held) <= RULE_VALUES_MAX
    return {
        "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
        "nonResourceRules": [
            {"verbs": sorted(rule.verbs), "nonResourceURLs": list(rule.paths)}
            for rule in rules
            if rule.paths
        ],
        "incomplete": not is_complete,
    }


def _first_rules(rules: Sequence[Rule]) -> Sequence[Rule]:
    """Return the rules up to RULE_VALUES_MAX values."""
    values = 0
    for index, rule in enumerate(rules):
        values += len(rule.verbs) + len(rule.groups) + len(rule.resources)
        values += len(rule.names) + len(rule.paths)
        if values > RULE_VALUES_MAX:
            return rules[:index]
    return rules


def _token_review(desk: ReviewHandler, call: ResourceRequest, obj: JsonObject) -> JsonObject:
    spec = from_json(obj.get("spec", {}), kinds.TokenReviewSpec)
    if not spec.token:
        raise _required(call.kind, "spec.token", "may not be empty")
    obj["spec"] = {**obj["spec"], "token": ""}  # what was sent in need not be sent back
    found = desk.gate.user_of_token(spec.token, spec.audiences or [ISSUER])
    if found is None or not found.user.may_reach(call.plane):
        return {"authenticated": False, "error": "the token is not valid on this plane"}
    return {
        "authenticated": True,
        "user": user_info(found.user),
        "audiences": list(found.audiences),
    }


_ANSWERS: dict[str, Callable[[ReviewHandler, ResourceRequest, JsonObject], JsonObject]] = {
    kinds.SUBJECT_ACCESS_REVIEW.kind: _access,
    kinds.LOCAL_ACCESS_REVIEW.kind: _local_access,
    kinds.SELF_ACCESS_REVIEW.kind: _self_access,
    kinds.SELF_RULES_REVIEW.kind: _self_rules,
    kinds.SELF_REVIEW.kind: _self_review,
    kinds.TOKEN_REVIEW.kind: _token_review,
}


def _wanted(
    kind: KindInfo[Any],
    resource: kinds.ResourceAttributes | None,
    path: kinds.NonResourceAttributes | None,
) -> Attributes:
    if (resource is None) == (path is None):
        why = "exactly one of resourceAttributes and nonResourceAttributes must be specified"
        raise _required(kind, "spec.resourceAttributes", why)
    if path is not None:
        if not path.path:
            raise _required(kind, "spec.nonResourceAttributes.path", "may not be empty")
        return Attributes(path.verb, path=path.path)
    assert resource is not None
    return Attributes(
        resource.verb,
        resource.group,
        resource.resource,
        resource.subresource,
        resource.namespace,
        resource.name,
    )


def _resource_rule(rule: Rule) -> JsonObject:
    shown = {
        "verbs": sorted(rule.verbs),
        "apiGroups": sorted(rule.groups),
        "resources": sorted(rule.resources),
    }
    return {**shown, "resourceNames": sorted(rule.names)} if rule.names else shown


def _required(kind: KindInfo[Any], field: str, why: str) -> Exception:
    cause = Cause(field, "FieldValueRequired", f"Required value: {why}")
    return invalid(kind, "", [cause])


# --- POST to ``serviceaccounts/<name>/token``: a signed token for a service account


LIFETIME_MIN_S, LIFETIME_MAX_S = 600, 24 * 3600
_AUDIENCES_MAX = 16
_SERVED = served_review(TOKEN_REQUEST)


def token_request(
    ports: ServerContext, tokens: AccountTokens | None, call: ResourceRequest
) -> Response:
    if tokens is None:
        raise MethodNotAllowed("this server has no key to sign tokens with")
    obj, headers = read_review(call, _SERVED)
    spec = from_json(obj.get("spec", {}), TokenRequestSpec)
    causes = _problems(spec)
    if causes:
        raise invalid(TOKEN_REQUEST, call.route.name, causes)
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


def _account(ports: ServerContext, call: ResourceRequest) -> Account:
    record = ports.store.get(call.plane, call.key)
    if record is None:
        raise not_found(call.kind, call.route.name)
    if "deletionTimestamp" in decode(record.body)["metadata"]:
        raise conflict(call.kind, call.route.name, "it is being deleted")
    return Account(call.plane, record.key.namespace, record.key.name, record.uid)


def _problems(spec: TokenRequestSpec) -> list[Cause]:
    found = []
    seconds = spec.expiration_seconds
    if not LIFETIME_MIN_S <= seconds <= LIFETIME_MAX_S:
        why = f"must be between {LIFETIME_MIN_S} (10 minutes) and {LIFETIME_MAX_S} (24 hours)"
        found.append(field_error("spec.expirationSeconds", str(seconds), why))
    if spec.bound_object_ref is not None:
        why = "tokens are bound to their service account only"
        found.append(field_forbidden("spec.boundObjectRef", why))
    if len(spec.audiences) > _AUDIENCES_MAX or not all(spec.audiences):
        why = f"must be at most {_AUDIENCES_MAX} names, none of them empty"
        found.append(field_error("spec.audiences", str(len(spec.audiences)), why))
    return found
