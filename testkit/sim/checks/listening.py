"""Hears what the product logs while a world runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from datum_compute.api.errors import ApiError
from datum_compute.drivers.driver import DriverError


class Listening(logging.Handler):
    """Hears what the product logs: an exception that nobody expected is a bug (I20, F27), and no
    line may hold a token (I18)."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._complain = complain
        self._logger = logging.getLogger("datum_compute")

    def __enter__(self) -> None:
        self._before = (self._logger.level, self._logger.propagate)
        self._logger.setLevel(logging.WARNING)
        self._logger.propagate = False
        self._logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "token-of-" in text:
            self._complain(f"I18: a log line holds a token: {record.name}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, ApiError | DriverError):
            self._complain(f"I20: unexpected: {text}: {error!r}")
