"""Which lanes are worked on, by any of the queues of a process, and who waits for one to be quiet.

Said by queues when a lane begins to hold keys and when its last is done; asked by those who gather
wake-ups (``pauses.py``), so that nobody has to look again and again.
"""

from __future__ import annotations

from collections.abc import Callable


class Bustle:
    def __init__(self) -> None:
        self._queues: dict[str, int] = {}  # in how many of them each lane holds keys
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def begin(self, lane: str) -> None:
        self._queues[lane] = self._queues.get(lane, 0) + 1

    def end(self, lane: str) -> None:
        """The last one out tells those who wait."""
        left = self._queues.pop(lane) - 1
        if left:
            self._queues[lane] = left
            return
        for tell in self._waiting.pop(lane, ()):
            tell()

    def is_busy(self, lane: str) -> bool:
        return lane in self._queues

    def when_quiet(self, lane: str, tell: Callable[[], None]) -> None:
        """Be told once, as soon as nobody works there."""
        assert lane in self._queues, "who finds it quiet need not wait"
        self._waiting.setdefault(lane, []).append(tell)
