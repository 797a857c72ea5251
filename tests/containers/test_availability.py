"""Releases of a program without probe and port, on the real engine."""

from __future__ import annotations

import pytest

from testkit.processes.container_engine import TestEngine
from testkit.processes.container_platform import Real

pytestmark = pytest.mark.timeout(400)

STAYS_UP = """CMD ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"]"""
EXITS_SOON = 'CMD ["sh", "-c", "sleep 3; exit 1"]'


def test_a_program_that_starts_and_exits_replaces_one_instance_and_is_never_ready(
    real: Real, engine: TestEngine
) -> None:
    engine.publish("worker:1", "v1", STAYS_UP)
    engine.publish("worker:2", "v2", EXITS_SOON)
    image = f"--image={engine.image('worker:1')}"
    done = real.deploy("worker", image, "--min=2", "--city=DFW")
    assert done.returncode == 0, done.stdout + done.stderr
    before = {i["name"]: i["uid"] for i in real.ready("worker")}
    assert len(before) == 2
    failed = real.deploy("worker", f"--image={engine.image('worker:2')}", "--timeout=3m")
    assert failed.returncode == 20, failed.stdout + failed.stderr
    assert "is ready" not in failed.stdout + failed.stderr
    assert failed.stderr.splitlines()[-1].endswith("datumctl compute rollout undo worker")
    kept = {i["name"]: i["uid"] for i in real.instances("worker")}.items() & before.items()
    assert [name.rpartition("-")[2] for name, _ in kept] == ["0"], "the other one is untouched"
    undone = real.run("rollout", "undo", "worker")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    after = {i["name"]: i["uid"] for i in real.ready("worker")}
    assert len(after) == 2
    assert kept <= after.items()
