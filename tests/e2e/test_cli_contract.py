"""Exit codes, output and events of the command line on a running platform."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from testkit.processes.local_platform import BIN, LocalPlatform, eventually

pytestmark = pytest.mark.e2e

DEPLOY = ("deploy", "web", "--image=ghcr.io/example/web:1.0", "--city=DFW,LHR", "-y")


def parse_events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_workload_is_deployed_updated_restarted_rolled_back_and_destroyed(
    platform: LocalPlatform,
) -> None:
    done = platform.run(*DEPLOY, "--deploy-key=one", "-o", "json")
    assert done.returncode == 0, done.stderr
    events = parse_events(done.stdout)
    assert [events[0]["event"], events[-1]["event"]] == ["plan", "done"]
    again = platform.run(*DEPLOY, "--deploy-key=one", "-o", "json")
    assert (again.returncode, parse_events(again.stdout)[0]["action"]) == (0, "created")
    assert platform.run(*DEPLOY).stdout == "workload/web unchanged\n"

    image = platform.run("deploy", "web", "--image=ghcr.io/example/web:2.0", "-y")
    assert image.returncode == 0, image.stderr
    assert "Recreates 2 instances" in image.stderr
    before = instances(platform)
    assert platform.run("restart", "web", "--city=DFW").returncode == 0
    after = instances(platform)
    assert before["LHR"] == after["LHR"]
    assert before["DFW"] != after["DFW"]
    time.sleep(1)
    assert instances(platform) == after, "the restart recreates each instance once"

    undo = platform.run("rollout", "undo", "web")
    assert undo.returncode == 0, undo.stderr
    assert "To undo this: datumctl compute rollout undo web --to-revision=3" in undo.stderr
    history = json.loads(platform.run("rollout", "history", "web", "-o", "json").stdout)["items"]
    assert [item["revision"] for item in history] == [4, 3, 2, 1]
    assert history[1]["changes"] == ["restarted DFW"]
    assert history[0]["restores"] == 1
    assert platform.run("doctor").returncode == 0
    assert platform.run("destroy", "web").returncode == 2, (
        "confirmation is required and stdin is not a terminal"
    )
    assert platform.run("destroy", "web", "--confirm=web").returncode == 0
    assert platform.run("status", "web").returncode == 3


def instances(platform: LocalPlatform) -> dict[str, str]:
    items = json.loads(platform.run("instances", "-o", "json").stdout)["items"]
    return {item["city"]: item["uid"] for item in items}


def test_exceeded_quota_exits_6_and_with_skipped_checks_20(
    platform: LocalPlatform, tmp_path: Path
) -> None:
    big = ("deploy", "web", "--image=x.example/web:1", "--city=DFW", "--min=11", "-y")
    # Right after the start the platform has not computed the quota yet.
    limit = ["instances", "-", "10"]
    eventually(
        lambda: limit in [row.split()[:3] for row in platform.run("quota").stdout.splitlines()],
        "quota is known",
    )
    for preview in ("--dry-run", f"--plan-out={tmp_path / 'plan.json'}"):
        planned = platform.run(*big, preview)
        assert planned.returncode == 6, planned.stderr
        assert "Nothing was changed." in planned.stderr
    refused = platform.run(*big, "-o", "json")
    assert refused.returncode == 6
    assert json.loads(refused.stderr)["error"]["reason"] == "QuotaExceeded"
    failed = platform.run(*big, "--skip-checks", "--timeout=50s")
    assert failed.returncode == 20, failed.stderr
    assert "Next: datumctl compute quota" in failed.stderr
    quota = platform.run("quota", "--city=DFW", "--constrained")
    assert "in DFW waits for quota: Instance quota is full (10 of 10)" in quota.stderr
    (city,) = [row.split() for row in quota.stdout.splitlines() if row.startswith("DFW")]
    assert (city[1], city[-1]) == ("10", "1")


def test_no_instance_waits_for_quota_when_an_operator_has_switched_it_off(
    stopped_platform: LocalPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATUM_ENFORCE_QUOTA", "false")
    started = stopped_platform.up("--port", "0")
    assert started.returncode == 0, started.stderr
    big = ("deploy", "web", "--image=x.example/web:1", "--city=DFW", "--min=11", "-y")
    deployed = stopped_platform.run(*big)
    assert deployed.returncode == 0, deployed.stderr
    conditions = [
        (condition["status"], condition["reason"])
        for instance in stopped_platform.objects("project/default", "instances")
        for condition in instance["status"]["conditions"]
        if condition["type"] == "QuotaGranted"
    ]
    assert conditions == [("True", "QuotaDisabled")] * 11
    assert stopped_platform.objects("project/default", "resourceclaims") == []
    assert "No usage is recorded yet" in stopped_platform.run("quota").stderr


def test_an_error_contains_the_request_id_of_the_audit_log(platform: LocalPlatform) -> None:
    refused = platform.run("deploy", "web", "--image=x", "--city=XYZ", "-o", "json")
    assert refused.returncode == 2
    assert json.loads(refused.stderr)["error"]["requestId"]


def test_ctrl_c_detaches_and_the_rollout_continues(platform: LocalPlatform) -> None:
    environment = {**os.environ, "DATUM_STATE_DIR": str(platform.state), "NO_COLOR": "1"}
    with subprocess.Popen(
        [str(BIN / "datumctl"), "compute", *DEPLOY, "--min=4"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "Updating" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
        assert process.wait(timeout=30) == 130, "".join(seen) + rest
    assert "Wait for it again: datumctl compute rollout status web" in rest
    resumed = platform.run("rollout", "status", "web")
    assert resumed.returncode == 0, resumed.stderr


def test_deploy_follows_a_rollout_while_the_server_is_killed_and_restarted(
    platform: LocalPlatform, tmp_path: Path
) -> None:
    environment = {**os.environ, "DATUM_STATE_DIR": str(platform.state), "NO_COLOR": "1"}
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(
        [str(BIN / "datumctl"), "compute", *DEPLOY, "--min=4", "--timeout=5m"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
    )

    def text() -> str:
        return (tmp_path / "log").read_text()

    for round_ in range(3):
        eventually(
            lambda: "Updating" in text() or process.poll() is not None, "the rollout has started"
        )
        if process.poll() is not None:
            break
        platform.kill()
        time.sleep(1 + round_)
        up = platform.up()
        assert up.returncode == 0, up.stderr
        time.sleep(1)
    assert process.wait(timeout=120) == 0, text()
    log.close()
    assert "workload/web created" in text()
    assert "web is ready: 8 instances in 2 cities" in text()
