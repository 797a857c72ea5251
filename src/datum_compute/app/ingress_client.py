"""The connection of a cell process to the ingress of its host.

The client records the published ports, and sends them to the ingress after each connect and after
each change. It starts an ingress if a port is published and none runs, and replaces one of another
version. The idle scaler handles the requests of the ingress to wake machines: it calls the drivers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datum_compute import __version__
from datum_compute.api.planes import PlaneName
from datum_compute.api.traffic import Backend, WakeFailed
from datum_compute.app.ingress_server import DIRECTORY_FLAG, LOG_FILE, unix_address
from datum_compute.drivers.connections.activations import WakeHistory
from datum_compute.drivers.connections.idle_scaler import IdleScaler
from datum_compute.drivers.driver import Driver, TransientError
from datum_compute.ingress.protocol import (
    ActivityReport,
    CheckReady,
    ConfirmIdle,
    ControlLink,
    DesiredOwner,
    DesiredPort,
    Drain,
    Drained,
    EndDrain,
    Hello,
    IdleConfirmed,
    LinkClosed,
    Publish,
    Published,
    ReadyChecked,
    WakeEnded,
    WakeMachine,
    Welcome,
    Woken,
    peer_user,
)
from datum_compute.ingress.proxy import HOST

HELLO_TIMEOUT_S = 5.0
PUBLISH_TIMEOUT_S = 10.0
DRAIN_REQUEST_TIMEOUT_S = 2.0
LAUNCH_TIMEOUT_S = 30.0
# How long to wait until a new ingress has replaced one of another version.
REPLACED_AFTER_MAX_S = 15.0
# Interval between attempts to connect, and the longest interval between starts of an ingress.
RECONNECT_S, RELAUNCH_MAX_S = 0.1, 10.0
_LOG_BYTES_MAX = 4 * 1024 * 1024

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _PublishedOwner:
    """The desired state of an owner, and the port numbers that the ingress has reported."""

    ports: dict[str, DesiredPort] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    refused: bool = False
    numbers: dict[str, int] = field(default_factory=dict)
    applied: DesiredOwner | None = None  # what the connected ingress has confirmed

    def build_message(self, owner: str) -> DesiredOwner:
        return DesiredOwner(owner, self.refused, dict(self.ports), self.kept)


class IngressClient:
    """Publishes the ports of a cell process through the ingress of its state directory.

    ``launch`` starts an ingress for a state directory, with flags.
    """

    def __init__(
        self,
        directory: Path,
        drivers: Mapping[PlaneName, Driver],
        history: WakeHistory,
        elapsed_s: Callable[[], float],
        launch: Callable[..., Awaitable[None]],
        version: str = __version__,
    ) -> None:
        self.idle_scaler = IdleScaler(drivers, elapsed_s, history, self._confirm_idle)
        self._directory = directory
        self._cells = tuple(drivers)
        self._history = history
        self._launch = launch
        self._version = version
        self._owners: dict[str, _PublishedOwner] = {}
        self._draining: set[str] = set()
        self._link: ControlLink | None = None
        # Owners of ports that the ingress had open when this process connected.
        self._ingress_owners: frozenset[str] = frozenset()
        self._was_connected = False
        self._is_absent = False  # no process accepted the last attempt to connect
        self._connected = asyncio.Event()
        self._has_published = asyncio.Event()
        self._is_replacing = False
        self._list_owners: Callable[[], Collection[str]] | None = None

    # --- publishing

    async def publish(
        self, owner: str, name: str, backends: Sequence[Backend], last_port: int
    ) -> tuple[str, int]:
        published = self._owners.setdefault(owner, _PublishedOwner())
        number = published.numbers.get(name) or last_port
        published.ports[name] = DesiredPort(tuple(backends), number)
        self._update_machines(backends)
        self._has_published.set()
        async with asyncio.timeout(PUBLISH_TIMEOUT_S):
            await self._apply(owner, published)
        if name not in published.numbers:
            raise TransientError(f"the ingress did not publish port {name} of {owner}")
        return HOST, published.numbers[name]

    def refuse(self, owner: str, *, refused: bool) -> None:
        """Let the ports of the owner refuse connections. This does not wait for a confirmation."""
        published = self._owners.get(owner)
        if published is None or published.refused == refused:
            return
        published.refused = refused
        if self._link is not None and published.applied is not None:
            self._link.send(Publish(0, (published.build_message(owner),)))

    async def withdraw(self, owner: str, kept: Collection[str] = ()) -> None:
        if kept:
            # Sent by the publication of the kept ports.
            published = self._owners.setdefault(owner, _PublishedOwner())
            published.kept = tuple(sorted(kept))
            published.ports = {n: port for n, port in published.ports.items() if n in kept}
            return
        is_known = owner in self._owners or owner in self._ingress_owners
        if not is_known and self._was_connected:
            return
        self._owners[owner] = _PublishedOwner()
        self._update_machines(())
        await self._withdraw_soon(owner)

    async def _withdraw_soon(self, owner: str) -> None:
        """Withdraw now if the ingress is connected; otherwise the next connect does it."""
        if self._link is None:
            return
        try:
            async with asyncio.timeout(PUBLISH_TIMEOUT_S):
                await self._send(self._link, [owner])
        except (LinkClosed, TimeoutError):
            return

    async def _apply(self, owner: str, published: _PublishedOwner) -> None:
        """Send the desired state of the owner, repeatedly until an ingress has confirmed it."""
        while True:
            await self._connected.wait()
            link, desired = self._link, published.build_message(owner)
            if link is None or published.applied == desired:
                if link is not None:
                    return
                await asyncio.sleep(0)
                continue
            try:
                await self._send(link, [owner])
            except LinkClosed:
                await asyncio.sleep(RECONNECT_S / 10)
                continue
            return

    async def _send(
        self, link: ControlLink, owners: Collection[str], draining: tuple[str, ...] | None = None
    ) -> None:
        found = {o: self._owners[o].build_message(o) for o in owners if o in self._owners}
        desired = tuple(found.values())
        reply = await link.request(lambda number: Publish(number, desired, draining))
        assert isinstance(reply, Published)
        for owner, sent in found.items():
            published = self._owners.get(owner)
            if published is None or owner not in reply.ports:
                continue
            if not sent.ports and not sent.kept:
                self._ingress_owners -= {owner}
                if published.build_message(owner) == sent:
                    del self._owners[owner]
                continue
            published.numbers = reply.ports[owner]
            if link is self._link:
                published.applied = sent
        if reply.problem:
            raise TransientError(f"the ingress cannot publish {reply.problem}")

    def _update_machines(self, backends: Iterable[Backend]) -> None:
        self.idle_scaler.track(backends)
        self.idle_scaler.keep_only(self._published_machines())

    def _published_machines(self) -> set[str]:
        return {
            backend.machine_id
            for published in self._owners.values()
            for port in published.ports.values()
            for backend in port.backends
        }

    # --- draining and sleep

    async def drain(self, machine_id: str) -> int:
        """Stop new connections to the machine. Return the number of its open connections.

        While the ingress cannot be reached, it may have open connections, so the result is 1. If
        none runs, its connections have ended; one that is started for other ports may get new ones.
        """
        self._draining.add(machine_id)
        link = self._link
        if link is None:
            if self._is_absent and not self._has_ports():
                return 0
            return 1 if self._was_connected or self._has_published.is_set() else 0
        try:
            reply = await link.request(
                lambda number: Drain(number, machine_id), DRAIN_REQUEST_TIMEOUT_S
            )
        except (LinkClosed, TimeoutError):
            return 1
        assert isinstance(reply, Drained)
        if not reply.connections and machine_id not in self._published_machines():
            self._draining.discard(machine_id)
        return reply.connections

    def end_drain(self, machine_id: str) -> None:
        if machine_id in self._draining:
            self._draining.discard(machine_id)
            if self._link is not None:
                self._link.send(EndDrain(machine_id))

    async def _confirm_idle(self, machine_id: str, idle_s: float) -> bool:
        if self._link is None:
            return False
        try:
            reply = await self._link.request(lambda number: ConfirmIdle(number, machine_id, idle_s))
        except (LinkClosed, TimeoutError):
            return False
        assert isinstance(reply, IdleConfirmed)
        return reply.is_idle

    # --- the connection

    async def run(self) -> None:
        """Connect to the ingress, and again whenever the connection ends, until cancelled."""
        relaunch_s, attempts_left = RECONNECT_S, 0
        while True:
            try:
                link = await self._open()
            except (OSError, LinkClosed, TimeoutError) as error:
                self._is_absent = isinstance(error, FileNotFoundError | ConnectionRefusedError)
                if self._has_ports() and attempts_left <= 0:
                    await self._launch_logged()
                    attempts_left = round(relaunch_s / RECONNECT_S)
                    relaunch_s = min(2 * relaunch_s, RELAUNCH_MAX_S)
                attempts_left -= 1
                await self._wait_to_reconnect()
                continue
            relaunch_s, attempts_left, self._is_absent = RECONNECT_S, 0, False
            try:
                await self._serve(link)
            except (LinkClosed, TimeoutError) as error:
                _log.info("disconnected from the ingress: %s", error)
            finally:
                self._link = None
                self._connected.clear()
                link.close()
            await asyncio.sleep(RECONNECT_S / 10)

    async def close(self) -> None:
        """Stop waking machines and putting them to sleep. The ingress continues."""
        await self.idle_scaler.close()

    async def withdraw_unknown_owners(self, list_owners: Callable[[], Collection[str]]) -> None:
        """Withdraw the ports of owners that were deleted while this process did not run.

        This is repeated after each connect. ``list_owners`` returns all owners that exist.
        """
        self._list_owners = list_owners
        for owner in self._mark_unknown_owners():
            await self._withdraw_soon(owner)

    def _mark_unknown_owners(self) -> list[str]:
        """Record that unknown owners have no ports. Return these owners."""
        if self._list_owners is None:
            return []
        gone = self._ingress_owners - set(self._list_owners()) - self._owners.keys()
        for owner in gone:
            self._owners[owner] = _PublishedOwner()
        return sorted(gone)

    async def _open(self) -> ControlLink:
        """Connect. An ingress of another version is replaced, at most once per process."""
        link, welcome = await self._greet()
        if welcome.version != self._version and not self._is_replacing:
            self._is_replacing = True
            link.close()
            _log.info("replacing the ingress of version %s", welcome.version)
            await self._launch_logged("--replace")
            link, welcome = await self._wait_for_successor(welcome.pid)
        self._ingress_owners = frozenset(welcome.owners)
        return link

    async def _wait_for_successor(self, replaced_pid: int) -> tuple[ControlLink, Welcome]:
        """Connect to the successor, or to the same ingress again if it was not replaced in time."""
        async with asyncio.timeout(LAUNCH_TIMEOUT_S):
            for _ in range(round(REPLACED_AFTER_MAX_S / RECONNECT_S)):
                try:
                    link, welcome = await self._greet()
                except (OSError, LinkClosed):
                    await asyncio.sleep(RECONNECT_S)
                    continue
                if welcome.version == self._version or welcome.pid != replaced_pid:
                    return link, welcome
                link.close()
                await asyncio.sleep(RECONNECT_S)
        _log.error("the ingress was not replaced; see %s", self._directory / LOG_FILE)
        return await self._greet()

    async def _greet(self) -> tuple[ControlLink, Welcome]:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            with unix_address(self._directory) as address:
                connection.connect(address)
            if peer_user(connection) not in (0, os.geteuid()):
                raise LinkClosed("the ingress runs as another user")
            link = ControlLink(*await asyncio.open_unix_connection(sock=connection))
        except BaseException:
            connection.close()
            raise
        try:
            link.send(Hello(self._version, "cell", str(self._directory), self._cells))
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                welcome = await link.receive()
            if not isinstance(welcome, Welcome):
                raise LinkClosed("the ingress did not answer")
        except BaseException:
            link.close()
            raise
        return link, welcome

    def _has_ports(self) -> bool:
        return any(published.ports for published in self._owners.values())

    async def _launch_logged(self, *flags: str) -> None:
        try:
            async with asyncio.timeout(LAUNCH_TIMEOUT_S):
                await self._launch(self._directory, *flags)
        except (OSError, TimeoutError) as error:
            _log.error("cannot start the ingress: %s", error)

    async def _wait_to_reconnect(self) -> None:
        """Wait until the next attempt to connect. The first published port ends the wait."""
        if self._has_published.is_set():
            await asyncio.sleep(RECONNECT_S)
            return
        try:
            async with asyncio.timeout(RECONNECT_S):
                await self._has_published.wait()
        except TimeoutError:
            return

    async def _serve(self, link: ControlLink) -> None:
        """Send the desired state, and handle the messages of the ingress until it disconnects."""
        self.idle_scaler.reset_connections()
        for published in self._owners.values():
            published.applied = None
        self._mark_unknown_owners()
        self._link = link
        self._was_connected = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._receive(link, group))
                await self._send_all(link)
                self._connected.set()
        except BaseExceptionGroup as errors:
            _, others = errors.split((LinkClosed, TimeoutError))
            if others is not None:
                raise others from None
            raise LinkClosed("the ingress ended the connection") from None

    async def _send_all(self, link: ControlLink) -> None:
        try:
            await self._send(link, list(self._owners), tuple(sorted(self._draining)))
        except TransientError as error:
            _log.warning("%s", error)

    async def _receive(self, link: ControlLink, group: asyncio.TaskGroup) -> None:
        while True:
            received = await link.receive()
            match received:
                case ActivityReport(machines):
                    for machine_id, found in machines.items():
                        self.idle_scaler.report_connections(
                            machine_id, found.count, found.idle_since_s
                        )
                case WakeMachine():
                    group.create_task(self._wake(link, received))
                case CheckReady():
                    group.create_task(self._check_ready(link, received))
                case WakeEnded(times, failure):
                    if failure:
                        self._history.record_failure(times, failure)
                    else:
                        self._history.finish(times)
                case _:
                    raise LinkClosed(f"unexpected message {type(received).__name__}")

    async def _wake(self, link: ControlLink, message: WakeMachine) -> None:
        backend = message.backend
        if not self.idle_scaler.is_tracked(backend.machine_id):
            # After a restart, connections may arrive before the controllers publish the port.
            self.idle_scaler.track([backend])
        try:
            times = await self.idle_scaler.ensure_awake(backend.machine_id, message.arrived_s)
        except WakeFailed as error:
            link.send(Woken(message.number, failure=str(error) or "the wake failed"))
        else:
            link.send(Woken(message.number, times))

    async def _check_ready(self, link: ControlLink, message: CheckReady) -> None:
        try:
            is_ready = await self.idle_scaler.is_ready(message.cell, message.machine_id)
        except WakeFailed as error:
            link.send(ReadyChecked(message.number, failure=str(error) or "it failed"))
        else:
            link.send(ReadyChecked(message.number, is_ready))


async def launch_ingress(directory: Path, *flags: str) -> None:
    """Start an ingress that outlives this process. Return when it runs in the background."""
    log = directory / LOG_FILE
    if log.exists() and log.stat().st_size > _LOG_BYTES_MAX:
        log.replace(directory / f"{LOG_FILE}.1")
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        # -P: do not import modules from the working directory.
        launched = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "datum_compute.app.ingress_server"),
            *(DIRECTORY_FLAG, str(directory), "--detach", *flags),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=directory,
            start_new_session=True,
        )
    finally:
        os.close(sink)
    await launched.wait()
