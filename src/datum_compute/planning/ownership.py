"""Whose Server is this: the way back from a machine to its Instance.

The reserved tag names the Instance by namespace, name and uid. Exactly one is the normal case;
everything else is told, never silently dropped. Objects are found by key and by index, never by
a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from datum_compute.api import labels
from datum_compute.api.instance import Instance
from datum_compute.api.meta import Ref, controller_uid, ref_of
from datum_compute.api.server import Server


class Match(StrEnum):
    """How a lookup came out; the words of ``reverse_map_total{outcome}``."""

    HIT = "hit"
    MISSING_TAG = "missing_tag"
    UNKNOWN_OWNER = "unknown_owner"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Owner:
    """``message`` says what is wrong, for anything but a hit."""

    match: Match
    message: str = ""


@dataclass(frozen=True, slots=True)
class Tag:
    ref: Ref
    uid: str


def instance_tag(instance: Instance) -> str:
    metadata = instance.metadata
    return f"{metadata.namespace}/{metadata.name}/{metadata.uid}"


def tag_of(server: Server) -> Tag | None:
    """The Instance that the tag names; None if there is no tag or it names none."""
    parts = server.spec.tags.get(labels.INSTANCE_TAG, "").split("/")
    if len(parts) != 3 or not all(parts):
        return None
    namespace, name, uid = parts
    return Tag(Ref(namespace, name), uid)


def belongs(server: Server, instance: Instance) -> bool:
    """By owner or by tag: either alone may have been edited by hand."""
    tagged = server.spec.tags.get(labels.INSTANCE_TAG) == instance_tag(instance)
    return tagged or controller_uid(server) == instance.metadata.uid


def find_owner(server: Server, instance: Instance | None, same_tag: Sequence[Server]) -> Owner:
    """``instance`` is the one the tag names, ``same_tag`` all Servers that carry its uid."""
    tag = tag_of(server)
    name = f"server {ref_of(server)}"
    if tag is None:
        return Owner(Match.MISSING_TAG, f"{name} has no tag that names an instance")
    if instance is None or instance.metadata.uid != tag.uid:
        message = f"{name} is tagged for instance {tag.ref} ({tag.uid}), which is not there"
        return Owner(Match.UNKNOWN_OWNER, message)
    others = sorted(str(ref_of(s)) for s in same_tag if ref_of(s) != ref_of(server))
    if others:
        message = f"{name} and {', '.join(others)} are all tagged for instance {tag.ref}"
        return Owner(Match.DUPLICATE, message)
    return Owner(Match.HIT)
