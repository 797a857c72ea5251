"""The rules of the house as functions: a source file in, sentences about what is wrong out.

``test_house.py`` applies them to the whole source and to seeded violations. A rule reads the
syntax tree only, so an import inside a function counts like one at the top.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

PACKAGE = "datum_compute"
TESTKIT = "testkit"  # beside src, and not in the wheel

_ALL = frozenset(
    {
        *("admission", "api", "app", "cli", "client", "controllers", "dashboard", "drivers"),
        *("planes", "planning", "runtime", "server", "store", TESTKIT),
    }
)

# Which rooms each room may import. This table is the architecture.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "api": frozenset(),
    "planning": frozenset({"api"}),
    "store": frozenset({"api"}),
    "server": frozenset({"admission", "api", "store"}),
    "client": frozenset({"api"}),
    "runtime": frozenset({"api", "client"}),
    "planes": frozenset({"api", "client", "runtime"}),
    "drivers": frozenset({"api"}),
    "admission": frozenset({"api", "client"}),
    "controllers": frozenset({"api", "client", "planes", "planning", "drivers", "runtime"}),
    "dashboard": frozenset({"api", "client"}),
    "cli": frozenset({"api", "client", "planning"}),  # plans and causes are pure functions
    "app": _ALL - {"cli", TESTKIT},
    TESTKIT: _ALL - {"cli"},
}

# Single files that may see more than their room.
ALSO_MAY_IMPORT = {
    "cli/local.py": frozenset({"app"}),
    "cli/local_backup.py": frozenset({"app", "store"}),  # reads a store that nobody serves
    "cli/local_processes.py": frozenset({"app"}),
    "cli/local_wishes.py": frozenset({"app"}),  # what the last run has left in a state directory
    "cli/platform_process.py": frozenset({"app"}),  # the files of a state directory
    "cli/cell.py": frozenset({"app"}),  # joining writes the state directory of a cell
    "__main__.py": frozenset({"cli"}),
}

# A leaf that imports nothing of ours; rooms that must do without it.
LEAVES = frozenset({"telemetry"})
WITHOUT_LEAVES = frozenset({"api", "planning"})

BANNED_NAMES = frozenset({"utils", "helpers", "common", "misc", "base", "types"})

_CHANGING = frozenset({"asyncio", "time", "logging", "random", "secrets", "os", "socket"})
BANNED_MODULES = {
    "api": _CHANGING | {"subprocess", "threading"},
    "planning": _CHANGING | {"datetime", "uuid"},
}

_CLOCK = {
    *(f"time.{name}" for name in ("time", "monotonic", "perf_counter", "process_time")),
    *(f"time.{name}_ns" for name in ("time", "monotonic", "perf_counter", "process_time")),
    *(f"time.{name}" for name in ("sleep", "clock_gettime", "localtime", "gmtime", "ctime")),
    *("time.strftime", "time.asctime", "time.thread_time"),
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
}
_CHANCE = {"os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4", "random.SystemRandom"}
_TASKS = frozenset({"create_task", "ensure_future"})

# What reaches outside of the process, and the rooms and files that are adapters to it. Everybody
# else takes it as an argument: that is what lets the simulator run all of it in one thread.
EFFECTS: tuple[tuple[str, tuple[str, ...], frozenset[str]], ...] = (
    (
        "ends or signals a process",
        (
            "sys.exit",
            "os._exit",
            "os.abort",
            "os.kill",
            "os.killpg",
            "os.fork",
            "os.exec",
            "signal.",
        ),
        frozenset({"app", "cli", TESTKIT, "__main__"}),
    ),
    (
        "opens a socket",
        (
            *("socket.", "ssl.wrap_socket", "asyncio.open_connection", "asyncio.start_server"),
            *("asyncio.open_unix_connection", "asyncio.start_unix_server", "aiohttp."),
            *("http.client.", "http.server.", "urllib.request."),
        ),
        frozenset(
            {
                *("app", "client/http.py", "client/lean.py", "client/oidc.py"),
                *("drivers/containers/engine.py", "drivers/onlink.py"),
                *("drivers/containers/hijack.py", "drivers/containers/registry.py"),
            }
        ),
    ),
    (
        "starts a program",
        ("subprocess.", "asyncio.create_subprocess", "os.system", "os.popen", "os.posix_spawn"),
        frozenset({"app", "cli", "client/exec_plugin.py", "client/token_helper.py"}),
    ),
    (
        "starts a thread or a process",
        ("threading.", "concurrent.futures.", "multiprocessing.", "asyncio.to_thread", "_thread."),
        frozenset({"app", "store/sqlite.py", TESTKIT}),
    ),
    (
        "opens a file",
        ("open", "os.open", "io.open", "tempfile.", "shutil.", "sqlite3."),
        frozenset(
            {"app", "cli", "client", "store/schema.py", "store/sqlite.py", "telemetry/unread.py"}
        ),
    ),
    (
        "looks at the machine",
        ("os.getpid", "os.uname", "os.getlogin", "os.cpu_count", "platform.", "getpass."),
        frozenset({"app", "cli", TESTKIT}),
    ),
)

ROOMS_WITH_TASKS = frozenset({"runtime", "app", TESTKIT})
# Looks after many real things at once; its tasks live in the one group of its ``run``.
# The second passes on what is typed while it shows what comes back. The third asks beside a stream
# that is quiet, and ends with it.
FILES_WITH_TASKS = frozenset(
    {"drivers/containers/driver.py", "cli/remoteprocess.py", "client/quiet.py"}
)
CHANCE_MAKERS = frozenset({"cli/context.py"})
CLOCK_READERS = frozenset({"testkit/sim/run/main.py"})  # tells how long a search took
ENVIRONMENT_READERS = frozenset({"app/settings.py", "cli/context.py"})


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One file; ``path`` is relative to the package, or begins with ``testkit/``, with slashes."""

    path: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]  # all of the tree: many rules look through them

    @property
    def room(self) -> str:
        """The first folder, or the module's own name for files beside the rooms."""
        first, _, rest = self.path.partition("/")
        return first if rest else first.removesuffix(".py")

    @property
    def module(self) -> str:
        parts = PurePosixPath(self.path).with_suffix("").parts
        root = () if self.room == TESTKIT else (PACKAGE,)
        return ".".join((*root, *(part for part in parts if part != "__init__")))


def parsed(path: str, text: str) -> Source:
    tree = ast.parse(text, filename=path)
    return Source(path, tree, tuple(ast.walk(tree)))


def sources_below(folder: Path, relative_to: Path) -> list[Source]:
    return [
        parsed(path.relative_to(relative_to).as_posix(), path.read_text())
        for path in sorted(folder.rglob("*.py"))
    ]


# --- imports


def imported_modules(source: Source) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported, at any depth, also by import_module."""
    for node in source.nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(module=module, names=names, level=level):
                base = _resolved(source, module or "", level)
                for alias in names:
                    yield node.lineno, f"{base}.{alias.name}"
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]) if (
                _last_name(func) == "import_module"
            ):
                yield node.lineno, name


def _resolved(source: Source, module: str, level: int) -> str:
    if level == 0:
        return module
    root = [] if source.room == TESTKIT else [PACKAGE]
    parts = [*root, *PurePosixPath(source.path).parts]
    return ".".join([*parts[: len(parts) - level], *([module] if module else [])])


def imported_rooms(source: Source) -> Iterator[tuple[int, str]]:
    for line, name in imported_modules(source):
        head, _, rest = name.partition(".")
        room = rest.partition(".")[0]
        if head == TESTKIT:
            yield line, TESTKIT
        elif head == PACKAGE and room in _ALL | LEAVES:
            yield line, room


def import_table(source: Source) -> Iterator[str]:
    """Rooms import only what the table allows."""
    if source.room in LEAVES:
        allowed: frozenset[str] = frozenset({source.room})
    else:
        leaves = frozenset() if source.room in WITHOUT_LEAVES else LEAVES
        allowed = MAY_IMPORT.get(source.room, frozenset()) | {source.room} | leaves
        allowed |= ALSO_MAY_IMPORT.get(source.path, frozenset())
    for line, room in imported_rooms(source):
        if room not in allowed:
            listed = ", ".join(sorted(allowed - {source.room})) or "no other room"
            yield f"{source.path}:{line}: {source.room} may import {listed}, but not {room}"


def declared_room(source: Source) -> Iterator[str]:
    """Every folder is a room of the table; beside them only the known files."""
    known = {*MAY_IMPORT, *LEAVES, "__init__", "__main__"}
    if source.room not in known:
        yield f"{source.path}: {source.room!r} is no room; declare it in tests/house_rules.py"


def banned_module(source: Source) -> Iterator[str]:
    """api does no I/O; planning is pure."""
    banned = BANNED_MODULES.get(source.room, frozenset())
    for line, name in imported_modules(source):
        if name.partition(".")[0] in banned:
            yield f"{source.path}:{line}: {source.room} may not import {name.partition('.')[0]}"


def banned_file_name(source: Source) -> Iterator[str]:
    for part in PurePosixPath(source.path).with_suffix("").parts:
        if part in BANNED_NAMES:
            yield f"{source.path}: {part!r} says nothing; name the file for the thing it defines"


# --- what code may do where


def async_in_planning(source: Source) -> Iterator[str]:
    if source.room == "planning":
        for node in source.nodes:
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                yield f"{source.path}:{node.lineno}: planners decide, they do not wait"


def hidden_clock_or_chance(source: Source) -> Iterator[str]:
    """Clock, ids and randomness are arguments; only app makes them (cli may tell the time)."""
    if source.room == "app" or source.path in CHANCE_MAKERS:
        return
    for line, name in _used_names(source):
        tells_time = source.room == "cli" or source.path in CLOCK_READERS
        clock = name in _CLOCK and not tells_time
        chance = name in _CHANCE or name.startswith("secrets.") or _draws(name)
        if clock or chance:
            yield f"{source.path}:{line}: {name} in {source.room}; take it as an argument"
    for line, name, arguments in _calls(source):
        if name == "random.Random" and (source.room != TESTKIT or not arguments):
            yield f"{source.path}:{line}: a generator of one's own; take a random.Random argument"


def hidden_effect(source: Source) -> Iterator[str]:
    """Sockets, programs, threads, files and the end of the process: adapters only."""
    used = [*_used_names(source), *_builtin_calls(source)]
    for what, names, adapters in EFFECTS:
        if source.room in adapters or source.path in adapters:
            continue
        for line, name in used:
            if any(_is_of(name, banned) for banned in names):
                yield f"{source.path}:{line}: {name} {what}; take it as an argument"


def hidden_import(source: Source) -> Iterator[str]:
    """Names that a reader, and these rules, cannot see."""
    for node in source.nodes:
        match node:
            case ast.ImportFrom(names=[ast.alias(name="*")], module=module):
                yield f"{source.path}:{node.lineno}: import the names of {module} one by one"
            case ast.Call(func=ast.Name(id="__import__" | "eval" | "exec" as name)):
                yield f"{source.path}:{node.lineno}: {name} hides what is used"


def _is_of(name: str, banned: str) -> bool:
    return name.startswith(banned) if banned.endswith((".", "exec")) else name == banned


def _builtin_calls(source: Source) -> Iterator[tuple[int, str]]:
    aliases = _aliases(source)
    for node in source.nodes:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name not in aliases:
                yield node.lineno, name


def _draws(name: str) -> bool:
    return name.startswith("random.") and name not in ("random.Random", "random.SystemRandom")


def task_outside_runtime(source: Source) -> Iterator[str]:
    if source.room in ROOMS_WITH_TASKS or source.path in FILES_WITH_TASKS:
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and _last_name(node.func) in _TASKS:
            yield f"{source.path}:{node.lineno}: {source.room} may not start tasks; runtime does"


def environment_read(source: Source) -> Iterator[str]:
    if source.path in ENVIRONMENT_READERS:
        return
    for line, name in _used_names(source):
        if name in ("os.environ", "os.environb", "os.getenv", "os.getenvb"):
            listed = " and ".join(sorted(ENVIRONMENT_READERS))
            yield f"{source.path}:{line}: {name}: only {listed} read the environment"


def room_docstring(source: Source) -> Iterator[str]:
    is_room = source.path == f"{source.room}/__init__.py"
    if is_room and not (ast.get_docstring(source.tree) or "").strip():
        yield f"{source.path}: say what the room is for, what may not enter, how to add to it"


# --- lists kept by hand


def ends_in(source: Source, name: str) -> bool:
    """Whether the module assigns ``name`` at its top level."""
    for node in source.tree.body:
        match node:
            case ast.Assign(targets=targets):
                assigned = targets
            case ast.AnnAssign(target=target):
                assigned = [target]
            case _:
                continue
        if any(isinstance(target, ast.Name) and target.id == name for target in assigned):
            return True
    return False


def unlisted(sources: list[Source], name: str, list_path: str) -> list[str]:
    """Files beside or below the list that end in ``name`` without a line in it.

    A line is an import of the module, or its name as text (for lists that load lazily).
    """
    by_path = {source.path: source for source in sources}
    if list_path not in by_path:
        return []
    listing = by_path[list_path]
    mentioned = {module for _, module in imported_modules(listing)} | {
        node.value
        for node in listing.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    folder = PurePosixPath(list_path).parent
    return [
        f"{source.path} ends in {name} but {list_path} does not list it"
        for source in sources
        if PurePosixPath(source.path).is_relative_to(folder)
        and ends_in(source, name)
        and not _is_mentioned(source, mentioned)
    ]


def _is_mentioned(source: Source, mentioned: set[str]) -> bool:
    module = source.module
    return any(
        name in (module, module.rpartition(".")[2]) or name.startswith((f"{module}.", f"{module}:"))
        for name in mentioned
    )


# --- names as they resolve through imports


@cache
def _aliases(source: Source) -> dict[str, str]:
    found = {}
    for node in source.nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    head = alias.name.partition(".")[0]
                    found[alias.asname or head] = alias.name if alias.asname else head
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    found[alias.asname or alias.name] = f"{module}.{alias.name}"
    return found


@cache
def _used_names(source: Source) -> list[tuple[int, str]]:
    """Every name that comes out of an import, spelled in full: ``datetime.datetime.now``."""
    aliases = _aliases(source)
    found = []
    for node in source.nodes:
        if isinstance(node, ast.Attribute | ast.Name):
            head, _, rest = _dotted(node).partition(".")
            if head in aliases:
                found.append((node.lineno, f"{aliases[head]}.{rest}" if rest else aliases[head]))
    return found


def _calls(source: Source) -> Iterator[tuple[int, str, int]]:
    aliases = _aliases(source)
    for node in source.nodes:
        if isinstance(node, ast.Call):
            head, _, rest = _dotted(node.func).partition(".")
            full = aliases.get(head, head)
            yield node.lineno, f"{full}.{rest}" if rest else full, len(node.args)


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            inner = _dotted(value)
            return f"{inner}.{attr}" if inner else ""
        case _:
            return ""


def _last_name(node: ast.expr) -> str:
    return _dotted(node).rpartition(".")[2] or (
        node.attr if isinstance(node, ast.Attribute) else ""
    )


Rule = Callable[[Source], Iterator[str]]
