"""A podman, a registry and local images, for one session of tests.

Nothing is downloaded from the internet: images are built from Debian's busybox. The engine has its
own store and networks, so it can be stopped and started without effect on other engines.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

NEEDED = ("podman", "runc", "docker-registry", "busybox", "iptables")
APPLETS = (
    *("sh", "sleep", "httpd", "cat", "echo", "ls", "id", "env", "nc", "wget", "kill", "ps"),
    *("touch", "head", "tail", "date", "tr", "seq", "stty", "test", "true", "false", "yes", "rm"),
)
USER, PASSWORD = "alice", "right"
HASH = "$2b$05$abcdefghijklmnopqrstuu8xaCxxL82bnl.UY74PMksDxIJShppPC"  # of the password


def missing_programs() -> list[str]:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [name for name in NEEDED if shutil.which(name, path=path) is None]


@dataclass(slots=True)
class TestEngine:
    __test__ = False

    root: Path
    registry_port: int = 0
    private_port: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def socket(self) -> str:
        return str(self.root / "engine.sock")

    @property
    def registry(self) -> str:
        return f"127.0.0.1:{self.registry_port}"

    @property
    def private(self) -> str:
        """Address of a registry with the same images that only USER can pull."""
        return f"127.0.0.1:{self.private_port}"

    def image(self, name: str) -> str:
        return f"{self.registry}/{name}"

    # --- processes

    def start(self) -> None:
        self._configure()
        self.start_registry()
        self.start_engine()

    def start_registry(self) -> None:
        config = self.root / "registry.yml"
        self._run("registry", ["docker-registry", "serve", str(config)])
        self._run("private", ["docker-registry", "serve", str(self.root / "private.yml")])
        eventually(lambda: answers(f"http://{self.registry}/v2/"))
        eventually(lambda: listens(self.private_port))

    def start_engine(self) -> None:
        Path(self.socket).unlink(missing_ok=True)
        service = ["system", "service", "--time=0", f"unix://{self.socket}"]
        self._run("engine", self._podman(*service))
        eventually(lambda: accepts(self.socket))

    def stop_engine(self) -> None:
        """Kill the engine; containers keep running."""
        self._end("engine", signal.SIGKILL)

    def restart_engine(self, init_path: str = "") -> None:
        """Restart with the default init program or another one; containers keep running."""
        self.stop_engine()
        (self.root / "containers.conf").write_text(configuration(init_path))
        self.start_engine()

    def stop(self) -> None:
        if "engine" in self.processes:
            self._end("engine", signal.SIGTERM)
        for command in (("rm", "--all", "--force", "--time", "0"), ("network", "prune", "--force")):
            subprocess.run(self._podman(*command), env=self._environment(), capture_output=True)
        self._end("registry", signal.SIGTERM)
        self._end("private", signal.SIGTERM)
        subprocess.run(["umount", str(self.root / "store" / "overlay")], capture_output=True)

    def podman(self, *words: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            self._podman(*words), input=stdin, env=self._environment(), capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def logs(self, container: str) -> str:
        """Return the stdout and then the stderr of a container."""
        done = subprocess.run(
            self._podman("logs", container), env=self._environment(), capture_output=True
        )
        return (done.stdout + done.stderr).decode()

    def _run(self, name: str, command: list[str]) -> None:
        log = (self.root / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self._environment(),
            cwd=self.root,  # conmon writes a file to the working directory
            start_new_session=True,
        )
        log.close()

    def _end(self, name: str, how: signal.Signals) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait(timeout=30)

    def _podman(self, *words: str) -> list[str]:
        # Events are recorded below --tmpdir; two engines must not share them.
        places = {
            "--root": "store",
            "--runroot": "run",
            "--tmpdir": "tmp",
            "--network-config-dir": "networks",
        }
        return [
            "podman",
            *("--runtime", "runc", "--cgroup-manager", "cgroupfs"),
            *(word for option, name in places.items() for word in (option, str(self.root / name))),
            *words,
        ]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
            "CONTAINERS_CONF": str(self.root / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self.root / "registries.conf"),
        }

    def _configure(self) -> None:
        self.registry_port, self.private_port = free_port(), free_port()
        storage = f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {self.root}/images\n"
        insecure = "".join(
            f'[[registry]]\nlocation = "{host}"\ninsecure = true\n'
            for host in (self.registry, self.private)
        )
        files = {
            "containers.conf": configuration(),
            "registries.conf": insecure,
            "registry.yml": f"{storage}http:\n  addr: {self.registry}\n",
            "private.yml": f"{storage}http:\n  addr: {self.private}\n"
            f"auth:\n  htpasswd:\n    realm: private\n    path: {self.root}/htpasswd\n",
            "htpasswd": f"{USER}:{HASH}\n",
        }
        for name, text in files.items():
            (self.root / name).write_text(text)

    # --- images

    def publish(self, name: str, version: str, *changes: str) -> str:
        """Push an image that serves its version on port 8080, and remove it from the engine."""
        image = self.image(name)
        changes_flags = [word for change in changes for word in ("--change", change)] or [
            "--change",
            'CMD ["httpd", "-f", "-p", "8080", "-h", "/www"]',
        ]
        changes_flags += ["--change", f"ENV VERSION={version}", "--change", "ENV PATH=/bin"]
        self.podman("import", *changes_flags, "-", image, stdin=file_system(version))
        self.podman("push", "--quiet", image)
        self.podman("rmi", "--force", image)
        return image


def configuration(init_path: str = "") -> str:
    text = '[network]\nnetwork_backend = "netavark"\n[engine]\nevents_logger = "file"\n'
    if init_path:  # podman 4 reads it from the first section, podman 5 from the second
        text += f'init_path = "{init_path}"\n[containers]\ninit_path = "{init_path}"\n'
    return text


def file_system(version: str) -> bytes:
    """Return a tar with busybox and a page."""
    busybox = Path(shutil.which("busybox") or "/bin/busybox").read_bytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for folder, mode in (("bin", 0o755), ("tmp", 0o1777), ("www", 0o755), ("etc", 0o755)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        for path, content, mode in (
            ("bin/busybox", busybox, 0o755),
            ("www/index.html", f"{version}\n".encode(), 0o644),
            ("etc/passwd", b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n", 0o644),
        ):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
        for applet in APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return packed.getvalue()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def accepts(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except OSError:
            return False
    return True


def eventually(holds: object, within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.02)
