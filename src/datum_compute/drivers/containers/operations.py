"""How a machine falls asleep and wakes. That it sleeps is on its record, so that it sleeps on when
we start anew: paused containers say so themselves, stopped ones look like any that have ended.

Probes stop while it sleeps. From a pause it goes on where it was, so the first question is asked at
once; from a stop it starts as it always does.
"""
# MERGED-DOC """Carries out steps on the engine. Every call may be repeated: what is done already is fine."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from datum_compute.api.codec import DecodeError, JsonObject, decode
from datum_compute.api.instance import Container
from datum_compute.api.timestamps import timestamp
from datum_compute.drivers.container_defaults import container_limits
from datum_compute.drivers.containers.container_spec import (
    CONTAINER,
    DEFAULT_NETWORK,
    INIT,
    INIT_MISSING,
    MACHINE,
    ContainerOwner,
    CreationInputs,
    InitUse,
    command_line,
    container_body,
    container_name,
    network_body,
    network_prefixes,
    program_paths,
    with_digests,
)
from datum_compute.drivers.containers.engine import (
    REQUEST_TIMEOUT_S,
    Engine,
    EngineError,
    encode_filters,
)
from datum_compute.drivers.containers.images import ImageInfo, ImageStore
from datum_compute.drivers.containers.inspection import InspectedContainer, parse_container
from datum_compute.drivers.containers.machine import Machine, MachineRecord, record_wake
from datum_compute.drivers.containers.status import machine_state
from datum_compute.drivers.driver import DataFile, PermanentError, TransientError
from datum_compute.drivers.logs import CONCURRENT_LOG_READS_MAX, LastFrames, LastLines, LogArchive

LAST_LINES = 20
KEPT_LINES, KEPT_BYTES = 2000, 256 * 1024
# The engine's own time on top of the grace period.
STOP_S = 30.0
_SECRET_MIN = 4
PATH_STAT = "X-Docker-Container-Path-Stat"
# Bits of the mode in that header, which are those of Go and not of Unix.
_DIRECTORY, _SYMLINK = 1 << 31, 1 << 27

_log = logging.getLogger(__name__)


class DataFolders(Protocol):
    """Files of this host that containers see; gone with their machine."""

    def write(self, machine_id: str, volume: str, files: Sequence[DataFile]) -> str:
        """The folder that holds exactly these files."""
        ...

    def remove(self, machine_id: str) -> None: ...

    def keep_only(self, machine_ids: Collection[str]) -> None:
        """Remove what machines have left behind that are gone."""
        ...


class ContainerOperations:
    """What the driver can do to the containers of one cell."""

    def __init__(
        self, engine: Engine, owner: ContainerOwner, folders: DataFolders, archive: LogArchive
    ) -> None:
        self.engine = engine
        self.log_reads = asyncio.Semaphore(CONCURRENT_LOG_READS_MAX)
        self._archive = archive
        self._owner = owner
        self._folders = folders
        self._images = ImageStore(engine)
        self._networks = asyncio.Lock()
        self._known_networks: set[str] = set()
        # Whether the engine has answered that it does not miss its init program.
        self._is_init_confirmed = False
        # Whether the engine accepts containers only without an init process, as last seen.
        self._is_init_refused = False

    def name(self, machine: Machine, container: str) -> str:
        return container_name(self._owner, machine.id, container)

    async def look(self, machine: Machine) -> dict[str, InspectedContainer]:
        """Those containers of the machine that there are."""
        found = await asyncio.gather(*(self._inspect(machine, n) for n in machine.containers))
        return {seen.name: seen for seen in found if seen is not None}

    async def _inspect(self, machine: Machine, container: str) -> InspectedContainer | None:
        try:
            path = f"/containers/{self.name(machine, container)}/json"
            return parse_container(container, await self.engine.ask("GET", path))
        except EngineError as refusal:
            if refusal.status == 404:
                return None
            raise

    async def pull(self, machine: Machine) -> dict[str, ImageInfo]:
        """The image of each container; nothing but the engine's store of images changes."""
        assert machine.spec is not None
        return {c.name: await self._image(machine, c) for c in machine.spec.containers}

    async def create(self, machine: Machine, images: Mapping[str, ImageInfo]) -> None:
        """All containers, from nothing."""
        spec, data = machine.spec, machine.data
        assert spec is not None
        for name in machine.containers:
            await self._delete(machine, name)
        digests = {name: facts.digest for name, facts in images.items()}
        machine.plan = with_digests(machine.plan, digests)
        machine.stage = "the containers are being created"
        if machine.plan.network != DEFAULT_NETWORK:
            await self._ensure_network(machine.plan.network, network_prefixes(spec))
        folders = {v: self._folders.write(machine.id, v, files) for v, files in data.files.items()}
        machine.folders = folders
        limits = container_limits(spec)
        making = CreationInputs(self._owner, machine.id, spec, data, machine.plan, limits, folders)
        for container in spec.containers:
            try:
                await self._create_container(making, container, images[container.name])
            except EngineError as refusal:
                self._known_networks.discard(machine.plan.network)
                words = hide_folders(hide_secrets(refusal.words, machine), folders)
                raise PermanentError(f"container {container.name}: {words}") from None

    async def _create_container(
        self, making: CreationInputs, container: Container, image: ImageInfo
    ) -> None:
        """Create the container, with an init process if the engine has one.

        Podman does not report whether it has one: it refuses to create the container (5xx). It has
        none if it accepts the same container without an init process and then refuses it with one
        again; a single refusal may have any reason. This is checked for every container, because
        the package may be installed at any time.
        """
        if not container.init:
            await self._post_container(making, container, image, "off")
            return
        if not await self._is_init_missing():
            if await self._create_with_init(making, container, image):
                return
            if not self._is_init_refused:
                await self._post_container(making, container, image, "off")
                await self._delete_container(making, container)
                if await self._create_with_init(making, container, image):
                    return
                self._is_init_refused = True
        await self._post_container(making, container, image, "missing")
        _log.warning(
            "%s: container %s runs without an init process: the engine has none",
            making.machine_id,
            container.name,
        )

    async def _create_with_init(
        self, making: CreationInputs, container: Container, image: ImageInfo
    ) -> bool:
        """Return False if the engine fails to create it, perhaps because it has no init program."""
        try:
            await self._post_container(making, container, image, "on")
        except EngineError as refusal:
            if refusal.status < 500:
                raise
            return False
        self._is_init_refused = False
        await self._recreate_without_init_if_program_missing(making, container, image)
        return True

    async def _delete_container(self, making: CreationInputs, container: Container) -> None:
        path = f"/containers/{container_name(self._owner, making.machine_id, container.name)}"
        await self.engine.ask("DELETE", path, {"force": "true", "v": "true"})

    async def _post_container(
        self, making: CreationInputs, container: Container, image: ImageInfo, init: InitUse
    ) -> None:
        query = {"name": container_name(self._owner, making.machine_id, container.name)}
        body = container_body(making, container, image, init)
        await self.engine.ask("POST", "/containers/create", query, body)

    async def _recreate_without_init_if_program_missing(
        self, making: CreationInputs, container: Container, image: ImageInfo
    ) -> None:
        """Recreate the container without an init process if its program cannot be run.

        It is not found, is a directory, or is not executable.

        An init process starts even if the program is missing, and then looks like a program that
        crashes. Without one the engine refuses to start the container and reports why. A program
        on a mount, which cannot be seen before the start, still runs.
        """
        path = f"/containers/{container_name(self._owner, making.machine_id, container.name)}"
        config = (await self.engine.ask("GET", f"{path}/json")).get("Config") or {}
        program = command_line(container, image)[0]
        places = program_paths(program, config.get("Env") or ())
        if not places or await self._has_any_program(path, places):
            return
        await self._delete_container(making, container)
        await self._post_container(making, container, image, "off")

    async def _has_any_program(self, container_path: str, places: Sequence[str]) -> bool:
        """Return whether one of the paths can be run, as far as the engine shows it."""
        for place in places:
            try:
                stat = await self._stat(container_path, place)
                if is_symlink(stat):  # the engine has followed the whole chain
                    stat = await self._stat(container_path, str(stat.get("linkTarget") or place))
            except EngineError as refusal:
                if refusal.status != 404:
                    return True  # not known to be missing
            else:
                if is_executable(stat):
                    return True
        return False

    async def _stat(self, container_path: str, place: str) -> JsonObject:
        """Return what the engine reports about a file of the container; empty if unreadable."""
        headers = await self.engine.head(f"{container_path}/archive", {"path": place})
        try:
            stat = decode(base64.b64decode(headers.get(PATH_STAT, "")))
        except (DecodeError, ValueError):
            return {}
        return stat if isinstance(stat, dict) else {}

    async def _is_init_missing(self) -> bool:
        """Return whether the engine reports that its init program is missing.

        Docker reports it, and would refuse only to start the container. A missing program is
        checked again for the next container, because it may be installed at any time. Otherwise
        the answer is cached: podman takes long to answer and never reports a missing one.
        """
        if self._is_init_confirmed:
            return False
        is_missing = is_init_missing(await self.engine.ask("GET", "/info"))
        self._is_init_confirmed = not is_missing
        return is_missing

    async def count_without_init(self) -> int:
        """Count the containers of the cell that run without the init process they should have."""
        return len(await self.ours(f"{INIT}={INIT_MISSING}"))

    async def _image(self, machine: Machine, container: Container) -> ImageInfo:
        machine.stage = f"image {container.image} is being pulled"
        configs = machine.data.pull_configs
        return await self._images.ensure(container.image, container.image_pull_policy, configs)

    async def find_image(self, image: str) -> ImageInfo | None:
        """What the host has of it."""
        return await self._images.find(image)

    async def start(self, machine: Machine, names: Sequence[str]) -> None:
        """In their order: the first has the network that the others join."""
        for name in names:
            try:
                await self.engine.ask("POST", f"/containers/{self.name(machine, name)}/start")
            except EngineError as refusal:
                words = hide_folders(hide_secrets(refusal.words, machine), machine.folders)
                raise PermanentError(f"container {name}: {words}") from None

    async def stop(self, machine: Machine, names: Sequence[str]) -> None:
        """All at once: asked to end, and ended after the grace period."""
        await asyncio.gather(*(self._stop(machine, name) for name in names))

    async def pause(self, machine: Machine, names: Sequence[str]) -> None:
        await asyncio.gather(*(self._ask(machine, name, "pause") for name in names))

    async def unpause(self, machine: Machine, names: Sequence[str]) -> None:
        await asyncio.gather(*(self._ask(machine, name, "unpause") for name in names))

    async def _ask(self, machine: Machine, name: str, what: str) -> None:
        await self.engine.ask("POST", f"/containers/{self.name(machine, name)}/{what}")

    async def _stop(self, machine: Machine, name: str) -> None:
        grace_s = machine.plan.grace_s
        path = f"/containers/{self.name(machine, name)}/stop"
        if machine.seen[name].standing == "paused":  # who is frozen cannot end by itself
            await self._ask(machine, name, "unpause")
        try:
            await self.engine.ask("POST", path, {"t": grace_s}, timeout_s=grace_s + STOP_S)
        except EngineError as refusal:
            if refusal.status not in (304, 404):
                raise

    async def remove(self, machine: Machine) -> None:
        await self.stop(machine, [s.name for s in machine.seen.values() if s.is_up])
        for name in machine.seen:
            await self._archive.keep(machine.id, name, await self.whole_log(machine, name))
        for name in reversed(machine.containers):  # those that joined, before what they joined
            await self._delete(machine, name)

    async def _delete(self, machine: Machine, name: str) -> None:
        query = {"force": "true", "v": "true"}
        try:
            await self.engine.ask("DELETE", f"/containers/{self.name(machine, name)}", query)
        except EngineError as refusal:
            if refusal.status != 404:
                raise

    def forget_files(self, machine: Machine) -> None:
        self._folders.remove(machine.id)

    def keep_files_of(self, machine_ids: Collection[str]) -> None:
        self._folders.keep_only(machine_ids)

    async def last_lines(self, machine: Machine, name: str) -> tuple[str, ...]:
        query = {"stdout": "true", "stderr": "true", "tail": str(LAST_LINES)}
        path = f"/containers/{self.name(machine, name)}/logs"
        lines = LastLines(LAST_LINES)
        try:
            await self.engine.fetch_into(lines.feed, "GET", path, query)
        except EngineError:
            return ()
        return lines.texts()

    async def whole_log(self, machine: Machine, name: str) -> bytes:
        """The last lines with their times, framed, for whoever keeps them."""
        query = {"stdout": "true", "stderr": "true", "timestamps": "true", "tail": str(KEPT_LINES)}
        path = f"/containers/{self.name(machine, name)}/logs"
        last = LastFrames(KEPT_BYTES)
        try:
            await self.engine.fetch_into(last.feed, "GET", path, query)
        except EngineError:
            return b""
        return last.frames()

    async def ours(
        self, label: str = "", timeout_s: float = REQUEST_TIMEOUT_S
    ) -> list[dict[str, str]]:
        """Labels of all containers of the cell (that have the label ``name=value``), running or
        not, as the engine has them now."""
        return [c.get("Labels") or {} for c in await self._list(label, timeout_s)]

    async def list_running(self, timeout_s: float) -> set[tuple[str, str]]:
        """Return machine and name of each container of the cell that runs."""
        running = [c for c in await self._list("", timeout_s) if c.get("State") == "running"]
        labels = [container.get("Labels") or {} for container in running]
        return {(found.get(MACHINE, ""), found.get(CONTAINER, "")) for found in labels}

    async def _list(self, label: str, timeout_s: float) -> list[JsonObject]:
        labels = [f"{name}={value}" for name, value in self._owner.labels.items()]
        if label:
            labels.append(label)
        query = {"all": "true", "filters": encode_filters(label=labels)}
        found = await self.engine.ask("GET", "/containers/json", query, timeout_s=timeout_s)
        return found or []

    async def _ensure_network(self, name: str, prefixes: list[tuple[str, str]]) -> None:
        async with self._networks:
            if name in self._known_networks or await self._has_network(name):
                self._known_networks.add(name)
                return
            try:
                body = network_body(name, self._owner, prefixes)
                await self.engine.ask("POST", "/networks/create", body=body)
            except EngineError as refusal:
                told = " and ".join(prefix for prefix, _ in prefixes)
                raise PermanentError(f"the network of {told}: {refusal.words}") from None
            self._known_networks.add(name)

    async def _has_network(self, name: str) -> bool:
        try:
            await self.engine.ask("GET", f"/networks/{name}")
        except EngineError as refusal:
            if refusal.status == 404:
                return False
            raise
        return True

    async def remove_network(self, name: str) -> None:
        """One that nobody uses any more; the engine refuses to remove any other."""
        async with self._networks:
            self._known_networks.discard(name)
            try:
                await self.engine.ask("DELETE", f"/networks/{name}")
            except EngineError:
                return


def is_init_missing(info: JsonObject) -> bool:
    """Whether the engine reports in ``GET /info`` that its init program is missing.

    Docker names the program and reports the version N/A if it is missing. Podman never names it.
    """
    version = info.get("InitCommit") or {}
    return bool(info.get("InitBinary")) and version.get("ID") == "N/A"


def is_symlink(stat: JsonObject) -> bool:
    mode = stat.get("mode")
    return isinstance(mode, int) and bool(mode & _SYMLINK)


def is_executable(stat: JsonObject) -> bool:
    """Return False only for a directory and for a file that nobody may execute."""
    mode = stat.get("mode")
    if not isinstance(mode, int) or mode & _SYMLINK:
        return True  # unknown
    return not mode & _DIRECTORY and bool(mode & 0o111)


def hide_secrets(words: str, machine: Machine) -> str:
    """Engines repeat what they were sent; what came from a source of data stays out of sight."""
    secrets = {
        value for variables in machine.data.variables.values() for value in variables.values()
    }
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SECRET_MIN:
            words = words.replace(secret, "(value)")
    return words


def hide_folders(words: str, folders: Mapping[str, str]) -> str:
    """Replace the host paths of volumes in an error message of the engine."""
    for volume, folder in folders.items():
        words = words.replace(folder, f"(volume {volume})")
    return words


# So long one that was woken is called asleep still, until it is ready; then it is said what it is.
DROWSY_S = 10.0
LET_PASS_S = 0.02


def may_sleep(machine: Machine, now_s: float) -> bool:
    """Only one that serves: what is wrong with any other must show."""
    state = machine_state(machine, now_s)
    serves = state.phase == "Running" and not state.reason
    return machine.wanted and not machine.sleep.waking and serves


def is_asleep(machine: Machine) -> bool:
    """Or something else has become of it, and there is nothing to wait for."""
    if machine.wanted and machine.sleep.falling:
        return False
    if not machine.wanted or not machine.record.asleep:
        return True
    wanted = "exited" if machine.record.asleep == "stop" else "paused"
    return all(seen.standing == wanted for seen in machine.seen.values())


def can_wake(machine: Machine) -> bool:
    """Also one that somebody else has paused."""
    paused = any(seen.standing == "paused" for seen in machine.seen.values())
    return machine.wanted and bool(machine.record.asleep or paused)


async def until(machine: Machine, holds: Callable[[Machine], bool]) -> None:
    while not holds(machine):
        await machine.sleep.turned.wait()


async def wake(
    hands: ContainerOperations, machine: Machine, names: Sequence[str], now_s: Callable[[], float]
) -> MachineRecord:
    """What is on record of it when it executes."""
    began_s, seen = now_s(), machine.seen
    frozen = [name for name in names if seen[name].standing == "paused"]
    await hands.unpause(machine, frozen)
    await hands.start(machine, [name for name in names if name not in frozen])
    sleep, ended_s = machine.sleep, now_s()
    for name in names:  # known before anybody looks again
        seen[name] = replace(seen[name], standing="running", exit_code=None)
        if name not in frozen:
            seen[name] = replace(seen[name], started_at=timestamp(ended_s), started_s=ended_s)
    sleep.engine_s = max(0.0, ended_s - began_s)
    sleep.drowsy_until_s = ended_s + DROWSY_S
    sleep.thawed = len(frozen) == len(machine.containers)
    sleep.waking = False
    machine.problem = None
    return record_wake(machine.record)


def woken_in_s(machine: Machine) -> float:
    """What the engine took, if it did wake it."""
    if machine.problem is not None:
        raise TransientError(f"it cannot be woken: {machine.problem.message}")
    if not machine.wanted or machine.record.asleep:
        raise TransientError("it went away instead of being woken")
    return machine.sleep.engine_s
