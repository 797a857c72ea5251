"""``restart``: short for ``rollout restart``."""

from __future__ import annotations

from datum_compute.cli.rollout_verbs import restart

COMMAND = restart
