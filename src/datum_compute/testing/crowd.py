"""Many independent pieces of work on all cores, each result handed over as it comes.

Workers are processes, because worlds are pure computing. They ignore Ctrl-C: whoever reads the
results gets it, stops reading, and waits only for the pieces that are under way.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# Pieces handed out ahead for each process, so that none waits for the next.
_AHEAD = 2


def in_crowd(work: Callable[[T], R], items: Iterable[T], jobs: int) -> Iterator[R]:
    """In the order in which they finish. Items are drawn only as they are needed, so there may
    be endlessly many; with one job everything happens here."""
    if jobs <= 1:
        yield from map(work, items)
        return
    source = iter(items)
    with ProcessPoolExecutor(jobs, initializer=_ignore_interrupts) as workers:
        pending = {workers.submit(work, item) for item in islice(source, jobs * _AHEAD)}
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                pending |= {workers.submit(work, item) for item in islice(source, len(done))}
                yield from _results(done)
        finally:
            workers.shutdown(wait=True, cancel_futures=True)


def _results(done: Iterable[Future[R]]) -> Iterator[R]:
    for future in done:
        yield future.result()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
