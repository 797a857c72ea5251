"""What a cell knows of the hub it has joined: files of its state directory.

``membership.json`` is written last, so a directory that has one holds everything; without it the
cell has not joined, whatever else is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datum_compute.api.meta.codec import ApiStruct, DecodeError, decode_as, encode
from datum_compute.api.planes import PlaneName, cell_plane, path_prefix
from datum_compute.app.state_directory import StateError, write_private
from datum_compute.client.auth.connection import Connection, FileSignIn

MEMBERSHIP = "membership.json"


class Membership(ApiStruct, frozen=True, kw_only=True):
    """``hub`` is the address of the process that serves the hub and the projects; ``endpoint`` that
    under which the hub reaches this cell."""

    cell: str
    city: str
    hub: str
    endpoint: str

    @property
    def plane(self) -> PlaneName:
        return cell_plane(self.cell)


@dataclass(frozen=True, slots=True)
class MembershipFiles:
    state: Path

    @property
    def key(self) -> Path:
        return self.state / "cell.key"

    @property
    def certificate(self) -> Path:
        return self.state / "cell.crt"

    @property
    def authority(self) -> Path:
        """Of the hub."""
        return self.state / "hub-ca.crt"

    def read(self) -> Membership | None:
        """None if the cell has not joined."""
        path = self.state / MEMBERSHIP
        try:
            return decode_as(path.read_bytes(), Membership)
        except FileNotFoundError:
            return None
        except DecodeError as error:
            raise StateError(f"{path} is damaged ({error}); join again with a new token") from error

    def write(self, membership: Membership, certificate: str, authority: str) -> None:
        write_private(self.authority, authority.encode())
        write_private(self.certificate, certificate.encode())
        write_private(self.state / MEMBERSHIP, encode(membership))

    def connection(self, membership: Membership, plane: PlaneName) -> Connection:
        """To a plane of the hub's process, as this cell; the certificate is read again as it is
        renewed."""
        return Connection(
            server=membership.hub,
            path_prefix=path_prefix(plane),
            ca_pem=self.authority.read_bytes() or None,
            context=plane,
            sign_in=FileSignIn(certificate=(self.certificate, self.key)),
        )
