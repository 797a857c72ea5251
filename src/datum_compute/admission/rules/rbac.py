"""Rules for roles and their bindings. Whether somebody may grant a role is not decided here."""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.rbac import RBAC_GROUP

RULES_MAX = 500  # of a role; the largest role of the platform has 28
SUBJECTS_MAX = 1000  # of a binding
_ACCOUNT, _USER, _GROUP = "ServiceAccount", "User", "Group"


def rules_are_few(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _too_many("rules", RULES_MAX, "split the role", new, old)


def subjects_are_few(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _too_many("subjects", SUBJECTS_MAX, "use a group or several bindings", new, old)


def _too_many(
    field: str, count_max: int, fix: str, new: JsonObject, old: JsonObject | None
) -> Iterable[Cause]:
    """Objects that had more items before the limit existed may keep them, but not add others."""
    count = len(new.get(field, ()))
    if count > max(count_max, len(old.get(field, ())) if old is not None else 0):
        why = f"Too many: {count}: must have at most {count_max} items; {fix}"
        yield Cause(field, "FieldValueTooMany", why)


def rules_of_a_role(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for index, rule in enumerate(new.get("rules", ())):
        if rule.get("nonResourceURLs"):
            why = "Invalid value: namespaced rules cannot apply to non-resource URLs"
            yield Cause(f"rules[{index}].nonResourceURLs", "FieldValueInvalid", why)
        else:
            yield from _resource_rule(f"rules[{index}]", rule)


def rules_of_a_cluster_role(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for index, rule in enumerate(new.get("rules", ())):
        path = f"rules[{index}]"
        if not rule.get("nonResourceURLs"):
            yield from _resource_rule(path, rule)
        elif any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
            why = "Invalid value: a rule cannot apply to both resources and non-resource URLs"
            yield Cause(f"{path}.nonResourceURLs", "FieldValueInvalid", why)
        elif not rule["verbs"]:
            yield _needed(f"{path}.verbs", "verbs must contain at least one value")
        yield from _bad_paths(f"{path}.nonResourceURLs", rule.get("nonResourceURLs", ()))


def selectors_of_a_cluster_role(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    aggregation = new.get("aggregationRule")
    if aggregation is not None and not aggregation.get("clusterRoleSelectors"):
        field = "aggregationRule.clusterRoleSelectors"
        yield _needed(field, "at least one clusterRoleSelector is required")


def with_api_groups(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """Users and groups are of the group of these kinds; accounts are of the core group."""
    subjects = [
        {**s, "apiGroup": s.get("apiGroup") or RBAC_GROUP} if s["kind"] in (_USER, _GROUP) else s
        for s in new.get("subjects", ())
    ]
    return {**new, "subjects": subjects} if subjects else new


def role_is_immutable(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    if old is not None and new["roleRef"] != old["roleRef"]:
        why = "Invalid value: cannot change roleRef; delete the binding and create another"
        yield Cause("roleRef", "FieldValueInvalid", why)


def role_of_a_binding(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _role(new["roleRef"], ("Role", "ClusterRole"))


def role_of_a_cluster_binding(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _role(new["roleRef"], ("ClusterRole",))


def subjects_of_a_binding(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _subjects(new)


def _role(role: JsonObject, kinds: tuple[str, ...]) -> Iterable[Cause]:
    if role.get("apiGroup") != RBAC_GROUP:
        yield _unsupported("roleRef.apiGroup", role.get("apiGroup", ""), (RBAC_GROUP,))
    if role["kind"] not in kinds:
        yield _unsupported("roleRef.kind", role["kind"], kinds)
    if not role["name"]:
        yield _needed("roleRef.name", "")


def _subjects(new: JsonObject) -> Iterable[Cause]:
    for index, subject in enumerate(new.get("subjects", ())):
        path, kind, group = f"subjects[{index}]", subject["kind"], subject.get("apiGroup", "")
        if not subject["name"]:
            yield _needed(f"{path}.name", "")
        if kind not in (_ACCOUNT, _USER, _GROUP):
            yield _unsupported(f"{path}.kind", kind, (_ACCOUNT, _USER, _GROUP))
            continue
        expected = "" if kind == _ACCOUNT else RBAC_GROUP
        if group != expected:
            yield _unsupported(f"{path}.apiGroup", group, (expected,))
        if kind == _ACCOUNT and not subject.get("namespace"):
            yield _needed(f"{path}.namespace", "")


def _resource_rule(path: str, rule: JsonObject) -> Iterable[Cause]:
    """What a rule about resources cannot do without."""
    for field, what in (
        ("verbs", "verbs must contain at least one value"),
        ("apiGroups", "resource rules must supply at least one api group"),
        ("resources", "resource rules must supply at least one resource"),
    ):
        if not rule.get(field):
            yield _needed(f"{path}.{field}", what)


def _bad_paths(path: str, urls: Iterable[str]) -> Iterable[Cause]:
    """What would match nothing, or something else than its author thinks."""
    for index, url in enumerate(urls):
        shown = f'Invalid value: "{url[:120]}"'
        if "*" in url.removesuffix("*"):
            why = f"{shown}: a star may only stand at the end"
            yield Cause(f"{path}[{index}]", "FieldValueInvalid", why)
        elif not url.startswith("/") and url != "*":
            why = f"{shown}: must begin with '/' or be '*'"
            yield Cause(f"{path}[{index}]", "FieldValueInvalid", why)


def _needed(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def _unsupported(field: str, value: str, allowed: tuple[str, ...]) -> Cause:
    listed = ", ".join(f'"{a}"' for a in allowed)
    why = f'Unsupported value: "{value[:120]}": supported values: {listed}'
    return Cause(field, "FieldValueNotSupported", why)
