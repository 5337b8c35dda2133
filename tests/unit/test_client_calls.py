"""Every method of both clients, against the stand-in and against the true daemon."""

import asyncio
import contextlib
import hashlib
import inspect
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from hotwire_client import (
    AbortedError,
    AsyncClient,
    CanaryAction,
    Client,
    DoseMode,
    InvalidArgumentError,
    NotFoundError,
    Policy,
    Stats,
    VectorUpdate,
)
from tests.fakes.fake_daemon import fake_daemon, real_daemon, reset, write_vector


@pytest.fixture(scope="module", params=["stand-in", "daemon"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The address of a daemon, either of the two."""
    directory = tmp_path_factory.mktemp("d")
    if request.param == "stand-in":
        with fake_daemon(directory) as fake:
            yield fake.address
    else:
        with real_daemon(directory) as real:
            yield real.address


class SyncCaller:
    """Calls methods of `Client`."""

    def __init__(self, address: str) -> None:
        self._client = Client(address)

    def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._client, method)(*args, **kwargs)

    def watch(self, interval: float, count: int) -> list[Stats]:
        """Returns so many samples."""
        with contextlib.closing(self._client.watch_stats(interval)) as samples:
            return [next(samples) for _ in range(count)]

    def close(self) -> None:
        """Closes the client."""
        self._client.close()


class AsyncCaller:
    """Calls methods of `AsyncClient` and waits for them, on one loop."""

    def __init__(self, address: str) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._made(address))

    def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._runner.run(getattr(self._client, method)(*args, **kwargs))

    def watch(self, interval: float, count: int) -> list[Stats]:
        """Returns so many samples."""
        return self._runner.run(self._watched(interval, count))

    def close(self) -> None:
        """Closes the client and the loop."""
        self._runner.run(self._client.close())
        self._runner.close()

    async def _made(self, address: str) -> AsyncClient:
        return AsyncClient(address)

    async def _watched(self, interval: float, count: int) -> list[Stats]:
        async with contextlib.aclosing(self._client.watch_stats(interval)) as samples:
            return [await anext(samples) for _ in range(count)]


Caller = SyncCaller | AsyncCaller


@pytest.fixture(params=[SyncCaller, AsyncCaller])
def call(request: pytest.FixtureRequest, daemon: str) -> Iterator[Caller]:
    """Calls a method of either client, on an empty daemon, and returns its result."""
    reset(daemon)
    caller: Caller = request.param(daemon)
    yield caller
    caller.close()


def test_both_clients_have_the_same_methods() -> None:
    """Whoever knows one client knows the other: names, parameters and defaults agree."""
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if name.startswith("_"):
            continue
        other = getattr(AsyncClient, name)
        assert (
            inspect.signature(method).parameters.keys()
            == inspect.signature(other).parameters.keys()
        )
        assert [p.default for p in inspect.signature(method).parameters.values()] == [
            p.default for p in inspect.signature(other).parameters.values()
        ]


def test_register_get_list_delete(call: Caller, tmp_path: Path) -> None:
    """A file becomes a vector under its stem, which is found, listed and deleted."""
    file = write_vector(tmp_path / "joy.safetensors", [[3.0, 4.0], [0.0, 2.0]], mood="glad")
    made = call("register_vector", file, model="some/model")
    assert made.converged
    assert not made.unchanged
    assert (made.vector.name, made.vector.model) == ("joy", "some/model")
    assert (list(made.vector.layers), made.vector.hidden_size) == ([0, 1], 2)
    assert list(made.vector.norms) == [5.0, 2.0]
    assert dict(made.vector.metadata) == {"mood": "glad"}
    got = call("get_vector", "joy")
    assert (got.revision, got.generation) == (made.vector.revision, made.generation)
    assert [v.name for v in call("list_vectors")] == ["joy"]
    gone = call("delete_vector", "joy", revision=got.revision)
    assert gone.vector.revision == got.revision
    assert gone.generation > made.generation
    assert call("list_vectors") == []


def test_a_vectors_bytes_are_downloaded(call: Caller, tmp_path: Path) -> None:
    """Whole, with what the daemon knows of it; other revisions and names are refused."""
    file = write_vector(tmp_path / "joy.safetensors", np.arange(3000.0).reshape(3, 1000))
    made = call("register_vector", file).vector
    found = call("download_vector", "joy")
    assert (found.revision, found.vector) == (made.revision, made)
    assert hashlib.sha256(found.data).hexdigest() == made.revision
    assert np.array_equal(load(found.data)["vector"], np.arange(3000.0).reshape(3, 1000))
    assert call("download_vector", "joy", revision=made.revision) == found
    with pytest.raises(AbortedError, match="REVISION_MISMATCH"):
        call("download_vector", "joy", revision="0" * 64)
    with pytest.raises(NotFoundError, match="VECTOR_NOT_FOUND"):
        call("download_vector", "nobody")


def test_bytes_need_a_name_and_paths_may_have_another(call: Caller, tmp_path: Path) -> None:
    """A name that is given goes before the file's; bytes without one are refused before a call."""
    data = write_vector(tmp_path / "a.safetensors").read_bytes()
    assert call("register_vector", data, name="b").vector.name == "b"
    assert call("register_vector", str(tmp_path / "a.safetensors"), name="c").vector.name == "c"
    with pytest.raises(ValueError, match="no name of their own"):
        call("register_vector", data)


def test_registering_the_same_again_changes_nothing(call: Caller, tmp_path: Path) -> None:
    """The same content under the same name is `unchanged`, whatever the file is called."""
    first = call("register_vector", write_vector(tmp_path / "a.safetensors"), name="joy")
    again = call("register_vector", write_vector(tmp_path / "b.safetensors"), name="joy")
    assert again.unchanged
    assert again.vector.revision == first.vector.revision
    other = write_vector(tmp_path / "c.safetensors", [[9.0, 9.0]])
    moved = call("register_vector", other, name="joy")
    assert not moved.unchanged
    assert moved.vector.revision != first.vector.revision
    assert moved.vector.create_time == first.vector.create_time


def test_a_dry_run_registers_nothing(call: Caller, tmp_path: Path) -> None:
    """validate_only gives the revision, and the name is not there afterwards."""
    file = write_vector(tmp_path / "joy.safetensors")
    checked = call("register_vector", file, validate_only=True)
    assert len(checked.vector.revision) == 64
    assert call("list_vectors") == []


def test_a_file_of_many_chunks_arrives_whole(call: Caller, tmp_path: Path) -> None:
    """2 MB, eight chunks, come to the right size and norms."""
    file = write_vector(tmp_path / "big.safetensors", np.ones((32, 16384)))
    vector = call("register_vector", file).vector
    assert (vector.hidden_size, list(vector.layers)) == (16384, list(range(32)))
    assert list(vector.norms) == [128.0] * 32


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("Joy", None, "NAME_INVALID"),
        ("../x", None, "NAME_INVALID"),
        ("", None, "NAME_INVALID"),
        ("x" * 64, None, "NAME_INVALID"),
        ("joy", b"not safetensors", "VECTOR_FORMAT_INVALID"),
    ],
)
def test_refusals_name_the_field(
    call: Caller, tmp_path: Path, name: str, data: bytes | None, reason: str
) -> None:
    """Bad input is an InvalidArgumentError with a reason and a violation."""
    data = data or write_vector(tmp_path / "a.safetensors").read_bytes()
    with pytest.raises(InvalidArgumentError) as caught:
        call("register_vector", data, name=name)
    assert caught.value.reason == reason
    assert caught.value.violations
    assert call("list_vectors") == []


def test_what_is_not_there_is_not_found(call: Caller) -> None:
    """Reading and deleting an unknown name say which it was."""
    for method in ("get_vector", "delete_vector"):
        with pytest.raises(NotFoundError) as caught:
            call(method, "nobody")
        assert caught.value.reason == "VECTOR_NOT_FOUND"
        assert "nobody" in caught.value.metadata["name"]


def test_delete_heeds_the_revision(call: Caller, tmp_path: Path) -> None:
    """A name that points elsewhere by now stays."""
    call("register_vector", write_vector(tmp_path / "joy.safetensors"))
    with pytest.raises(AbortedError) as caught:
        call("delete_vector", "joy", revision="0" * 64)
    assert caught.value.reason == "REVISION_MISMATCH"
    assert [v.name for v in call("list_vectors")] == ["joy"]


def test_lists_of_many_pages_are_whole_and_ordered(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of two come to one list in the order of the names."""
    monkeypatch.setattr("hotwire_client.requests.LIST_PAGE_SIZE", 2)
    data = write_vector(tmp_path / "a.safetensors").read_bytes()
    for name in ("c", "a", "e", "b", "d"):
        call("register_vector", data, name=name)
    assert [v.name for v in call("list_vectors")] == ["a", "b", "c", "d", "e"]


def test_policy_fields_are_set_and_cleared_by_name(call: Caller) -> None:
    """Only the named fields change; a named field without a value is cleared."""
    call(
        "set_policy",
        Policy(max_relative_dose=0.5, dose_mode=DoseMode.DOSE_MODE_CLAMP, strict=True),
        fields=["max_relative_dose", "dose_mode"],
    )
    policy = call("get_policy").policy
    assert (policy.max_relative_dose, policy.strict) == (0.5, False)
    assert policy.dose_mode == DoseMode.DOSE_MODE_CLAMP
    call("set_policy", Policy(), fields=["max_relative_dose"])
    policy = call("get_policy").policy
    assert not policy.HasField("max_relative_dose")
    assert policy.dose_mode == DoseMode.DOSE_MODE_CLAMP
    call("set_policy", Policy(reference_norms={3: 2.5}))
    policy = call("get_policy").policy
    assert policy.dose_mode != DoseMode.DOSE_MODE_CLAMP
    assert dict(policy.reference_norms) == {3: 2.5}


def test_an_empty_list_of_fields_is_not_all_fields(call: Caller) -> None:
    """The proto takes an empty mask as "all"; the clients do not send one by accident."""
    with pytest.raises(ValueError, match="no field is named"):
        call("set_policy", Policy(), fields=[])


def test_a_stale_etag_loses(call: Caller) -> None:
    """The second of two who read the same policy is told so."""
    read = call("get_policy").policy
    call("set_kill_switch", engaged=True)
    read.strict = True
    with pytest.raises(AbortedError) as caught:
        call("set_policy", read)
    assert caught.value.reason == "ETAG_MISMATCH"
    assert call("get_policy").policy.kill_switch


def test_a_bad_policy_and_a_bad_mask_are_refused(call: Caller) -> None:
    """A limit below 0 and an unknown field are InvalidArgumentErrors of their own reasons."""
    for policy, fields, reason in (
        (Policy(max_relative_dose=-1.0), ["max_relative_dose"], "POLICY_INVALID"),
        (Policy(), ["no_such_field"], "FIELD_MASK_INVALID"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            call("set_policy", policy, fields=fields)
        assert caught.value.reason == reason


def test_the_kill_switch_leaves_the_rest_of_the_policy(call: Caller) -> None:
    """Off and on change one field, and each is a new generation at most."""
    call("set_policy", Policy(strict=True))
    assert call("set_kill_switch", engaged=True).policy.kill_switch
    assert call("stats").kill_switch
    policy = call("set_kill_switch", engaged=False).policy
    assert (policy.kill_switch, policy.strict) == (False, True)


def test_stats_nodes_and_health(call: Caller) -> None:
    """A daemon without nodes has counters, no nodes, and is well."""
    stats = call("stats")
    assert stats.generation >= 1
    assert stats.daemon_rss_bytes > 1_000_000
    assert list(call("list_nodes").nodes) == []
    assert call("health").status == 1
    with pytest.raises(NotFoundError):
        call("health", "no.such.service")


def test_a_request_without_a_receipt(call: Caller) -> None:
    """It is not found, with a reason of its own."""
    with pytest.raises(NotFoundError) as caught:
        call("get_receipts", "cmpl-nobody")
    assert caught.value.reason == "RECEIPT_NOT_FOUND"


def test_watch_stats_yields_until_it_is_closed(call: Caller) -> None:
    """Three samples come at the interval, and leaving the loop ends the call."""
    times = [s.sample_time.ToNanoseconds() for s in call.watch(0.1, 3)]
    assert times == sorted(times)
    assert times[2] - times[0] >= 0.15e9
    assert call("stats").generation


def test_an_interval_out_of_range_is_refused(call: Caller) -> None:
    """The daemon, not the client, says what interval it takes."""
    with pytest.raises(InvalidArgumentError) as caught:
        call.watch(0.01, 1)
    assert caught.value.reason == "INTERVAL_INVALID"


def test_a_canary_and_updates(call: Caller, tmp_path: Path) -> None:
    """register_vector takes a ttl and a share; update_vector changes what is given."""
    joy, new = (
        write_vector(tmp_path / "joy.safetensors"),
        write_vector(tmp_path / "n", [[9.0, 9.0]] * 2),
    )
    call("register_vector", joy, ttl=60.0)
    made = call("register_vector", new, name="joy", canary_percent=5.0).vector
    assert made.HasField("expire_time")
    assert made.canary.percent == 5.0
    done = call("update_vector", "joy", VectorUpdate(disabled=True, ttl=math.inf))
    assert (done.vector.disabled, done.vector.HasField("expire_time")) == (True, False)
    assert call("update_vector", "joy", VectorUpdate(canary_percent=9.0)).vector.canary.percent == 9
    drop = VectorUpdate(canary=CanaryAction.CANARY_ACTION_DROP, canary_revision=made.revision)
    with pytest.raises(AbortedError):
        call("update_vector", "joy", drop)
    promote = VectorUpdate(canary=CanaryAction.CANARY_ACTION_PROMOTE)
    assert call("update_vector", "joy", promote).vector.revision == made.canary.revision
    with pytest.raises(NotFoundError):
        call("update_vector", "joy", promote)
    with pytest.raises(InvalidArgumentError):
        call("update_vector", "joy", VectorUpdate())
    for ttl in (math.nan, math.inf):
        with pytest.raises(ValueError, match="ttl"):
            call("register_vector", joy, ttl=ttl)
