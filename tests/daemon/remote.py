"""A daemon on TCP with its certificates and callers, as the tests of remote access use it."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from hotwire_client import Destination
from hotwired.v1 import steering_service_pb2_grpc
from tests.daemon.harness import Daemon, Fleet
from tests.support.certificates import Authority, Pair

ROLES = ("viewer", "operator", "admin")
SANS = {
    "viewer": "spiffe://example.org/viewer",
    "operator": "operator.example.org",
    "admin": "spiffe://example.org/admin",
}


@dataclass
class Remote:
    """A daemon that listens on TCP, a caller for each role, and one known by its token alone."""

    fleet: Fleet
    folder: Path
    more: str = ""
    tls_more: str = ""
    daemon: Daemon = field(init=False)

    def __post_init__(self) -> None:
        self.ca = Authority(self.folder)
        self.server = self.ca.issue("server", "localhost", "127.0.0.1")
        self.pairs = {role: self.ca.issue(role, SANS[role]) for role in ROLES}
        self.pairs["stranger"] = self.ca.issue("stranger", "stranger.example.org")
        self.config = self.folder / "hotwired.toml"
        self.config.write_text(self._text())
        self.daemon = self.fleet.daemon("--config", str(self.config))
        self.address = self.daemon.log("serving")[-1]["tcp"]

    def _text(self) -> str:
        callers = "".join(
            f'[callers.{role}-caller]\nrole = "{role}"\nsans = ["{SANS[role]}"]\n'
            f'token_sha256 = ["{hashlib.sha256(token_of(role).encode()).hexdigest()}"]\n'
            for role in ROLES
        )
        return (
            f'[tcp]\nlisten = "127.0.0.1:0"\ncertificate = "{self.server.certificate}"\n'
            f'key = "{self.server.key}"\nclient_ca = "{self.ca.file}"\n{self.tls_more}\n'
            f"{self.more}\n{callers}"
        )

    def channel(self, pair: Pair | str | None, ca: Path | None = None) -> grpc.Channel:
        """Returns a channel that shows a certificate: a caller's by its role, a given one, none."""
        pair = self.pairs[pair] if isinstance(pair, str) else pair
        credentials = grpc.ssl_channel_credentials(
            (ca or self.ca.file).read_bytes(),
            pair.key.read_bytes() if pair else None,
            pair.certificate.read_bytes() if pair else None,
        )
        options = (("grpc.use_local_subchannel_pool", 1),)
        return grpc.secure_channel(self.address, credentials, options)

    def stub(self, channel: grpc.Channel) -> steering_service_pb2_grpc.SteeringServiceStub:
        """Returns the service on a channel."""
        return steering_service_pb2_grpc.SteeringServiceStub(channel)

    def destination(self, role: str, token_file: Path | None = None) -> Destination:
        """Returns what the clients take."""
        pair = self.pairs[role]
        return Destination(
            f"tls://{self.address}", self.ca.file, pair.certificate, pair.key, token_file
        )


def token_of(role: str) -> str:
    """Returns the token of a caller."""
    return f"token-of-{role}"


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Returns the metadata that carries a token."""
    return (("authorization", f"Bearer {token}"),)


def made(fleet: Fleet, root: Path, more: str = "", tls_more: str = "") -> Iterator[Remote]:
    """Yields a daemon on TCP; its fleet ends it."""
    folder = root / "tls"
    folder.mkdir()
    yield Remote(fleet, folder, more, tls_more)
