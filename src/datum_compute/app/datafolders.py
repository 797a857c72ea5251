"""Files of ConfigMaps and Secrets as folders of this host, which containers see and cannot write.

They lie in the private state directory, beside the store that holds the same data, and go with
their machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from datum_compute.api.process_input import NUL, NUL_PROBLEM
from datum_compute.app.state_directory import private_directory
from datum_compute.drivers.driver import DataFile, PermanentError


class HostFolders:
    """One folder for each machine, and in it one for each of its volumes."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, machine_id: str, volume: str, files: Sequence[DataFile]) -> str:
        folder = private_directory(self._root) / _name(machine_id) / volume
        shutil.rmtree(folder, ignore_errors=True)
        _open_folder(folder.parent)
        _open_folder(folder)
        for file in files:
            self._write(folder, file, volume)
        return str(folder)

    def _write(self, folder: Path, file: DataFile, volume: str) -> None:
        if NUL in file.path:
            raise PermanentError(f"volume {volume}: the path of a file {NUL_PROBLEM}")
        path = folder / file.path
        if not path.resolve().is_relative_to(folder.resolve()):
            raise PermanentError(f"volume {volume}: {file.path} lies outside of it")
        try:
            for parent in reversed(path.relative_to(folder).parents[:-1]):
                _open_folder(folder / parent)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as target:
                target.write(file.content)
            path.chmod(file.mode)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise PermanentError(f"volume {volume}: {file.path}: {why.lower()}") from None

    def remove(self, machine_id: str) -> None:
        shutil.rmtree(self._root / _name(machine_id), ignore_errors=True)

    def keep_only(self, machine_ids: Collection[str]) -> None:
        kept = {_name(machine_id) for machine_id in machine_ids}
        found = list(self._root.iterdir()) if self._root.is_dir() else []
        for folder in found:
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _open_folder(folder: Path) -> None:
    """Whoever the container runs as may look into it; from outside the state directory is shut."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)


def _name(machine_id: str) -> str:
    return hashlib.sha256(machine_id.encode()).hexdigest()[:24]
