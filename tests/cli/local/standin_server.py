"""A stand-in for the local platform: serves /readyz over TLS, or misbehaves as ``MODE`` requests.

``python standin_server.py MODE --state-dir DIR``, with the key and certificate in DIR/server.pem.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import ssl
import sys
import time
from pathlib import Path


class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def main(mode: str, state_dir: Path) -> None:
    print(f"starting, mode {mode}", flush=True)
    print("stdin:", os.readlink("/proc/self/fd/0"), flush=True)
    print("open:", sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1], flush=True)
    print("leader:", os.getsid(0) == os.getpid(), flush=True)
    if mode == "dies":
        sys.exit("cannot go on \x1b[31m")
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "silent":
        time.sleep(60)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ready)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(state_dir / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    announcement = {"pid": os.getpid(), "port": server.server_address[1]}
    (state_dir / "server.json").write_text(json.dumps(announcement))
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[3]))
