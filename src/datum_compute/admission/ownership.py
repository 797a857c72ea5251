"""WorkloadDeployments and Instances are written by controllers: users read them.

A controller is whoever holds the verb ``control`` on the resource; the roles of the platform give
it to managers and cells, and no role of a project has it. So gates, templates and placements are
out of the reach of everybody else, and copies in a project stay what their cell says. Taking away
an owner or a finalizer needs no such right (garbage collectors do), nor do labels and annotations
of other domains, a status (which has rights of its own) or a scale.
"""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.admission.questions import Answers, May, Write
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject

CONTROL = "control"
_MARKS = ("labels", "annotations")
_DOMAINS = ("datumapis.com", "miloapis.com", "topology.datum.net")
_SUBDOMAINS = tuple(f".{domain}" for domain in _DOMAINS)


def asks_who_controls(write: Write) -> Iterable[May]:
    if _is_controllers_work(write):
        yield _right(write)


def controllers_write(write: Write, answers: Answers) -> Iterable[Cause]:
    # What was not asked needs no right.
    if not answers.allowed.get(_right(write), True):
        plural = write.kind.plural
        why = (
            f"{plural} are written by controllers and cannot be changed by hand; "
            f"change the Workload instead"
        )
        yield Cause("spec", "FieldValueForbidden", f"Forbidden: {why}")


def _right(write: Write) -> May:
    return May(CONTROL, write.kind.group, write.kind.plural, write.namespace)


def _is_controllers_work(write: Write) -> bool:
    if write.old is None or write.changes_spec:
        return True
    new, old = write.new["metadata"], write.old["metadata"]
    return any(_marks_differ(new.get(field), old.get(field)) for field in _MARKS)


def _marks_differ(new: JsonObject | None, old: JsonObject | None) -> bool:
    """Whether those differ that controllers act upon."""
    if new == old:
        return False
    before, after = old or {}, new or {}
    changed = (key for key in {**before, **after} if before.get(key) != after.get(key))
    return any(_is_ours(key) for key in changed)


def _is_ours(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain in _DOMAINS or domain.endswith(_SUBDOMAINS))
