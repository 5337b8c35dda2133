"""Every setting of the daemon, in one place: a section of the file is a class, a key its field.

What is said of a setting here is what docs/hotwired.toml says. A new section is a class here and a
field of Config; reader, printer and sample follow.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from hotwired import settings
from hotwired.log import LEVELS
from hotwired.metrics.listen import parsed as metrics_address
from hotwired.run_dir import run_dir
from hotwired.settings import setting

LOCAL_NAME = "local"
"""Whoever can open the Unix socket: which of them it was, gRPC does not tell."""

ROLES = ("viewer", "operator", "admin")

_SECONDS = settings.number(0.1, 3600)
_SAN = r"[a-z][a-z0-9+.-]*:[!-~]+|[a-z0-9][a-z0-9._-]*"


@dataclass(frozen=True, slots=True)
class Daemon:
    """Where it lives and what it logs."""

    run_dir: Path | None = setting(
        settings.place(),
        None,
        "Where vLLM's processes put their sockets. Empty: $HOTWIRE_RUN_DIR, else "
        "$XDG_RUNTIME_DIR/hotwire, else /tmp/hotwire-<uid>.",
    )
    state_dir: Path | None = setting(
        settings.place(),
        None,
        "Where registry and vectors are kept. Empty: $XDG_STATE_HOME/hotwired, else "
        "~/.local/state/hotwired.",
    )
    log_level: str = setting(settings.choice(*LEVELS), "info", "The least level that is logged.")
    log_file: Path | None = setting(
        settings.place(),
        None,
        "Where the log goes; opened anew on SIGHUP and when it was renamed. Empty: stdout.",
    )


@dataclass(frozen=True, slots=True)
class Unix:
    """The Unix socket. Who may open it is an admin: its mode is 0660, its folder's 0750."""

    listen: str = setting(
        settings.text(r"(unix:[^\0]+)?", '"unix:PATH", or ""'),
        "",
        "The socket, unix:PATH. Empty: hotwired.sock in the run directory.",
    )
    reflection: bool = setting(
        settings.flag(), True, "Whether callers may ask which methods there are."
    )


@dataclass(frozen=True, slots=True)
class Tcp:
    """TCP, with mutual TLS only. Certificates are read again when their files change."""

    listen: str = setting(
        settings.address(), "", "Where to listen, HOST:PORT. Empty: TCP is not served."
    )
    certificate: Path | None = setting(
        settings.place(), None, "The server's certificate and what it is signed by, PEM."
    )
    key: Path | None = setting(settings.place(), None, "The certificate's private key, PEM.")
    client_ca: Path | None = setting(
        settings.place(), None, "The authorities that a client's certificate is signed by, PEM."
    )
    reflection: bool = setting(
        settings.flag(), False, "Whether callers may ask which methods there are."
    )


@dataclass(frozen=True, slots=True)
class Metrics:
    """What Prometheus reads; docs/metrics.md has each metric."""

    listen: str = setting(
        settings.checked(
            lambda text: str(metrics_address(text)),
            'a loopback "HOST:PORT", "[::1]:PORT", "unix:PATH", or ""',
        ),
        "",
        "Where metrics are served. Empty: nowhere.",
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call may take of the daemon."""

    max_vector_bytes: int = setting(
        settings.size(1 << 20, 4 << 30), 256 << 20, "The largest file that may be registered."
    )
    max_chunk_bytes: int = setting(
        settings.size(4 << 10, 1 << 20), 1 << 20, "The largest chunk of an upload."
    )
    max_message_bytes: int = setting(
        settings.size(2 << 20, 16 << 20), 4 << 20, "The largest message of any call."
    )
    max_uploads_bytes: int = setting(
        settings.size(0, 64 << 30),
        0,
        "What all uploads under way may declare together. 0: twice max_vector_bytes.",
    )
    stall_seconds: float = setting(
        _SECONDS, 10.0, "How long the next message of an upload may take."
    )
    upload_seconds: float = setting(_SECONDS, 300.0, "How long a whole upload may take.")
    default_deadline_seconds: float = setting(
        _SECONDS, 10.0, "The deadline of a call that comes without one."
    )

    @property
    def uploads_bytes(self) -> int:
        """The bytes that all uploads under way may declare together."""
        return self.max_uploads_bytes or 2 * self.max_vector_bytes


@dataclass(frozen=True, slots=True)
class Rates:
    """How often each caller over TCP may call. The kill switch can always be thrown."""

    reads_per_second: float = setting(
        settings.number(0, 1e6), 50.0, "Calls that change nothing. 0: as many as it likes."
    )
    read_burst: int = setting(settings.whole(1, 1_000_000), 100, "As many at once.")
    writes_per_second: float = setting(
        settings.number(0, 1e6), 5.0, "Calls that change something. 0: as many as it likes."
    )
    write_burst: int = setting(settings.whole(1, 1_000_000), 20, "As many at once.")


@dataclass(frozen=True, slots=True)
class Quotas:
    """How much each caller over TCP may bring."""

    upload_bytes_per_hour: int = setting(
        settings.size(0, 1 << 40), 4 << 30, "Bytes uploaded within an hour. 0: no limit."
    )
    vectors: int = setting(
        settings.whole(0, 1_000_000),
        0,
        "Names that it registered first and that are there. 0: no limit.",
    )


@dataclass(frozen=True, slots=True)
class Caller:
    """One who may call over TCP, by a name that audit records carry."""

    role: str = setting(
        settings.choice(*ROLES),
        "viewer",
        "viewer: what changes nothing. operator: vectors and the kill switch too. admin: all.",
    )
    sans: tuple[str, ...] = setting(
        settings.texts(_SAN, "a URI, or a DNS name in lower case"),
        (),
        "The subject alternative names, URI or DNS, of the certificates it has.",
    )
    token_sha256: tuple[str, ...] = setting(
        settings.texts(r"[0-9a-f]{64}", "a sha256 in 64 lower-case hex digits"),
        (),
        "The sha256 of each bearer token it has: `printf %s TOKEN | sha256sum`.",
    )


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration: a section each, and the callers by their names."""

    daemon: Daemon = field(default_factory=Daemon)
    unix: Unix = field(default_factory=Unix)
    tcp: Tcp = field(default_factory=Tcp)
    metrics: Metrics = field(default_factory=Metrics)
    limits: Limits = field(default_factory=Limits)
    rates: Rates = field(default_factory=Rates)
    quotas: Quotas = field(default_factory=Quotas)
    callers: Mapping[str, Caller] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def run_dir(self) -> Path:
        """Where nodes put their sockets."""
        return (self.daemon.run_dir or run_dir()).absolute()

    @property
    def state_dir(self) -> Path:
        """Where registry and blobs are."""
        return (self.daemon.state_dir or default_state_dir()).absolute()

    @property
    def socket(self) -> Path:
        """Where the daemon listens."""
        path = self.unix.listen.removeprefix("unix:").removeprefix("//")
        return Path(path).absolute() if path else self.run_dir / "hotwired.sock"


def default_state_dir() -> Path:
    """Returns $XDG_STATE_HOME/hotwired, else ~/.local/state/hotwired."""
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "hotwired"
    return Path.home() / ".local" / "state" / "hotwired"
