"""Maps a Server to its Instance: by tag, else controller owner, else uid label, else name.

A Server has the name of its Instance. Tag, owner and label add the Instance's uid, so that the
Server of an earlier Instance of the same name does not match. Each of them may be lost or edited by
hand, so the first that names an existing Instance decides. The name alone decides only if none of
them names a uid. The provisioner restores what is missing.

The platform reports a Server that does not match exactly one Instance. Lookups use keys and
indexes and never scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from datum_compute.api import labels
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.server import Server

FindInstance = Callable[[Ref], Instance | None]


class Match(StrEnum):
    """The result of a lookup; the values of ``reverse_map_total{outcome}``."""

    HIT = "hit"
    HIT_BY_OWNER = "hit_by_owner"
    HIT_BY_LABEL = "hit_by_label"
    HIT_BY_NAME = "hit_by_name"
    MISSING_TAG = "missing_tag"
    UNKNOWN_OWNER = "unknown_owner"
    AMBIGUOUS = "ambiguous"
    DUPLICATE = "duplicate"

    @property
    def is_hit(self) -> bool:
        return self in _HITS


_HITS = (Match.HIT, Match.HIT_BY_OWNER, Match.HIT_BY_LABEL, Match.HIT_BY_NAME)


@dataclass(frozen=True, slots=True)
class Owner:
    """The result for one Server; ``message`` states the problem unless ``match`` is a hit."""

    match: Match
    message: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """An Instance that a Server names, and by what (``match``). An empty uid matches any Instance
    of the name."""

    match: Match
    ref: Ref
    uid: str

    def is_for(self, instance: Instance | None) -> bool:
        return instance is not None and self.uid in ("", instance.metadata.uid)


def instance_tag(instance: Instance) -> str:
    metadata = instance.metadata
    return f"{metadata.namespace}/{metadata.name}/{metadata.uid}"


def claims_of(server: Server) -> list[Claim]:
    """Return the Instances that a Server names, by tag first; at least one."""
    own = ref_of(server)
    found = [*_tag_claims(server), *_owner_claims(server)]
    uid = server.metadata.labels.get(labels.INSTANCE_UID)
    if uid:
        found.append(Claim(Match.HIT_BY_LABEL, own, uid))
    return found or [Claim(Match.HIT_BY_NAME, own, "")]


def _tag_claims(server: Server) -> list[Claim]:
    parts = server.spec.tags.get(labels.INSTANCE_TAG, "").split("/")
    if len(parts) != 3 or not all(parts):
        return []
    namespace, name, uid = parts
    return [Claim(Match.HIT, Ref(namespace, name), uid)]


def _owner_claims(server: Server) -> list[Claim]:
    metadata = server.metadata
    return [
        Claim(Match.HIT_BY_OWNER, Ref(metadata.namespace, owner.name), owner.uid)
        for owner in metadata.owner_references
        if owner.controller and owner.kind == INSTANCE.kind
    ]


def belongs(server: Server, instance: Instance) -> bool:
    """Whether the Server of an Instance's name is the machine of that Instance.

    A claim on an Instance of another name was edited by hand and is ignored, because no Instance
    uses a Server of another name.
    """
    assert ref_of(server) == ref_of(instance), "a Server has the name of its Instance"
    claims = [claim for claim in claims_of(server) if claim.ref == ref_of(server)]
    return not claims or any(claim.is_for(instance) for claim in claims)


def refs_to_reconcile(server: Server, exists: Callable[[Ref], bool]) -> list[Ref]:
    """Return the Instances that a change of a Server may concern: one, unless it was edited.

    They always include the Instance of the Server's own name if it exists: only that Instance can
    use the Server, and its reconciler restores what was edited.
    """
    refs = list(dict.fromkeys(claim.ref for claim in claims_of(server)))
    own = ref_of(server)
    return refs if own in refs or not exists(own) else [*refs, own]


def find_owner(server: Server, find_instance: FindInstance, same_uid: Sequence[Server]) -> Owner:
    """Find the one Instance that a Server names, or the reason why there is none.

    ``same_uid`` are all Servers whose uid label is the uid of the first claim of this one.
    """
    name = f"server {ref_of(server)}"
    claims = claims_of(server)
    hits = [claim for claim in claims if claim.is_for(find_instance(claim.ref))]
    if not hits:
        return _without_instance(name, claims[0])
    refs = list(dict.fromkeys(hit.ref for hit in hits))
    if len(refs) > 1:
        message = f"{name} names several instances: {', '.join(map(str, refs))}"
        return Owner(Match.AMBIGUOUS, message)
    others = sorted(str(ref_of(s)) for s in same_uid if ref_of(s) != ref_of(server))
    if others:
        message = f"{name} and {', '.join(others)} are all servers of instance {refs[0]}"
        return Owner(Match.DUPLICATE, message)
    return Owner(hits[0].match)


def _without_instance(name: str, claim: Claim) -> Owner:
    if claim.match is Match.HIT_BY_NAME:
        return Owner(Match.MISSING_TAG, f"{name} names no instance, and none has its name")
    message = f"{name} names instance {claim.ref} ({claim.uid}), which does not exist"
    return Owner(Match.UNKNOWN_OWNER, message)
