"""Where the daemon is, and what is shown to it there: certificates, and a token."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from hotwire_client import address

CA_ENV = "HOTWIRE_CA"
CERT_ENV = "HOTWIRE_CERT"
KEY_ENV = "HOTWIRE_KEY"
TOKEN_FILE_ENV = "HOTWIRE_TOKEN_FILE"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class Destination:
    """A daemon, and what is shown to it.

    Attributes:
        server: `unix:PATH`, an absolute path, `tls://HOST:PORT` or `HOST:PORT`.
        ca: The file with the authorities that the daemon's certificate is signed by, PEM; by
            default the system's.
        certificate: The file with this client's certificate, PEM.
        key: The file with the certificate's private key, PEM.
        token_file: The file with a bearer token, read at each call, so that it may be replaced.

    On a Unix socket nothing is shown: its mode decides. `HOST:PORT` is TLS as soon as any of the
    files is given; without, it is plain text, which the daemon itself does not speak.
    """

    server: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token_file: Path | None = None

    @classmethod
    def from_environment(cls, server: str | None = None) -> "Destination":
        """Returns the daemon that the HOTWIRE_* variables name, or a given one and their files."""
        return cls(
            address.default_server() if server is None else server,
            ca=_path(CA_ENV),
            certificate=_path(CERT_ENV),
            key=_path(KEY_ENV),
            token_file=_path(TOKEN_FILE_ENV),
        )

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        if address.socket_path(self.server) is not None:
            return False
        files = (self.ca, self.certificate, self.key, self.token_file)
        return self.server.startswith(address.TLS) or any(files)

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Returns what a channel is opened with, None if in plain text.

        Raises:
            OSError: A file can't be read.
            ValueError: There is a certificate without its key, or the reverse.
        """
        if not self.is_tls:
            return None
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a certificate and its key go together: give both, or neither")
        tls = grpc.ssl_channel_credentials(
            _content(self.ca), _content(self.key), _content(self.certificate)
        )
        if self.token_file is None:
            return tls
        _token(self.token_file)
        plugin = grpc.metadata_call_credentials(_Bearer(self.token_file), name="token")
        return grpc.composite_channel_credentials(tls, plugin)


class _Bearer(grpc.AuthMetadataPlugin):
    """Sends the token that is in a file now. gRPC asks for it only over TLS."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, context: grpc.AuthMetadataContext, callback: Callable[..., None]) -> None:
        del context
        try:
            callback((("authorization", f"Bearer {_token(self._path)}"),), None)
        except (OSError, ValueError) as error:
            callback((), error)


def _token(path: Path) -> str:
    token = path.read_text().strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError(f"{path} holds no token of printable ASCII")
    return token


def _path(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value) if value else None


def _content(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
