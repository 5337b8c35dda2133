"""Where the daemon is: the default socket, and what a server address may look like."""

import os
import re
import socket
from pathlib import Path
from urllib.parse import quote

SERVER_ENV = "HOTWIRE_SERVER"
RUN_DIR_ENV = "HOTWIRE_RUN_DIR"

#: The longest path a Unix socket can have on Linux, in bytes.
MAX_SOCKET_PATH = 107

#: What an address starts with that is reached by TLS.
TLS = "tls://"

_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


def run_dir() -> Path:
    """Returns $HOTWIRE_RUN_DIR, else $XDG_RUNTIME_DIR/hotwire, else /tmp/hotwire-<uid>."""
    if own := os.environ.get(RUN_DIR_ENV):
        return Path(own)
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "hotwire"
    return Path(f"/tmp/hotwire-{os.getuid()}")  # noqa: S108 - see `foreign_owner`


def default_server() -> str:
    """Returns $HOTWIRE_SERVER, else the daemon's socket in the run directory."""
    return os.environ.get(SERVER_ENV) or f"unix:{run_dir() / 'hotwired.sock'}"


def target_of(server: str) -> str:
    """Returns the gRPC target for `unix:PATH`, an absolute path, `tls://host:port` or `host:port`.

    Raises:
        ValueError: The address is none of these, or the socket's path is too long.
    """
    if path := socket_path(server):
        return "unix:" + quote(_checked_path(path))
    match = _HOST_PORT.fullmatch(server.removeprefix(TLS))
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ValueError(
            f"{server!r} is no server address: give unix:PATH or HOST:PORT, for TLS tls://HOST:PORT"
        )
    return f"dns:///{match[0]}"


def socket_path(server: str) -> str | None:
    """Returns the path of the socket that the address names, or None for `host:port`."""
    if server.startswith("/"):
        return server
    if not server.startswith("unix:"):
        return None
    path = server.removeprefix("unix:")
    return "/" + path.lstrip("/") if path.startswith("//") else path


def _checked_path(path: str) -> str:
    if not path or "\0" in path:
        raise ValueError("the address names no socket: give unix:PATH or HOST:PORT")
    full = os.path.abspath(path)  # noqa: PTH100 - a link to a shorter path must stay one
    if (length := len(os.fsencode(full))) > MAX_SOCKET_PATH:
        raise ValueError(
            f"the socket's path is {length} bytes long, and {MAX_SOCKET_PATH} is the most: {full}"
        )
    return full


def foreign_owner(server: str) -> int | None:
    """Returns the uid of the stranger who owns the socket's directory, or None.

    Anybody can make the fallback directory in /tmp, so a vector must not be handed to whoever did;
    directories elsewhere are the user's own choice.
    """
    path = socket_path(server)
    if path is None or Path(path).parent != Path(f"/tmp/hotwire-{os.getuid()}"):  # noqa: S108
        return None
    try:
        owner = Path(path).parent.lstat().st_uid
    except OSError:
        return None
    return None if owner in {0, os.getuid()} else owner


def try_to_connect(server: str, seconds: float) -> None:
    """Opens a connection to the address and closes it again.

    Raises:
        OSError: Nobody answers there, or not in time.
    """
    if path := socket_path(server):
        with socket.socket(socket.AF_UNIX) as unix:
            unix.settimeout(seconds)
            unix.connect(path)
        return
    host, _, port = server.removeprefix(TLS).rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), seconds).close()


def why_unreachable(server: str, error: OSError | None = None) -> str:
    """Returns one sentence on why nothing answers at the address."""
    path = socket_path(server)
    if path is None:
        return f"no daemon answers at {server}"
    match error:
        case FileNotFoundError():
            return f"no daemon runs here: there is no socket {path}"
        case PermissionError():
            return f"the socket {path} may not be opened by this user"
        case _:
            return f"no daemon answers at the socket {path}"
