"""The house rules, applied: this test is the linter of the architecture."""

from __future__ import annotations

import importlib
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from datum_compute.api.kinds import KINDS
from tests import house_rules
from tests.house_rules import Rule, Source, ends_in, parsed, sources_below, unlisted

ROOT = Path(__file__).resolve().parent.parent

COMMANDS = {
    "datumctl": "datumctl:main",
    "datumctl-compute": "datum_compute.cli:main",
    "kubectl-compute": "datum_compute.cli:main",
    "compute-manager": "datum_compute.app.manager:main",
    "compute-server": "datum_compute.app.local_server:main",
    "compute-cell": "datum_compute.app.cell_server:main",
}


@cache
def sources() -> list[Source]:
    """Parsed when a test asks: whoever only collects this file need not."""
    package = ROOT / "src" / "datum_compute"
    return [*sources_below(package, package), *sources_below(ROOT / "testkit", ROOT)]


def violations(rule: Rule) -> list[str]:
    return [sentence for source in sources() for sentence in rule(source)]


def report(sentences: list[str]) -> str:
    return "\n" + "\n".join(sentences)


def check(rule: Rule) -> None:
    found = violations(rule)
    assert not found, report(found)


def test_the_source_is_found() -> None:
    assert {"api", "store", "client"} <= {source.room for source in sources()}


def test_rooms_import_only_what_the_table_allows() -> None:
    check(house_rules.import_table)


def test_the_product_does_not_import_the_testkit() -> None:
    product = [source for source in sources() if source.room != house_rules.TESTKIT]
    found = [
        f"{source.path}:{line}: imports {name}"
        for source in product
        for line, name in house_rules.imported_modules(source)
        if name.partition(".")[0] == house_rules.TESTKIT
    ]
    assert not found, report(found)


def test_the_testkit_does_not_import_the_command_line() -> None:
    found = [
        f"{source.path}:{line}: imports {name}"
        for source in sources()
        if source.room == house_rules.TESTKIT
        for line, name in house_rules.imported_modules(source)
        if f"{name}.".startswith("datum_compute.cli.")
    ]
    assert not found, report(found)


def test_the_wheel_does_not_contain_the_testkit() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    packed = [*targets["targets"]["wheel"]["packages"], *targets["targets"]["sdist"]["include"]]
    assert not [path for path in packed if path.startswith("testkit")]


def test_the_import_table_has_no_cycle() -> None:
    done: set[str] = set()
    remaining = dict(house_rules.MAY_IMPORT)
    while remaining:
        ready = {room for room, needs in remaining.items() if needs & set(remaining) <= {room}}
        assert ready, f"these rooms import each other: {sorted(remaining)}"
        done |= ready
        remaining = {room: needs for room, needs in remaining.items() if room not in done}


def test_every_folder_is_a_declared_room() -> None:
    check(house_rules.declared_room)


def test_every_room_says_what_it_is_for() -> None:
    check(house_rules.room_docstring)


def test_every_room_is_a_package() -> None:
    folders = {source.room for source in sources() if "/" in source.path}
    packages = {source.room for source in sources() if source.path == f"{source.room}/__init__.py"}
    assert folders == packages, f"add __init__.py to {sorted(folders - packages)}"


def test_no_file_has_a_name_that_says_nothing() -> None:
    check(house_rules.banned_file_name)


def test_api_and_planning_import_no_outside_effects() -> None:
    check(house_rules.banned_module)


def test_planners_do_not_wait() -> None:
    check(house_rules.async_in_planning)


def test_clock_ids_and_randomness_come_in_as_arguments() -> None:
    check(house_rules.hidden_clock_or_chance)


def test_only_adapters_reach_outside_of_the_process() -> None:
    check(house_rules.hidden_effect)


def test_no_name_is_hidden() -> None:
    check(house_rules.hidden_import)


def test_only_runtime_and_app_start_tasks() -> None:
    check(house_rules.task_outside_runtime)


def test_the_environment_is_read_in_two_files_only() -> None:
    check(house_rules.environment_read)


def test_every_kind_file_is_listed_in_kinds() -> None:
    files = [s for s in sources() if s.path.startswith("api/") and ends_in(s, "KIND")]
    missing = [s.path for s in files if importlib.import_module(s.module).KIND not in KINDS]
    assert files
    assert not missing, f"add a line to api/kinds.py for {missing}"


def test_every_controller_is_listed() -> None:
    found = [
        sentence
        for name in ("CONTROLLER", "CONTROLLERS")
        for sentence in unlisted(sources(), name, "controllers/registry.py")
    ]
    assert not found, report(found)


def test_every_command_is_listed() -> None:
    found = unlisted(sources(), "COMMAND", "cli/commands.py")
    assert not found, report(found)


def test_no_two_kinds_share_a_name() -> None:
    names = [(kind.group, name) for kind in KINDS for name in (kind.plural, *kind.short_names)]
    assert len(names) == len(set(names)), "two kinds of one group answer to the same name"


def test_the_public_commands_keep_their_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == COMMANDS
    assert project["name"] == "datum-compute"


def test_the_plugin_host_imports_nothing_but_the_standard_library() -> None:
    host = parsed("datumctl.py", (ROOT / "src" / "datumctl.py").read_text())
    imported = {name.partition(".")[0] for _, name in house_rules.imported_modules(host)}
    assert imported <= set(sys.stdlib_module_names)


# --- what may not stand in any file

# Composed, so that this file does not name what it forbids.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("conda", "anaconda", "org"),
    )
)
HOME_PATH = re.compile(r"(?<![\w.])/(?:home|Users|root)/[\w.-]+")


NOT_OURS = frozenset(
    {
        *(".git", ".venv", ".local", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
        *(".hypothesis", "__pycache__", "dist", "results"),
    }
)


def repository_files() -> Iterator[Path]:
    """Every file that is, or would be, in git; without needing git on the machine."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS]
        yield from (Path(folder) / name for name in names)


def leaks(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if any(host in line for host in REGISTRY_HOSTS):
            yield f"{name}:{number} names a package registry"
        if HOME_PATH.search(line) or str(ROOT) in line:
            yield f"{name}:{number} names a path of one machine"


def test_no_path_looks_like_a_flag() -> None:
    """A program that takes ``--help`` for a folder leaves one behind."""
    paths = [path.relative_to(ROOT) for path in repository_files()]
    assert [str(path) for path in paths if any(part[0] == "-" for part in path.parts)] == []


def test_no_file_names_a_registry_or_a_machine_path() -> None:
    found = [
        sentence
        for path in repository_files()
        for sentence in leaks(
            path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8", errors="replace")
        )
    ]
    assert not found, report(found)


@pytest.mark.parametrize("name", ["run.lock", "dev.lock"])
def test_lock_files_pin_hashes_and_name_no_address(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    pinned = re.findall(r"^[a-z0-9][\w.-]*==\S+.*\\\n    --hash=sha256:", text, flags=re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^[a-z0-9]", text, flags=re.MULTILINE)) > 0
    assert "://" not in text
    assert "--index-url" not in text
    assert "--find-links" not in text


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    run, extras = project["dependencies"], project["optional-dependencies"]
    wanted = {"run.lock": run, "dev.lock": [*run, *extras["dev"]]}
    for name, requirements in wanted.items():
        text = (ROOT / "requirements" / name).read_text()
        pinned = set(re.findall(r"^([a-z0-9][\w.-]*)==", text, flags=re.MULTILINE))
        names = {re.split(r"[<>=!~\[; ]", requirement)[0].lower() for requirement in requirements}
        assert names <= pinned, f"run: make lock ({name} lacks {sorted(names - pinned)})"


def test_leaks_are_found() -> None:
    registry = "https://" + REGISTRY_HOSTS[0] + "/simple"
    home = "/".join(("", "home", "somebody", "project"))
    assert list(leaks("a", f"ok\n{registry}")) == ["a:2 names a package registry"]
    assert list(leaks("a", f"see {home}")) == ["a:1 names a path of one machine"]
    assert list(leaks("a", "GET /apis/x/home/y")) == []


# --- every rule catches a seeded violation, and lets the allowed neighbour pass

CAUGHT: list[tuple[Rule, str, str]] = [
    (house_rules.import_table, "planning/a.py", "from datum_compute.client import client"),
    (house_rules.import_table, "server/a.py", "import datum_compute.controllers.registry"),
    (house_rules.import_table, "store/a.py", "from datum_compute import server"),
    (house_rules.import_table, "store/a.py", "def f():\n    from datum_compute.server import x"),
    (house_rules.import_table, "store/a.py", "from ..server import x"),
    (house_rules.import_table, "store/a.py", "from .. import server"),
    (house_rules.import_table, "cli/status.py", "from datum_compute.app import wiring"),
    (house_rules.import_table, "app/a.py", "from testkit.sim import loop"),
    (house_rules.import_table, "api/a.py", "import testkit"),
    (house_rules.import_table, "testkit/sim/a.py", "from datum_compute.cli import main"),
    (house_rules.import_table, "api/a.py", "from datum_compute import telemetry"),
    (house_rules.import_table, "telemetry.py", "from datum_compute.api import meta"),
    (
        house_rules.import_table,
        "app/a.py",
        "import importlib\nimportlib.import_module('datum_compute.cli')",
    ),
    (house_rules.declared_room, "extras/a.py", ""),
    (house_rules.declared_room, "stray.py", ""),
    (house_rules.room_docstring, "store/__init__.py", "x = 1"),
    (house_rules.banned_file_name, "store/utils.py", ""),
    (house_rules.banned_file_name, "store/helpers/a.py", ""),
    (house_rules.banned_module, "planning/a.py", "import time"),
    (house_rules.banned_module, "planning/a.py", "def f():\n    from datetime import UTC"),
    (house_rules.banned_module, "api/a.py", "import os.path"),
    (house_rules.async_in_planning, "planning/a.py", "async def plan(): ..."),
    (house_rules.hidden_clock_or_chance, "runtime/a.py", "import time\ntime.monotonic()"),
    (house_rules.hidden_clock_or_chance, "runtime/a.py", "from time import time as now\nnow()"),
    (house_rules.hidden_clock_or_chance, "store/a.py", "import datetime as d\nd.datetime.now()"),
    (house_rules.hidden_clock_or_chance, "store/a.py", "from uuid import uuid4\nf = uuid4"),
    (house_rules.hidden_clock_or_chance, "store/a.py", "import random\nrandom.random()"),
    (house_rules.hidden_clock_or_chance, "store/a.py", "import random\nrandom.Random(1)"),
    (house_rules.hidden_clock_or_chance, "testkit/a.py", "import random\nrandom.Random()"),
    (house_rules.hidden_clock_or_chance, "cli/a.py", "import secrets\nsecrets.token_hex()"),
    (house_rules.hidden_clock_or_chance, "store/a.py", "import os\nos.getrandom(8)"),
    (house_rules.hidden_clock_or_chance, "server/a.py", "import time\ntime.gmtime()"),
    (house_rules.hidden_clock_or_chance, "runtime/a.py", "import time as t\nt.process_time()"),
    (house_rules.hidden_effect, "runtime/a.py", "import sys\nsys.exit(1)"),
    (house_rules.hidden_effect, "store/a.py", "from os import _exit\n_exit(1)"),
    (house_rules.hidden_effect, "controllers/a.py", "import os\nos.execv('a', [])"),
    (house_rules.hidden_effect, "runtime/a.py", "import signal\nsignal.signal(1, f)"),
    (house_rules.hidden_effect, "server/a.py", "import socket\nsocket.socket()"),
    (house_rules.hidden_effect, "client/retrying.py", "import aiohttp\naiohttp.ClientSession()"),
    (house_rules.hidden_effect, "runtime/a.py", "import asyncio\nasyncio.open_connection()"),
    (house_rules.hidden_effect, "drivers/a.py", "from subprocess import run\nrun(['a'])"),
    (house_rules.hidden_effect, "server/a.py", "import asyncio\nasyncio.to_thread(f)"),
    (house_rules.hidden_effect, "store/store.py", "import threading\nthreading.Lock()"),
    (house_rules.hidden_effect, "server/a.py", "open('a')"),
    (house_rules.hidden_effect, "planes/a.py", "import os\nos.getpid()"),
    (house_rules.hidden_import, "store/a.py", "from time import *"),
    (house_rules.hidden_import, "store/a.py", "__import__('time').time()"),
    (house_rules.task_outside_runtime, "server/a.py", "import asyncio\nasyncio.create_task(f())"),
    (house_rules.task_outside_runtime, "store/a.py", "group().create_task(f())"),
    (house_rules.environment_read, "server/a.py", "import os\nos.environ['X']"),
    (house_rules.environment_read, "cli/a.py", "from os import getenv\ngetenv('X')"),
]

ALLOWED: list[tuple[Rule, str, str]] = [
    (house_rules.import_table, "controllers/cell/a.py", "from datum_compute.planning import plan"),
    (house_rules.import_table, "cli/local.py", "from datum_compute.app import wiring"),
    (house_rules.import_table, "server/a.py", "from datum_compute import telemetry"),
    (house_rules.import_table, "api/a.py", "from datum_compute import __version__"),
    (house_rules.import_table, "store/a.py", "from . import journal"),
    (house_rules.import_table, "testkit/sim/a.py", "from datum_compute.app import wiring"),
    (house_rules.import_table, "testkit/sim/a.py", "from testkit.builders import workload"),
    (house_rules.declared_room, "dashboard/pages.py", ""),
    (house_rules.banned_module, "store/a.py", "import os"),
    (house_rules.banned_file_name, "store/database.py", ""),
    (house_rules.async_in_planning, "runtime/a.py", "async def run(): ..."),
    (house_rules.hidden_clock_or_chance, "app/a.py", "import time\ntime.time()"),
    (house_rules.hidden_clock_or_chance, "cli/a.py", "import time\ntime.time()"),
    (
        house_rules.hidden_clock_or_chance,
        "runtime/a.py",
        "import random\ndef f(r: random.Random): ...",
    ),
    (house_rules.hidden_clock_or_chance, "testkit/sim/a.py", "import random\nrandom.Random(7)"),
    (house_rules.hidden_clock_or_chance, "runtime/a.py", "def f(time):\n    return time.time()"),
    (house_rules.hidden_effect, "app/a.py", "import socket, sys\nsocket.socket()\nsys.exit()"),
    (house_rules.hidden_effect, "client/http.py", "import aiohttp\naiohttp.ClientSession()"),
    (house_rules.hidden_effect, "store/sqlite.py", "import sqlite3\nsqlite3.connect('a')"),
    (
        house_rules.hidden_effect,
        "runtime/a.py",
        "def f(socket):\n    socket.socket()",
    ),
    (house_rules.hidden_import, "store/a.py", "from time import time"),
    (house_rules.task_outside_runtime, "runtime/a.py", "group.create_task(f())"),
    (house_rules.environment_read, "app/settings.py", "import os\nos.environ"),
]


@pytest.mark.parametrize(("rule", "path", "text"), CAUGHT)
def test_a_seeded_violation_is_caught(rule: Rule, path: str, text: str) -> None:
    assert list(rule(parsed(path, text))), f"{rule.__name__} did not see {text!r} in {path}"


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_the_allowed_neighbour_passes(rule: Rule, path: str, text: str) -> None:
    assert list(rule(parsed(path, text))) == []


def test_a_forgotten_list_line_is_caught() -> None:
    controller = parsed("controllers/cell/instance.py", "CONTROLLER = 1")
    annotated = parsed("controllers/hub/work.py", "CONTROLLER: int = 1")
    effects = parsed("controllers/effects.py", "def carry_out(): ...")
    listing = "controllers/registry.py"

    def missing(registry: str) -> list[str]:
        sources: list[Source] = [controller, annotated, effects, parsed(listing, registry)]
        return unlisted(sources, "CONTROLLER", listing)

    from_module = "from datum_compute.controllers.hub.work import CONTROLLER as work"
    from_folder = "from datum_compute.controllers.cell import instance"
    assert missing(f"{from_module}\n{from_folder}") == []
    assert missing(f"{from_module}\nNAMES = ['datum_compute.controllers.cell.instance']") == []
    assert missing(from_module) == [
        f"controllers/cell/instance.py ends in CONTROLLER but {listing} does not list it"
    ]
