"""Every setting of the daemon, in one place."""

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Limits:
    """What callers may take of the daemon.

    max_vector_bytes: of one uploaded file. max_chunk_bytes: of one chunk of it. max_message_bytes:
    of any message, refused by the transport. max_uploads_bytes: of all uploads under way, as
    declared. stall_seconds: between two messages of an upload. upload_seconds: for a whole one.
    default_deadline_seconds: of a call that comes without one.
    """

    max_vector_bytes: int = 256 << 20
    max_chunk_bytes: int = 1 << 20
    max_message_bytes: int = 4 << 20
    max_uploads_bytes: int = 512 << 20
    stall_seconds: float = 10.0
    upload_seconds: float = 300.0
    default_deadline_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Config:
    """Where the daemon lives.

    run_dir: where nodes put their sockets. state_dir: registry and blobs. socket: where the daemon
    listens. log_level: "debug", "info", "warning" or "error". log_file: where the log goes, None is
    stdout. metrics_listen: where metrics are served, "HOST:PORT" or "unix:PATH"; empty is nowhere.
    """

    run_dir: Path
    state_dir: Path
    socket: Path
    log_level: str = "info"
    log_file: Path | None = None
    metrics_listen: str = ""
    limits: Limits = field(default_factory=Limits)


def default_state_dir() -> Path:
    """Returns $XDG_STATE_HOME/hotwired, else ~/.local/state/hotwired."""
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "hotwired"
    return Path.home() / ".local" / "state" / "hotwired"
