"""``GET /backup``: everything the process holds, as of one moment over all its planes.

The database belongs to the process that serves it (store/sqlite.py), so a platform that runs makes
its backup itself. Writes go on meanwhile: the moment is that of the answer, and bodies are never
changed, only replaced.

Secrets are in it. No role names the path; only those who may do everything may ask, on the platform
plane, or on its one plane where a process serves a cell of its own. Discovery does not tell of it.
"""

from __future__ import annotations

from datum_compute.api.http import Response
from datum_compute.api.planes import PLATFORM, PlaneName
from datum_compute.store.dump import dumped
from datum_compute.store.store import Store

BACKUP_PATH = "/backup"
CONTENT_TYPE = "application/jsonl"


def is_home(store: Store, plane: PlaneName) -> bool:
    """Whether a process is asked as a whole through this plane."""
    planes = store.planes()
    return plane == PLATFORM if PLATFORM in planes else planes == [plane]


def backup_answer(store: Store) -> Response:
    return Response(200, dumped(store.contents()), content_type=CONTENT_TYPE)
