"""The instance template of a Workload in each city, and template hashes.

A restart of a single city is recorded in the spec of the Workload. The template of that city gets
an additional annotation, so its instances are recreated. All other cities use the template
unchanged. Equal templates have equal hashes, independent of the client that wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.compute.workload import Workload
from datum_compute.api.meta.codec import canonical_hash
from datum_compute.api.planes import normalize_city


def template_hash(template: InstanceTemplate) -> str:
    """Hash the spec and metadata of the template. Fields equal to their default do not count."""
    return canonical_hash(template)[:32]


def template_in(workload: Workload, city: str) -> InstanceTemplate:
    """Return the template of the workload's deployments in a city."""
    template = workload.spec.template
    found = [r.at for r in workload.spec.restarts if normalize_city(r.city_code) == city]
    return with_city_restart(template, found[-1]) if found else template


def with_city_restart(template: InstanceTemplate, restarted_at: str) -> InstanceTemplate:
    """Return the template with the last restart of its city; without one if it is empty."""
    present = template.metadata.annotations
    if present.get(labels.CITY_RESTARTED_AT, "") == restarted_at:
        return template
    marks = {key: value for key, value in present.items() if key != labels.CITY_RESTARTED_AT}
    if restarted_at:
        marks[labels.CITY_RESTARTED_AT] = restarted_at
    metadata = msgspec.structs.replace(template.metadata, annotations=marks)
    return msgspec.structs.replace(template, metadata=metadata)


@dataclass(frozen=True, slots=True)
class CurrentTemplates:
    """The hashes of the current template: by city for restarted cities, otherwise one for all."""

    everywhere: str
    by_city: dict[str, str]

    def hash_in(self, city: str) -> str:
        return self.by_city.get(city, self.everywhere)


def current_templates(workload: Workload) -> CurrentTemplates:
    cities = {normalize_city(restart.city_code) for restart in workload.spec.restarts}
    return CurrentTemplates(
        everywhere=template_hash(workload.spec.template),
        by_city={city: template_hash(template_in(workload, city)) for city in sorted(cities)},
    )
