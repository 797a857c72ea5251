"""The history of a Workload: what changed between revisions, and what ``rollout undo`` restores.

The restart of a workload is an annotation of its template, and that of one city is an entry of
``spec.restarts``. A restart replaces instances and changes nothing else, so an undo ignores it: the
undo restores the newest template that differs in anything else, exactly as recorded.

A revision is a rollback only if ``rollout undo`` or an automatic rollback made the change. The undo
annotates the Workload with a ``RequestedRollback``, and the annotation stays. Each annotation marks
only one revision as a rollback: a later deploy of the same template is a change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from msgspec.structs import replace

from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.compute.workload import CityRestart, Placement, ScaleSettings, Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.labels import RESTARTED_AT, ROLLBACK
from datum_compute.api.meta.codec import JsonObject, canonical, decode, encode
from datum_compute.api.object_diff import render_changes
from datum_compute.api.planes import normalize_city
from datum_compute.planning.workload.city_order import is_rolled_back
from datum_compute.planning.workload.templates import template_hash

_CHANGES_MAX, _LINE_MAX = 100, 200
# Repository, then the tag, the digest or both. A colon before a slash separates a port.
_IMAGE = re.compile(r"(?P<repository>[^@]*?)(?P<version>(:[^:/@]+)?(@.+)?)")
_DIGEST = re.compile(r"(@?[a-z0-9]+:[0-9a-f]{12})[0-9a-f]+")


class RecordedSpec(Protocol):
    """The fields that a revision records of a Workload."""

    @property
    def template(self) -> InstanceTemplate: ...
    @property
    def placements(self) -> list[Placement]: ...
    @property
    def restarts(self) -> list[CityRestart]: ...


def recorded_fields(spec: RecordedSpec) -> JsonObject:
    """Return the fields that a revision records, without fields equal to their default."""
    return {
        "template": canonical(spec.template),
        "placements": canonical(spec.placements),
        "restarts": canonical(spec.restarts),
    }


# --- descriptions of changes


def describe_changes(
    before: RecordedSpec, after: RecordedSpec, *, is_rollback: bool = False
) -> list[str]:
    """Describe the changes for users, the most important first.

    Values of environment variables are left out. A rollback also restores the restarts of its
    revision, which are not described: no user has requested a restart.
    """
    lines = list(_describe_images(before.template, after.template))
    if not is_rollback:
        lines += _describe_restarts(before, after)
    lines += _describe_placements(before.placements, after.placements)
    lines += render_changes(
        {"spec": _other_fields(before, after)}, {"spec": _other_fields(after, after)}
    )
    lines = [line[:_LINE_MAX] for line in lines]
    if len(lines) <= _CHANGES_MAX:
        return lines
    return [*lines[: _CHANGES_MAX - 1], f"and {len(lines) - _CHANGES_MAX + 1} more"]


def _describe_images(before: InstanceTemplate, after: InstanceTemplate) -> Iterator[str]:
    former = images_of(before)
    for name, image in images_of(after).items():
        if name in former and former[name] != image:
            yield f"image {name}: {_describe_image_change(former[name], image)}"


def _describe_image_change(before: str, after: str) -> str:
    """Return both versions if the repository is the same, otherwise both names."""
    old, new = _IMAGE.fullmatch(before), _IMAGE.fullmatch(after)
    if old and new and old["repository"] == new["repository"] and old["version"] and new["version"]:
        before, after = (found["version"].removeprefix(":") for found in (old, new))
        before, after = before.removeprefix("@"), after.removeprefix("@")
    return f"{_shorten_digest(before)} -> {_shorten_digest(after)}"


def _shorten_digest(text: str) -> str:
    return _DIGEST.sub(r"\1", text)


def _describe_restarts(before: RecordedSpec, after: RecordedSpec) -> Iterator[str]:
    old, new = _restarted_at(before.template), _restarted_at(after.template)
    if old != new:
        yield "restarted" if new else "restart removed"
    former, present = _restarts_by_city(before), _restarts_by_city(after)
    placed = {normalize_city(city) for p in after.placements for city in p.city_codes}
    for city in sorted(placed & (former.keys() | present.keys())):
        if former.get(city) != present.get(city):
            yield f"restarted {city}" if city in present else f"restart of {city} removed"


def _describe_placements(before: list[Placement], after: list[Placement]) -> Iterator[str]:
    former = {placement.name: placement for placement in before}
    for placement in after:
        old = former.get(placement.name)
        if old is None:
            continue
        is_only = len(after) == 1
        was, now = old.scale_settings.min_replicas, placement.scale_settings.min_replicas
        if was != now:
            yield f"scaled {'' if is_only else placement.name + ' '}{was} -> {now}"
        if old.city_codes != placement.city_codes:
            cities = f"{','.join(old.city_codes)} -> {','.join(placement.city_codes)}"
            yield f"cities{'' if is_only else ' of ' + placement.name}: {cities}"


def _other_fields(spec: RecordedSpec, after: RecordedSpec) -> JsonObject:
    """Return the fields of ``spec`` that need a description of their own.

    Images, restarts, scale and cities are already described; they get the values of ``after``.
    """
    template = with_images(without_restart(spec.template), images_of(after.template))
    present = {placement.name: placement for placement in after.placements}
    placements = []
    for placement in spec.placements:
        found = present.get(placement.name, placement)
        scale = replace(placement.scale_settings, min_replicas=found.scale_settings.min_replicas)
        placements.append(replace(placement, city_codes=found.city_codes, scale_settings=scale))
    return {"template": canonical(template), "placements": canonical(placements)}


def _restarts_by_city(spec: RecordedSpec) -> dict[str, str]:
    return {normalize_city(restart.city_code): restart.at for restart in spec.restarts}


# --- templates


def images_of(template: InstanceTemplate) -> dict[str, str]:
    """Return the image of each container by its name."""
    return {c.name: c.image for c in template.spec.runtime.sandbox.containers}


def with_images(template: InstanceTemplate, images: Mapping[str, str]) -> InstanceTemplate:
    """Return the template with these images, by container; others stay as they are."""
    runtime = template.spec.runtime
    containers = [replace(c, image=images.get(c.name, c.image)) for c in runtime.sandbox.containers]
    sandbox = replace(runtime.sandbox, containers=containers)
    spec = replace(template.spec, runtime=replace(runtime, sandbox=sandbox))
    return replace(template, spec=spec)


def without_restart(template: InstanceTemplate) -> InstanceTemplate:
    """Return the template without the annotation of a restart."""
    present = template.metadata.annotations
    if RESTARTED_AT not in present:
        return template
    others = {key: value for key, value in present.items() if key != RESTARTED_AT}
    return replace(template, metadata=replace(template.metadata, annotations=others))


def _restarted_at(template: InstanceTemplate) -> str:
    return template.metadata.annotations.get(RESTARTED_AT, "")


# --- undo


UndoPart = Literal["image", "template", "scale"]


def find_undo_target(
    workload: Workload, revisions: Sequence[WorkloadRevision], part: UndoPart | None
) -> WorkloadRevision | None:
    """Return the newest revision that differs in what an undo restores; None if there is none.

    ``revisions`` are those of the workload, oldest first. They may lack the newest change, because
    the controller records it later. After an automatic rollback the cities run another template
    than the spec contains. The undo then restores the one that they run, even if the two differ
    only in a restart.
    """
    with_restart = is_rolled_back(workload)
    return next((r for r in reversed(revisions) if _differs(workload, r, part, with_restart)), None)


def _differs(
    workload: Workload, revision: WorkloadRevision, part: UndoPart | None, with_restart: bool
) -> bool:
    now, then = workload.spec, revision.spec
    match part:
        case "image":
            former = images_of(then.template)
            return any(former.get(c, i) != i for c, i in images_of(now.template).items())
        case "template":
            return _template_differs(now, then, with_restart)
        case "scale":
            scale = {p.name: p.scale_settings for p in then.placements}
            return any(
                scale.get(p.name, p.scale_settings) != p.scale_settings for p in now.placements
            )
        case None:
            return _template_differs(now, then, with_restart) or _without_scale(
                now.placements
            ) != _without_scale(then.placements)


def _template_differs(now: RecordedSpec, then: RecordedSpec, with_restart: bool) -> bool:
    """Compare the templates. A restart is a difference only ``with_restart``."""
    if with_restart:
        return template_hash(now.template) != template_hash(then.template)
    return template_hash(without_restart(now.template)) != template_hash(
        without_restart(then.template)
    )


def _without_scale(placements: list[Placement]) -> list[Placement]:
    same = ScaleSettings(min_replicas=1)
    return [replace(placement, scale_settings=same) for placement in placements]


# --- rollbacks


@dataclass(frozen=True, slots=True)
class RequestedRollback:
    """The annotation of ``rollout undo``: the restored and the newest revision at that time."""

    restores: int
    replaces: int

    @property
    def annotation(self) -> str:
        return encode({"restores": self.restores, "replaces": self.replaces}).decode()


def find_restored_revision(
    workload: Workload, own: Sequence[WorkloadRevision], template: InstanceTemplate
) -> int | None:
    """Return the number of the revision that an undo restored; None if the change is no rollback.

    ``own`` are the revisions of the workload, oldest first, before this change is recorded.
    ``template`` is the template of this change.
    """
    requested, digest = _requested_rollback(workload), template_hash(template)
    if requested is None or (own and own[-1].spec.template_hash == digest):
        return None
    is_recorded = any(
        r.spec.restores == requested.restores and r.spec.revision > requested.replaces for r in own
    )
    restored = next((r for r in own if r.spec.revision == requested.restores), None)
    if is_recorded or restored is None or restored.spec.template_hash != digest:
        return None
    return requested.restores


def _requested_rollback(workload: Workload) -> RequestedRollback | None:
    try:
        found = decode(workload.metadata.annotations.get(ROLLBACK, "").encode())
        return RequestedRollback(int(found["restores"]), int(found["replaces"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
