"""Many independent pieces of work on all cores, each result handed over as it comes.

Workers are processes, because worlds are pure computing. Each piece has a process of its own, made
from this one: whatever ``prepare`` has left in memory here it finds there, made once for all
pieces. It ends without looking for garbage, which would take a twentieth of its time.

Workers ignore Ctrl-C: whoever reads the results gets it, stops reading, and waits only for the
pieces that are under way.
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

# Objects that a worker makes before it looks for garbage after all, lest it fill the memory.
_GARBAGE_MAX = 2_000_000


class WorkerLost(Exception):
    """A process ended without a result, killed perhaps."""


def run_in_workers(
    work: Callable[[T], R],
    items: Iterable[T],
    jobs: int,
    prepare: Callable[[T], object] | None = None,
) -> Iterator[R]:
    """In the order in which they finish. Items are drawn only as they are needed, so there may
    be endlessly many; with one job everything happens here."""
    if jobs <= 1:
        yield from map(work, items)
        return
    source, at_work = iter(items), dict[Connection, BaseProcess]()
    try:
        while True:
            at_work.update(_begun(work, islice(source, jobs - len(at_work)), prepare))
            if not at_work:
                return
            for connection in wait(list(at_work)):
                assert isinstance(connection, Connection)
                yield _result(connection, at_work.pop(connection))
    finally:
        for connection, worker in at_work.items():
            connection.close()
            worker.join()


def _begun(
    work: Callable[[T], R], items: Iterable[T], prepare: Callable[[T], object] | None
) -> Iterator[tuple[Connection, BaseProcess]]:
    context = multiprocessing.get_context("fork")
    for item in items:
        if prepare is not None:
            prepare(item)
        gc.collect()
        gc.freeze()  # what is there by now is no garbage of any worker
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
    except Exception as error:  # told to whoever asked for the work
        outcome = (None, error)
    try:
        connection.send(outcome)
    except BrokenPipeError:
        return  # nobody wants it any more


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
