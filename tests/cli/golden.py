"""The cases of ``test_goldens.py``, and the objects that their commands read.

Uids differ with everything else in the world; they are put into one form before texts are compared.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.labels import CITY_CODE
from datum_compute.api.quota import INSTANCES, MEMORY, WORKLOADS
from datum_compute.client.client import Client
from tests.cli.objects import condition
from tests.cli.runner import CliRunner
from tests.cli.world import (
    NAMESPACE,
    World,
    bucket,
    healthy,
    no_controllers,
    set_status,
    write_kubeconfig,
)

GOLDEN = Path(__file__).parent / "golden"
SINCE = "2027-01-15T07:59:20Z"
SILENT = f"Cell dfw has not answered since {SINCE}"


@dataclass(frozen=True, slots=True)
class Case:
    """``columns`` makes stdout a terminal of that width."""

    name: str
    arguments: tuple[str, ...]
    columns: int = 0
    color: bool = False


READS: dict[str, tuple[str, ...]] = {
    "workloads": ("workloads",),
    "workloads-describe": ("workloads", "describe", "web"),
    "instances": ("instances",),
    "instances-describe": ("instances", "describe", "api-default-ams-0"),
    "status": ("status", "web"),
    "explain": ("explain", "web"),
    "doctor": ("doctor",),
    "quota": ("quota",),
    "cities": ("cities",),
    "instance-types": ("instance-types",),
    "access": ("access",),
    "events": ("events",),
}
WIDTHS = (60, 80, 200)

CASES: tuple[Case, ...] = (
    *(
        Case(f"{name}-{form}", (*words, "-o", form))
        for name, words in READS.items()
        for form in ("table", "wide", "json")
    ),
    *(
        Case(f"{name}-terminal-{width}", READS[name], width)
        for name, width in itertools.product(("workloads", "instances", "status"), WIDTHS)
    ),
    Case("status-color", READS["status"], 200, color=True),
    Case("workloads-csv", ("workloads", "-o", "csv")),
    Case("workloads-name", ("workloads", "-o", "name")),
    Case("workloads-jsonpath", ("workloads", "-o", "jsonpath={.items[*].name}")),
    Case("export", ("export", "web")),
    Case("deploy-dry-run", ("deploy", "web", "--image=web:2", "--min=1", "--dry-run")),
)


@cache
def golden_world() -> World:
    world = World(player=healthy)
    with tempfile.TemporaryDirectory() as folder:
        cli = _runner(Path(folder), world)
        deploy = ("deploy", "web", "--image=reg.test/x/web:1", "--city=DFW,ORD", "--min=2")
        assert cli.run(*deploy, "--port=80", "--env=MODE=fast", "-y") == 0, cli.err
        assert cli.run("deploy", "api", "--image=api:7", "--city=AMS", "-y") == 0, cli.err
    world.player = no_controllers
    world.do(_trouble)
    return world


async def _trouble(client: Client) -> None:
    """One cell is silent, one instance waits for quota."""
    listed = await client.list(INSTANCE, NAMESPACE)
    silent = condition("Ready", "Unknown", "CellUnreachable", SILENT, since=SINCE)
    denied = condition("QuotaGranted", "False", "QuotaExceeded", "11 of 10 instances")
    waiting = condition("Ready", "False", "PendingQuota", "11 of 10 instances")
    for instance in listed.items:
        name, city = instance.metadata.name, instance.metadata.labels[CITY_CODE]
        if city == "DFW":
            await set_status(client, INSTANCE, name, {"conditions": [silent]})
        if city == "ORD" and name.endswith("-1"):
            await set_status(client, INSTANCE, name, {"conditions": [waiting, denied]})
    for deployment in (await client.list(DEPLOYMENT, NAMESPACE)).items:
        name, city = deployment.metadata.name, deployment.spec.city_code
        if city == "DFW":
            unknown = condition("Available", "Unknown", "CellUnreachable", SILENT, since=SINCE)
            await set_status(
                client, DEPLOYMENT, name, {"readyReplicas": 0, "conditions": [unknown]}
            )
        if city == "ORD":
            available = condition("Available", "True", "StableInstanceFound", "1/2 are ready")
            short = condition("ReplicasReady", "False", "PendingQuota", "1 of 2 wait for quota")
            status = {"readyReplicas": 1, "conditions": [available, short]}
            await set_status(client, DEPLOYMENT, name, status)
    await set_status(client, WORKLOAD, "web", {"readyReplicas": 1})
    for metric, limit, used in ((WORKLOADS, 1000, 2), (INSTANCES, 10, 10), (MEMORY, 8192, 5120)):
        await bucket(client, metric, limit, used)


def golden_runner(home: Path) -> CliRunner:
    return _runner(home, golden_world())


def _runner(home: Path, world: World) -> CliRunner:
    write_kubeconfig(home / ".local/state/datum-compute/kubeconfig")
    return CliRunner(home=home, open_transport=world.open)


def _with_fixed_uids(text: str) -> str:
    return re.sub(r"uid-\d+", "uid-0", text)


def render(cli: CliRunner, case: Case) -> str:
    cli.is_terminal, cli.columns = bool(case.columns), case.columns or 80
    cli.environ = {} if case.color else {"NO_COLOR": "1"}
    code = cli.run(*case.arguments)
    err = "".join(f"2> {line}\n" for line in cli.err.splitlines())
    shown = " ".join(case.arguments)
    return f"$ {shown}\n{_with_fixed_uids(cli.out)}{_with_fixed_uids(err)}exit {code}\n"


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for file in GOLDEN.iterdir():
        file.unlink()
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            (GOLDEN / f"{case.name}.txt").write_text(render(golden_runner(Path(folder)), case))


if __name__ == "__main__":
    main()
