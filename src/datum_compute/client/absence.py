"""What the log says of a plane that gives no news of a kind: that it is away, at once; that it is
still, every REMIND_S; that it is back, once. Tries in between are told to nobody: a partition of an
hour has hundreds of them for every kind."""

from __future__ import annotations

import asyncio
import logging

REMIND_S = 300.0

_log = logging.getLogger(__name__)


class Absence:
    """``what`` there are no news of."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since_s: float | None = None
        self._told_s = 0.0

    def noticed(self, why: Exception) -> None:
        """One more try was in vain."""
        now_s = asyncio.get_running_loop().time()
        if self._since_s is None:
            self._since_s = self._told_s = now_s
            _log.warning("%s: no news, trying again: %s", self._what, why)
        elif now_s - self._told_s >= REMIND_S:
            self._told_s = now_s
            minutes = (now_s - self._since_s) / 60
            _log.warning("%s: no news for %.0f min, trying again: %s", self._what, minutes, why)

    def over(self) -> None:
        if self._since_s is None:
            return
        away_s = asyncio.get_running_loop().time() - self._since_s
        self._since_s = None
        _log.info("%s: there is news again, after %.0f s", self._what, away_s)
