"""Rules for roles and bindings. ``server/access`` decides who may grant a role."""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.rbac import RBAC_GROUP

RULES_MAX = 500  # of a role; the largest role of the platform has 28
SUBJECTS_MAX = 1000  # of a binding
_ACCOUNT, _USER, _GROUP = "ServiceAccount", "User", "Group"


def check_rule_count(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _check_count("rules", RULES_MAX, "split the role", new, old)


def check_subject_count(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _check_count("subjects", SUBJECTS_MAX, "use a group or several bindings", new, old)


def _check_count(
    field: str, count_max: int, fix: str, new: JsonObject, old: JsonObject | None
) -> Iterable[Cause]:
    """An object that had more items before the limit existed can keep them, but not add any."""
    count = len(new.get(field, ()))
    if count > max(count_max, len(old.get(field, ())) if old is not None else 0):
        why = f"must have at most {count_max} items; {fix}"
        yield Cause.too_many(field, why, count)


def check_role_rules(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for index, rule in enumerate(new.get("rules", ())):
        if rule.get("nonResourceURLs"):
            why = "namespaced rules cannot apply to non-resource URLs"
            yield Cause.invalid(f"rules[{index}].nonResourceURLs", why)
        else:
            yield from _check_resource_rule(f"rules[{index}]", rule)


def check_cluster_role_rules(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for index, rule in enumerate(new.get("rules", ())):
        path = f"rules[{index}]"
        if not rule.get("nonResourceURLs"):
            yield from _check_resource_rule(path, rule)
        elif any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
            why = "a rule cannot apply to both resources and non-resource URLs"
            yield Cause.invalid(f"{path}.nonResourceURLs", why)
        elif not rule["verbs"]:
            yield Cause.required(f"{path}.verbs", "verbs must contain at least one value")
        yield from _check_urls(f"{path}.nonResourceURLs", rule.get("nonResourceURLs", ()))


def check_aggregation_rule(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    aggregation = new.get("aggregationRule")
    if aggregation is not None and not aggregation.get("clusterRoleSelectors"):
        field = "aggregationRule.clusterRoleSelectors"
        yield Cause.required(field, "at least one clusterRoleSelector is required")


def default_api_groups(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """Set the API group of users and groups. The group of service accounts is empty."""
    subjects = [
        {**s, "apiGroup": s.get("apiGroup") or RBAC_GROUP} if s["kind"] in (_USER, _GROUP) else s
        for s in new.get("subjects", ())
    ]
    return {**new, "subjects": subjects} if subjects else new


def check_role_ref_unchanged(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    if old is not None and new["roleRef"] != old["roleRef"]:
        why = "cannot change roleRef; delete the binding and create another"
        yield Cause.invalid("roleRef", why)


def check_role_ref(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _check_role(new["roleRef"], ("Role", "ClusterRole"))


def check_cluster_role_ref(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _check_role(new["roleRef"], ("ClusterRole",))


def check_subjects(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    yield from _check_each_subject(new)


def _check_role(role: JsonObject, kinds: tuple[str, ...]) -> Iterable[Cause]:
    if role.get("apiGroup") != RBAC_GROUP:
        yield Cause.unsupported("roleRef.apiGroup", role.get("apiGroup", ""), (RBAC_GROUP,))
    if role["kind"] not in kinds:
        yield Cause.unsupported("roleRef.kind", role["kind"], kinds)
    if not role["name"]:
        yield Cause.required("roleRef.name")


def _check_each_subject(new: JsonObject) -> Iterable[Cause]:
    for index, subject in enumerate(new.get("subjects", ())):
        path, kind, group = f"subjects[{index}]", subject["kind"], subject.get("apiGroup", "")
        if not subject["name"]:
            yield Cause.required(f"{path}.name")
        if kind not in (_ACCOUNT, _USER, _GROUP):
            yield Cause.unsupported(f"{path}.kind", kind, (_ACCOUNT, _USER, _GROUP))
            continue
        expected = "" if kind == _ACCOUNT else RBAC_GROUP
        if group != expected:
            yield Cause.unsupported(f"{path}.apiGroup", group, (expected,))
        if kind == _ACCOUNT and not subject.get("namespace"):
            yield Cause.required(f"{path}.namespace")


def _check_resource_rule(path: str, rule: JsonObject) -> Iterable[Cause]:
    """Check the required fields of a rule about resources."""
    for field, what in (
        ("verbs", "verbs must contain at least one value"),
        ("apiGroups", "resource rules must supply at least one api group"),
        ("resources", "resource rules must supply at least one resource"),
    ):
        if not rule.get(field):
            yield Cause.required(f"{path}.{field}", what)


def _check_urls(path: str, urls: Iterable[str]) -> Iterable[Cause]:
    """Refuse URLs that match nothing, or more than they seem to."""
    for index, url in enumerate(urls):
        if "*" in url.removesuffix("*"):
            yield Cause.invalid(f"{path}[{index}]", "a star may only stand at the end", url)
        elif not url.startswith("/") and url != "*":
            yield Cause.invalid(f"{path}[{index}]", "must begin with '/' or be '*'", url)
