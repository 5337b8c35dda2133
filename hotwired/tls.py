"""The certificates of TCP: read at start, and again when their files change or on SIGHUP.

What gRPC asks for at each handshake is answered from here; a new file that is broken is logged, and
the certificates in force stay.
"""

import os
import ssl
import threading
from pathlib import Path
from typing import Any

import grpc

from hotwired.config import Tcp
from hotwired.errors import CertificateInvalid, shown
from hotwired.log import get

_ATTEMPTS = 3


class Certificates:
    """The server's certificate and key, and the authorities of its clients."""

    def __init__(self, tcp: Tcp) -> None:
        self._paths = {
            name: path
            for name in ("certificate", "key", "client_ca")
            if (path := getattr(tcp, name)) is not None
        }
        self._lock = threading.Lock()
        self._seen: object = None

    def credentials(self) -> grpc.ServerCredentials:
        """Returns what a port is opened with. Raises CertificateInvalid."""
        self._seen, first = _signature(self._paths), _read(self._paths)
        if self._paths["key"].stat().st_mode & 0o007:
            get().warning("anybody can read the private key", path=str(self._paths["key"]))
        return grpc.dynamic_ssl_server_credentials(
            first, self._changed, require_client_authentication=True
        )

    def look_again(self) -> None:
        """Lets the next handshake read the files, changed or not."""
        with self._lock:
            self._seen = None

    def _changed(self) -> Any:
        """Returns what is new since it was last asked, or None; called in gRPC's threads."""
        with self._lock:
            found = _signature(self._paths)
            if found == self._seen:
                return None
            # A broken file is told of once, and read again when it has changed again.
            self._seen = found
            try:
                new = _read(self._paths)
            except CertificateInvalid as exc:
                get().error("certificates not reloaded", reason=exc.reason, error=exc.message)
                return None
        get().info("certificates reloaded", certificate=str(self._paths["certificate"]))
        return new


def _signature(paths: dict[str, Path]) -> object:
    """Returns what differs if a file was replaced or written to."""
    return tuple(_stat(path) for path in paths.values())


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(paths: dict[str, Path]) -> Any:
    """Returns the files' content for gRPC, checked. Raises CertificateInvalid."""
    for _ in range(_ATTEMPTS):
        content = {name: _bytes(name, path) for name, path in paths.items()}
        _check(paths)
        # What was checked by path must be what was read: the files may be being replaced.
        if content == {name: _bytes(name, path) for name, path in paths.items()}:
            return grpc.ssl_server_certificate_configuration(
                [(content["key"], content["certificate"])], root_certificates=content["client_ca"]
            )
    raise CertificateInvalid("the certificates change while they are read")


def _bytes(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise _invalid(name, path, os.strerror(exc.errno or 0)) from exc


def _check(paths: dict[str, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # An empty password: a key that asks for one is refused, nobody is prompted.
        context.load_cert_chain(paths["certificate"], paths["key"], password=b"")
    except (ssl.SSLError, OSError, ValueError) as exc:
        problem = f"it and its key {paths['key']} are no pair: {shown(str(exc))}"
        raise _invalid("certificate", paths["certificate"], problem) from exc
    try:
        context.load_verify_locations(paths["client_ca"])
    except (ssl.SSLError, OSError, ValueError) as exc:
        raise _invalid("client_ca", paths["client_ca"], shown(str(exc))) from exc


def _invalid(name: str, path: Path, problem: str) -> CertificateInvalid:
    return CertificateInvalid(
        f"tcp.{name}: {path}: {problem}", metadata={"setting": f"tcp.{name}", "path": str(path)}
    )
