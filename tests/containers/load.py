"""A client that sends requests until it is stopped, and records every answer and failure."""

from __future__ import annotations

import threading
import time
import urllib.request
from http.client import HTTPException
from typing import Self


class Load:
    """Requests to one URL, each on a new connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: list[str] = []
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def last(self, count: int) -> set[str]:
        """Return the distinct answers among the last `count`."""
        return set(self.answers[-count:])

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with urllib.request.urlopen(self.url, timeout=15) as response:
                    self.answers.append(response.read().decode().strip())
            except (OSError, HTTPException) as error:
                self.failures.append(f"{time.time():.3f}: {error}")
            time.sleep(0.005)
