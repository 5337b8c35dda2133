"""Roles, callers and their limits, without a server."""

import hashlib
import math
from typing import Any

import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from hotwired.accounts import Account, Accounts, local
from hotwired.bucket import Bucket
from hotwired.config import ROLES, Caller, Config, Quotas, Rates
from hotwired.errors import (
    CallerUnknown,
    QuotaExceeded,
    RateLimited,
    RoleTooLow,
    TokenInvalid,
    to_status,
)
from hotwired.roles import LEAST, Role, asked, is_emergency, is_write
from hotwired.v1 import steering_service_pb2 as pb


def test_the_table_has_every_method_there_is() -> None:
    """And none that there isn't: a new RPC has no role until somebody says which."""

    def methods(module: Any) -> set[str]:
        services = module.DESCRIPTOR.services_by_name.values()
        return {f"/{service.full_name}/{m.name}" for service in services for m in service.methods}

    ours = methods(pb)
    library = methods(health_pb2) | methods(reflection_pb2)
    assert ours == {name for name in LEAST if name.startswith("/hotwired.")}
    # Versions of gRPC differ in whether health has List.
    assert set(LEAST) - ours - library <= {"/grpc.health.v1.Health/List"}
    assert library <= set(LEAST)
    assert {role.name.lower() for role in Role} == set(ROLES)


def test_what_is_not_in_the_table_is_an_admins() -> None:
    """A method that is forgotten is refused, not open."""
    assert asked("/x.Y/Z", None) is Role.ADMIN
    assert is_write("/x.Y/Z")


def a_policy(*paths: str, engaged: bool = True) -> pb.SetPolicyRequest:
    """Returns a request with a mask."""
    request = pb.SetPolicyRequest(policy={"kill_switch": engaged})
    request.update_mask.paths.extend(paths)
    return request


def test_only_the_kill_switch_of_the_policy_is_an_operators() -> None:
    """And only throwing it is exempt from rates."""
    method = "/hotwired.v1.SteeringService/SetPolicy"
    assert asked(method, a_policy("kill_switch")) is Role.OPERATOR
    for wider in (a_policy(), a_policy("kill_switch", "strict"), a_policy("strict")):
        assert asked(method, wider) is Role.ADMIN
        assert not is_emergency(wider)
    assert is_emergency(a_policy("kill_switch"))
    assert not is_emergency(a_policy("kill_switch", engaged=False))


def test_a_bucket_fills_with_time() -> None:
    """So much at once; then as fast as it fills; more than it holds, never."""
    bucket = Bucket(rate=2.0, size=3)
    assert [bucket.take(1, 100.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert bucket.take(1, 100.25) == 0.25
    assert bucket.take(1, 100.5) == 0
    assert bucket.take(3, 103.0) == 0
    assert bucket.take(4, 200.0) == math.inf
    assert bucket.take(1, 50.0) == 0, "a clock that goes back takes nothing away"
    unlimited = Bucket(rate=0.0, size=1)
    assert [unlimited.take(1e9, 0.0) for _ in range(9)] == [0] * 9


def an_account(role: str = "operator", now: float = 0.0) -> Account:
    """Returns an account with small limits, whose clock stands."""
    rates = Rates(reads_per_second=1.0, read_burst=2, writes_per_second=1.0, write_burst=1)
    return Account("ci", Role.named(role), rates, Quotas(upload_bytes_per_hour=3600), lambda: now)


def test_reads_and_writes_are_counted_apart() -> None:
    """The refusal says which, and when to come back, as RetryInfo too."""
    account = an_account()
    account.take_call(write=True)
    account.take_call(write=False)
    account.take_call(write=False)
    with pytest.raises(RateLimited) as caught:
        account.take_call(write=True)
    assert caught.value.metadata["kind"] == "write"
    details = [detail.TypeName() for detail in to_status(caught.value).details]
    assert details == ["google.rpc.ErrorInfo", "google.rpc.RetryInfo"]


def test_uploads_are_counted_by_the_hour() -> None:
    """What an hour can't hold is refused without a time to come back at."""
    account = an_account()
    account.take_upload(3000)
    with pytest.raises(QuotaExceeded) as caught:
        account.take_upload(1000)
    assert caught.value.retry_seconds == pytest.approx(400)
    with pytest.raises(QuotaExceeded) as caught:
        account.take_upload(3601)
    assert caught.value.retry_seconds is None


def test_the_local_account_is_an_admin_without_limits() -> None:
    """The socket's mode has decided already."""
    account = local()
    account.check_role(Role.ADMIN, "m")
    for _ in range(10_000):
        account.take_call(write=True)
        account.take_upload(1 << 40)
    assert account.max_vectors == 0
    with pytest.raises(RoleTooLow):
        an_account("operator").check_role(Role.ADMIN, "m")


def digest(token: str) -> str:
    """Returns what the configuration holds of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def the_accounts() -> Accounts:
    """Returns two callers."""
    callers = {
        "ci": Caller("operator", ("spiffe://a/ci", "ci.example.org"), (digest("t1"), digest("t2"))),
        "ops": Caller("admin", ("ops.example.org",), ()),
    }
    return Accounts(Config(callers=callers))


@pytest.mark.parametrize(
    "auth", [{"peer_uri": [b"ops.example.org"]}, {"peer_dns": [b"spiffe://a/ci"]}]
)
def test_neither_kind_of_name_passes_for_the_other(auth: dict[str, list[bytes]]) -> None:
    """An authority may check one of them only."""
    with pytest.raises(CallerUnknown):
        the_accounts().find(auth, ())


@pytest.mark.parametrize(
    ("auth", "name"),
    [
        ({"peer_uri": [b"spiffe://a/ci"]}, "ci"),
        ({"peer_dns": [b"other", b"CI.Example.org"]}, "ci"),
        ({"peer_dns": [b"ops.example.org"]}, "ops"),
    ],
)
def test_a_certificate_is_known_by_a_uri_or_a_dns_name(
    auth: dict[str, list[bytes]], name: str
) -> None:
    """DNS names in any case."""
    assert the_accounts().find(auth, ()).name == name


@pytest.mark.parametrize(
    "auth",
    [
        {},
        {"peer_uri": [b"spiffe://a/CI"]},
        {"peer_email": [b"ci.example.org"], "x509_common_name": [b"ci.example.org"]},
        {"peer_dns": [b"ci.example.org", b"ops.example.org"]},
        {"peer_dns": [b"\xff"]},
    ],
)
def test_any_other_certificate_is_nobodys(auth: dict[str, list[bytes]]) -> None:
    """Also one with the names of two callers, and one whose subject alone has the name."""
    with pytest.raises(CallerUnknown):
        the_accounts().find(auth, ())


def test_a_caller_may_have_several_tokens() -> None:
    """So that one can be replaced while the other is in use."""
    for token in ("t1", "t2"):
        metadata = (("authorization", f"bearer {token}"),)
        assert the_accounts().find({"peer_dns": [b"ops.example.org"]}, metadata).name == "ci"
    for metadata in (
        (("authorization", "Bearer t3"),),
        (("authorization", b"Bearer t1"),),
        (("authorization", f"Bearer {digest('t1')}"),),
    ):
        with pytest.raises(TokenInvalid):
            the_accounts().find({"peer_dns": [b"ops.example.org"]}, metadata)
