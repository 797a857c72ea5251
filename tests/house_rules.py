"""The house rules: functions that take a source file and return one sentence per violation.

``test_house.py`` applies them to the whole source and to seeded violations. Rules on code read only
the syntax tree, so an import inside a function counts like an import at the top of a module.

The rules in ``RULES_WITH_EXCEPTIONS`` have violations today. ``house_exceptions.txt`` lists them,
and the list may only get shorter (see ``house_exceptions.py``).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

ROOT_PACKAGE = "datum_compute"
SOURCE_FOLDER = f"src/{ROOT_PACKAGE}"
TESTKIT = "testkit"  # beside src, and not in the wheel
# Starts real programs, in real time. The rules on effects, clock and tasks do not apply to it.
REAL_PROCESSES = f"{TESTKIT}/processes/"

_ALL = frozenset(
    {
        *("admission", "api", "app", "cli", "client", "controllers", "dashboard", "drivers"),
        *("gateway", "ingress", "planes", "planning", "runtime", "server", "store", TESTKIT),
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
    "gateway": frozenset({"api", "client", "drivers", "server"}),
    "ingress": frozenset({"api", "server"}),
    "cli": frozenset({"api", "client", "planning"}),  # previews and explanations are planned
    "app": _ALL - {"cli", TESTKIT},
    TESTKIT: _ALL - {"cli"},
}

# Files that may import more than their package.
ALSO_MAY_IMPORT = {
    "cli/local/up.py": frozenset({"app"}),
    "cli/local/backup.py": frozenset({"app", "store"}),  # reads the store of a stopped server
    "cli/local/processes.py": frozenset({"app"}),
    "cli/local/options.py": frozenset({"app"}),  # reads the state directory of the previous run
    "cli/local/platform.py": frozenset({"app"}),  # reads a state directory
    "cli/commands/cell.py": frozenset({"app", "server"}),  # writes the state directory of a cell
    # Container engines and registries are reached over the HTTP client that API clients use.
    "drivers/containers/engine.py": frozenset({"client"}),
    "drivers/containers/exec.py": frozenset({"client"}),
    "drivers/containers/registry.py": frozenset({"client"}),
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
                *("app", "ingress", "server/http/listen.py", "server/http/server.py"),
                *("client/transport/http1.py", "drivers/local_network.py"),
            }
        ),
    ),
    (
        "starts a program",
        ("subprocess.", "asyncio.create_subprocess", "os.system", "os.popen", "os.posix_spawn"),
        frozenset({"app", "cli", "client/auth/exec_plugin.py", "client/auth/credentials.py"}),
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
            {
                "app",
                "cli",
                "client",
                "store/sqlite.py",
                "telemetry/broken_pipe.py",
            }
        ),
    ),
    (
        "reads the state of the machine",
        ("os.getpid", "os.uname", "os.getlogin", "os.cpu_count", "platform.", "getpass."),
        frozenset({"app", "cli", TESTKIT}),
    ),
)

PACKAGES_WITH_TASKS = frozenset({"runtime", "app", "gateway", "ingress", TESTKIT})
# The driver supervises many containers in one task group. An exec session copies input and output
# at the same time. A watch client probes the server while its stream is idle. The HTTP server runs
# each request of a connection as a task.
FILES_WITH_TASKS = frozenset(
    {
        "server/http/connection.py",
        "server/http/memory.py",
        "server/http/server.py",
        "drivers/containers/driver.py",
        "drivers/connections/draining.py",
        "drivers/connections/idle_scaler.py",
        "cli/commands/exec.py",
        "client/watch.py",
    }
)
RANDOMNESS_SOURCES = frozenset({"cli/environment.py"})
# Report the duration of a search, and measure the processor time of requests.
CLOCK_READERS = frozenset({"testkit/sim/run/main.py", "testkit/hostile/measure.py"})
ENVIRONMENT_READERS = frozenset({"app/settings/settings.py", "cli/environment.py"})


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A parsed file. ``path`` is relative to ``src/datum_compute``.

    The path of a file of the testkit is relative to the repository.
    """

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
        return ".".join((*self.root, *(part for part in parts if part != "__init__")))

    @property
    def root(self) -> tuple[str, ...]:
        """The packages above the first folder of ``path``."""
        return () if self.package == TESTKIT else (ROOT_PACKAGE,)

    @property
    def file(self) -> str:
        """The path relative to the repository."""
        return self.path if self.package == TESTKIT else f"{SOURCE_FOLDER}/{self.path}"


def parse_source(path: str, text: str) -> Source:
    tree = ast.parse(text, filename=path)
    return Source(path, tree, tuple(ast.walk(tree)))


def read_sources(root: Path) -> list[Source]:
    """Parse the product and the testkit of a repository."""
    package = root / SOURCE_FOLDER
    return [
        parse_source(path.relative_to(base).as_posix(), path.read_text())
        for folder, base in ((package, package), (root / TESTKIT, root))
        for path in sorted(folder.rglob("*.py"))
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
    parts = [*source.root, *PurePosixPath(source.path).parts]
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
        if head in NOT_IN_WHEEL and source.package != TESTKIT:
            yield f"{source.path}:{line}: {head} is not in the wheel; move the code below src"


def find_test_imports(path: str, text: str) -> Iterator[str]:
    """Benchmarks, examples and the test kit run without tests."""
    for line, name in imported_modules(parse_source(path, text)):
        if name.partition(".")[0] == "tests":
            yield f"{path}:{line}: imports {name}; move the shared code to {TESTKIT}"


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
    is_exempt = source.package == "app" or source.path in RANDOMNESS_SOURCES
    if is_exempt or source.path.startswith(REAL_PROCESSES):
        return
    for line, name in _used_names(source):
        may_read_clock = source.package == "cli" or source.path in CLOCK_READERS
        clock = name in _CLOCK and not may_read_clock
        randomness = name in _RANDOMNESS or name.startswith("secrets.") or _is_random_draw(name)
        if clock or randomness:
            yield f"{source.path}:{line}: {name} in {source.package}; take it as an argument"
    for line, name, arguments in _calls(source):
        if name == "random.Random" and (source.package != TESTKIT or not arguments):
            yield f"{source.path}:{line}: creates a generator; take a random.Random argument"


def find_effects(source: Source) -> Iterator[str]:
    """Only adapters open sockets and files, start programs and threads, or end the process."""
    if source.path.startswith(REAL_PROCESSES):
        return
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
    if source.path in ENVIRONMENT_READERS or source.path.startswith(REAL_PROCESSES):
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
    """Return True if the module assigns ``name`` at its top level.

    A module of several controllers assigns names such as ``SUBNET_CONTROLLER``.
    """
    for node in source.tree.body:
        match node:
            case ast.Assign(targets=targets):
                assigned = targets
            case ast.AnnAssign(target=target):
                assigned = [target]
            case _:
                continue
        for variable in assigned:
            found = variable.id if isinstance(variable, ast.Name) else ""
            if found == name or ("CONTROLLER" in name and found.endswith(f"_{name}")):
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
        if source is not listing
        and PurePosixPath(source.path).is_relative_to(folder)
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


# --- rules with exceptions


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation. ``house_exceptions.txt`` counts violations by subject and item."""

    subject: str  # a path, relative to the repository, or the name of a class
    item: str
    where: str


@dataclass(frozen=True, slots=True)
class RuleWithExceptions:
    """A rule that the code does not fulfill yet. ``advice`` states what to do about a violation."""

    find: Callable[[list[Source], dict[str, str]], Iterator[Finding]]
    advice: str


def _finding(source: Source, line: int, item: str) -> Finding:
    return Finding(source.file, item, f"{source.file}:{line}")


# Words of the old private dialect and words that personify code. They count in identifiers, file
# names, strings, comments and documents.
BANNED_WORDS = frozenset(
    {
        *("anew", "nobody", "somebody", "whoever", "stranger", "strangers"),  # quoted
        *("told", "tells", "says", "said", "asks", "heard", "hears"),  # quoted
        *("wish", "wishes", "forgets", "forgotten", "homes", "companions"),  # quoted
        *("doorkeeper", "neighbours", "thereof"),  # quoted
    }
)
# Ends a line of Python or YAML that repeats words of others, such as the input of a user.
QUOTED = "# quoted"
TEXT_FILES = (
    *("src/**/*.py", "testkit/**/*.py", "tests/**/*.py", "bench/**/*.py", "hack/**/*.py"),
    *("examples/**/*.py", "examples/**/*.md", "docs/**/*.md", "*.md"),
    *("deploy/monitoring/*.yaml", "deploy/monitoring/*.json"),
)
# One part of an identifier in snake case or camel case, or one word of prose.
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_FENCED_BLOCK = re.compile(r"^[ ]*```.*?^[ ]*```", re.MULTILINE | re.DOTALL)


def read_texts(root: Path) -> dict[str, str]:
    """Return the content of each file that ``find_banned_words`` checks, by path."""
    return {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for pattern in TEXT_FILES
        for path in root.glob(pattern)
    }


def find_banned_words(_: list[Source], texts: dict[str, str]) -> Iterator[Finding]:
    """Quotations do not count: fenced blocks of Markdown, and lines that end in ``# quoted``."""
    for path, text in texts.items():
        for word in _WORD.findall(path):
            if word in BANNED_WORDS:
                yield Finding(path, word, path)
        if path.endswith(".md"):
            text = _FENCED_BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
        if BANNED_WORDS.isdisjoint(word.lower() for word in set(_WORD.findall(text))):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.endswith(QUOTED):
                for word in _WORD.findall(line):
                    if word.lower() in BANNED_WORDS:
                        yield Finding(path, word.lower(), f"{path}:{number}")


CONTROLLER_REGISTRY = "controllers/registry.py"


def find_controller_imports(sources: list[Source], _: dict[str, str]) -> Iterator[Finding]:
    """Only the registry imports controllers.

    A controller is a module that assigns ``CONTROLLER`` or ``CONTROLLERS``. Code that controllers
    share is in ``planning`` or directly in ``controllers/``: they do not import helper modules from
    the folders below it. ``testkit`` may import everything.
    """
    by_module = {source.module: source for source in sources}
    for source in sources:
        if source.package == TESTKIT or source.path == CONTROLLER_REGISTRY:
            continue
        for line, imported in _imported_sources(source, by_module):
            if imported.package != "controllers" or imported.path.endswith("__init__.py"):
                continue
            is_controller = assigns(imported, "CONTROLLER") or assigns(imported, "CONTROLLERS")
            is_in_subfolder = imported.path.count("/") > 1
            if is_controller or (source.package == "controllers" and is_in_subfolder):
                yield _finding(source, line, imported.file)


def _imported_sources(source: Source, by_module: dict[str, Source]) -> Iterator[tuple[int, Source]]:
    """Yield each imported module once, with the line of its first import."""
    found: dict[str, tuple[int, Source]] = {}
    for line, name in imported_modules(source):
        imported = by_module.get(name) or by_module.get(name.rpartition(".")[0])
        if imported is not None and imported is not source:
            found.setdefault(imported.path, (line, imported))
    yield from found.values()


_MESSAGE_NAMES = frozenset({"message", "detail"})
_ERROR_NAMES = frozenset({"error", "err", "exc", "exception", "failure", "problem", "e"})
_SEARCHES = frozenset(
    {
        *("startswith", "endswith", "find", "rfind", "index", "rindex", "count"),
        *("partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix"),
    }
)
_MATCHES = frozenset({"search", "match", "fullmatch", "findall", "finditer"})
_UNCHANGED_TEXT = frozenset({"lower", "upper", "casefold", "strip", "lstrip", "rstrip"})


def find_message_comparisons(sources: list[Source], _: dict[str, str]) -> Iterator[Finding]:
    """Code decides by reasons, codes and typed fields, never by the text of a message.

    Text is what ``message``, ``detail`` and ``str(error)`` contain, and variables that are assigned
    from them. Formatting is allowed: a search for punctuation, a comparison with the empty string,
    a tuple that is compared to detect a change.
    """
    for source in sources:
        names = _MESSAGE_NAMES | _message_variables(source)
        for node in source.nodes:
            if isinstance(node, ast.Compare | ast.Call | ast.Match) and _compares(node, names):
                line = node.subject.lineno if isinstance(node, ast.Match) else node.lineno
                yield _finding(source, line, "comparisons")


def _message_variables(source: Source) -> set[str]:
    found = set()
    for node in source.nodes:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ) if _is_message(value, _MESSAGE_NAMES):
                found.add(name)
    return found


def _compares(node: ast.Compare | ast.Call | ast.Match, names: Set[str]) -> bool:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            operands = [left, *comparators]
            return any(
                _compares_pair(before, operator, after, names)
                for before, operator, after in zip(operands, ops, comparators, strict=False)
            )
        case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
            if attr in _SEARCHES and _is_message(value, names):
                return any(not _is_formatting(arg) for arg in args)
            return attr in _MATCHES and any(_is_message(arg, names) for arg in args)
        case ast.Match(subject=subject):
            return _is_message(subject, names)
        case _:
            return False


def _compares_pair(left: ast.expr, operator: ast.cmpop, right: ast.expr, names: Set[str]) -> bool:
    if isinstance(operator, ast.In | ast.NotIn):
        if _is_message(right, names):
            return not _is_formatting(left)
        return _is_message(left, names)
    if isinstance(operator, ast.Eq | ast.NotEq):
        is_left = _is_message(left, names)
        other = right if is_left else left
        return (is_left or _is_message(right, names)) and not _is_formatting(other)
    return False


def _is_message(node: ast.expr, names: Set[str]) -> bool:
    match node:
        case ast.Attribute(attr=name):
            return name in _MESSAGE_NAMES
        case ast.Name(id=name):
            return name in names
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in _ERROR_NAMES or name.endswith(("_error", "_exception"))
        case ast.Call(func=ast.Attribute(value=value, attr=attr)):
            return attr in _UNCHANGED_TEXT and _is_message(value, names)
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="args")):
            return name in _ERROR_NAMES
        case ast.Subscript(value=value):
            return _is_message(value, names)
        case _:
            return False


def _is_formatting(node: ast.expr) -> bool:
    """Return True for bytes, and for a constant without letters and digits."""
    match node:
        case ast.Constant(value=str(value)):
            return not any(char.isalnum() for char in value)
        case ast.Call(func=ast.Name(id=name)):
            return name == "bytes"
        case _:
            return isinstance(node, ast.Constant)


def find_repeated_class_names(sources: list[Source], _: dict[str, str]) -> Iterator[Finding]:
    """The name of a class is unique, so that a search finds one definition."""
    classes = [
        (source, node)
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.ClassDef)
    ]
    counts = Counter(node.name for _, node in classes)
    for source, node in classes:
        if counts[node.name] > 1:
            yield Finding(node.name, "definitions", f"{source.file}:{node.lineno}")


SMALL_MODULE_LINES = 60
_LISTED_NAMES = ("KIND", "CONTROLLER", "CONTROLLERS", "COMMAND")


def find_small_modules(sources: list[Source], texts: dict[str, str]) -> Iterator[Finding]:
    """A short module with one importer belongs in that importer.

    Modules that a list imports (kinds, controllers, commands) do not count, nor do modules that an
    ``__init__.py`` exports.
    """
    by_module = {source.module: source for source in sources}
    importers: dict[str, list[str]] = {}
    for source in sources:
        for _, imported in _imported_sources(source, by_module):
            importers.setdefault(imported.path, []).append(source.path)
    for source in sources:
        text = texts.get(source.file, "")
        found = importers.get(source.path, [])
        is_short = len(text.splitlines()) < SMALL_MODULE_LINES
        is_listed = any(assigns(source, name) for name in _LISTED_NAMES)
        if len(found) == 1 and is_short and not is_listed:
            is_package = source.path.endswith("__init__.py")
            if not is_package and not found[0].endswith("__init__.py"):
                where = f"{source.file}, used by {found[0]}"
                yield Finding(source.file, "single-importer", where)


# Folders in which each module with code has a test file in the mirrored place. In other packages
# most tests are named after a behavior of several modules.
MIRRORED_FOLDERS = (
    *("cli/commands", "controllers", "drivers", "gateway", "ingress", "planes", "planning"),
    *("runtime", "store", "telemetry"),
)


def find_missing_test_files(sources: list[Source], texts: dict[str, str]) -> Iterator[Finding]:
    """The tests of ``planning/quota/claims.py`` are in ``tests/planning/quota/test_claims.py``.

    Modules without a function need none, nor do modules whose functions are only declared, such as
    the methods of a protocol.
    """
    for source in sources:
        path = PurePosixPath(source.path)
        if path.stem == "__init__" or not any(map(path.is_relative_to, MIRRORED_FOLDERS)):
            continue
        expected = f"tests/{path.parent}/test_{path.name}"
        if expected not in texts and any(map(_is_implemented, source.nodes)):
            yield Finding(source.file, "test", f"{source.file}, expected {expected}")


def _is_implemented(node: ast.AST) -> bool:
    """Return True for a function with code, besides its docstring and ``...``."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return any(
        not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in node.body
    )


RULES_WITH_EXCEPTIONS = {
    "banned-word": RuleWithExceptions(
        find_banned_words, "replace the word with a plain one (BANNED_WORDS in house_rules.py)"
    ),
    "controller-import": RuleWithExceptions(
        find_controller_imports, "move the shared code to planning or directly into controllers/"
    ),
    "message-text": RuleWithExceptions(
        find_message_comparisons, "compare a reason, a code or a typed field instead of the text"
    ),
    "missing-test": RuleWithExceptions(
        find_missing_test_files, "write the tests of the module in the file that mirrors its path"
    ),
    "repeated-class": RuleWithExceptions(
        find_repeated_class_names, "rename the class so that its name is unique below src"
    ),
    "small-module": RuleWithExceptions(
        find_small_modules, "move the module into its only importer, or merge it by concept"
    ),
}
