"""The control socket of the ingress: cells publish ports, and a newer ingress takes over.

Each cell process has one session. Its ports stay published when the session ends.

A newer ingress, the successor, first receives the listening sockets and the configuration. When it
accepts connections, this process accepts no more. It serves its open connections until they end,
and forwards their requests for the cells to the successor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from datum_compute.api.traffic import WakeFailed
from datum_compute.ingress.configuration import (
    Configuration,
    StoredOwner,
    StoredPort,
    desired_numbers,
    encode_configuration,
    plan_listeners,
)
from datum_compute.ingress.machines import CellLinks, MachinePool
from datum_compute.ingress.protocol import (
    ActivityReport,
    CheckReady,
    ConfirmIdle,
    ControlLink,
    DesiredOwner,
    Drain,
    Drained,
    EndDrain,
    HandedOver,
    Hello,
    IdleConfirmed,
    LinkClosed,
    Message,
    Publish,
    Published,
    ReadyChecked,
    Stop,
    TakenOver,
    TakeOver,
    WakeEnded,
    WakeMachine,
    Welcome,
    Woken,
)
from datum_compute.ingress.proxy import Proxy

HELLO_TIMEOUT_S = 5.0
# How long a successor may take from the request for the sockets until it accepts connections.
HANDOVER_TIMEOUT_S = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IngressIdentity:
    """The version and process of an ingress. ``user`` may connect to its control socket."""

    version: str
    pid: int
    user: int


@dataclass(slots=True)
class Control:
    """The published ports, and the handlers of the connections of the control socket.

    ``lock`` is the descriptor of the locked file, which a successor receives.

    ``save_now`` is called when ports were opened or closed, and ``save`` after other changes.

    ``replaced`` is set when a successor accepts connections in place of this process, and
    ``successor_stopping`` when that successor stops.
    """

    identity: IngressIdentity
    proxy: Proxy
    machines: MachinePool
    links: CellLinks
    lock: int
    save: Callable[[], None]
    save_now: Callable[[], None]
    owners: dict[str, StoredOwner] = field(default_factory=dict)
    replaced: asyncio.Event = field(default_factory=asyncio.Event)
    successor_stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _sessions: dict[str, ControlLink] = field(default_factory=dict)  # by client
    _predecessors: set[ControlLink] = field(default_factory=set)
    _requests: set[asyncio.Task[None]] = field(default_factory=set)
    _handover: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def has_predecessors(self) -> bool:
        return bool(self._predecessors)

    @property
    def is_in_use(self) -> bool:
        """Return True if a port is published, a cell is connected or a connection is open."""
        has_ports = any(stored.ports for stored in self.owners.values())
        is_connected = bool(self._sessions or self._predecessors)
        return has_ports or is_connected or self.proxy.connections > 0

    def encode(self) -> bytes:
        """Return the configuration as it is stored."""
        return encode_configuration(self.owners, self.machines.observe)

    async def restore(self, configuration: Configuration) -> None:
        """Publish the ports of a stored configuration, except those that cannot be opened."""
        for owner, stored in configuration.owners.items():
            self.proxy.refuse(owner, refused=stored.refused)
            ports = {}
            for name, port in stored.ports.items():
                try:
                    _, number = await self.proxy.publish(owner, name, port.backends, port.number)
                except OSError as error:
                    _log.warning("%s %s cannot be published: %s", owner, name, error)
                    continue
                ports[name] = StoredPort(number, port.backends)
            self.owners[owner] = StoredOwner(stored.client, stored.refused, ports)

    # --- sessions

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the control socket."""
        link = ControlLink(reader, writer)
        try:
            if link.peer_user not in (0, self.identity.user):
                _log.warning("a process of user %d was refused", link.peer_user)
                return
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello = await link.receive()
            if not isinstance(hello, Hello):
                return
            owners = [o for o, stored in self.owners.items() if stored.client == hello.client]
            link.send(Welcome(self.identity.version, self.identity.pid, tuple(sorted(owners))))
            if hello.role == "cell":
                await self._serve_cell(link, hello)
            else:
                await self._serve_successor(link)
        except (LinkClosed, TimeoutError):
            return
        except asyncio.CancelledError:
            return  # the process stops; the event loop would log it as an error
        finally:
            link.close()

    async def _serve_cell(self, link: ControlLink, hello: Hello) -> None:
        previous = self._sessions.pop(hello.client, None)
        if previous is not None:
            self.links.remove(previous)
            previous.close()
        self._sessions[hello.client] = link
        self.links.add(hello.cells, link)
        link.send(self.machines.report_for_cells(hello.cells))
        try:
            while True:
                await self._handle_cell_message(link, hello.client, await link.receive())
        finally:
            self.links.remove(link)
            if self._sessions.get(hello.client) is link:
                del self._sessions[hello.client]

    async def _handle_cell_message(self, link: ControlLink, client: str, received: Message) -> None:
        match received:
            case Publish():
                link.send(await self._publish(client, received))
            case Drain(number, machine_id):
                link.send(Drained(number, await self.proxy.drain(machine_id)))
            case EndDrain(machine_id):
                self.proxy.end_drain(machine_id)
            case ConfirmIdle(number, machine_id, idle_s):
                is_idle = self.machines.confirm_idle(machine_id, idle_s)
                link.send(IdleConfirmed(number, is_idle))
            case _:
                raise LinkClosed(f"unexpected message {type(received).__name__}")

    async def _publish(self, client: str, message: Publish) -> Published:
        found, problem, open_before = {}, "", self.proxy.ports
        for machine_id in message.draining or ():
            await self.proxy.drain(machine_id)
        for desired in message.owners:
            try:
                found[desired.owner] = await self._publish_owner(client, desired)
            except OSError as error:
                problem = f"{desired.owner}: {error}"
                _log.warning("cannot publish %s", problem)
        for machine_id in message.draining or ():
            await self.proxy.drain(machine_id)  # again, for machines that were published just now
        if self.proxy.ports == open_before:
            self.save()
        else:
            self.save_now()
        return Published(message.number, found, problem)

    async def _publish_owner(self, client: str, desired: DesiredOwner) -> dict[str, int]:
        owner = desired.owner
        open_now = {key: n for key, n in self.proxy.ports.items() if key[0] == owner}
        wanted = desired_numbers(desired, open_now)
        plan = plan_listeners(wanted, open_now)
        if plan.close or not wanted:
            await self.proxy.withdraw(owner, [name for _, name in wanted])
        if not wanted:
            self.owners.pop(owner, None)
            return {}
        self.proxy.refuse(owner, refused=desired.refused)
        known = self.owners.get(owner, StoredOwner(client)).ports
        ports = {name: known[name] for _, name in wanted if name in known}
        for name, port in desired.ports.items():
            number = self._last_number(owner, name, port.last_port, known)
            _, number = await self.proxy.publish(owner, name, port.backends, number)
            ports[name] = StoredPort(number, port.backends)
            self.owners[owner] = StoredOwner(client, desired.refused, dict(ports))
        self.owners[owner] = StoredOwner(client, desired.refused, ports)
        return {name: port.number for name, port in ports.items()}

    def _last_number(
        self, owner: str, name: str, last_port: int, known: dict[str, StoredPort]
    ) -> int:
        stored = known.get(name)
        return last_port or (stored.number if stored is not None else 0)

    # --- handover to a successor

    async def _serve_successor(self, link: ControlLink) -> None:
        """Hand over if the successor requests it. Then report open connections to it."""
        async with asyncio.timeout(HANDOVER_TIMEOUT_S):
            if not isinstance(await link.receive(), TakeOver):
                return
            async with self._handover:
                if self.replaced.is_set():
                    return  # another successor has taken over
                await self._hand_over(link)
                self.replaced.set()
        self._close_sessions()
        self.links.use_successor(link)
        reporting = asyncio.create_task(self._report_to(link))
        try:
            while True:
                if isinstance(await link.receive(), Stop):
                    self.successor_stopping.set()
        finally:
            reporting.cancel()
            self.links.remove(link)

    async def _hand_over(self, link: ControlLink) -> None:
        # The cells send their desired state to the successor. A change that they send to this
        # process after the configuration is encoded would be lost.
        self._close_sessions()
        await link.send_sockets(sorted(self.proxy.listening_sockets().items()))
        handed_over = HandedOver(self.encode(), tuple(sorted(self.proxy.draining)))
        await link.send_with_descriptors(handed_over, [self.lock])
        if not isinstance(await link.receive(), TakenOver):
            raise LinkClosed("the successor did not take over")
        self.proxy.stop_listening()

    async def _report_to(self, link: ControlLink) -> None:
        """Report the open connections to the successor whenever their number has changed."""
        reported = None
        while True:
            report = self.machines.report_for_successor()
            if report != reported:
                link.send(report)
                reported = report
            await asyncio.sleep(0.05)

    def _close_sessions(self) -> None:
        for session in self._sessions.values():
            session.close()

    # --- the predecessor of this process

    async def serve_predecessor(self, link: ControlLink) -> None:
        """Handle the messages of a predecessor until it has served its connections and stops."""
        self._predecessors.add(link)
        try:
            while True:
                self._handle_predecessor_message(link, await link.receive())
        except LinkClosed:
            return
        finally:
            self._predecessors.discard(link)
            self.machines.set_inherited(link, {})
            for request in self._requests:
                request.cancel()
            link.close()

    def stop_predecessors(self) -> None:
        for link in self._predecessors:
            link.send(Stop())

    def _handle_predecessor_message(self, link: ControlLink, received: Message) -> None:
        match received:
            case ActivityReport(machines):
                counts = {machine_id: found.count for machine_id, found in machines.items()}
                self.machines.set_inherited(link, counts)
            case WakeMachine() | CheckReady():
                request = asyncio.create_task(self._forward(link, received))
                self._requests.add(request)
                request.add_done_callback(self._requests.discard)
            case WakeEnded(times, failure):
                if failure:
                    self.machines.record_failure(times, failure)
                else:
                    self.machines.finish(times)
            case _:
                raise LinkClosed(f"unexpected message {type(received).__name__}")

    async def _forward(self, link: ControlLink, message: WakeMachine | CheckReady) -> None:
        try:
            if isinstance(message, WakeMachine):
                self.machines.track([message.backend])
                machine_id = message.backend.machine_id
                times = await self.machines.ensure_awake(machine_id, message.arrived_s)
                link.send(Woken(message.number, times))
            else:
                is_ready = await self.machines.is_ready(message.cell, message.machine_id)
                link.send(ReadyChecked(message.number, is_ready))
        except WakeFailed as error:
            if isinstance(message, WakeMachine):
                link.send(Woken(message.number, failure=str(error)))
            else:
                link.send(ReadyChecked(message.number, failure=str(error)))
