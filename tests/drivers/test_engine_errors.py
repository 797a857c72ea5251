"""Errors of engines are classified by their text."""

from __future__ import annotations

import pytest

from datum_compute.drivers.engine_errors import start_error_code


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ('exec: "nosuch": executable file not found in $PATH', 127),
        ("stat /bin/nosuch: no such file or directory", 127),
        ('exec: "/etc/passwd": Permission denied', 126),
        ("the container is paused", None),
    ],
)
def test_a_command_that_cannot_be_started_has_the_exit_code_of_a_shell(
    message: str, code: int | None
) -> None:
    assert start_error_code(message) == code
