"""Where metrics are served: a port of this host, or a Unix socket."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Address:
    """Either a socket's path, or a loopback host and a port; port 0 is any free one."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parsed(text: str) -> Address:
    """Returns the address of "unix:PATH" or "HOST:PORT". Raises ValueError if it is neither."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path:
            raise ValueError(f"{text!r} has no path")
        return Address(path=Path(path).absolute())
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    # isdecimal takes other scripts' digits, too.
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ValueError(f"{text!r} is neither HOST:PORT nor unix:PATH")
    if not _is_loopback(host):
        raise ValueError(f"{text!r} is not on this host alone: use 127.0.0.1, [::1] or unix:PATH")
    return Address(host=host, port=int(port))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
