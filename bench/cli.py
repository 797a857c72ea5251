"""Duration of commands, from the start of the process to its exit.

Against a local platform with a thousand instances, with ``kubectl get`` of the same objects beside
it as the peer. The median of several runs; a machine that is busy with something else spoils it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.measurement import Measurement
from bench.processes import platform

CITIES = ("DFW", "IAD", "LHR", "SYD")
INSTANCES_PER_CITY = 250
RUNS = 7
_READY_TIMEOUT_S = 300.0
_HELP_MS, _STATUS_MS = 150.0, 300.0


def measure() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with platform(state, "project/default"):
            run = _Runner(state)
            run.raise_quota()
            run.deploy()
            return run.measure()


class _Runner:
    def __init__(self, state: Path) -> None:
        self._environment = {
            **os.environ,
            "DATUM_STATE_DIR": str(state),
            "KUBECONFIG": str(state / "kubeconfig"),
            "NO_COLOR": "1",
        }

    def measure(self) -> list[Measurement]:
        total = len(CITIES) * INSTANCES_PER_CITY
        found = [
            Measurement("--help", self._median_ms(_datumctl("--help")), "ms", at_most=_HELP_MS),
            Measurement(
                f"status of a workload with {total} instances",
                self._median_ms(_datumctl("status", "web")),
                "ms",
                "kubectl get instances",
                at_most=_STATUS_MS,
            ),
            Measurement("workloads", self._median_ms(_datumctl("workloads")), "ms"),
            Measurement(
                f"instances, {total} of them", self._median_ms(_datumctl("instances")), "ms"
            ),
        ]
        kubectl = shutil.which("kubectl")
        if kubectl is not None:
            get = (kubectl, "--context=project/default", "get")
            for kinds in ("instances", "workloads"):
                name = f"kubectl get {kinds}"
                found.append(Measurement(name, self._median_ms((*get, kinds)), "ms"))
        return found

    def raise_quota(self) -> None:
        """Through the file that the operator of the project has."""
        amounts = {"workloads": 1000, "instances": 10_000, "vcpus": 10**8, "memory": 10**8}
        allowances = [
            {"resourceType": f"compute.datumapis.com/{name}", "buckets": [{"amount": amount}]}
            for name, amount in amounts.items()
        ]
        project = {"apiGroup": "resourcemanager.miloapis.com", "kind": "Project", "name": "default"}
        grant = {
            "apiVersion": "quota.miloapis.com/v1alpha1",
            "kind": "ResourceGrant",
            "metadata": {"name": "bench", "namespace": "milo-system"},
            "spec": {"consumerRef": project, "allowances": allowances},
        }
        operator = ("kubectl", "--context=operator/default")
        self._run((*operator, "create", "-f", "-"), json.dumps(grant))

    def deploy(self) -> None:
        settings = {"minReplicas": INSTANCES_PER_CITY, "instanceManagementPolicy": "Parallel"}
        container = {"name": "app", "image": "ghcr.io/example/web:1.0"}
        document = {
            "apiVersion": "compute.datumapis.com/v1alpha",
            "kind": "Workload",
            "metadata": {"name": "web"},
            "spec": {
                "template": {"spec": {"runtime": {"sandbox": {"containers": [container]}}}},
                "placements": [
                    {"name": "default", "cityCodes": list(CITIES), "scaleSettings": settings}
                ],
            },
        }
        words = _datumctl(
            "deploy", "-f", "-", "--skip-checks", f"--timeout={_READY_TIMEOUT_S:.0f}s"
        )
        self._run(words, json.dumps(document))

    def _median_ms(self, words: Sequence[str]) -> float:
        self._run(words)  # once for the caches
        spent = []
        for _ in range(RUNS):
            start = time.perf_counter()
            self._run(words)
            spent.append((time.perf_counter() - start) * 1000)
        return median(spent)

    def _run(self, words: Sequence[str], stdin: str = "") -> None:
        done = subprocess.run(
            list(words),
            env=self._environment,
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


def _datumctl(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "datum_compute", *words)
