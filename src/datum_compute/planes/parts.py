"""The part of the hub and of a project that a joined cell looks at, told by labels.

The server lets a cell see nothing else (server/access/slices.py); a hub that is not ours is asked
for no more than that all the same.
"""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.identity import normalized_city
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, INSTANCE
from datum_compute.runtime.cached_client import LabelScope


def hub_label_scope(cell: str, city: str) -> LabelScope:
    return {
        DEPLOYMENT.resource: {labels.TOPOLOGY_CITY: normalized_city(city)},
        INSTANCE.resource: {labels.CELL: cell},
    }


def project_label_scope(cell: str) -> LabelScope:
    return {CLAIM.resource: {labels.SOURCE_CLUSTER: cell}}
