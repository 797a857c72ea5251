"""Where a join token comes from: a file, stdin or the environment, never the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from datum_compute.cli.environment import JOIN_TOKEN, Surroundings
from datum_compute.cli.errors import UsageError
from datum_compute.cli.files import read_file, read_stdin, read_text_file


@dataclass(frozen=True, slots=True)
class GivenToken:
    token: str = field(repr=False)
    hub: str
    authority: bytes | None


def read_token(
    surroundings: Surroundings, file: str | None, *, hub: str, hub_ca: Path | None
) -> GivenToken:
    """The token, and where it is for: flags, or the document that ``cell token -o json`` prints."""
    text, source = _text(surroundings, file)
    document = _document(text, source)
    token = document.get("token", "") if document else text.strip()
    address = hub or document.get("hub", "")
    authority = document.get("authority", "").encode() or None
    if hub_ca is not None:
        authority = read_file(hub_ca.expanduser(), str(hub_ca))
    if not token or not token.isprintable() or " " in token:
        raise UsageError(f"{source} holds no join token.")
    if not address.startswith("https://"):
        raise UsageError("The address of the hub is missing.", "Pass --hub https://HOST:PORT.")
    return GivenToken(token, address, authority)


def _text(surroundings: Surroundings, file: str | None) -> tuple[str, str]:
    if file == "-":
        return read_stdin(surroundings.stdin), "stdin"
    if file:
        return read_text_file(Path(file).expanduser(), file), file
    named = surroundings.environ.get(JOIN_TOKEN, "")
    if not named:
        raise UsageError("There is no join token.", f"Pass --token-file FILE, or set {JOIN_TOKEN}.")
    return named, f"${JOIN_TOKEN}"


def _document(text: str, source: str) -> dict[str, str]:
    if not text.lstrip().startswith("{"):
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source} is not what 'cell token -o json' prints: {error}.") from None
    return {name: value for name, value in found.items() if isinstance(value, str)}
