"""Commands in real containers, through the gateway. One platform for all of them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from testkit.processes.container_engine import TestEngine
from testkit.processes.container_platform import Real, up
from testkit.processes.local_platform import BIN, eventually
from tests.e2e.terminal import Screen

pytestmark = pytest.mark.timeout(240)


@dataclass(frozen=True, slots=True)
class Inside:
    """Runs commands in one instance with one container."""

    real: Real
    name: str
    kubeconfig: Path | None = None  # of another user than the admin

    @property
    def environment(self) -> dict[str, str]:
        found = {**os.environ, "DATUM_STATE_DIR": str(self.real.state), "NO_COLOR": "1"}
        return {**found, "KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else found

    def command(self, *words: str) -> list[str]:
        return [str(BIN / "datumctl"), "compute", "exec", self.name, *words]

    def run(self, *words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command(*words),
            env=self.environment,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=60,
        )

    def begun(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command, and wait for its first line of output."""
        process = subprocess.Popen(
            self.command(*words),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        return process

    def processes(self) -> str:
        return self.run("--", "ps").stdout.decode()

    def audited(self) -> list[dict[str, Any]]:
        lines = (self.real.state / "audit.log").read_text().splitlines()
        return [e for e in map(json.loads, lines) if e.get("subresource") == "exec"]


@pytest.fixture(scope="module")
def inside(engine: TestEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    real = Real(tmp_path_factory.mktemp("exec") / "state")
    up(real, engine)
    done = real.deploy("web", f"--image={engine.image('web:1')}", "--city=DFW")
    assert done.returncode == 0, done.stdout + done.stderr
    yield Inside(real, real.ready("web")[0]["name"])
    real.run("destroy", "web", "--yes")
    eventually(lambda: engine.podman("ps", "--all", "--quiet").split() == [], "all are gone")
    real.down()


def test_a_command_has_its_streams_and_its_exit_code(inside: Inside) -> None:
    done = inside.run("--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert inside.run("--", "true").returncode == 0
    done = inside.run("-i", "--", "cat", stdin=b"some\0bytes\xff\n" * 1000)
    assert (done.returncode, done.stdout) == (0, b"some\0bytes\xff\n" * 1000)
    done = inside.run("--", "cat", stdin=b"not passed on")
    assert (done.returncode, done.stdout) == (0, b"")
    done = inside.run("--", "sh", "-c", "head -c 3000000 /dev/zero")
    assert (done.returncode, len(done.stdout)) == (0, 3_000_000)


def test_a_command_that_cannot_run_has_a_message_and_the_exit_code_of_a_shell(
    inside: Inside,
) -> None:
    done = inside.run("--", "nosuch")
    assert done.returncode == 127
    assert b'"nosuch": executable file not found' in done.stderr
    done = inside.run("--", "/etc/passwd")
    assert done.returncode == 126
    assert b"permission denied" in done.stderr
    done = inside.run("-c", "missing", "--", "ls")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        3,
        b"error: there is no container 'missing'",
    )
    done = inside.run("-t", "--", "ls")
    assert done.returncode == 2
    done = Inside(inside.real, "web-default-dfw-9").run("--", "ls")
    assert done.returncode == 3


def test_the_usage_of_an_instance_is_among_the_metrics(inside: Inside) -> None:
    admin = Admin.of(inside.real, "platform")

    def is_measured() -> bool:
        page = admin.page("/metrics")
        start = 'compute_instance_memory_bytes{cell="dfw",'
        return any(
            line.startswith(start) and f'instance="{inside.name}"' in line
            for line in page.splitlines()
        )

    eventually(is_measured, "its memory is there")


HERE = ("--", "sh", "-c", "echo here; sleep 4321")


def test_a_command_ends_with_its_connection(inside: Inside) -> None:
    process = inside.begun(*HERE)
    assert "sleep 4321" in inside.processes()
    process.kill()
    process.communicate()
    eventually(lambda: "sleep 4321" not in inside.processes(), "the process is ended")
    eventually(
        lambda: "ClientGone" in [entry["reason"] for entry in inside.audited()],
        "its end is in the trail",
    )


def test_a_user_without_access_is_disconnected_within_seconds_and_audited(
    inside: Inside, tmp_path: Path
) -> None:
    admin = Admin.of(inside.real)
    admin.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "eve"}})
    binding = {
        "metadata": {"name": "eve"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "project-editor",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "eve", "namespace": "default"}],
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    admin.post(bindings, binding)
    issued = admin.post("/api/v1/namespaces/default/serviceaccounts/eve/token", {"spec": {}})
    config = admin.kubeconfig(tmp_path / "eve.yaml", issued["status"]["token"])
    eve = Inside(inside.real, inside.name, config)
    process = eve.begun(*HERE)
    admin.ask("DELETE", f"{bindings}/eve")
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 5, stderr
    assert b"you have no access to this instance any more: Forbidden" in stderr
    eventually(lambda: "sleep 4321" not in inside.processes(), "the process is ended")
    again = eve.run("--", "ls")
    assert again.returncode == 5
    user = "system:serviceaccount:default:eve"

    def trail() -> list[tuple[int, str]]:
        return [(e["code"], e["reason"]) for e in inside.audited() if e["user"] == user]

    # The entry of the ended command can follow those of later commands of the administrator. The
    # second command of eve has no entry: reading the instance is refused first.
    expected = [(101, "Begun"), (101, "AccessTakenAway")]
    eventually(lambda: trail() == expected, "the audit log has both entries of the first command")
    assert {e["name"] for e in inside.audited() if e["user"] == user} == {inside.name}


@dataclass(frozen=True, slots=True)
class Admin:
    """Requests with the admin token of a plane, over plain HTTPS."""

    server: str
    token: str
    authority: str
    config: dict[str, Any]

    @staticmethod
    def of(real: Real, plane: str = "project/default") -> Admin:
        config = yaml.safe_load(real.kubeconfig.read_text())
        (cluster,) = [c["cluster"] for c in config["clusters"] if c["name"] == plane]
        (user,) = [u["user"] for u in config["users"] if u["name"] == plane]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return Admin(cluster["server"], user["token"], authority, config)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.ask("POST", path, body)

    def page(self, path: str) -> str:
        return self._answer("GET", path, None).decode()

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return json.loads(self._answer(method, path, body))

    def _answer(self, method: str, path: str, body: dict[str, Any] | None) -> bytes:
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"authorization": f"Bearer {self.token}", "content-type": "application/json"},
        )
        trusted = ssl.create_default_context(cadata=self.authority)
        with urllib.request.urlopen(request, context=trusted, timeout=30) as answer:
            found: bytes = answer.read()
            return found

    def kubeconfig(self, path: Path, token: str) -> Path:
        name = "project/default"
        others = {
            **self.config,
            "current-context": name,
            "users": [{"name": name, "user": {"token": token}}],
        }
        path.write_text(yaml.safe_dump(others))
        path.chmod(0o600)
        return path


def test_a_terminal_has_the_size_of_the_window_and_forwards_every_key(inside: Inside) -> None:
    if shutil.which("tmux") is None:
        pytest.fail("a terminal cannot be tested: tmux is not installed")
    screen = Screen(f"exec-{uuid.uuid4().hex[:8]}")
    path = f"{BIN}:{os.environ['PATH']}"
    shell = f"env PATH={path} DATUM_STATE_DIR={inside.real.state} PS1='outside> ' sh"
    screen.tmux("new-session", "-d", "-s", "main", "-x", "100", "-y", "30", shell)
    try:
        eventually(lambda: "outside>" in screen.text(), "the shell is there")
        screen.type(f"datumctl compute exec {inside.name} -it -- sh; echo code=$?")
        eventually(lambda: "/ #" in screen.text() or "~ #" in screen.text(), "a shell inside")
        screen.type("stty size")
        eventually(lambda: "30 100" in screen.text(), "it knows its size")
        screen.type('while [ "$(stty size)" != "22 77" ]; do sleep 1; done; echo sized-$((1+1))')
        screen.tmux("resize-window", "-t", "main", "-x", "77", "-y", "22")
        eventually(lambda: "sized-2" in screen.text(), "it follows the window")
        screen.type("echo begun-$((1+1)); sleep 1000")
        eventually(lambda: "begun-2" in screen.text(), "it sleeps")

        def is_interrupted() -> bool:
            screen.press("C-c")
            return screen.text().rstrip().endswith("#")

        eventually(is_interrupted, "Ctrl-C went to the sleep")
        screen.type("echo still-$((40+2))")
        eventually(lambda: "still-42" in screen.text(), "the shell goes on")
        screen.type("exit 7")
        eventually(lambda: "code=7" in screen.text(), "the exit code came back")
        screen.type("echo back-$((50+1))")
        eventually(lambda: "back-51" in screen.text(), "the terminal is as it was")
    finally:
        screen.tmux("kill-server")
