"""What both clients do when the daemon is away, late, starting, or stops."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from hotwire_client import (
    AsyncClient,
    Client,
    DeadlineExceededError,
    HotwireError,
    ResourceExhaustedError,
    UnavailableError,
)
from hotwire_client import requests as sent
from tests.fakes.fake_daemon import FakeDaemon, Fault, fake_daemon, write_vector


@pytest.fixture
def fake(short_dir: Path) -> Iterator[FakeDaemon]:
    """A running stand-in."""
    with fake_daemon(short_dir) as daemon:
        yield daemon


def sync_stats(address: str, **options: float) -> Any:
    """Asks for stats with the synchronous client."""
    with Client(address, **options) as client:
        return client.stats()


def aio_stats(address: str, **options: float) -> Any:
    """Asks for stats with the asyncio client."""

    async def ask() -> Any:
        async with AsyncClient(address, **options) as client:
            return await client.stats()

    return asyncio.run(ask())


both = pytest.mark.parametrize("stats", [sync_stats, aio_stats])


@both
def test_a_daemon_that_is_away_is_unavailable_soon(stats: Any, short_dir: Path) -> None:
    """Without a socket the call ends after the connect timeout, with the path in the sentence."""
    started = time.monotonic()
    with pytest.raises(UnavailableError) as caught:
        stats(f"unix:{short_dir}/none.sock", connect_timeout=0.3)
    assert 0.2 < time.monotonic() - started < 2
    assert caught.value.reason == "DAEMON_UNREACHABLE"
    assert f"there is no socket {short_dir}/none.sock" in caught.value.message


@both
def test_a_port_where_nobody_listens_is_unavailable(stats: Any) -> None:
    """host:port is dialled, and the sentence names it."""
    with pytest.raises(UnavailableError, match="no daemon answers at localhost:1 "):
        stats("localhost:1", connect_timeout=0.3)


@both
def test_the_deadline_counts_the_connecting_too(stats: Any, short_dir: Path) -> None:
    """A short timeout is not made longer by the patience for a starting daemon."""
    started = time.monotonic()
    with pytest.raises(UnavailableError):
        stats(f"unix:{short_dir}/none.sock", timeout=0.2, connect_timeout=5)
    assert time.monotonic() - started < 1.5


@both
def test_a_daemon_that_is_starting_is_waited_for(stats: Any, short_dir: Path) -> None:
    """A daemon whose socket appears within the connect timeout is reached by the first call."""
    daemon = None

    def start() -> None:
        nonlocal daemon
        time.sleep(0.5)
        daemon = FakeDaemon(short_dir / "hotwired.sock").start()

    thread = threading.Thread(target=start)
    thread.start()
    try:
        assert stats(f"unix:{short_dir}/hotwired.sock", connect_timeout=5).generation == 1
    finally:
        thread.join()
        assert daemon is not None
        daemon.stop()


@both
def test_a_late_answer_is_a_deadline_exceeded(stats: Any, fake: FakeDaemon) -> None:
    """A daemon that does not answer in time fails the call in time, in plain words."""
    fake.state.faults["Stats"] = Fault(delay_s=1.0)
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError, match=r"did not answer within 0\.3 s"):
        stats(fake.address, timeout=0.3)
    assert time.monotonic() - started < 0.9


@both
def test_a_deadline_of_the_daemons_own_keeps_its_reason(stats: Any, fake: FakeDaemon) -> None:
    """What the daemon calls DEADLINE_EXCEEDED is not taken for the client's own."""
    fake.state.faults["Stats"] = Fault(
        grpc.StatusCode.DEADLINE_EXCEEDED, "UPLOAD_STALLED", "no bytes came for 5 s"
    )
    with pytest.raises(DeadlineExceededError) as caught:
        stats(fake.address)
    assert (caught.value.reason, caught.value.message) == (
        "UPLOAD_STALLED",
        "no bytes came for 5 s",
    )


def test_every_call_carries_a_deadline(fake: FakeDaemon, tmp_path: Path) -> None:
    """The daemon sees the client's timeout on every unary and upload call."""
    with Client(fake.address, timeout=7) as client:
        client.register_vector(write_vector(tmp_path / "a.safetensors"))
        client.get_vector("a")
        client.list_vectors()
        client.get_policy()
        client.set_kill_switch(engaged=False)
        client.stats()
        client.list_nodes()
        client.delete_vector("a", timeout=3)
    remaining = {method: seconds for method, _, seconds in fake.state.calls}
    assert len(remaining) == 8
    assert remaining.pop("DeleteVector") == pytest.approx(3, abs=1.5)
    assert all(seconds == pytest.approx(7, abs=1.5) for seconds in remaining.values())


def test_reads_are_sent_again_and_changes_are_not(fake: FakeDaemon) -> None:
    """UNAVAILABLE is retried for calls that change nothing, and for those alone."""
    unavailable = Fault(grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN", "stopping")
    fake.state.faults = {"Stats": unavailable, "SetPolicy": unavailable}
    with Client(fake.address) as client:
        assert client.stats().generation == 1
        with pytest.raises(UnavailableError, match="stopping"):
            client.set_kill_switch(engaged=True)
    assert [method for method, *_ in fake.state.calls] == ["Stats", "Stats", "SetPolicy"]


def test_a_client_outlives_its_daemon(short_dir: Path) -> None:
    """After a restart of the daemon the same client reaches the new one."""
    with Client(f"unix:{short_dir}/hotwired.sock", connect_timeout=3) as client:
        with fake_daemon(short_dir):
            client.stats()
        with fake_daemon(short_dir) as second:
            second.state.generation = 9
            assert client.stats().generation == 9


def test_a_change_right_after_a_restart_succeeds(short_dir: Path) -> None:
    """A call that failed leaves nothing behind that makes the next one fail too."""
    with Client(f"unix:{short_dir}/hotwired.sock", connect_timeout=3) as client:
        for _ in range(3):
            with fake_daemon(short_dir):
                assert client.set_kill_switch(engaged=True).generation == 2
            with pytest.raises(UnavailableError):
                client.set_kill_switch(engaged=True)


async def test_the_same_goes_for_asyncio(short_dir: Path) -> None:
    """A call that failed leaves nothing behind that makes the next one fail too."""
    async with AsyncClient(f"unix:{short_dir}/hotwired.sock", connect_timeout=3) as client:
        for _ in range(3):
            with fake_daemon(short_dir):
                assert (await client.set_kill_switch(engaged=True)).generation == 2
            with pytest.raises(UnavailableError):
                await client.set_kill_switch(engaged=True)


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_a_watch_that_falls_silent_is_noticed(fake: FakeDaemon, kind: str) -> None:
    """A sample that is late by more than the timeout ends the watch, though the call is open."""
    fake.state.faults["WatchStats.sample"] = Fault(delay_s=2.0)

    def sync() -> None:
        with Client(fake.address, timeout=0.3) as client:
            for _ in client.watch_stats(0.1):
                pass

    async def aio() -> None:
        async with AsyncClient(fake.address, timeout=0.3) as client:
            async for _ in client.watch_stats(0.1):
                pass

    started = time.monotonic()
    with pytest.raises(DeadlineExceededError):
        sync() if kind == "sync" else asyncio.run(aio())
    assert time.monotonic() - started < 1.5


def test_a_slow_reader_of_a_watch_is_not_cut_off(fake: FakeDaemon) -> None:
    """The clock of a sample runs only while the client waits for it."""
    with (
        Client(fake.address, timeout=0.2) as client,
        contextlib.closing(client.watch_stats(0.1)) as samples,
    ):
        first = next(samples)
        time.sleep(0.6)
        assert next(samples).generation == first.generation


def test_one_client_serves_many_threads(fake: FakeDaemon, tmp_path: Path) -> None:
    """Eight threads register through one client, and all their vectors are there."""
    data = write_vector(tmp_path / "a.safetensors").read_bytes()
    with Client(fake.address) as client:
        threads = [
            threading.Thread(target=client.register_vector, args=(data,), kwargs={"name": f"v{n}"})
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(client.list_vectors()) == 8


def test_files_are_looked_at_before_they_are_read(
    fake: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing file, a directory and a file larger than any vector fail without a call."""
    file = write_vector(tmp_path / "a.safetensors")
    monkeypatch.setattr(sent, "MAX_FILE_BYTES", 10)
    with Client(fake.address) as client:
        with pytest.raises(FileNotFoundError):
            client.register_vector(tmp_path / "none.safetensors")
        with pytest.raises(OSError, match="no regular file"):
            client.register_vector(tmp_path)
        with pytest.raises(ResourceExhaustedError) as caught:
            client.register_vector(file)
    assert caught.value.reason == "VECTOR_TOO_LARGE"
    assert fake.state.calls == []


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf")])
def test_timeouts_are_finite_and_above_zero(bad: float, fake: FakeDaemon) -> None:
    """A timeout that would mean "never" or "already" is a ValueError."""
    with pytest.raises(ValueError, match="finite number of seconds above 0"):
        Client(fake.address, timeout=bad)
    with Client(fake.address) as client, pytest.raises(ValueError, match="finite number"):
        client.stats(timeout=bad)


def test_a_socket_path_with_odd_characters_works(short_dir: Path) -> None:
    """Spaces, percent signs and question marks in the path are no part of a URI."""
    directory = short_dir / "a b%41?c#d"
    directory.mkdir()
    with fake_daemon(directory) as fake, Client(fake.address) as client:
        assert client.stats().generation == 1


def test_a_proxy_of_the_environment_is_not_used(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An http_proxy meant for the web does not come between the client and its daemon."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        with Client(f"localhost:{port}") as client, pytest.raises(HotwireError) as caught:
            client.stats()
        assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED
    finally:
        server.stop(None)
