"""Which files a state directory holds besides the database, and which of them a backup keeps.

Kept is what cannot be made anew: who is trusted, and what was chosen. Not kept is what the next
start writes (kubeconfigs, the announcement), what tells of the past (logs), and what describes the
machines that run at this moment: a backup of that would be a lie by the time it is restored.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from datum_compute.app.state_directory import StateError

KEPT = (
    *("tokens.json", "ca.crt", "ca.key", "server.crt", "server.key", "service-accounts.key"),
    *("port.json", "cells.json", "driver.json"),
    *("membership.json", "cell.key", "cell.crt", "hub-ca.crt"),
)
# Beside these, what a restored state takes the place of.
REPLACED = (*KEPT, "store.db", "store.db-*", "kubeconfig", "manager.kubeconfig", "chaos.json")


def demand_database(state: Path) -> None:
    """Who was ready once, and told so in its kubeconfig, had a database. With an empty one in its
    place every machine that runs would be nobody's, and be removed."""
    database = state / "store.db"
    if (state / "kubeconfig").exists() and not database.exists():
        raise StateError(
            f"{database} is gone, and with it all that is known here; restore it from a backup "
            "(datumctl compute local restore FILE), or begin anew (datumctl compute local reset)"
        )


def is_kept(name: str) -> bool:
    return name in KEPT


def kept_files(state: Path) -> dict[str, bytes]:
    return {name: (state / name).read_bytes() for name in KEPT if (state / name).is_file()}


def replaced_files(state: Path) -> list[Path]:
    """Those of a state that a restore sets aside. The lock stays: it is being held."""
    if not state.is_dir():
        return []
    return sorted(
        path
        for path in state.iterdir()
        if path.is_file() and any(fnmatchcase(path.name, name) for name in REPLACED)
    )
