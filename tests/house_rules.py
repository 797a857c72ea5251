"""The house rules: functions that take a source file and return one sentence per violation.

``test_house.py`` applies them to the whole source and to seeded violations. Rules on code read only
the syntax tree, so an import inside a function counts like an import at the top of a module.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

ROOT_PACKAGE = "datum_compute"

_ALL = frozenset(
    {
        *("admission", "api", "app", "cli", "client", "controllers", "dashboard", "drivers"),
        *("planes", "planning", "runtime", "server", "store", "testing"),
    }
)

# The packages that each package may import. This table defines the architecture.
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
    "cli": frozenset({"api", "client", "planning"}),  # previews and explanations are planned
    "app": _ALL - {"cli", "testing"},
    "testing": _ALL - {"cli"},
}

# Files that may import more than their package.
ALSO_MAY_IMPORT = {
    "cli/local.py": frozenset({"app"}),
    "cli/local_backup.py": frozenset({"app", "store"}),  # reads the store of a stopped server
    "cli/local_processes.py": frozenset({"app"}),
    "cli/local_wishes.py": frozenset({"app"}),  # reads the state directory of the previous run
    "cli/platform_process.py": frozenset({"app"}),  # reads a state directory
    "cli/cell.py": frozenset({"app"}),  # writes the state directory of a cell
    "__main__.py": frozenset({"cli"}),
}

# Folders beside ``src`` that are not in the wheel.
NOT_IN_WHEEL = frozenset({"bench", "examples", "hack", "testkit", "tests"})

# Leaves import no other package. Every package may import them, except WITHOUT_LEAVES.
LEAVES = frozenset({"telemetry"})
WITHOUT_LEAVES = frozenset({"api", "planning"})

BANNED_NAMES = frozenset({"utils", "helpers", "common", "misc", "base", "types"})

_NONDETERMINISTIC = frozenset({"asyncio", "time", "logging", "random", "secrets", "os", "socket"})
BANNED_MODULES = {
    "api": _NONDETERMINISTIC | {"subprocess", "threading"},
    "planning": _NONDETERMINISTIC | {"datetime", "uuid"},
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
_RANDOMNESS = {"os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4", "random.SystemRandom"}
_TASKS = frozenset({"create_task", "ensure_future"})

# Effects outside of the process, and the packages and files that are adapters to them. All other
# code takes the adapter as an argument, so that the simulator can run it in one thread.
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
        frozenset({"app", "cli", "testing", "__main__"}),
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
        frozenset({"app", "store/sqlite.py", "testing"}),
    ),
    (
        "opens a file",
        ("open", "os.open", "io.open", "tempfile.", "shutil.", "sqlite3."),
        frozenset(
            {"app", "cli", "client", "store/schema.py", "store/sqlite.py", "telemetry/unread.py"}
        ),
    ),
    (
        "reads the state of the machine",
        ("os.getpid", "os.uname", "os.getlogin", "os.cpu_count", "platform.", "getpass."),
        frozenset({"app", "cli", "testing"}),
    ),
)

PACKAGES_WITH_TASKS = frozenset({"runtime", "app", "testing"})
# The driver supervises many containers in one task group. An exec session copies input and output
# at the same time. A watch client probes the server while its stream is idle.
FILES_WITH_TASKS = frozenset(
    {"drivers/containers/driver.py", "cli/remoteprocess.py", "client/quiet.py"}
)
RANDOMNESS_SOURCES = frozenset({"cli/context.py"})
CLOCK_READERS = frozenset({"testing/sim.py"})  # reports the duration of a search
ENVIRONMENT_READERS = frozenset({"app/settings.py", "cli/context.py"})


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A parsed file below ``src/datum_compute``. ``path`` is relative to that folder."""

    path: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]  # every node of the tree, because many rules iterate over them

    @property
    def package(self) -> str:
        """The first folder, or the module name of a file outside of all packages."""
        first, _, rest = self.path.partition("/")
        return first if rest else first.removesuffix(".py")

    @property
    def module(self) -> str:
        parts = PurePosixPath(self.path).with_suffix("").parts
        return ".".join((ROOT_PACKAGE, *(part for part in parts if part != "__init__")))


def parse_source(path: str, text: str) -> Source:
    tree = ast.parse(text, filename=path)
    return Source(path, tree, tuple(ast.walk(tree)))


def read_sources(package: Path) -> list[Source]:
    return [
        parse_source(path.relative_to(package).as_posix(), path.read_text())
        for path in sorted(package.rglob("*.py"))
    ]


# --- imports


def imported_modules(source: Source) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of each import, at any depth, including ``import_module``."""
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
    parts = [ROOT_PACKAGE, *PurePosixPath(source.path).parts]
    return ".".join([*parts[: len(parts) - level], *([module] if module else [])])


def imported_packages(source: Source) -> Iterator[tuple[int, str]]:
    for line, name in imported_modules(source):
        head, _, rest = name.partition(".")
        package = rest.partition(".")[0]
        if head == ROOT_PACKAGE and package in _ALL | LEAVES:
            yield line, package


def find_forbidden_imports(source: Source) -> Iterator[str]:
    """Packages import only what the table allows, and nothing that is not in the wheel."""
    if source.package in LEAVES:
        allowed: frozenset[str] = frozenset({source.package})
    else:
        leaves = frozenset() if source.package in WITHOUT_LEAVES else LEAVES
        allowed = MAY_IMPORT.get(source.package, frozenset()) | {source.package} | leaves
        allowed |= ALSO_MAY_IMPORT.get(source.path, frozenset())
    for line, package in imported_packages(source):
        if package not in allowed:
            listed = ", ".join(sorted(allowed - {source.package})) or "no other package"
            yield (
                f"{source.path}:{line}: {source.package} imports {package} but may import only "
                f"{listed}; move the code or pass it as an argument"
            )
    for line, name in imported_modules(source):
        head = name.partition(".")[0]
        if head in NOT_IN_WHEEL:
            yield f"{source.path}:{line}: {head} is not in the wheel; move the code below src"


def find_undeclared_package(source: Source) -> Iterator[str]:
    """Every folder is a package of the table. Outside of packages there are only known files."""
    known = {*MAY_IMPORT, *LEAVES, "__init__", "__main__"}
    if source.package not in known:
        yield f"{source.path}: add {source.package!r} to MAY_IMPORT in tests/house_rules.py"


def find_forbidden_modules(source: Source) -> Iterator[str]:
    """``api`` does no I/O, and ``planning`` is pure."""
    banned = BANNED_MODULES.get(source.package, frozenset())
    for line, name in imported_modules(source):
        module = name.partition(".")[0]
        if module in banned:
            yield (
                f"{source.path}:{line}: {source.package} may not import {module}; "
                "take the value as an argument"
            )


def find_vague_file_names(source: Source) -> Iterator[str]:
    for part in PurePosixPath(source.path).with_suffix("").parts:
        if part in BANNED_NAMES:
            yield f"{source.path}: {part!r} is too vague; name the file after what it defines"


# --- what code may do


def find_async_planning(source: Source) -> Iterator[str]:
    if source.package == "planning":
        for node in source.nodes:
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                yield (
                    f"{source.path}:{node.lineno}: planners are synchronous; "
                    "do the I/O in the controller and pass the result"
                )


def find_clock_or_randomness(source: Source) -> Iterator[str]:
    """Clock, ids and randomness are arguments. ``app`` creates them; ``cli`` may read the clock."""
    if source.package == "app" or source.path in RANDOMNESS_SOURCES:
        return
    for line, name in _used_names(source):
        may_read_clock = source.package == "cli" or source.path in CLOCK_READERS
        clock = name in _CLOCK and not may_read_clock
        randomness = name in _RANDOMNESS or name.startswith("secrets.") or _is_random_draw(name)
        if clock or randomness:
            yield f"{source.path}:{line}: {name} in {source.package}; take it as an argument"
    for line, name, arguments in _calls(source):
        if name == "random.Random" and (source.package != "testing" or not arguments):
            yield f"{source.path}:{line}: creates a generator; take a random.Random argument"


def find_effects(source: Source) -> Iterator[str]:
    """Only adapters open sockets and files, start programs and threads, or end the process."""
    used = [*_used_names(source), *_builtin_calls(source)]
    for what, names, adapters in EFFECTS:
        if source.package in adapters or source.path in adapters:
            continue
        for line, name in used:
            if any(_is_of(name, banned) for banned in names):
                yield f"{source.path}:{line}: {name} {what}; take an adapter as an argument"


def find_hidden_imports(source: Source) -> Iterator[str]:
    """Star imports and dynamic code hide names from readers and from these rules."""
    for node in source.nodes:
        match node:
            case ast.ImportFrom(names=[ast.alias(name="*")], module=module):
                yield f"{source.path}:{node.lineno}: import each name of {module}"
            case ast.Call(func=ast.Name(id="__import__" | "eval" | "exec" as name)):
                yield f"{source.path}:{node.lineno}: {name} hides what is used; import it by name"


def _is_of(name: str, banned: str) -> bool:
    return name.startswith(banned) if banned.endswith((".", "exec")) else name == banned


def _builtin_calls(source: Source) -> Iterator[tuple[int, str]]:
    aliases = _aliases(source)
    for node in source.nodes:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name not in aliases:
                yield node.lineno, name


def _is_random_draw(name: str) -> bool:
    return name.startswith("random.") and name not in ("random.Random", "random.SystemRandom")


def find_tasks(source: Source) -> Iterator[str]:
    if source.package in PACKAGES_WITH_TASKS or source.path in FILES_WITH_TASKS:
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and _last_name(node.func) in _TASKS:
            yield (
                f"{source.path}:{node.lineno}: {source.package} may not start tasks; "
                "let a task group of runtime or app run the coroutine"
            )


def find_environment_reads(source: Source) -> Iterator[str]:
    if source.path in ENVIRONMENT_READERS:
        return
    for line, name in _used_names(source):
        if name in ("os.environ", "os.environb", "os.getenv", "os.getenvb"):
            listed = " and ".join(sorted(ENVIRONMENT_READERS))
            yield f"{source.path}:{line}: only {listed} may use {name}; take a setting"


def find_missing_package_docstring(source: Source) -> Iterator[str]:
    is_package = source.path == f"{source.package}/__init__.py"
    if is_package and not (ast.get_docstring(source.tree) or "").strip():
        yield f"{source.path}: write what the package contains, must not contain, how to extend it"


# --- lists that are maintained by hand


def assigns(source: Source, name: str) -> bool:
    """Return True if the module assigns ``name`` at its top level."""
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


def find_unlisted(sources: list[Source], name: str, list_path: str) -> list[str]:
    """Find files in the folder of the list that assign ``name`` but are not in the list.

    A list contains a module if it imports it, or contains its name as a string (lazy imports).
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
        f"{source.path} assigns {name}; add it to {list_path}"
        for source in sources
        if PurePosixPath(source.path).is_relative_to(folder)
        and assigns(source, name)
        and not _is_mentioned(source, mentioned)
    ]


def _is_mentioned(source: Source, mentioned: set[str]) -> bool:
    module = source.module
    return any(
        name in (module, module.rpartition(".")[2]) or name.startswith((f"{module}.", f"{module}:"))
        for name in mentioned
    )


# --- names, resolved through imports


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
    """Return each use of an imported name in full, such as ``datetime.datetime.now``."""
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
