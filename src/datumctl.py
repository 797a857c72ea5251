"""datumctl: replace this process with the plugin ``datumctl-<name>``.

A plugin is an executable on PATH or in the directory of this program, so that the bin directory of
a virtual environment need not be on PATH. Only os and sys are imported, because this module runs
before every command.
"""

from __future__ import annotations

import os
import sys

_PREFIX = "datumctl-"


def main() -> int:
    try:
        code = _main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe; a flush at exit would fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def _main() -> int:
    arguments = sys.argv[1:]
    plugins = _plugins()
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_help(plugins))
        return 0
    name = arguments[0]
    if name == "--version" or (name == "version" and name not in plugins):
        sys.stdout.write(f"datumctl {_version()}\n")
        return 0
    if name not in plugins:
        known = ", ".join(sorted(plugins)) or "none"
        sys.stderr.write(
            f"error: no plugin {name!r}: {_PREFIX}{name} is neither on PATH nor in the directory "
            f"of {os.path.basename(sys.argv[0])}\nPlugins found: {known}\n"
        )
        return 2
    path = plugins[name]
    try:
        os.execv(path, [path, *arguments[1:]])  # noqa: S606 - a plugin is a program, by design
    except OSError as error:
        sys.stderr.write(f"error: cannot run {path}: {error.strerror}\n")
        return 1


def _version() -> str:
    from importlib import metadata  # slow to import and rarely needed

    try:
        return metadata.version("datum-compute")
    except metadata.PackageNotFoundError:
        return "unknown: datum-compute is not installed"


def _plugins() -> dict[str, str]:
    """Return the path of each plugin by name; the first directory that has it takes precedence."""
    found: dict[str, str] = {}
    for directory in _directories():
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            continue
        for file in names:
            path = os.path.join(directory, file)
            name = file.removeprefix(_PREFIX)
            if file != name and name not in found and _is_program(path):
                found[name] = path
    return found


def _directories() -> list[str]:
    # A relative entry of PATH would run programs of the working directory.
    on_path = [d for d in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(d)]
    itself = os.path.abspath(sys.argv[0])
    beside = [os.path.dirname(f) for f in (itself, os.path.realpath(itself), sys.executable)]
    return [*on_path, *beside]


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _help(plugins: dict[str, str]) -> str:
    listed = "".join(f"  {name}\n" for name in sorted(plugins)) or "  none\n"
    return f"Usage: datumctl PLUGIN [ARGS]...\n       datumctl version\n\nPlugins found:\n{listed}"


if __name__ == "__main__":
    sys.exit(main())
