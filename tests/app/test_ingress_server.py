"""The process of the ingress: what it imports, and one process for each state directory."""

from __future__ import annotations

from pathlib import Path

from datum_compute.app.ingress_server import prepare_start
from tests.house_rules import Source, imported_modules, read_sources

REPOSITORY = Path(__file__).parent.parent.parent
ALLOWED = (
    *("datum_compute.api", "datum_compute.ingress", "datum_compute.telemetry"),
    "datum_compute.server.http.listen",
    "datum_compute.drivers.local_network",
    *(f"datum_compute.app.{name}" for name in ("ingress_server", "state_directory")),
    "datum_compute.app.debounced_file",
)


def test_the_process_loads_neither_controllers_nor_drivers_nor_stores() -> None:
    sources = {source.module: source for source in read_sources(REPOSITORY)}
    loaded = _loaded_modules(sources, "datum_compute.app.ingress_server")
    packages = {module for module in loaded if sources[module].path.endswith("__init__.py")}
    found = {
        module
        for module in loaded - packages
        if not any(module == name or module.startswith(f"{name}.") for name in ALLOWED)
    }
    assert found == set()


def _loaded_modules(sources: dict[str, Source], module: str) -> set[str]:
    """Return all modules of the product that an import of the module loads."""
    loaded: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in loaded:
            continue
        loaded.add(name)
        parents = [".".join(name.split(".")[:end]) for end in range(1, name.count(".") + 1)]
        imported = [found for _, found in imported_modules(sources[name])]
        candidates = [*imported, *(found.rpartition(".")[0] for found in imported), *parents]
        waiting += [found for found in candidates if found in sources]
    return loaded


def test_a_process_starts_only_if_no_other_runs(tmp_path: Path) -> None:
    (tmp_path / "ingress.json").write_bytes(b'{"format": 1, "owners": {}}')
    start = prepare_start(tmp_path)
    assert start is not None
    assert start.predecessor is None
    assert start.configuration.owners == {}
