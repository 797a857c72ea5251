"""Operations on the containers of one cell. Every operation is idempotent.

- The engine's messages are shown to users without secrets and without host paths of volumes.
- A container runs under an init process if the engine has an init program. The operations detect
  whether it has one.
- Networks are created on first use, and removed by the driver with their last machine.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from datum_compute.api.compute.instance import Container
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode
from datum_compute.api.meta.timestamps import timestamp
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
from datum_compute.drivers.driver import DataFile, PermanentError
from datum_compute.drivers.logs import CONCURRENT_LOG_READS_MAX, LastFrames, LastLines, LogArchive

# How much of the output is reported when a container exits, and archived when it is removed.
REPORTED_LINES = 20
ARCHIVED_LINES, ARCHIVED_BYTES = 2000, 256 * 1024
# How long the engine may take to stop a container after its grace period.
STOP_TIMEOUT_S = 30.0
# A machine that was woken is reported as Sleeping until it is ready, but not longer than this.
SHOWN_ASLEEP_S = 10.0
# Shorter values of variables are not hidden: they occur in messages by chance.
_SECRET_CHARACTERS_MIN = 4
PATH_STAT = "x-docker-container-path-stat"
# Bits of the file mode in that header. They are those of Go's os.FileMode, not of stat(2).
_DIRECTORY, _SYMLINK = 1 << 31, 1 << 27

_log = logging.getLogger(__name__)


class DataFolders(Protocol):
    """Files of this host that are mounted into containers. They are removed with their machine."""

    def write(self, machine_id: str, volume: str, files: Sequence[DataFile]) -> str:
        """Return the folder, which contains exactly these files."""
        ...

    def remove(self, machine_id: str) -> None: ...

    def keep_only(self, machine_ids: Collection[str]) -> None:
        """Remove the files of all other machines."""
        ...


class ContainerOperations:
    def __init__(
        self, engine: Engine, owner: ContainerOwner, folders: DataFolders, archive: LogArchive
    ) -> None:
        self.engine = engine
        self.log_reads = asyncio.Semaphore(CONCURRENT_LOG_READS_MAX)
        self._archive = archive
        self._owner = owner
        self._folders = folders
        self._images = ImageStore(engine)
        self._network_lock = asyncio.Lock()
        self._known_networks: set[str] = set()
        # The engine has reported that it has its init program.
        self._is_init_confirmed = False
        # The engine last accepted containers only without an init process.
        self._is_init_refused = False

    def container_path(self, machine: Machine, container: str) -> str:
        return f"/containers/{container_name(self._owner, machine.id, container)}"

    # --- reading

    async def inspect(self, machine: Machine) -> dict[str, InspectedContainer]:
        """Return the containers of the machine that exist, by name."""
        names = machine.container_names
        found = await asyncio.gather(*(self._inspect_container(machine, n) for n in names))
        return {container.name: container for container in found if container is not None}

    async def _inspect_container(self, machine: Machine, name: str) -> InspectedContainer | None:
        try:
            path = f"{self.container_path(machine, name)}/json"
            return parse_container(name, await self.engine.request("GET", path))
        except EngineError as error:
            if error.status == 404:
                return None
            raise

    async def list_labels(
        self, label: str = "", timeout_s: float = REQUEST_TIMEOUT_S
    ) -> list[dict[str, str]]:
        """Return the labels of each container of the cell, running or not.

        ``label`` (``name=value``) selects some of them.
        """
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
        found = await self.engine.request("GET", "/containers/json", query, timeout_s=timeout_s)
        return found or []

    async def count_without_init(self) -> int:
        """Count the containers of the cell that run without the init process they should have."""
        return len(await self.list_labels(f"{INIT}={INIT_MISSING}"))

    async def read_last_lines(self, machine: Machine, name: str) -> tuple[str, ...]:
        query = {"stdout": "true", "stderr": "true", "tail": str(REPORTED_LINES)}
        path = f"{self.container_path(machine, name)}/logs"
        lines = LastLines(REPORTED_LINES)
        try:
            await self.engine.read_into(lines.feed, "GET", path, query)
        except EngineError:
            return ()
        return lines.texts()

    async def _read_log(self, machine: Machine, name: str) -> bytes:
        """Return the last lines with their times, as frames, for the archive."""
        query = {
            "stdout": "true",
            "stderr": "true",
            "timestamps": "true",
            "tail": str(ARCHIVED_LINES),
        }
        path = f"{self.container_path(machine, name)}/logs"
        last = LastFrames(ARCHIVED_BYTES)
        try:
            await self.engine.read_into(last.feed, "GET", path, query)
        except EngineError:
            return b""
        return last.frames()

    # --- images

    async def pull(self, machine: Machine) -> dict[str, ImageInfo]:
        """Pull the image of each container. Nothing else changes, so this may be cancelled."""
        assert machine.spec is not None
        return {c.name: await self._pull_image(machine, c) for c in machine.spec.containers}

    async def _pull_image(self, machine: Machine, container: Container) -> ImageInfo:
        machine.progress = f"image {container.image} is being pulled"
        configs = machine.data.pull_configs
        return await self._images.ensure(container.image, container.image_pull_policy, configs)

    async def find_image(self, image: str) -> ImageInfo | None:
        """Return the image if the engine has it."""
        return await self._images.find(image)

    # --- creation

    async def create(self, machine: Machine, images: Mapping[str, ImageInfo]) -> None:
        """Create all containers of the machine. Existing ones are removed first."""
        spec, data = machine.spec, machine.data
        assert spec is not None
        for name in machine.container_names:
            await self._delete(machine, name)
        digests = {name: image.digest for name, image in images.items()}
        machine.plan = with_digests(machine.plan, digests)
        machine.progress = "the containers are being created"
        if machine.plan.network != DEFAULT_NETWORK:
            await self._ensure_network(machine.plan.network, network_prefixes(spec))
        folders = {v: self._folders.write(machine.id, v, files) for v, files in data.files.items()}
        machine.volume_folders = folders
        limits = container_limits(spec)
        inputs = CreationInputs(self._owner, machine.id, spec, data, machine.plan, limits, folders)
        for container in spec.containers:
            try:
                await self._create_container(inputs, container, images[container.name])
            except EngineError as error:
                self._known_networks.discard(machine.plan.network)
                raise _container_error(machine, container.name, error) from None

    async def _create_container(
        self, inputs: CreationInputs, container: Container, image: ImageInfo
    ) -> None:
        """Create the container, with an init process if the engine has one.

        Podman does not report whether it has one. Without one it refuses to create the container
        (5xx), but a single refusal may have another cause. So the engine has none if it creates the
        same container without an init process and then again refuses to create it with one. Every
        container is tried with an init process first, because the package may be installed at any
        time.
        """
        if not container.init:
            await self._post_container(inputs, container, image, "off")
            return
        if not await self._is_init_missing():
            if await self._create_with_init(inputs, container, image):
                return
            if not self._is_init_refused:
                await self._post_container(inputs, container, image, "off")
                await self._delete_created(inputs, container)
                if await self._create_with_init(inputs, container, image):
                    return
                self._is_init_refused = True
        await self._post_container(inputs, container, image, "missing")
        _log.warning(
            "%s: container %s runs without an init process: the engine has none",
            inputs.machine_id,
            container.name,
        )

    async def _create_with_init(
        self, inputs: CreationInputs, container: Container, image: ImageInfo
    ) -> bool:
        """Return False if the engine fails to create it, perhaps because it has no init program."""
        try:
            await self._post_container(inputs, container, image, "on")
        except EngineError as error:
            if error.status < 500:
                raise
            return False
        self._is_init_refused = False
        await self._recreate_without_init_if_program_missing(inputs, container, image)
        return True

    async def _delete_created(self, inputs: CreationInputs, container: Container) -> None:
        path = f"/containers/{container_name(self._owner, inputs.machine_id, container.name)}"
        await self.engine.request("DELETE", path, {"force": "true", "v": "true"})

    async def _post_container(
        self, inputs: CreationInputs, container: Container, image: ImageInfo, init: InitUse
    ) -> None:
        query = {"name": container_name(self._owner, inputs.machine_id, container.name)}
        body = container_body(inputs, container, image, init)
        await self.engine.request("POST", "/containers/create", query, body)

    async def _recreate_without_init_if_program_missing(
        self, inputs: CreationInputs, container: Container, image: ImageInfo
    ) -> None:
        """Recreate the container without an init process if its program cannot be run.

        A program cannot be run if it is missing, a directory or not executable. Under an init
        process the container would start and exit, which looks like a crash. Without one the engine
        refuses to start the container and reports why. A program on a mount cannot be inspected
        before the start. Its container is recreated too, and runs without an init process.
        """
        path = f"/containers/{container_name(self._owner, inputs.machine_id, container.name)}"
        config = (await self.engine.request("GET", f"{path}/json")).get("Config") or {}
        program = command_line(container, image)[0]
        candidates = program_paths(program, config.get("Env") or ())
        if not candidates or await self._has_any_program(path, candidates):
            return
        await self._delete_created(inputs, container)
        await self._post_container(inputs, container, image, "off")

    async def _has_any_program(self, container_path: str, candidates: Sequence[str]) -> bool:
        """Return whether one of the paths can be run, as far as the engine reports it."""
        for path in candidates:
            try:
                stat = await self._stat(container_path, path)
                if is_symlink(stat):  # the engine has followed the whole chain
                    stat = await self._stat(container_path, str(stat.get("linkTarget") or path))
            except EngineError as error:
                if error.status != 404:
                    return True  # not known to be missing
            else:
                if is_executable(stat):
                    return True
        return False

    async def _stat(self, container_path: str, path: str) -> JsonObject:
        """Return what the engine reports about a file of the container; empty if unreadable."""
        headers = await self.engine.head(f"{container_path}/archive", {"path": path})
        try:
            stat = decode(base64.b64decode(headers.get(PATH_STAT, "")))
        except (DecodeError, ValueError):
            return {}
        return stat if isinstance(stat, dict) else {}

    async def _is_init_missing(self) -> bool:
        """Return whether the engine reports that its init program is missing.

        Docker reports it. (Docker creates the container and refuses only to start it.) A missing
        program is checked again for the next container, because it may be installed at any time.
        Otherwise the answer is cached: podman takes long to answer and never reports a missing
        program.
        """
        if self._is_init_confirmed:
            return False
        is_missing = is_init_missing(await self.engine.request("GET", "/info"))
        self._is_init_confirmed = not is_missing
        return is_missing

    # --- running

    async def start(self, machine: Machine, names: Sequence[str]) -> None:
        """Start the containers in order: the others join the network namespace of the first."""
        for name in names:
            try:
                await self.engine.request("POST", f"{self.container_path(machine, name)}/start")
            except EngineError as error:
                raise _container_error(machine, name, error) from None

    async def stop(self, machine: Machine, names: Sequence[str]) -> None:
        """Stop the containers at the same time; the engine kills them after the grace period."""
        await asyncio.gather(*(self._stop_container(machine, name) for name in names))

    async def _stop_container(self, machine: Machine, name: str) -> None:
        grace_s = machine.plan.grace_s
        path = f"{self.container_path(machine, name)}/stop"
        if machine.inspected[name].state == "paused":  # a paused process cannot handle a signal
            await self._post_action(machine, name, "unpause")
        try:
            await self.engine.request(
                "POST", path, {"t": grace_s}, timeout_s=grace_s + STOP_TIMEOUT_S
            )
        except EngineError as error:
            if error.status not in (304, 404):
                raise

    async def pause(self, machine: Machine, names: Sequence[str]) -> None:
        await asyncio.gather(*(self._post_action(machine, name, "pause") for name in names))

    async def wake(
        self, machine: Machine, names: Sequence[str], unix_s: Callable[[], float]
    ) -> MachineRecord:
        """Unpause or start the containers, and return the new record of the machine.

        The inspected state is updated here, so that the wake does not wait for an inspection.
        """
        began_s, inspected = unix_s(), machine.inspected
        paused = [name for name in names if inspected[name].state == "paused"]
        await asyncio.gather(*(self._post_action(machine, name, "unpause") for name in paused))
        await self.start(machine, [name for name in names if name not in paused])
        sleep, ended_s = machine.sleep, unix_s()
        for name in names:
            running = replace(inspected[name], state="running", exit_code=None)
            if name not in paused:
                running = replace(running, started_at=timestamp(ended_s), started_s=ended_s)
            inspected[name] = running
        sleep.wake_duration_s = max(0.0, ended_s - began_s)
        sleep.shown_asleep_until_s = ended_s + SHOWN_ASLEEP_S
        sleep.was_unpaused = len(paused) == len(machine.container_names)
        sleep.is_wake_requested = False
        machine.problem = None
        return record_wake(machine.record)

    async def _post_action(self, machine: Machine, name: str, action: str) -> None:
        await self.engine.request("POST", f"{self.container_path(machine, name)}/{action}")

    # --- removal

    async def remove(self, machine: Machine) -> None:
        """Stop the containers, archive their logs, and remove them."""
        await self.stop(machine, [c.name for c in machine.inspected.values() if c.is_up])
        for name in machine.inspected:
            lines = await self._read_log(machine, name)
            await self._archive.save(machine.id, name, lines, machine.plan.owner)
        # The first container holds the network namespace that the others have joined.
        for name in reversed(machine.container_names):
            await self._delete(machine, name)

    async def _delete(self, machine: Machine, name: str) -> None:
        query = {"force": "true", "v": "true"}
        try:
            await self.engine.request("DELETE", self.container_path(machine, name), query)
        except EngineError as error:
            if error.status != 404:
                raise

    def remove_files(self, machine: Machine) -> None:
        self._folders.remove(machine.id)

    def remove_files_except(self, machine_ids: Collection[str]) -> None:
        self._folders.keep_only(machine_ids)

    # --- networks

    async def _ensure_network(self, name: str, prefixes: list[tuple[str, str]]) -> None:
        async with self._network_lock:
            if name in self._known_networks or await self._has_network(name):
                self._known_networks.add(name)
                return
            try:
                body = network_body(name, self._owner, prefixes)
                await self.engine.request("POST", "/networks/create", body=body)
            except EngineError as error:
                shown = " and ".join(prefix for prefix, _ in prefixes)
                raise PermanentError(f"the network of {shown}: {error.message}") from None
            self._known_networks.add(name)

    async def _has_network(self, name: str) -> bool:
        try:
            await self.engine.request("GET", f"/networks/{name}")
        except EngineError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def remove_network(self, name: str) -> None:
        """Remove an unused network. The engine refuses to remove one that is in use."""
        async with self._network_lock:
            self._known_networks.discard(name)
            try:
                await self.engine.request("DELETE", f"/networks/{name}")
            except EngineError:
                return


def is_init_missing(info: JsonObject) -> bool:
    """Return whether the engine reports in ``GET /info`` that its init program is missing.

    Docker names the program and reports the version N/A if it is missing. Podman never names it.
    """
    version = info.get("InitCommit") or {}
    return bool(info.get("InitBinary")) and version.get("ID") == "N/A"


def is_symlink(stat: JsonObject) -> bool:
    mode = stat.get("mode")
    return isinstance(mode, int) and bool(mode & _SYMLINK)


def is_executable(stat: JsonObject) -> bool:
    """Return False only for a directory and for a file without any execute permission."""
    mode = stat.get("mode")
    if not isinstance(mode, int) or mode & _SYMLINK:
        return True  # unknown
    return not mode & _DIRECTORY and bool(mode & 0o111)


def _container_error(machine: Machine, name: str, error: EngineError) -> PermanentError:
    message = hide_folders(hide_secrets(error.message, machine), machine.volume_folders)
    return PermanentError(f"container {name}: {message}")


def hide_secrets(message: str, machine: Machine) -> str:
    """Replace values of variables in a message: engines repeat parts of the request."""
    values = {
        value for variables in machine.data.variables.values() for value in variables.values()
    }
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _SECRET_CHARACTERS_MIN:
            message = message.replace(value, "(value)")
    return message


def hide_folders(message: str, folders: Mapping[str, str]) -> str:
    """Replace the host paths of volumes in an error message of the engine."""
    for volume, folder in folders.items():
        message = message.replace(folder, f"(volume {volume})")
    return message
