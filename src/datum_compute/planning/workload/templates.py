"""Restarts of single cities: kept on the Workload, so that the next pass finds them there.

A city that was restarted on its own has a template with one annotation more; every other city has
the template as it is, so nothing rolls for those who never do that.

The identity of a template: equal templates have equal hashes, whoever wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from datum_compute.api import labels
from datum_compute.api.codec import canonical_hash
from datum_compute.api.identity import normalized_city
from datum_compute.api.instance import InstanceTemplate
from datum_compute.api.workload import Workload


def template_hash(template: InstanceTemplate) -> str:
    """Over template spec and metadata; fields equal to their default do not count."""
    return canonical_hash(template)[:32]


def template_in(workload: Workload, city: str) -> InstanceTemplate:
    """The template of the workload's deployments in a city."""
    template = workload.spec.template
    found = [r.at for r in workload.spec.restarts if normalized_city(r.city_code) == city]
    if not found:
        return template
    marks = {**template.metadata.annotations, labels.CITY_RESTARTED_AT: found[-1]}
    metadata = msgspec.structs.replace(template.metadata, annotations=marks)
    return msgspec.structs.replace(template, metadata=metadata)


@dataclass(frozen=True, slots=True)
class CurrentTemplates:
    """The hash of the present template, by city where that matters; each is made once."""

    everywhere: str
    by_city: dict[str, str]

    def hash_in(self, city: str) -> str:
        return self.by_city.get(city, self.everywhere)


def current_templates(workload: Workload) -> CurrentTemplates:
    cities = {normalized_city(restart.city_code) for restart in workload.spec.restarts}
    return CurrentTemplates(
        everywhere=template_hash(workload.spec.template),
        by_city={city: template_hash(template_in(workload, city)) for city in sorted(cities)},
    )
