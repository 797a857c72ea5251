"""Run two releases in turn on one store: ``python -m hack.rehearse_upgrade OLD [--record FILE]``.

OLD is a checkout of the previous release (``git worktree add``). It creates a workload, and runs
until it writes nothing more. Then the current, the previous and again the current release start on
that state. Each must stop writing, and must not replace an instance; otherwise the exit code is 1.

``--record`` stores the state of the previous release in the format that is used by
``tests/journeys/test_upgrade.py``. Create a new record before each release.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from datum_compute.api.kinds import INSTANCE, NAMESPACE
from datum_compute.api.planes import PlaneName, cell_plane
from datum_compute.app.backup.backup import read_planes
from datum_compute.client.auth.kubeconfig import build_client, connection_of, load_kubeconfig
from datum_compute.client.transport.http1 import Http1Transport
from datum_compute.store.dump import encode_dump
from datum_compute.store.journal import LoadedPlane

PRESENT = Path(__file__).resolve().parent.parent
CELL = cell_plane("dfw")
STILL_S, WATCHED_S, PATIENCE_S = 15.0, 60.0, 120.0
_DEPLOY = ("deploy", "web", "--image=x.example/web:1", "--city=DFW", "--yes")


@dataclass(frozen=True, slots=True)
class Rest:
    """The idle state of a release: versions by plane, uids of instances, and later writes."""

    versions: dict[PlaneName, int]
    instances: dict[str, str]
    writes: int


def main() -> int:
    old = Path(sys.argv[1]).resolve()
    record = Path(sys.argv[sys.argv.index("--record") + 1]) if "--record" in sys.argv else None
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(rehearse(old, Path(folder) / "state", record))


async def rehearse(old: Path, state: Path, record: Path | None) -> int:
    first = await run_once(old, state, deploys=True)
    _print_result("previous release", first)
    if record is not None:
        await keep(state, record)
        print(f"recorded in {record}")  # noqa: T201
    failed = bool(first.writes)
    releases = (("current release", PRESENT), ("previous release", old))
    for name, tree in (*releases, releases[0]):
        rest = await run_once(tree, state)
        _print_result(name, rest)
        failed |= rest.writes > 0 or rest.instances != first.instances
    return 1 if failed else 0


async def run_once(tree: Path, state: Path, *, deploys: bool = False) -> Rest:
    """Start the release of a tree, wait until it writes nothing, observe it, and stop it."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "DATUM_STATE_DIR": str(state)}
    environment.pop("KUBECONFIG", None)
    command = [sys.executable, "-m", "datum_compute.app.local_server", "--state-dir", str(state)]
    flags = ["--driver", "simulated", "--cells", "dfw"]
    server = await asyncio.create_subprocess_exec(
        *command, *flags, env=environment, stderr=subprocess.DEVNULL
    )
    try:
        await _until_answers(state)
        if deploys:
            arguments = ("-m", "datumctl", "compute", *_DEPLOY)
            made = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, env=environment, stdout=subprocess.DEVNULL
            )
            if await made.wait():
                raise RuntimeError("the deploy with the previous release failed")
        versions = await _until_still(state)
        await asyncio.sleep(WATCHED_S)
        later = await _versions(state)
        writes = sum(later[plane] - versions[plane] for plane in versions)
        return Rest(versions, await _instances(state), writes)
    finally:
        server.terminate()
        await server.wait()


async def keep(state: Path, record: Path) -> None:
    _write(state, record, await read_planes(state / "store.db"))


def _write(state: Path, record: Path, planes: dict[str, LoadedPlane]) -> None:
    machines = json.loads((state / f"machines-{CELL.replace('/', '-')}.json").read_text())
    head = {"at": time.time(), "machines": machines}
    body = json.dumps(head).encode() + b"\n" + encode_dump(planes)
    record.write_bytes(gzip.compress(body, mtime=0))


async def _until_answers(state: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            await _versions(state)
        except Exception:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.3)
        else:
            return


async def _until_still(state: Path) -> dict[PlaneName, int]:
    known, since_s = await _versions(state), time.monotonic()
    deadline_s = since_s + PATIENCE_S
    while time.monotonic() < since_s + STILL_S:
        await asyncio.sleep(1)
        found = await _versions(state)
        if found != known:
            known, since_s = found, time.monotonic()
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the release still writes after {PATIENCE_S} s")
    return known


async def _versions(state: Path) -> dict[PlaneName, int]:
    """Return the version of each plane, which increases by one with each write."""
    config = load_kubeconfig([state / "kubeconfig"])
    names = [PlaneName(name) for name in config.contexts if not name.startswith("operator/")]
    found = {}
    for name in names:
        connection = connection_of(config, name)
        async with Http1Transport(connection.server, ca_pem=connection.ca_pem) as transport:
            client = build_client(connection, transport)
            found[name] = int(await client.version(NAMESPACE))
    return found


async def _instances(state: Path) -> dict[str, str]:
    connection = connection_of(load_kubeconfig([state / "kubeconfig"]), CELL)
    async with Http1Transport(connection.server, ca_pem=connection.ca_pem) as transport:
        found = (await build_client(connection, transport).list(INSTANCE)).items
    return {i.metadata.name: i.metadata.uid for i in found}


def _print_result(name: str, rest: Rest) -> None:
    instances = ", ".join(f"{n} {uid[:8]}" for n, uid in sorted(rest.instances.items()))
    print(f"{name}: {rest.writes} writes while idle for {WATCHED_S:.0f} s; {instances}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
