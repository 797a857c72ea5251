"""Uids of the real environment."""

from __future__ import annotations

import uuid

from datum_compute.app.environment import process_environment


def test_uids_are_random_uuids_in_their_usual_form() -> None:
    new_uid = process_environment().new_uid
    found = {new_uid() for _ in range(1000)}
    assert len(found) == 1000
    for text in found:
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, text)
