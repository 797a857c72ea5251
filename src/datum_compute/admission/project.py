"""Rules for Projects: a name that can be part of a path and of labels, and whose they are."""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.admission.nearest import hint
from datum_compute.admission.questions import Answers, Listing, Write
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import ORGANIZATION as ORGANIZATION_KIND
from datum_compute.api.labels import ORGANIZATION
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.names import dns_label_problem

ORGANIZATIONS = Listing(ORGANIZATION_KIND)
_OWNER = "spec.ownerRef.name"


def with_organization(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """The label says what the spec says, whatever was sent."""
    owner, metadata = new["spec"].get("ownerRef", {}).get("name"), new["metadata"]
    told = metadata.get("labels") or {}
    if not owner or told.get(ORGANIZATION) == owner:
        return new
    return {**new, "metadata": {**metadata, "labels": {**told, ORGANIZATION: owner}}}


def name_is_a_label(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    name = new["metadata"].get("name", "")
    problem = dns_label_problem(name) if old is None and name else ""
    if problem:
        why = f"{problem}; it is part of the path of the project's API"
        yield Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {why}')


def asks_for_organizations(write: Write) -> Iterable[Listing]:
    if write.old is None:
        yield ORGANIZATIONS


def organization_is_there(write: Write, answers: Answers) -> Iterable[Cause]:
    if write.old is not None:
        return
    name = write.new["spec"]["ownerRef"]["name"]
    known = sorted(
        found["metadata"]["name"]
        for found in answers.listed[ORGANIZATIONS]
        if not found["metadata"].get("deletionTimestamp")
    )
    if name not in known:
        why = f"there is no such organization; {hint(name, known)}" if known else "there is none"
        yield Cause(_OWNER, "FieldValueNotFound", f'Not found: "{name}": {why}')
