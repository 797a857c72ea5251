"""Responds to access reviews, self-subject reviews and token reviews.

Nothing is stored. To add a review: a function that returns its status, listed in ``_REVIEWS``, and
its kind in ``api/reviews.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute.admission.findings import invalid
from datum_compute.api import reviews as kinds
from datum_compute.api.errors import Cause, Invalid
from datum_compute.api.http import Response
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.validate import ValidationReport
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import User
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.access.rbac_rules import Rule
from datum_compute.server.access.request_authenticator import RequestAuthenticator
from datum_compute.server.access.service_accounts import ISSUER
from datum_compute.server.discovery.resources import ServedResource
from datum_compute.server.encoding.body import decode_body
from datum_compute.server.encoding.request_options import parse_dry_run, parse_field_validation
from datum_compute.server.encoding.responses import json_response
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs.prepare import check_type_meta

GROUPS_MAX = 1000  # of the user in a review
RULE_VALUES_MAX = 50_000  # verbs, groups, resources, names and paths in the response to a review


@dataclass(frozen=True, slots=True)
class ReviewHandler:
    authenticator: RequestAuthenticator
    authorizer: Authorizer

    async def handle(self, request: ApiRequest) -> Response:
        obj, headers = read_review(request, request.resource)
        parse_dry_run(request.query)  # rejects an invalid value; nothing is stored anyway
        status = _REVIEWS[request.kind.kind](self, request, obj)
        metadata: JsonObject = {"creationTimestamp": None}
        if request.route.namespace:
            metadata["namespace"] = request.route.namespace
        review = {**obj, "metadata": metadata, "status": status}
        return json_response(review, status=201, headers=headers)


def read_review(request: ApiRequest, resource: ServedResource) -> tuple[JsonObject, dict[str, str]]:
    """Return the validated object of a request, and headers that warn about unknown fields."""
    body = check_type_meta(resource.kind, decode_body(request.http))
    report = ValidationReport()
    obj = resource.check_main(body, "", report)
    validation = parse_field_validation(request.query, request.http.body)
    headers = validation.enforce(resource.kind, tuple(report.unknown))
    if report.errors:
        raise invalid(resource.kind, "", report.errors)
    return obj, headers


def user_info(user: User) -> JsonObject:
    info: JsonObject = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra}
    return info


def _self_review(_handler: ReviewHandler, request: ApiRequest, _obj: JsonObject) -> JsonObject:
    return {"userInfo": user_info(request.user)}


def _self_access(handler: ReviewHandler, request: ApiRequest, obj: JsonObject) -> JsonObject:
    spec = from_json(obj.get("spec", {}), kinds.SelfAccessSpec)
    attributes = _reviewed_attributes(
        request.kind, spec.resource_attributes, spec.non_resource_attributes
    )
    return {
        "allowed": handler.authorizer.allows(request.user, request.plane, attributes, cache=False)
    }


def _access(handler: ReviewHandler, request: ApiRequest, obj: JsonObject) -> JsonObject:
    spec = from_json(obj.get("spec", {}), kinds.AccessSpec)
    attributes = _reviewed_attributes(
        request.kind, spec.resource_attributes, spec.non_resource_attributes
    )
    if not spec.user and not spec.groups:
        raise _required(
            request.kind, "spec.user", "at least one of user or group must be specified"
        )
    if len(spec.groups) > GROUPS_MAX:
        why = f"must have at most {GROUPS_MAX} items"
        raise invalid(request.kind, "", [Cause.too_many("spec.groups", why, len(spec.groups))])
    user = User(spec.user, tuple(spec.groups), frozenset({request.plane}))
    return {"allowed": handler.authorizer.allows(user, request.plane, attributes, cache=False)}


def _local_access(handler: ReviewHandler, request: ApiRequest, obj: JsonObject) -> JsonObject:
    spec = from_json(obj.get("spec", {}), kinds.AccessSpec)
    attributes, namespace = spec.resource_attributes, request.route.namespace
    if attributes is None:
        raise _required(request.kind, "spec.resourceAttributes", "may not be empty")
    if attributes.namespace != namespace:
        why = f"must be the namespace of the request, {namespace}"
        field = "spec.resourceAttributes.namespace"
        raise invalid(request.kind, "", [Cause.invalid(field, why, attributes.namespace)])
    return _access(handler, request, obj)


def _self_rules(handler: ReviewHandler, request: ApiRequest, obj: JsonObject) -> JsonObject:
    namespace = obj.get("spec", {}).get("namespace", "")
    if not namespace:
        raise _required(request.kind, "spec.namespace", "no namespace on request")
    held = handler.authorizer.rules_of(request.user, request.plane, namespace)
    distinct = list(dict.fromkeys(held[:RULE_VALUES_MAX]))  # each rule has at least one value
    rules = _limit_rules(distinct)
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


def _limit_rules(rules: Sequence[Rule]) -> Sequence[Rule]:
    """Return the first rules, with at most RULE_VALUES_MAX values."""
    values = 0
    for index, rule in enumerate(rules):
        values += len(rule.verbs) + len(rule.groups) + len(rule.resources)
        values += len(rule.names) + len(rule.paths)
        if values > RULE_VALUES_MAX:
            return rules[:index]
    return rules


def _token_review(handler: ReviewHandler, request: ApiRequest, obj: JsonObject) -> JsonObject:
    spec = from_json(obj.get("spec", {}), kinds.TokenReviewSpec)
    if not spec.token:
        raise _required(request.kind, "spec.token", "may not be empty")
    obj["spec"] = {**obj["spec"], "token": ""}  # do not send the token back
    token_user = handler.authenticator.user_of_token(spec.token)
    audiences: list[str] = []
    if token_user is not None and token_user.user.may_reach(request.plane):
        requested = spec.audiences or [ISSUER]
        audiences = [audience for audience in requested if audience in token_user.audiences]
    if token_user is None or not audiences:
        return {"authenticated": False, "error": "the token is not valid on this plane"}
    return {"authenticated": True, "user": user_info(token_user.user), "audiences": audiences}


_REVIEWS: dict[str, Callable[[ReviewHandler, ApiRequest, JsonObject], JsonObject]] = {
    kinds.SUBJECT_ACCESS_REVIEW.kind: _access,
    kinds.LOCAL_ACCESS_REVIEW.kind: _local_access,
    kinds.SELF_ACCESS_REVIEW.kind: _self_access,
    kinds.SELF_RULES_REVIEW.kind: _self_rules,
    kinds.SELF_REVIEW.kind: _self_review,
    kinds.TOKEN_REVIEW.kind: _token_review,
}


def _reviewed_attributes(
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
    resource_rule: JsonObject = {
        "verbs": sorted(rule.verbs),
        "apiGroups": sorted(rule.groups),
        "resources": sorted(rule.resources),
    }
    if rule.names:
        resource_rule["resourceNames"] = sorted(rule.names)
    return resource_rule


def _required(kind: KindInfo[Any], field: str, why: str) -> Invalid:
    return invalid(kind, "", [Cause.required(field, why)])
