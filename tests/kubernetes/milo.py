"""Projects as Milo serves them: each is a path of one address.

A proxy forwards the paths to a kube-apiserver for the platform and one for each project. All of
them accept the same tokens, as parts of one server do.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
from aiohttp import web

from datum_compute.api.planes import PlaneName, path_prefix, split_path
from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.state_directory import ensure_private_directory
from datum_compute.server.http.listen import api_tls_context, bind_listener
from testkit.processes.api_servers import RealPlane

_OF_THE_HOP = ("host", "connection", "content-length", "accept-encoding", "transfer-encoding")
_FOREVER = aiohttp.ClientTimeout(total=None)
STOP_S = 1.0


@dataclass(frozen=True)
class Milo:
    port: int
    authority: Path

    def server(self, plane: str) -> str:
        return f"https://127.0.0.1:{self.port}{path_prefix(PlaneName(plane))}"


@dataclass(frozen=True)
class _Passing:
    session: aiohttp.ClientSession
    planes: Mapping[str, RealPlane]
    trust: Mapping[str, ssl.SSLContext]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        plane, path = split_path(request.path)
        if plane not in self.planes:
            return web.Response(status=404, text="404 page not found")
        query = f"?{request.query_string}" if request.query_string else ""
        async with self.session.request(
            request.method,
            self.planes[plane].server + path + query,
            headers={n: v for n, v in request.headers.items() if n.lower() not in _OF_THE_HOP},
            data=await request.read(),
            ssl=self.trust[plane],
            timeout=_FOREVER,
        ) as answer:
            head = {"content-type": answer.headers.get("content-type", "text/plain")}
            passed = web.StreamResponse(status=answer.status, headers=head)
            await passed.prepare(request)
            async for chunk in answer.content.iter_any():
                await passed.write(chunk)
            await passed.write_eof()
            return passed


@asynccontextmanager
async def milo(planes: Mapping[str, RealPlane], folder: Path) -> AsyncIterator[Milo]:
    certificate = ensure_certificate(ensure_private_directory(folder), datetime.now(UTC))
    trust = {n: ssl.create_default_context(cafile=str(p.authority)) for n, p in planes.items()}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        application = web.Application(client_max_size=4 << 20)
        passing = _Passing(session, planes, trust)
        application.router.add_route("*", "/{path:.*}", passing.handle)
        runner = web.AppRunner(application, shutdown_timeout=STOP_S, handler_cancellation=True)
        await runner.setup()
        with bind_listener(0) as bound:
            await web.SockSite(runner, bound, ssl_context=api_tls_context(certificate)).start()
            yield Milo(bound.getsockname()[1], certificate.authority)
            await runner.cleanup()
