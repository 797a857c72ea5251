"""``local up``, ``local down`` and ``local reset``."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path

import pytest
import yaml

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import LocalPlatform

pytestmark = pytest.mark.e2e


def test_up_writes_a_private_kubeconfig_with_a_context_for_each_plane(
    platform: LocalPlatform,
) -> None:
    assert stat.S_IMODE(platform.state.stat().st_mode) == 0o700
    assert stat.S_IMODE(platform.kubeconfig.stat().st_mode) == 0o600
    config = yaml.safe_load(platform.kubeconfig.read_text())
    assert [c["name"] for c in config["contexts"]] == [
        "platform",
        "project/default",
        "hub",
        *("cell/dfw", "cell/iad", "cell/lhr", "cell/syd"),
        "operator/default",
    ]
    assert config["current-context"] == "project/default"
    assert all(user["user"]["token"] for user in config["users"])


def test_the_server_names_its_state_directory_and_holds_no_pipe_of_the_caller(
    platform: LocalPlatform,
) -> None:
    process = Path("/proc") / str(platform.pid)
    assert str(platform.state) in (process / "cmdline").read_text()
    for standard in ("0", "1", "2"):
        assert "pipe:" not in str((process / "fd" / standard).readlink())


def test_up_again_while_it_runs_changes_nothing(platform: LocalPlatform) -> None:
    pid = platform.pid
    again = platform.up()
    assert again.returncode == 0
    assert platform.pid == pid


def test_a_suspended_server_is_reported_with_the_command_that_continues_it(
    platform: LocalPlatform,
) -> None:
    pid = platform.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        for command in (("doctor",), ("workloads",)):
            done = platform.run(*command)
            assert done.returncode == 1, done.stdout
            assert f"(pid {pid}) is suspended" in done.stderr
            assert f"kill -CONT {pid}" in done.stderr
        shown = platform.run("local", "status", "--state-dir", str(platform.state)).stdout
        assert "is suspended at https://127.0.0.1:" in shown
        assert f"kill -CONT {pid}" in shown
    finally:
        os.kill(pid, signal.SIGCONT)
    assert platform.run("doctor").returncode == 0


def test_down_and_up_continue_on_the_same_port(platform: LocalPlatform) -> None:
    before = platform.kubeconfig.read_text()
    assert platform.down().returncode == 0
    assert platform.pid == 0, "no server is recorded"
    assert platform.down().returncode == 0, "down is idempotent"
    assert platform.up().returncode == 0
    assert platform.kubeconfig.read_text() == before


def test_cells_chosen_at_the_first_start_are_kept(tmp_path: Path) -> None:
    chosen = LocalPlatform(tmp_path / "chosen")
    try:
        assert chosen.up("--cells", "ams,dfw").returncode == 0
        deployed = chosen.run("deploy", "web", "--image=x.example/web:1", "--city=AMS", "-y")
        assert deployed.returncode == 0, deployed.stderr
        assert chosen.down().returncode == 0
        assert chosen.up().returncode == 0
        config = yaml.safe_load(chosen.kubeconfig.read_text())
        cells = [c["name"] for c in config["contexts"] if c["name"].startswith("cell/")]
        assert cells == ["cell/ams", "cell/dfw"]
        (server,) = chosen.objects("cell/ams", "servers")
        assert server["status"]["phase"] == "Running"
    finally:
        chosen.down()


def test_up_after_a_reset_starts_with_an_empty_state(tmp_path: Path) -> None:
    platform = LocalPlatform(tmp_path / "reset")
    try:
        platform.up()
        platform.run("deploy", "web", "--image=x.example/web:1", "--city=DFW", "-y")
        wiped = platform.run("local", "reset", "-y", "--state-dir", str(platform.state))
        assert wiped.returncode == 0, wiped.stderr
        assert not platform.state.exists()
        assert platform.up().returncode == 0
        assert platform.run("status", "web").returncode == 3
    finally:
        platform.down()


def test_two_servers_never_share_a_state_directory(platform: LocalPlatform) -> None:
    # Without server.json the command line assumes that no server is running.
    announcement = (platform.state / "server.json").read_text()
    (platform.state / "server.json").unlink()
    second = platform.up()
    (platform.state / "server.json").write_text(announcement)
    assert second.returncode != 0
    assert "in use" in second.stderr


def test_a_port_in_use_is_reported(platform: LocalPlatform, tmp_path: Path) -> None:
    port = json.loads((platform.state / "server.json").read_text())["port"]
    other = LocalPlatform(tmp_path / "other")
    refused = other.up("--port", str(port))
    assert refused.returncode == 1
    assert str(port) in refused.stderr


def test_no_token_is_written_to_the_log(platform: LocalPlatform) -> None:
    platform.run("status", "nothing")
    log = (platform.state / "server.log").read_text()
    tokens = json.loads((platform.state / "tokens.json").read_text())
    assert log
    assert not [token for token in tokens.values() if token in log]


@pytest.mark.usefixtures("needs_kubectl")
def test_only_the_operator_context_can_change_grants(
    platform: LocalPlatform,
) -> None:
    """The operator context cannot read Secrets, and a project admin cannot change grants."""
    operator = Kubectl(platform.kubeconfig, "operator/default")
    limited = ("resourcegrants", "-l", "services.miloapis.com/limit=instances")
    (grant,) = operator.json("get", *limited)["items"]
    name = grant["metadata"]["name"]
    for allowance in grant["spec"]["allowances"]:
        allowance["buckets"][0]["amount"] += 1
    text = json.dumps(grant)
    admin = Kubectl(platform.kubeconfig, "project/default").in_namespace("milo-system")
    assert "forbidden" in admin.error_of("replace", "-f", "-", stdin=text).lower()
    operator("replace", "-f", "-", stdin=text)
    amounts = [a["buckets"][0]["amount"] for a in grant["spec"]["allowances"]]
    now = admin.json("get", f"resourcegrant/{name}")
    assert [a["buckets"][0]["amount"] for a in now["spec"]["allowances"]] == amounts
    assert "forbidden" in operator.error_of("get", "secrets").lower()


def test_up_with_flags_that_a_running_platform_does_not_have_is_refused(
    platform: LocalPlatform,
) -> None:
    pid = platform.pid
    refused = platform.up("--driver", "simulated", "--cells", "ams")
    assert refused.returncode == 2
    assert "--cells=ams (currently dfw,iad,lhr,syd)" in refused.stderr
    assert platform.pid == pid


def test_a_cell_that_left_is_not_started_until_it_is_named(tmp_path: Path) -> None:
    platform = LocalPlatform(tmp_path / "platform")

    def cells() -> list[str]:
        listed = json.loads(platform.run("cell", "list", "-o", "json").stdout)["items"]
        return [f"{cell['name']} {cell['status']}" for cell in listed]

    try:
        assert platform.up("--processes", "--cells", "dfw,iad").returncode == 0
        assert platform.run("cell", "leave", "cell/iad", "-y").returncode == 0
        assert platform.down().returncode == 0
        again = platform.up()
        assert again.returncode == 0, again.stderr
        assert "because they left the platform: iad" in again.stderr
        assert cells() == ["dfw Ready"]
        named = platform.up("--cells", "dfw,iad")
        assert named.returncode == 0, named.stderr
        assert cells() == ["dfw Ready", "iad Ready"]
    finally:
        platform.down()
