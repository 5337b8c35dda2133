"""The metrics endpoint and its parts: what is served, to whom, and what nobody can do to it."""

import asyncio
import contextlib
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hotwired.errors import Internal, NodeRejected, RemoteError, SocketInUse, VectorTooLarge
from hotwired.metrics import counted, endpoint
from hotwired.metrics.endpoint import Endpoint
from hotwired.metrics.families import FAMILIES
from hotwired.metrics.listen import Address, parsed
from hotwired.metrics.state import MAX_REASONS, State, bounded
from hotwired.plan import Outcome
from hotwired.v1 import node_pb2 as public_pb2
from hotwired.v1.stats_pb2 import EngineStats, Stats

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n"


@contextlib.asynccontextmanager
async def serving(body: bytes = b"x 1\n", **seconds: float) -> AsyncIterator[tuple[Endpoint, int]]:
    """Serves a body on a free port."""

    async def render(accept: str) -> tuple[bytes, str]:
        return body + accept.encode(), "text/plain"

    subject = Endpoint(render, **seconds)
    address = await subject.start(Address(host="127.0.0.1", port=0))
    try:
        yield subject, address.port
    finally:
        await subject.close()


async def asked(port: int, request: bytes) -> bytes:
    """Returns all that is answered to some bytes, until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", Address(host="127.0.0.1", port=9464)),
        ("localhost:0", Address(host="localhost", port=0)),
        ("[::1]:9464", Address(host="::1", port=9464)),
        ("unix:/run/m.sock", Address(path=Path("/run/m.sock"))),
        ("unix:///run/m.sock", Address(path=Path("/run/m.sock"))),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    """A loopback address or a socket, and written as read."""
    assert parsed(text) == address
    assert parsed(str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "9464", ":9464", "0.0.0.0:9464", "10.0.0.1:1", "127.0.0.1:", "127.0.0.1:65536", "unix:",
     "127.0.0.1:-1", "[::]:1", "example.com:1", "127.0.0.1:٣"],
)  # fmt: skip
def test_what_others_could_reach_is_no_address(text: str) -> None:
    """Nor is what is none."""
    with pytest.raises(ValueError, match=r"is n|has no"):
        parsed(text)


async def test_a_scrape() -> None:
    """A whole HTTP answer, with the Accept header handed on; HEAD gets the same without a body."""
    async with serving() as (_, port):
        head, _, body = (await asked(port, GET)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert body == b"x 1\ntext/plain"
        assert f"Content-Length: {len(body)}".encode() in head
        alone = await asked(port, GET.replace(b"GET", b"HEAD"))
        assert alone == head + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (GET.replace(b"/metrics", b"/"), b"404"),
        (GET.replace(b"/metrics", b"/metrics?x=1"), b"200"),
        (GET.replace(b"GET", b"POST"), b"405"),
        (b"\x16\x03\x01\x00 hello\r\n\r\n", b"400"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", b"431"),
    ],
)
async def test_other_requests(request_bytes: bytes, status: bytes) -> None:
    """Each has its status, or a closed connection if it was too long to be read to its end."""
    async with serving() as (_, port):
        answer = await asked(port, request_bytes)
        assert answer.startswith(b"HTTP/1.1 " + status) or (status == b"431" and not answer)
        assert (await asked(port, GET)).startswith(b"HTTP/1.1 200")


async def test_who_says_nothing_is_cut_off() -> None:
    """And so is who does not read, however much there is to send."""
    async with serving(b"x" * (32 << 20), read_seconds=0.1, write_seconds=0.2) as (subject, port):
        silent, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(silent.read(), 2) == b""
        _, deaf = await asyncio.open_connection("127.0.0.1", port, limit=1)
        deaf.write(GET)
        async with asyncio.timeout(2):
            while not subject._busy:  # noqa: ASYNC110 -- there is nothing to wait for but it
                await asyncio.sleep(0)
            await asyncio.gather(*subject._busy)
        deaf.transport.abort()


async def test_crowds_are_turned_away() -> None:
    """Beyond so many connections none is held; when they are gone, all is as before."""
    async with serving(read_seconds=0.5) as (_, port):
        idle = [
            await asyncio.open_connection("127.0.0.1", port)
            for _ in range(endpoint.MAX_CONNECTIONS)
        ]
        await asyncio.sleep(0)
        assert await asked(port, GET) == b""
        for reader, _ in idle:
            assert await asyncio.wait_for(reader.read(), 2) == b""
        assert (await asked(port, GET)).startswith(b"HTTP/1.1 200")


async def test_a_socket_of_ones_own(short_dir: Path) -> None:
    """Mode 0660, as all of ours; a live one is not replaced."""

    async def render(_accept: str) -> tuple[bytes, str]:
        return b"", "text/plain"

    subject, path = Endpoint(render), short_dir / "m.sock"
    await subject.start(Address(path=path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with pytest.raises(SocketInUse):
        await Endpoint(render).start(Address(path=path))
    await subject.close()


def link(name: str, **fields: Any) -> Any:
    """A node's link, as far as metrics look at it."""
    described = SimpleNamespace(generation=7)
    report = SimpleNamespace(worker=SimpleNamespace(blob_bytes=512))
    given = {"is_admitting": False, "is_worker": False, "described": described, **fields}
    return SimpleNamespace(name=name, held={"a"}, last_seen=12.5, report=report, **given)


def exposed(state: State) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Returns the samples of a scrape, by series and labels, as a parser of its text has them."""
    registry = CollectorRegistry()
    registry.register(state)
    text = generate_latest(registry).decode()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def test_nodes_are_shown_as_long_as_they_are_there() -> None:
    """Each with one state of 1; an engine has a generation, a worker what it holds."""
    outcomes = [
        (link("i1/engine-0-0-0", is_admitting=True), Outcome(public_pb2.NODE_STATE_CONVERGED)),
        (link("i1/worker-0-0-0", is_worker=True), Outcome(public_pb2.NODE_STATE_DISARMED)),
        (link("i1/new-0-0-0", described=None), Outcome(public_pb2.NODE_STATE_RECONCILING)),
    ]
    state = State(lambda: outcomes, lambda: 0)
    found = exposed(state)
    on = {dict(key)["node"]: dict(key)["state"] for key, v in found["hotwired_node_state"].items()
          if v}  # fmt: skip
    assert on == {
        "i1/engine-0-0-0": "converged",
        "i1/worker-0-0-0": "disarmed",
        "i1/new-0-0-0": "reconciling",
    }
    assert list(found["hotwired_node_generation"].values()) == [7]
    assert list(found["hotwired_node_vector_bytes"].values()) == [512]
    assert len(found["hotwired_node_last_report_timestamp_seconds"]) == 2
    outcomes.clear()
    assert "hotwired_node_state" not in exposed(state)


def test_an_engines_counters_are_as_it_says() -> None:
    """Also when it has started again, from 0."""
    state = State(list, lambda: 2)
    engine = EngineStats(engine="i1/0", requests_total=9, fill_seconds_total=0.25)
    engine.requests_unsteered_total["VECTOR_NOT_FOUND"] = 3
    key = (("engine", "i1/0"), ("vllm_instance", "i1"))
    for total in (9, 0):
        engine.requests_total = total
        state.stats = Stats(engines=[engine], kill_switch=True)
        found = exposed(state)
        assert found["hotwired_requests_total"] == {key: total}
    assert found["hotwired_fill_seconds_total"] == {key: 0.25}
    by_reason = found["hotwired_requests_unsteered_total"]
    assert by_reason == {(key[0], ("reason", "VECTOR_NOT_FOUND"), key[1]): 3}
    assert found["hotwired_kill_switch"] == {(): 1}
    assert found["hotwired_vectors_unreadable"] == {(): 2}


def test_what_a_strange_node_says_makes_no_series_without_end() -> None:
    """Nothing is lost: it counts as OTHER."""
    words = {f"R{n}": 1 for n in range(500)} | {'bad"\n}': 5, "x" * 64: 7, "": 1}
    found = bounded(words)
    assert len(found) <= MAX_REASONS + 1
    assert sum(found.values()) == 513
    counted.refused("vector", RemoteError("?", Internal.code, "MADE_UP", {}))
    counted.refused("vector", NodeRejected("?"))
    known = [s.labels["reason"] for m in counted.refusals.collect() for s in m.samples]
    assert {"OTHER", "NODE_REJECTED"} <= set(known)
    assert "MADE_UP" not in known


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "converged"),
        (NodeRejected("no"), "refused"),
        (VectorTooLarge("big"), "failed"),
        (RuntimeError("ours"), "failed"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_pushes_by_outcome(error: BaseException | None, outcome: str) -> None:
    """Each counts once; those that converged are timed."""
    before = _value(counted.pushes, outcome), _value(counted.push_duration)
    with contextlib.suppress(BaseException), counted.push() as push:
        time.sleep(0.001)
        if error is not None:
            raise error
        push.outcome = "converged"
    after = _value(counted.pushes, outcome), _value(counted.push_duration)
    assert after[0] == before[0] + 1
    assert (after[1] > before[1]) == (error is None)


def _value(metric: Any, outcome: str = "") -> float:
    """Returns a counter's value for an outcome, or a histogram's sum."""
    samples = [sample for family in metric.collect() for sample in family.samples]
    return sum(
        s.value
        for s in samples
        if (s.labels.get("outcome") == outcome and outcome) or s.name.endswith("_sum")
    )


def test_what_is_declared_is_what_is_described() -> None:
    """By name and by kind."""
    described = [*State(list, lambda: 0).describe(), *(m for c in counted.ALL for m in c.collect())]
    found = {(m.name + ("_total" if m.type == "counter" else ""), m.type) for m in described}
    assert found == {(family.name, family.kind) for family in FAMILIES}
