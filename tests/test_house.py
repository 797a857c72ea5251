"""Apply the house rules to the source, and each rule to a seeded violation."""

from __future__ import annotations

import importlib
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from datum_compute.api.kinds import KINDS
from datum_compute.api.meta.objects import KindInfo
from tests import house_exceptions, house_rules
from tests.house_exceptions import Entry
from tests.house_rules import (
    BANNED_WORDS,
    RULES_WITH_EXCEPTIONS,
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
    "compute-ingress": "datum_compute.app.ingress_server:main",
}


@cache
def sources() -> list[Source]:
    """Parse the source on first use, so that collecting this file stays fast."""
    return read_sources(ROOT)


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


def test_the_product_does_not_import_the_testkit() -> None:
    imports = [
        f"{source.path}:{line}: {name}"
        for source in sources()
        if source.package != house_rules.TESTKIT
        for line, name in house_rules.imported_modules(source)
        if name.partition(".")[0] == house_rules.TESTKIT
    ]
    assert imports == []


@pytest.mark.parametrize("folder", ["bench", "examples", "hack", "testkit"])
def test_only_tests_import_tests(folder: str) -> None:
    imports = [
        sentence
        for path in sorted((ROOT / folder).rglob("*.py"))
        for sentence in house_rules.find_test_imports(
            path.relative_to(ROOT).as_posix(), path.read_text()
        )
    ]
    assert not imports, report(imports)


def test_an_import_of_a_test_is_reported_with_its_line() -> None:
    text = "import os\n\n\ndef main() -> None:\n    from tests.e2e import conftest\n"
    (sentence,) = house_rules.find_test_imports("bench/store.py", text)
    assert sentence.startswith("bench/store.py:5: imports tests.e2e.conftest; ")
    assert not list(house_rules.find_test_imports("bench/store.py", "import testkit.builders\n"))


def test_the_testkit_does_not_import_the_command_line() -> None:
    imports = [
        f"{source.path}:{line}: {name}"
        for source in sources()
        if source.package == house_rules.TESTKIT
        for line, name in house_rules.imported_modules(source)
        if f"{name}.".startswith("datum_compute.cli.")
    ]
    assert imports == []


def test_the_wheel_does_not_contain_the_testkit() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    packed = [*targets["targets"]["wheel"]["packages"], *targets["targets"]["sdist"]["include"]]
    assert not [path for path in packed if path.startswith(house_rules.TESTKIT)]


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


# Kinds that no plane stores: pods are read from other API servers, the others are answered.
KINDS_NOT_STORED = {"CELL_JOIN", "CORE_SERVICE", "POD"}


def test_every_kind_is_listed_in_kinds() -> None:
    declared = {
        f"{source.path}: {name}": kind
        for source in sources()
        if source.path.startswith("api/") and source.path not in ("api/kinds.py", "api/reviews.py")
        for name, kind in vars(importlib.import_module(source.module)).items()
        if isinstance(kind, KindInfo) and assigns(source, name) and name not in KINDS_NOT_STORED
    }
    missing = sorted(place for place, kind in declared.items() if kind not in KINDS)
    assert declared
    assert not missing, f"add a line to api/kinds.py for {missing}"


def test_every_controller_is_listed() -> None:
    found = [
        sentence
        for name in ("CONTROLLER", "CONTROLLERS")
        for sentence in find_unlisted(sources(), name, "controllers/registry.py")
    ]
    assert not found, report(found)


def test_every_command_is_listed() -> None:
    found = find_unlisted(sources(), "COMMAND", "cli/groups.py")
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


# --- rules with exceptions


@cache
def violations_with_exceptions() -> house_exceptions.Findings:
    return house_exceptions.find_violations(sources(), house_rules.read_texts(ROOT))


@pytest.mark.parametrize("rule", RULES_WITH_EXCEPTIONS)
def test_no_rule_gets_new_exceptions(rule: str) -> None:
    found = violations_with_exceptions()
    new = house_exceptions.describe_new(house_exceptions.read_list(), found)
    added = [sentence for sentence in new if sentence.startswith(f"{rule}:")]
    hint = f"after a move of code between files run: {house_exceptions.COMMAND}"
    assert not added, report([*added, hint])


@pytest.mark.parametrize("rule", RULES_WITH_EXCEPTIONS)
def test_exceptions_that_are_not_needed_are_removed(rule: str) -> None:
    found = house_exceptions.count_findings(violations_with_exceptions())
    stale = house_exceptions.describe_stale(house_exceptions.read_list(), found)
    unneeded = [sentence for sentence in stale if sentence.startswith(f"{rule}:")]
    assert not unneeded, report(unneeded)


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


@pytest.mark.parametrize("name", ["run.lock", "build.lock", "dev.lock"])
def test_lock_files_pin_hashes_and_name_no_address(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    pinned = re.findall(
        r"^[a-z0-9][\w.-]*(?:\[[\w, -]+\])?==\S+.*\\\n    --hash=sha256:", text, flags=re.MULTILINE
    )
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


def test_the_development_lock_contains_the_other_two() -> None:
    pins = {
        name: set(re.findall(r"^[a-z0-9][\w.-]*==[^ \\]+", text, flags=re.MULTILINE))
        for name in ("run.lock", "build.lock", "dev.lock")
        if (text := (ROOT / "requirements" / name).read_text())
    }
    assert pins["run.lock"] | pins["build.lock"] <= pins["dev.lock"], "run: make lock"


def test_the_development_lock_keeps_extras() -> None:
    """Without them pip takes the newest version of httpx2[http2], which has no hash in the lock."""
    text = (ROOT / "requirements" / "dev.lock").read_text()
    locked: dict[str, set[str]] = {}
    for name, extras in re.findall(r"^([a-z0-9][\w.-]*)(?:\[(.*?)\])?==", text, re.MULTILINE):
        locked[name] = set(re.findall(r"[\w-]+", extras))
    for name in locked:
        with suppress(PackageNotFoundError):
            for line in requires(name) or []:
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                    pinned = locked[needed.name.lower().replace("_", "-")]
                    assert needed.extras <= pinned, f"run: make lock ({name} needs {needed})"


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
    (
        house_rules.find_forbidden_imports,
        "cli/commands/status.py",
        "from datum_compute.app import wiring",
    ),
    (house_rules.find_forbidden_imports, "api/a.py", "from testkit.sim import loop"),
    (house_rules.find_forbidden_imports, "testkit/a.py", "from datum_compute.cli import main"),
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
    (house_rules.find_clock_or_randomness, "testkit/a.py", "import random\nrandom.Random()"),
    (house_rules.find_clock_or_randomness, "cli/a.py", "import secrets\nsecrets.token_hex()"),
    (house_rules.find_clock_or_randomness, "store/a.py", "import os\nos.getrandom(8)"),
    (house_rules.find_clock_or_randomness, "server/a.py", "import time\ntime.gmtime()"),
    (house_rules.find_clock_or_randomness, "runtime/a.py", "import time as t\nt.process_time()"),
    (house_rules.find_effects, "runtime/a.py", "import sys\nsys.exit(1)"),
    (house_rules.find_effects, "store/a.py", "from os import _exit\n_exit(1)"),
    (house_rules.find_effects, "controllers/a.py", "import os\nos.execv('a', [])"),
    (house_rules.find_effects, "runtime/a.py", "import signal\nsignal.signal(1, f)"),
    (house_rules.find_effects, "server/a.py", "import socket\nsocket.socket()"),
    (
        house_rules.find_effects,
        "client/transport/retry.py",
        "import aiohttp\naiohttp.ClientSession()",
    ),
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
    (house_rules.find_forbidden_imports, "cli/local/up.py", "from datum_compute.app import wiring"),
    (house_rules.find_forbidden_imports, "server/a.py", "from datum_compute import telemetry"),
    (house_rules.find_forbidden_imports, "api/a.py", "from datum_compute import __version__"),
    (house_rules.find_forbidden_imports, "store/a.py", "from . import journal"),
    (
        house_rules.find_forbidden_imports,
        "testkit/sim/a.py",
        "from datum_compute.app import wiring",
    ),
    (house_rules.find_forbidden_imports, "testkit/sim/a.py", "from testkit import builders"),
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
    (house_rules.find_clock_or_randomness, "testkit/sim/a.py", "import random\nrandom.Random(7)"),
    (house_rules.find_clock_or_randomness, "runtime/a.py", "def f(time):\n    return time.time()"),
    (house_rules.find_effects, "app/a.py", "import socket, sys\nsocket.socket()\nsys.exit()"),
    (
        house_rules.find_effects,
        "client/transport/http1.py",
        "import aiohttp\naiohttp.ClientSession()",
    ),
    (house_rules.find_effects, "store/sqlite.py", "import sqlite3\nsqlite3.connect('a')"),
    (
        house_rules.find_effects,
        "runtime/a.py",
        "def f(socket):\n    socket.socket()",
    ),
    (house_rules.find_hidden_imports, "store/a.py", "from time import time"),
    (house_rules.find_tasks, "runtime/a.py", "group.create_task(f())"),
    (house_rules.find_environment_reads, "app/settings/settings.py", "import os\nos.environ"),
]


@pytest.mark.parametrize(("rule", "path", "text"), CAUGHT)
def test_a_seeded_violation_is_caught(rule: Rule, path: str, text: str) -> None:
    assert list(rule(parse_source(path, text))), f"{rule.__name__} accepts {text!r} in {path}"


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_similar_code_is_accepted(rule: Rule, path: str, text: str) -> None:
    assert list(rule(parse_source(path, text))) == []


def test_a_missing_line_of_a_list_is_caught() -> None:
    controller = parse_source("controllers/workload/instance.py", "CONTROLLER = 1")
    annotated = parse_source("controllers/karmada/works.py", "CONTROLLER: int = 1")
    prefixed = parse_source("controllers/network/subnets.py", "SUBNET_CONTROLLER = 1")
    effects = parse_source("controllers/effects.py", "def carry_out(): ...")
    listing = "controllers/registry.py"

    def missing(registry: str) -> list[str]:
        own = parse_source(listing, registry)
        sources: list[Source] = [controller, annotated, prefixed, effects, own]
        return find_unlisted(sources, "CONTROLLER", listing)

    from_module = "from datum_compute.controllers.karmada.works import CONTROLLER as work"
    from_folder = "from datum_compute.controllers.workload import instance"
    from_folder += "\nfrom datum_compute.controllers.network import subnets"
    assert missing(f"{from_module}\n{from_folder}") == []
    names = [
        f"datum_compute.controllers.{name}" for name in ("workload.instance", "network.subnets")
    ]
    assert missing(f"{from_module}\nNAMES = {names}") == []
    assert missing(from_module) == [
        f"{path} assigns CONTROLLER; add it to {listing}"
        for path in ("controllers/workload/instance.py", "controllers/network/subnets.py")
    ]


WORD = min(BANNED_WORDS)


@pytest.mark.parametrize(
    ("path", "text", "count"),
    [
        ("src/a.py", f"x = 'Then it is {WORD}.'  # {WORD}", 2),
        ("src/a.py", f"class Start{WORD.title()}: ...\nstart_{WORD} = START_{WORD.upper()} = 1", 3),
        (f"src/{WORD}.py", "", 1),
        ("src/a.py", f"x = '{WORD}'  # quoted\ny = 1", 0),
        ("src/a.py", f"x{WORD}y = 1", 0),
        ("docs/a.md", f"{WORD}\n```\n{WORD}\n```\n`{WORD}`", 2),
    ],
)
def test_banned_words_are_counted(path: str, text: str, count: int) -> None:
    found = list(house_rules.find_banned_words([], {path: text}))
    assert len(found) == count
    assert {finding.item for finding in found} <= {WORD}


def test_controllers_are_imported_by_the_registry_only() -> None:
    controller, helper = "datum_compute.controllers.a.ctl", "datum_compute.controllers.a.helper"
    found = house_rules.find_controller_imports(
        [
            parse_source("controllers/a/ctl.py", f"import {helper}\nCONTROLLER = 1"),
            parse_source("controllers/a/helper.py", "from datum_compute.controllers import shared"),
            parse_source("controllers/shared.py", ""),
            parse_source("controllers/registry.py", f"from {controller} import CONTROLLER"),
            parse_source("app/platform.py", f"import {controller}, {helper}"),
            parse_source("testkit/sim/host.py", f"import {controller}, {helper}"),
        ],
        {},
    )
    assert [(finding.subject, finding.item) for finding in found] == [
        ("src/datum_compute/controllers/a/ctl.py", "src/datum_compute/controllers/a/helper.py"),
        ("src/datum_compute/app/platform.py", "src/datum_compute/controllers/a/ctl.py"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "'quota' in error.message",
        "NOT_HERE not in str(error)",
        "condition.message == 'Unknown'",
        "old.message != new.message",
        "message.startswith('no ')",
        "error.detail.lower().endswith('gone')",
        "error.args[0].find('gone')",
        "re.search('gone', error.message)",
        "PATTERN.match(message)",
        "text = error.message\n'gone' in text",
        "match error.message:\n    case 'gone': ...",
        "message in KNOWN",
    ],
)
def test_comparisons_of_message_text_are_caught(text: str) -> None:
    found = list(house_rules.find_message_comparisons([parse_source("cli/a.py", text)], {}))
    assert len(found) == 1


@pytest.mark.parametrize(
    "text",
    [
        "error.reason == 'Gone'",
        "error.message == ''",
        "message is None",
        "message.endswith('.')",
        "str(error).partition('\\n')",
        "(old.reason, old.message) == (new.reason, new.message)",
        "message[:1] == bytes((1,))",
        "message.startswith(b'\\0')",
    ],
)
def test_formatting_of_messages_is_accepted(text: str) -> None:
    assert not list(house_rules.find_message_comparisons([parse_source("cli/a.py", text)], {}))


def test_repeated_class_names_are_found() -> None:
    files = [parse_source(f"api/{name}.py", f"class A: ...\nclass {name}: ...") for name in "BC"]
    found = house_rules.find_repeated_class_names(files, {})
    assert [(finding.subject, finding.where) for finding in found] == [
        ("A", "src/datum_compute/api/B.py:1"),
        ("A", "src/datum_compute/api/C.py:1"),
    ]


def test_small_modules_with_one_importer_are_found() -> None:
    texts = {
        "api/used_once.py": "",
        "api/used_twice.py": "",
        "api/exported.py": "",
        "api/long.py": "\n" * house_rules.SMALL_MODULE_LINES,
        "api/core.py": "KIND = 1",
        "api/__init__.py": "from datum_compute.api.exported import x",
        "api/a.py": "from datum_compute.api import long, pod, used_once, used_twice",
        "api/b.py": "from datum_compute.api.used_twice import x",
    }
    files = [parse_source(path, text) for path, text in texts.items()]
    paths = {f"{house_rules.SOURCE_FOLDER}/{path}": text for path, text in texts.items()}
    found = house_rules.find_small_modules(files, paths)
    assert [finding.subject for finding in found] == ["src/datum_compute/api/used_once.py"]


def test_modules_without_a_mirrored_test_file_are_found() -> None:
    code = "def plan():\n    return 1"
    declared = (
        "class Driver(Protocol):\n    def start(self) -> None:\n        '''Start.'''\n        ..."
    )
    files = [
        parse_source("drivers/driver.py", declared),
        parse_source("planning/quota/claims.py", code),
        parse_source("planning/quota/buckets.py", code),
        parse_source("planning/quota/amounts.py", "LIMIT = 1"),
        parse_source("planning/quota/__init__.py", code),
        parse_source("cli/commands/deploy.py", code),
        parse_source("cli/errors.py", code),
        parse_source("testkit/planning.py", code),
    ]
    tests = ("tests/planning/quota/test_claims.py", "tests/planning/test_buckets.py")
    found = house_rules.find_missing_test_files(files, dict.fromkeys(tests, ""))
    assert [finding.subject for finding in found] == [
        "src/datum_compute/planning/quota/buckets.py",
        "src/datum_compute/cli/commands/deploy.py",
    ]


# --- the list of exceptions


def test_the_list_of_exceptions_is_written_as_it_is_read() -> None:
    text = house_exceptions.LIST.read_text()
    counts = house_exceptions.parse_list(text)
    assert house_exceptions.render_list(counts) == text, f"run: {house_exceptions.COMMAND}"


def test_the_larger_count_of_a_merged_list_applies() -> None:
    merged = house_exceptions.parse_list("banned-word a.py x:2 y:1\nbanned-word a.py x:3\n")
    assert merged == {Entry("banned-word", "a.py", "x"): 3, Entry("banned-word", "a.py", "y"): 1}


@pytest.mark.parametrize(
    ("before", "after", "grown"),
    [
        ("banned-word d/a.py x:2", "banned-word d/a.py x:1", []),
        ("banned-word d/a.py x:2", "banned-word d/a.py x:3", ["banned-word"]),
        ("banned-word d/a.py x:2", "banned-word d/a.py x:2 y:1", ["banned-word"]),
        (
            "banned-word d/a.py x:2",
            "banned-word d/a.py x:1\nbanned-word d/b.py x:1",
            ["banned-word"],
        ),
        ("banned-word d/gone.py x:2", "banned-word d/a.py x:1\nbanned-word d/b.py x:1", []),
        ("banned-word d/gone.py x:2", "banned-word d/b.py x:3", ["banned-word"]),
        ("controller-import d/a.py d/gone.py:1", "controller-import d/a.py d/b.py:1", []),
        ("small-module d/gone.py x:2", "banned-word d/b.py x:1", ["banned-word"]),
        ("repeated-class Gone x:2", "repeated-class New x:2", ["repeated-class"]),
    ],
)
def test_the_list_grows_only_by_moves(before: str, after: str, grown: list[str]) -> None:
    allowed, found = house_exceptions.parse_list(before), house_exceptions.parse_list(after)
    assert (
        house_exceptions.rules_with_additions(allowed, found, lambda path: "gone" in path) == grown
    )


def test_new_and_unneeded_exceptions_are_described() -> None:
    allowed = house_exceptions.parse_list("small-module a.py x:1\nsmall-module b.py x:2")
    found = {
        Entry("small-module", "a.py", "x"): ["a.py:1", "a.py:2"],
        Entry("small-module", "b.py", "x"): ["b.py:1"],
    }
    (new,) = house_exceptions.describe_new(allowed, found)
    assert new.startswith("small-module: a.py: x 2 times, 1 allowed (a.py:1, a.py:2); move ")
    counts = house_exceptions.count_findings(found)
    assert house_exceptions.describe_stale(allowed, counts) == [
        f"small-module: b.py: x 1 times, 2 allowed; run: {house_exceptions.COMMAND}"
    ]
