"""Join tokens as a proof of who calls. It only says that the holder knows the secret of a JoinToken
of the hub; whether that token still opens anything is for the joining itself to say, so that its
holder hears why not."""

from __future__ import annotations

import hashlib
import hmac

from datum_compute.api.cellidentity import JOINERS_GROUP, joiner_of, name_of_token
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import JOIN_TOKEN
from datum_compute.api.meta.codec import decode
from datum_compute.api.planes import HUB
from datum_compute.server.access.authentication import User, authenticated
from datum_compute.store.journal import ObjectKey
from datum_compute.store.store import Store


def joiner(store: Store, token: str) -> User | None:
    """The holder of a join token; None for any other text."""
    name = name_of_token(token)
    if not name:
        return None
    try:
        record = store.get(HUB, ObjectKey(JOIN_TOKEN.storage, "", name))
    except NotFound:
        return None
    if record is None:
        return None
    kept: str = decode(record.body)["spec"]["tokenHash"]
    shown = hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
    if not hmac.compare_digest(kept, shown):
        return None
    return authenticated(User(joiner_of(name), (JOINERS_GROUP,), frozenset({HUB})))
