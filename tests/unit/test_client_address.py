"""Where a client looks for the daemon, and what it takes as an address."""

import os
from pathlib import Path

import pytest

from hotwire_client import PermissionDeniedError, UnavailableError, address, default_server, run_dir
from hotwire_client.connection import Endpoint
from hotwired import run_dir as daemon_rule


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test says what is set."""
    for name in ("HOTWIRE_RUN_DIR", "XDG_RUNTIME_DIR", "HOTWIRE_SERVER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, f"/tmp/hotwire-{os.getuid()}"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/hotwire"),
        ({"XDG_RUNTIME_DIR": "/run/user/7", "HOTWIRE_RUN_DIR": "/r"}, "/r"),
        ({"XDG_RUNTIME_DIR": "", "HOTWIRE_RUN_DIR": ""}, f"/tmp/hotwire-{os.getuid()}"),
    ],
)
def test_the_run_directory_follows_the_daemons_rule(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Client and daemon, which share no code here, come to the same directory."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run_dir() == Path(expected) == daemon_rule.run_dir()
    assert default_server() == f"unix:{expected}/hotwired.sock"


def test_the_server_variable_goes_before_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """$HOTWIRE_SERVER is the address of a client that is given none."""
    monkeypatch.setenv("HOTWIRE_SERVER", "localhost:4000")
    assert default_server() == "localhost:4000"


@pytest.mark.parametrize(
    ("server", "target"),
    [
        ("unix:/a/b.sock", "unix:/a/b.sock"),
        ("unix:///a/b.sock", "unix:/a/b.sock"),
        ("/a/b.sock", "unix:/a/b.sock"),
        ("/a b%41/c?d#e", "unix:/a%20b%2541/c%3Fd%23e"),
        ("localhost:50051", "dns:///localhost:50051"),
        ("10.0.0.1:1", "dns:///10.0.0.1:1"),
        ("[::1]:65535", "dns:///[::1]:65535"),
        ("tls://localhost:7443", "dns:///localhost:7443"),
        ("tls://[::1]:7443", "dns:///[::1]:7443"),
    ],
)
def test_addresses_become_targets(server: str, target: str) -> None:
    """Sockets, with whatever characters in their path, and host:port are taken."""
    assert address.target_of(server) == target


@pytest.mark.parametrize(
    "server",
    ["", "unix:", "host", "host:", "host:0", "host:65536", ":80", "http://host:80",
     "ho st:80", "host:80\n", "unix:/a\0b", "::1:80",
     "tls://", "tls://host", "tls://unix:/a", "tls:host:80", "tls://tls://host:80"],
)  # fmt: skip
def test_what_is_no_address_is_refused(server: str) -> None:
    """A malformed address is a ValueError at once, not a connection that never comes."""
    with pytest.raises(ValueError, match="unix:PATH or HOST:PORT"):
        address.target_of(server)


def test_a_path_too_long_for_a_socket_says_so() -> None:
    """The limit of 107 bytes counts bytes, and is named."""
    assert address.target_of("/" + "a" * 106)
    with pytest.raises(ValueError, match="108 bytes long, and 107 is the most"):
        address.target_of("/" + "a" * 107)
    with pytest.raises(ValueError, match="107 is the most"):
        address.target_of("/" + "é" * 60)


def test_a_relative_path_is_made_absolute(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`unix:name` is relative to the working directory when the client is made."""
    monkeypatch.chdir(short_dir)
    assert address.target_of("unix:d.sock") == f"unix:{Path.cwd()}/d.sock"


def test_a_strangers_fallback_directory_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In /tmp anybody can be first, so the directory has to be one's own; others are chosen."""
    stranger = Path(f"/tmp/hotwire-{os.getuid()}")
    real = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        if path != stranger:
            return real(path)
        return os.stat_result((0o40777, 1, 1, 1, 4242, 0, 0, 0, 0, 0))

    monkeypatch.setattr(Path, "lstat", lstat)
    with pytest.raises(PermissionDeniedError) as caught:
        Endpoint(None, 1, 1)._check_trusted()
    assert caught.value.reason == "SOCKET_NOT_TRUSTED"
    assert caught.value.metadata["uid"] == "4242"
    Endpoint("unix:/tmp/elsewhere/hotwired.sock", 1, 1)._check_trusted()
    Endpoint("localhost:1", 1, 1)._check_trusted()


def test_why_nothing_answers_is_told_apart(short_dir: Path) -> None:
    """No socket, a forbidden one, and one without a daemon are three sentences."""
    server = f"unix:{short_dir}/a.sock"
    assert "there is no socket" in address.why_unreachable(server, FileNotFoundError())
    assert "may not be opened" in address.why_unreachable(server, PermissionError())
    assert "no daemon answers at the socket" in address.why_unreachable(server)
    assert "no daemon answers at localhost:1" in address.why_unreachable("localhost:1")


def test_a_forbidden_socket_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another try cannot mend fails at once."""
    tries = []

    def refuse(server: str, seconds: float) -> None:
        tries.append(server)
        raise PermissionError

    monkeypatch.setattr(address, "try_to_connect", refuse)
    endpoint = Endpoint("unix:/run/a.sock", 1, 1)
    with pytest.raises(UnavailableError, match="may not be opened"):
        endpoint.connect(endpoint.deadline(None))
    assert tries == ["unix:/run/a.sock"]
