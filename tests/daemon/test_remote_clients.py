"""Our own clients over TCP: what they show, and what they say when it is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotwire_client import (
    AsyncClient,
    Client,
    Destination,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from hotwirectl.main import run
from tests.daemon.harness import Fleet, a_file
from tests.daemon.remote import Remote, made, token_of


@pytest.fixture(scope="module")
def remote(shared: Fleet) -> Iterator[Remote]:
    """The daemon that the tests here share."""
    yield from made(shared, shared.root)


def flags(remote: Remote, role: str) -> list[str]:
    """Returns what hotwirectl is told of the daemon."""
    to = remote.destination(role)
    files = {"--ca": to.ca, "--cert": to.certificate, "--key": to.key}
    return ["--server", to.server, *(str(part) for pair in files.items() for part in pair)]


async def test_both_clients_call_over_tls(remote: Remote) -> None:
    """With what a Destination names."""
    with Client(remote.destination("operator")) as client:
        assert client.register_vector(a_file(), name="joy").vector.owner == "operator-caller"
        with pytest.raises(PermissionDeniedError) as denied:
            client.set_policy(client.get_policy().policy)
        assert denied.value.reason == "ROLE_TOO_LOW"
    async with AsyncClient(remote.destination("operator")) as client:
        assert [vector.name for vector in await client.list_vectors()] == ["joy"]
        assert (await client.delete_vector("joy")).vector.name == "joy"


async def test_a_token_is_read_at_each_call(remote: Remote, tmp_path: Path) -> None:
    """So that the file may be replaced under a client that runs."""
    token = tmp_path / "token"
    token.write_text(token_of("viewer") + "\n")
    to = remote.destination("stranger", token)
    with Client(to) as client:
        client.get_policy()
        token.write_text("wrong")
        with pytest.raises(UnauthenticatedError) as caught:
            client.get_policy()
        assert caught.value.reason == "TOKEN_INVALID"
        token.write_text(token_of("operator"))
        assert client.set_kill_switch(False).policy.kill_switch is False
    async with AsyncClient(to) as client:
        await client.get_policy()
    token.write_text("")
    with pytest.raises(ValueError, match="no token"):
        Client(to)


def test_the_environment_names_the_files(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOST:PORT is TLS as soon as one of them is named."""
    to = remote.destination("viewer")
    monkeypatch.setenv("HOTWIRE_SERVER", remote.address)
    monkeypatch.setenv("HOTWIRE_CA", str(to.ca))
    monkeypatch.setenv("HOTWIRE_CERT", str(to.certificate))
    with pytest.raises(ValueError, match="go together"):
        Client()
    monkeypatch.setenv("HOTWIRE_KEY", str(to.key))
    with Client() as client:
        assert client.get_policy().generation
    monkeypatch.delenv("HOTWIRE_SERVER")
    with Client(f"unix:{remote.daemon.socket}") as client:
        assert client.get_policy().generation, "on the Unix socket nothing is shown"


def test_a_failed_handshake_says_so(remote: Remote) -> None:
    """And not that nothing listens there."""
    with Client(Destination(f"tls://{remote.address}", remote.ca.file)) as client:
        with pytest.raises(UnavailableError) as caught:
            client.get_policy(timeout=3)
        assert caught.value.reason == "TLS_FAILED"
        assert remote.address in caught.value.message


def test_hotwirectl_over_tls(
    remote: Remote, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each refusal has its exit code and a hint."""
    file = tmp_path / "joy.safetensors"
    file.write_bytes(a_file())
    assert run([*flags(remote, "operator"), "register", str(file)]) == 0
    assert run(["list", *flags(remote, "viewer"), "-o", "json"]) == 0
    assert '"joy"' in capsys.readouterr().out
    assert run([*flags(remote, "viewer"), "delete", "joy"]) == 64 + 7
    assert "hint: docs/security.md says what each role may do" in capsys.readouterr().err
    assert run([*flags(remote, "stranger"), "-o", "json", "list"]) == 64 + 16
    assert json.loads(capsys.readouterr().err)["reason"] == "CALLER_UNKNOWN"
    assert run([*flags(remote, "admin"), "--ca", str(tmp_path / "none"), "list"]) == 2
    assert "none" in capsys.readouterr().err
    token = tmp_path / "token"
    token.write_text(token_of("admin"))
    with_token = [*flags(remote, "viewer"), "--token-file", str(token)]
    assert run([*with_token, "delete", "joy"]) == 0
