"""Output and exit code of ``diff`` and ``rollout diff``: 0 without differences, 1 with some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import UsageError
from datum_compute.cli.render.documents import DifferenceEntry, DifferenceSummary, to_document


class DifferenceFailedError(UsageError):
    """The objects cannot be compared. Exits with 2."""

    reason = "Error"


@contextmanager
def exit_with_2_on_error() -> Iterator[None]:
    """Change exit code 1 of a UsageError to 2, because 1 means that there are differences."""
    try:
        yield
    except UsageError as error:
        if error.exit_code != 1:
            raise
        raise DifferenceFailedError(
            error.message, error.hint, field=error.field, request_id=error.request_id
        ) from error


def print_difference(
    session: Session, changes: Mapping[str, Sequence[str]], output_format: str
) -> int:
    """Print the changes by workload. Return the exit code."""
    differs = any(changes.values())
    if output_format == "json":
        session.output.json(
            {
                **to_document(DifferenceSummary(differs=differs)),
                "items": [
                    to_document(DifferenceEntry(workload=name, changes=[*lines]))
                    for name, lines in changes.items()
                ],
            }
        )
        return int(differs)
    for name, lines in changes.items():
        for line in lines:
            session.output.data(f"{name}: {line}" if len(changes) > 1 else line)
    if not differs:
        session.output.note("No difference.")
    return int(differs)
