"""Clock, ids and randomness of a process, as arguments. The simulator passes its own."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from datum_compute.server.flowcontrol.control import stopped_clock

# The alphabet of Kubernetes' generated names: no vowels, so no words.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def _elapsed_s() -> float:
    # CLOCK_MONOTONIC stops while Linux is suspended, but leases expire during that time.
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _new_uid() -> str:
    """Return the text of a random UUID (version 4).

    A uid must be unique but not secret, so a pseudo-random generator is enough. ``uuid.uuid4``
    makes a system call that releases the interpreter lock, and every request needs a uid.
    """
    text = f"{random.getrandbits(128):032x}"
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """The clock, the ids and the randomness of one process."""

    unix_s: Callable[[], float]
    new_uid: Callable[[], str]
    new_suffix: Callable[[], str]
    random: random.Random
    # Monotonic, and continues while the machine is suspended.
    elapsed_s: Callable[[], float] = _elapsed_s
    # Measures how long requests occupy the event loop. With the default no request waits.
    work_s: Callable[[], float] = stopped_clock


def process_environment() -> ProcessEnvironment:
    return ProcessEnvironment(
        unix_s=time.time,
        new_uid=_new_uid,
        new_suffix=lambda: "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5)),
        random=random.Random(secrets.randbits(64)),  # noqa: S311 - jitter, not secrets
        work_s=time.perf_counter,
    )
