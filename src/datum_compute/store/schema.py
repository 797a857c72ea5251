"""The tables of the journal, and how those of earlier releases become today's.

``STEPS[n]`` turns format ``n`` into format ``n + 1``; format 0 is an empty file. A file is brought
up to date in one transaction: whatever ends the process in the middle, the file is in the old
format or in the new one.

To change the format: append a step, and never touch one that was released. The version that a file
has is kept in its ``user_version``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from datum_compute.store.journal import JournalError

Step = Callable[[sqlite3.Connection], None]


def _first_tables(connection: sqlite3.Connection) -> None:
    connection.execute(
        """
        CREATE TABLE planes (
            name TEXT PRIMARY KEY,
            version INTEGER NOT NULL,
            deleted INTEGER NOT NULL
        ) WITHOUT ROWID
        """
    )
    connection.execute(
        """
        CREATE TABLE objects (
            plane TEXT NOT NULL,
            resource TEXT NOT NULL,
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            version INTEGER NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (plane, resource, namespace, name)
        )
        """
    )


STEPS: tuple[Step, ...] = (_first_tables,)


def bring_up_to_date(
    connection: sqlite3.Connection, path: Path, steps: Sequence[Step] = STEPS
) -> None:
    """Raise JournalError for a file of a newer release, or of somebody else."""
    found = _format_of(connection)
    if found > len(steps):
        raise JournalError(
            f"{path} was written by a newer release (format {found}, this one knows "
            f"{len(steps)}); upgrade datum-compute or use another state directory"
        )
    if found == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise JournalError(f"{path} is a database of another program; use another state directory")
    if found < len(steps):
        _carry_out(connection, path, found, steps)


def _carry_out(
    connection: sqlite3.Connection, path: Path, found: int, steps: Sequence[Step]
) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        for step in steps[found:]:
            step(connection)
        connection.execute(f"PRAGMA user_version={len(steps)}")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise JournalError(
            f"{path} cannot be brought from format {found} to {len(steps)}: {error}; "
            "it was left as it is"
        ) from error


def _format_of(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)
