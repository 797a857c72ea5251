"""Run the benches named as arguments, or all of them that need nothing which has to be built."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import (
    access,
    cli,
    containers,
    fairness,
    federation,
    hostile,
    instances,
    kubernetes,
    runtime,
    server,
    simulator,
    store,
    wake,
)
from bench.measurement import Measurement, keep, table
from bench.processes import end_on_sigterm
from datum_compute.telemetry.broken_pipe import exit_on_broken_pipe

BENCHES: dict[str, Callable[[], list[Measurement]]] = {
    "access": access.measure,
    "cli": cli.measure,
    "containers": containers.measure,
    "fairness": fairness.measure,
    "federation": federation.measure,
    "hostile": hostile.measure,
    "instances": instances.measure,
    "kubernetes": kubernetes.measure,
    "runtime": runtime.measure,
    "server": server.measure,
    "simulator": simulator.measure,
    "store": store.measure,
    "wake": wake.measure,
    "watch": store.measure_watch_log,
}


_BUILT_FIRST = ("kubernetes",)  # make kube-assets


@exit_on_broken_pipe
def main() -> int:
    chosen = sys.argv[1:] or [name for name in BENCHES if name not in _BUILT_FIRST]
    unknown = [name for name in chosen if name not in BENCHES]
    if unknown:
        print(f"unknown bench: {', '.join(unknown)}. Benches: {', '.join(BENCHES)}")
        return 2
    end_on_sigterm()
    for name in chosen:
        measurements = BENCHES[name]()
        print(f"{name}\n{table(measurements)}\n  -> {keep(name, measurements)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
