"""A cell plane on our own server instead of a kube-apiserver, with the same methods.

None of our controllers run in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from datum_compute.api.planes import cell_plane, path_prefix
from testkit.processes.api_servers import ADMIN_TOKEN, START_S, free_ports
from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import BIN, eventually
from testkit.processes.programs import ProcessGroup


@dataclass
class OurPlane:
    cell: str
    folder: Path
    port: int = field(default_factory=lambda: free_ports(1)[0])
    running: ProcessGroup = field(default_factory=ProcessGroup)

    @property
    def name(self) -> str:
        return str(cell_plane(self.cell))

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}{path_prefix(cell_plane(self.cell))}"

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def admin(self) -> Kubectl:
        return Kubectl(self.kubeconfig, self.name)

    def start(self) -> None:
        tokens = self.folder / "tokens.json"
        if not tokens.exists():
            self.folder.mkdir(mode=0o700)
            tokens.touch(mode=0o600)
            tokens.write_text(json.dumps({self.name: ADMIN_TOKEN}))
        command = [
            str(BIN / "python"),
            *("-P", "-m", "datum_compute.app.local_server", "--no-controllers"),
            *("--state-dir", str(self.folder), "--cells", self.cell, "--port", str(self.port)),
        ]
        self.running.start(command, self.folder / "output.log")

    def await_ready(self) -> None:
        eventually(self.is_ready, f"our server for {self.cell} is ready", within_s=START_S)

    def is_ready(self) -> bool:
        if not self.kubeconfig.exists():
            return False
        return self.admin.run("get", "--raw", "/readyz").returncode == 0

    def token(self, account: str) -> str:
        """Create a token of a service account, as on a kube-apiserver."""
        return self.admin("create", "token", account, "-n", "kube-system", "--duration=4h").strip()

    def refusals(self) -> list[str]:
        """Return the requests of accounts that were refused."""
        log = self.folder / "audit.log"
        events = map(json.loads, log.read_text().splitlines() if log.exists() else ())
        placement_error = [e for e in events if e["code"] == 403 and "serviceaccount" in e["user"]]
        return sorted({f"{e['user']} may not {e['verb']} {e['resource']}" for e in placement_error})
