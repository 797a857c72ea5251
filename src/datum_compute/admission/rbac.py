"""Rules for roles and bindings: a rule says what it is about, a subject is one we know, and what
a binding gives cannot be changed under those who were given it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Cause
from datum_compute.api.role import RBAC_GROUP

_SUBJECTS = {"User": RBAC_GROUP, "Group": RBAC_GROUP, "ServiceAccount": ""}
_ROLES = ("Role", "ClusterRole")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def with_api_groups(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """Clients may leave out the groups that follow from the kind."""
    subjects = [
        {**subject, "apiGroup": _SUBJECTS[subject["kind"]]}
        if _SUBJECTS.get(subject["kind"]) and not subject.get("apiGroup")
        else subject
        for subject in new.get("subjects", ())
    ]
    reference = {"apiGroup": RBAC_GROUP, **new["roleRef"]}
    return {**new, "roleRef": reference, **({"subjects": subjects} if subjects else {})}


def role_rules_are_complete(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Of a Role: inside a namespace there are no paths to speak of."""
    yield from rules_are_complete(new, old)
    for index, rule in enumerate(new.get("rules", ())):
        if rule.get("nonResourceURLs"):
            why = "namespaced rules cannot apply to non-resource URLs"
            yield _invalid(f"rules[{index}].nonResourceURLs", rule["nonResourceURLs"], why)


def rules_are_complete(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for index, rule in enumerate(new.get("rules", ())):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield _required(f"{path}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            if any(rule.get(part) for part in ("apiGroups", "resources", "resourceNames")):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                yield _invalid(f"{path}.nonResourceURLs", rule["nonResourceURLs"], why)
            yield from _bad_paths(f"{path}.nonResourceURLs", rule["nonResourceURLs"])
            continue
        for part in ("apiGroups", "resources"):
            if not rule.get(part):
                why = "resource rules must supply at least one " + part.removesuffix("s")
                yield _required(f"{path}.{part}", why)


def selectors_are_complete(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    aggregation = new.get("aggregationRule")
    if aggregation is None:
        return
    path = "aggregationRule.clusterRoleSelectors"
    if not aggregation.get("clusterRoleSelectors"):
        yield _required(path, "at least one clusterRoleSelector required if aggregationRule is set")
    for index, selector in enumerate(aggregation.get("clusterRoleSelectors", ())):
        for position, expression in enumerate(selector.get("matchExpressions", ())):
            if expression["operator"] not in _OPERATORS:
                where = f"{path}[{index}].matchExpressions[{position}].operator"
                yield _unsupported(where, expression["operator"], _OPERATORS)


def subjects_are_known(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for index, subject in enumerate(new.get("subjects", ())):
        path, kind = f"subjects[{index}]", subject["kind"]
        if not subject["name"]:
            yield _required(f"{path}.name", "")
        if kind not in _SUBJECTS:
            yield _unsupported(f"{path}.kind", kind, tuple(_SUBJECTS))
        elif subject.get("apiGroup", "") != _SUBJECTS[kind]:
            yield _unsupported(f"{path}.apiGroup", subject["apiGroup"], (_SUBJECTS[kind],))
        elif kind == "ServiceAccount" and not subject.get("namespace"):
            yield _required(f"{path}.namespace", "")


def role_is_known(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _bad_reference(new, _ROLES)


def cluster_role_is_known(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _bad_reference(new, ("ClusterRole",))


def role_is_immutable(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    if old is not None and new["roleRef"] != old["roleRef"]:
        shown = f"{new['roleRef']['kind']} {new['roleRef']['name']}"
        why = "cannot change roleRef; delete the binding and create another"
        yield _invalid("roleRef", shown, why)


def _bad_reference(new: JsonObject, kinds: tuple[str, ...]) -> Iterator[Cause]:
    reference = new["roleRef"]
    if reference.get("apiGroup") != RBAC_GROUP:
        yield _unsupported("roleRef.apiGroup", str(reference.get("apiGroup")), (RBAC_GROUP,))
    if reference["kind"] not in kinds:
        yield _unsupported("roleRef.kind", reference["kind"], kinds)
    if not reference["name"]:
        yield _required("roleRef.name", "")


def _bad_paths(path: str, urls: list[str]) -> Iterator[Cause]:
    for index, url in enumerate(urls):
        if "*" in url.removesuffix("*"):
            yield _invalid(f"{path}[{index}]", url, "a star may only stand at the end")
        elif not url.startswith("/") and url != "*":
            yield _invalid(f"{path}[{index}]", url, "must begin with '/' or be '*'")


def _required(path: str, why: str) -> Cause:
    return Cause(path, "FieldValueRequired", f"Required value{': ' + why if why else ''}")


def _invalid(path: str, value: object, why: str) -> Cause:
    return Cause(path, "FieldValueInvalid", f'Invalid value: "{str(value)[:120]}": {why}')


def _unsupported(path: str, value: str, supported: tuple[str, ...]) -> Cause:
    listed = ", ".join(f'"{one}"' for one in supported)
    message = f'Unsupported value: "{value[:120]}": supported values: {listed}'
    return Cause(path, "FieldValueNotSupported", message)
