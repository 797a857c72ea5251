"""Apply the house rules to the source, and each rule to a seeded violation."""

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
from tests.house_rules import (
    Rule,
    Source,
    assigns,
    find_unlisted,
    parse_source,
    read_sources,
)

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
    """Parse the source on first use, so that collecting this file stays fast."""
    return read_sources(ROOT / "src" / "datum_compute")


def violations(rule: Rule) -> list[str]:
    return [sentence for source in sources() for sentence in rule(source)]


def report(sentences: list[str]) -> str:
    return "\n" + "\n".join(sentences)


def check(rule: Rule) -> None:
    found = violations(rule)
    assert not found, report(found)


def test_the_source_is_found() -> None:
    assert {"api", "store", "client"} <= {source.package for source in sources()}


def test_packages_import_only_what_the_table_allows() -> None:
    check(house_rules.find_forbidden_imports)


def test_the_import_table_has_no_cycle() -> None:
    done: set[str] = set()
    remaining = dict(house_rules.MAY_IMPORT)
    while remaining:
        ready = {name for name, needs in remaining.items() if needs & set(remaining) <= {name}}
        assert ready, f"remove a cycle from MAY_IMPORT among {sorted(remaining)}"
        done |= ready
        remaining = {name: needs for name, needs in remaining.items() if name not in done}


def test_every_folder_is_a_declared_package() -> None:
    check(house_rules.find_undeclared_package)


def test_every_package_has_a_docstring() -> None:
    check(house_rules.find_missing_package_docstring)


def test_every_folder_has_an_init_file() -> None:
    folders = {source.package for source in sources() if "/" in source.path}
    packages = {s.package for s in sources() if s.path == f"{s.package}/__init__.py"}
    assert folders == packages, f"add __init__.py to {sorted(folders - packages)}"


def test_no_file_has_a_vague_name() -> None:
    check(house_rules.find_vague_file_names)


def test_api_and_planning_import_no_outside_effects() -> None:
    check(house_rules.find_forbidden_modules)


def test_planning_is_synchronous() -> None:
    check(house_rules.find_async_planning)


def test_clock_ids_and_randomness_are_arguments() -> None:
    check(house_rules.find_clock_or_randomness)


def test_only_adapters_have_effects_outside_of_the_process() -> None:
    check(house_rules.find_effects)


def test_no_import_is_hidden() -> None:
    check(house_rules.find_hidden_imports)


def test_only_runtime_and_app_start_tasks() -> None:
    check(house_rules.find_tasks)


def test_the_environment_is_read_in_two_files_only() -> None:
    check(house_rules.find_environment_reads)


def test_every_kind_file_is_listed_in_kinds() -> None:
    files = [s for s in sources() if s.path.startswith("api/") and assigns(s, "KIND")]
    missing = [s.path for s in files if importlib.import_module(s.module).KIND not in KINDS]
    assert files
    assert not missing, f"add a line to api/kinds.py for {missing}"


def test_every_controller_is_listed() -> None:
    found = [
        sentence
        for name in ("CONTROLLER", "CONTROLLERS")
        for sentence in find_unlisted(sources(), name, "controllers/registry.py")
    ]
    assert not found, report(found)


def test_every_command_is_listed() -> None:
    found = find_unlisted(sources(), "COMMAND", "cli/commands.py")
    assert not found, report(found)


def test_no_two_kinds_share_a_name() -> None:
    names = [(kind.group, name) for kind in KINDS for name in (kind.plural, *kind.short_names)]
    assert len(names) == len(set(names)), "give each kind of a group a unique name"


def test_the_public_commands_keep_their_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == COMMANDS
    assert project["name"] == "datum-compute"


def test_the_plugin_host_imports_nothing_but_the_standard_library() -> None:
    host = parse_source("datumctl.py", (ROOT / "src" / "datumctl.py").read_text())
    imported = {name.partition(".")[0] for _, name in house_rules.imported_modules(host)}
    assert imported <= set(sys.stdlib_module_names)


# --- what no file may contain

# Joined at run time, so that this file does not contain them.
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


IGNORED_FOLDERS = frozenset(
    {
        *(".git", ".venv", ".local", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
        *(".hypothesis", "__pycache__", "dist", "results"),
    }
)


def repository_files() -> Iterator[Path]:
    """Yield every file that git tracks or would track, without calling git."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in IGNORED_FOLDERS]
        yield from (Path(folder) / name for name in names)


def leaks(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if any(host in line for host in REGISTRY_HOSTS):
            yield f"{name}:{number} contains the address of a package registry; remove it"
        if HOME_PATH.search(line) or str(ROOT) in line:
            yield f"{name}:{number} contains a path of one machine; use a relative path"


def test_no_path_looks_like_a_flag() -> None:
    """A program that takes ``--help`` for a path creates a folder of that name."""
    paths = [path.relative_to(ROOT) for path in repository_files()]
    assert [str(path) for path in paths if any(part[0] == "-" for part in path.parts)] == []


def test_no_file_contains_a_registry_or_a_machine_path() -> None:
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
    home = "/".join(("", "home", "user", "project"))
    assert list(leaks("a", f"ok\n{registry}")) == [
        "a:2 contains the address of a package registry; remove it"
    ]
    assert list(leaks("a", f"see {home}")) == [
        "a:1 contains a path of one machine; use a relative path"
    ]
    assert list(leaks("a", "GET /apis/x/home/y")) == []


# --- every rule catches a seeded violation and accepts similar code that is allowed

CAUGHT: list[tuple[Rule, str, str]] = [
    (
        house_rules.find_forbidden_imports,
        "planning/a.py",
        "from datum_compute.client import client",
    ),
    (
        house_rules.find_forbidden_imports,
        "server/a.py",
        "import datum_compute.controllers.registry",
    ),
    (house_rules.find_forbidden_imports, "store/a.py", "from datum_compute import server"),
    (
        house_rules.find_forbidden_imports,
        "store/a.py",
        "def f():\n    from datum_compute.server import x",
    ),
    (house_rules.find_forbidden_imports, "store/a.py", "from ..server import x"),
    (house_rules.find_forbidden_imports, "store/a.py", "from .. import server"),
    (house_rules.find_forbidden_imports, "cli/status.py", "from datum_compute.app import wiring"),
    (house_rules.find_forbidden_imports, "app/a.py", "from datum_compute.testing import clock"),
    (house_rules.find_forbidden_imports, "api/a.py", "from datum_compute import telemetry"),
    (house_rules.find_forbidden_imports, "telemetry.py", "from datum_compute.api import meta"),
    (
        house_rules.find_forbidden_imports,
        "app/a.py",
        "import importlib\nimportlib.import_module('datum_compute.cli')",
    ),
    (house_rules.find_forbidden_imports, "app/a.py", "from tests import house_rules"),
    (house_rules.find_forbidden_imports, "app/a.py", "import testkit.sim"),
    (house_rules.find_undeclared_package, "extras/a.py", ""),
    (house_rules.find_undeclared_package, "stray.py", ""),
    (house_rules.find_missing_package_docstring, "store/__init__.py", "x = 1"),
    (house_rules.find_vague_file_names, "store/utils.py", ""),
    (house_rules.find_vague_file_names, "store/helpers/a.py", ""),
    (house_rules.find_forbidden_modules, "planning/a.py", "import time"),
    (house_rules.find_forbidden_modules, "planning/a.py", "def f():\n    from datetime import UTC"),
    (house_rules.find_forbidden_modules, "api/a.py", "import os.path"),
    (house_rules.find_async_planning, "planning/a.py", "async def plan(): ..."),
    (house_rules.find_clock_or_randomness, "runtime/a.py", "import time\ntime.monotonic()"),
    (house_rules.find_clock_or_randomness, "runtime/a.py", "from time import time as now\nnow()"),
    (house_rules.find_clock_or_randomness, "store/a.py", "import datetime as d\nd.datetime.now()"),
    (house_rules.find_clock_or_randomness, "store/a.py", "from uuid import uuid4\nf = uuid4"),
    (house_rules.find_clock_or_randomness, "store/a.py", "import random\nrandom.random()"),
    (house_rules.find_clock_or_randomness, "store/a.py", "import random\nrandom.Random(1)"),
    (house_rules.find_clock_or_randomness, "testing/a.py", "import random\nrandom.Random()"),
    (house_rules.find_clock_or_randomness, "cli/a.py", "import secrets\nsecrets.token_hex()"),
    (house_rules.find_clock_or_randomness, "store/a.py", "import os\nos.getrandom(8)"),
    (house_rules.find_clock_or_randomness, "server/a.py", "import time\ntime.gmtime()"),
    (house_rules.find_clock_or_randomness, "runtime/a.py", "import time as t\nt.process_time()"),
    (house_rules.find_effects, "runtime/a.py", "import sys\nsys.exit(1)"),
    (house_rules.find_effects, "store/a.py", "from os import _exit\n_exit(1)"),
    (house_rules.find_effects, "controllers/a.py", "import os\nos.execv('a', [])"),
    (house_rules.find_effects, "runtime/a.py", "import signal\nsignal.signal(1, f)"),
    (house_rules.find_effects, "server/a.py", "import socket\nsocket.socket()"),
    (house_rules.find_effects, "client/retrying.py", "import aiohttp\naiohttp.ClientSession()"),
    (house_rules.find_effects, "runtime/a.py", "import asyncio\nasyncio.open_connection()"),
    (house_rules.find_effects, "drivers/a.py", "from subprocess import run\nrun(['a'])"),
    (house_rules.find_effects, "server/a.py", "import asyncio\nasyncio.to_thread(f)"),
    (house_rules.find_effects, "store/store.py", "import threading\nthreading.Lock()"),
    (house_rules.find_effects, "server/a.py", "open('a')"),
    (house_rules.find_effects, "planes/a.py", "import os\nos.getpid()"),
    (house_rules.find_hidden_imports, "store/a.py", "from time import *"),
    (house_rules.find_hidden_imports, "store/a.py", "__import__('time').time()"),
    (house_rules.find_tasks, "server/a.py", "import asyncio\nasyncio.create_task(f())"),
    (house_rules.find_tasks, "store/a.py", "group().create_task(f())"),
    (house_rules.find_environment_reads, "server/a.py", "import os\nos.environ['X']"),
    (house_rules.find_environment_reads, "cli/a.py", "from os import getenv\ngetenv('X')"),
]

ALLOWED: list[tuple[Rule, str, str]] = [
    (
        house_rules.find_forbidden_imports,
        "controllers/cell/a.py",
        "from datum_compute.planning import plan",
    ),
    (house_rules.find_forbidden_imports, "cli/local.py", "from datum_compute.app import wiring"),
    (house_rules.find_forbidden_imports, "server/a.py", "from datum_compute import telemetry"),
    (house_rules.find_forbidden_imports, "api/a.py", "from datum_compute import __version__"),
    (house_rules.find_forbidden_imports, "store/a.py", "from . import journal"),
    (house_rules.find_undeclared_package, "dashboard/pages.py", ""),
    (house_rules.find_forbidden_modules, "store/a.py", "import os"),
    (house_rules.find_vague_file_names, "store/database.py", ""),
    (house_rules.find_async_planning, "runtime/a.py", "async def run(): ..."),
    (house_rules.find_clock_or_randomness, "app/a.py", "import time\ntime.time()"),
    (house_rules.find_clock_or_randomness, "cli/a.py", "import time\ntime.time()"),
    (
        house_rules.find_clock_or_randomness,
        "runtime/a.py",
        "import random\ndef f(r: random.Random): ...",
    ),
    (house_rules.find_clock_or_randomness, "testing/a.py", "import random\nrandom.Random(7)"),
    (house_rules.find_clock_or_randomness, "runtime/a.py", "def f(time):\n    return time.time()"),
    (house_rules.find_effects, "app/a.py", "import socket, sys\nsocket.socket()\nsys.exit()"),
    (house_rules.find_effects, "client/http.py", "import aiohttp\naiohttp.ClientSession()"),
    (house_rules.find_effects, "store/sqlite.py", "import sqlite3\nsqlite3.connect('a')"),
    (
        house_rules.find_effects,
        "runtime/a.py",
        "def f(socket):\n    socket.socket()",
    ),
    (house_rules.find_hidden_imports, "store/a.py", "from time import time"),
    (house_rules.find_tasks, "runtime/a.py", "group.create_task(f())"),
    (house_rules.find_environment_reads, "app/settings.py", "import os\nos.environ"),
]


@pytest.mark.parametrize(("rule", "path", "text"), CAUGHT)
def test_a_seeded_violation_is_caught(rule: Rule, path: str, text: str) -> None:
    assert list(rule(parse_source(path, text))), f"{rule.__name__} accepts {text!r} in {path}"


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_similar_code_is_accepted(rule: Rule, path: str, text: str) -> None:
    assert list(rule(parse_source(path, text))) == []


def test_a_missing_line_of_a_list_is_caught() -> None:
    controller = parse_source("controllers/cell/instance.py", "CONTROLLER = 1")
    annotated = parse_source("controllers/hub/work.py", "CONTROLLER: int = 1")
    effects = parse_source("controllers/effects.py", "def carry_out(): ...")
    listing = "controllers/registry.py"

    def missing(registry: str) -> list[str]:
        sources: list[Source] = [controller, annotated, effects, parse_source(listing, registry)]
        return find_unlisted(sources, "CONTROLLER", listing)

    from_module = "from datum_compute.controllers.hub.work import CONTROLLER as work"
    from_folder = "from datum_compute.controllers.cell import instance"
    assert missing(f"{from_module}\n{from_folder}") == []
    assert missing(f"{from_module}\nNAMES = ['datum_compute.controllers.cell.instance']") == []
    assert missing(from_module) == [
        f"controllers/cell/instance.py assigns CONTROLLER; add it to {listing}"
    ]
