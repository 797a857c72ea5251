"""Run the benches named as arguments, or all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import access, instances, runtime, server, simulator, store, watch
from bench.measurement import Measurement, keep, table

BENCHES: dict[str, Callable[[], list[Measurement]]] = {
    "access": access.measure,
    "instances": instances.measure,
    "runtime": runtime.measure,
    "server": server.measure,
    "simulator": simulator.measure,
    "store": store.measure,
    "watch": watch.measure,
}


def main() -> int:
    chosen = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in chosen if name not in BENCHES]
    if unknown:
        print(f"no such bench: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
        return 2
    for name in chosen:
        measurements = BENCHES[name]()
        print(f"{name}\n{table(measurements)}\n  -> {keep(name, measurements)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
