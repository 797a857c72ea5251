"""A pool of worker processes that yields results as they complete.

Each item runs in its own process, forked from this one, so it can read what ``prepare`` stored in
memory. The process exits without garbage collection, which would take 5 % of its time.

Workers ignore Ctrl-C. The reader of the results receives it, stops reading, and waits for the items
in progress.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# A worker collects garbage only after this many allocations. This limits its memory.
_GARBAGE_MAX = 2_000_000


class WorkerLost(Exception):
    """A worker ended without a result."""


def run_in_workers(
    work: Callable[[T], R],
    items: Iterable[T],
    jobs: int,
    prepare: Callable[[T], object] | None = None,
) -> Iterator[R]:
    """Yield results in the order of completion. Items are read only when a worker is free, so there
    may be infinitely many. With one job everything runs in this process."""
    if jobs <= 1:
        yield from map(work, items)
        return
    source, at_work = iter(items), dict[Connection, BaseProcess]()
    try:
        while True:
            at_work.update(_start_workers(work, islice(source, jobs - len(at_work)), prepare))
            if not at_work:
                return
            for connection in wait(list(at_work)):
                assert isinstance(connection, Connection)
                yield _result(connection, at_work.pop(connection))
    finally:
        for connection, worker in at_work.items():
            connection.close()
            worker.join()


def _start_workers(
    work: Callable[[T], R], items: Iterable[T], prepare: Callable[[T], object] | None
) -> Iterator[tuple[Connection, BaseProcess]]:
    context = multiprocessing.get_context("fork")
    for item in items:
        if prepare is not None:
            prepare(item)
        gc.collect()
        gc.freeze()  # workers do not collect what exists now
        reads, writes = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(work, item, writes))
        worker.start()
        writes.close()
        yield reads, worker


def _work(work: Callable[[T], R], item: T, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(_GARBAGE_MAX)
    outcome: Any
    try:
        outcome = (work(item), None)
    except Exception as error:  # raised to the caller
        outcome = (None, error)
    try:
        connection.send(outcome)
    except BrokenPipeError:
        return  # the reader has stopped


def _result(connection: Connection, worker: BaseProcess) -> Any:
    try:
        result, error = connection.recv()
    except EOFError:
        worker.join()
        raise WorkerLost(f"a worker ended with code {worker.exitcode} and no result") from None
    finally:
        connection.close()
    worker.join()
    if error is not None:
        raise error
    return result
