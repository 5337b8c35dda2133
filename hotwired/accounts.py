"""Who calls: found by certificate or token, with a role, and with what is left of its limits."""

import hashlib
import hmac
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from typing import Any

from hotwired.bucket import Bucket
from hotwired.config import LOCAL_NAME, Caller, Config, Quotas, Rates
from hotwired.errors import (
    CallerUnknown,
    QuotaExceeded,
    RateLimited,
    RoleTooLow,
    TokenInvalid,
    shown,
)
from hotwired.roles import Role

_HOUR = 3600.0
_BEARER = "bearer "
_CURRENT: ContextVar["Account"] = ContextVar("account")

Clock = Callable[[], float]

MAX_STREAMS = 16
"""The answers of many messages that a caller over TCP may have under way."""


class Account:
    """A caller: its name, its role, how many vectors it may own and streams it may read at once.

    Of both, 0 is any number.
    """

    def __init__(  # noqa: PLR0917 -- what it is, then what it may
        self,
        name: str,
        role: Role,
        rates: Rates,
        quotas: Quotas,
        clock: Clock = time.monotonic,
        max_streams: int = MAX_STREAMS,
    ) -> None:
        self.name = name
        self.role = role
        self.max_vectors = quotas.vectors
        self._clock = clock
        self._max_streams, self._streams = max_streams, 0
        self._reads = Bucket(rates.reads_per_second, rates.read_burst)
        self._writes = Bucket(rates.writes_per_second, rates.write_burst)
        self._hourly = quotas.upload_bytes_per_hour
        self._uploads = Bucket(self._hourly / _HOUR, self._hourly)

    def check_role(self, asked: Role, method: str) -> None:
        """Raises RoleTooLow unless the role is enough."""
        if self.role < asked:
            mine, wanted = self.role.name.lower(), asked.name.lower()
            raise RoleTooLow(
                f"{self.name} is {mine}; this call is for {wanted}",
                metadata={"caller": self.name, "role": mine, "asked": wanted, "method": method},
            )

    def take_call(self, *, write: bool) -> None:
        """Counts a call. Raises RateLimited."""
        bucket, kind = (self._writes, "write") if write else (self._reads, "read")
        if seconds := bucket.take(1, self._clock()):
            raise RateLimited(
                f"{self.name} makes too many {kind} calls: try again in {seconds:.3g} s",
                metadata={"caller": self.name, "kind": kind, "seconds": f"{seconds:.3f}"},
                retry_seconds=seconds,
            )

    def stream(self) -> AbstractContextManager[object]:
        """Counts a stream from now until what is returned is left. Raises RateLimited."""
        if self._max_streams and self._streams >= self._max_streams:
            raise RateLimited(
                f"{self.name} reads {self._streams} streams at once, the most there may be",
                metadata={"caller": self.name, "kind": "stream", "limit": str(self._max_streams)},
            )
        self._streams += 1
        counted = ExitStack()
        counted.callback(self._end_stream)
        return counted

    def _end_stream(self) -> None:
        self._streams -= 1

    def take_upload(self, size: int) -> None:
        """Counts the bytes of an upload. Raises QuotaExceeded."""
        if seconds := self._uploads.take(size, self._clock()):
            never = math.isinf(seconds)
            when = "it is more than an hour's" if never else f"try again in {seconds:.0f} s"
            raise QuotaExceeded(
                f"{self.name} may upload {self._hourly} bytes an hour: {when}",
                metadata={
                    "caller": self.name,
                    "quota": "upload_bytes_per_hour",
                    "limit": str(self._hourly),
                    "bytes": str(size),
                },
                violations=(("header.size_bytes", "The caller's bytes an hour are used up."),),
                retry_seconds=None if never else seconds,
            )


def local() -> Account:
    """Returns the account of whoever can open the Unix socket: an admin without limits."""
    free = Rates(0.0, 1, 0.0, 1)
    return Account(LOCAL_NAME, Role.ADMIN, free, Quotas(0, 0), max_streams=0)


def enter(account: Account) -> None:
    """Makes an account the one of the call that runs in this task."""
    _CURRENT.set(account)


def current() -> Account:
    """Returns the account of the call that runs in this task; LookupError if nobody let it in."""
    return _CURRENT.get()


class Accounts:
    """The callers that the configuration knows."""

    def __init__(self, config: Config) -> None:
        made = {name: _account(name, who, config) for name, who in config.callers.items()}
        self._by_san = {s: made[n] for n, who in config.callers.items() for s in who.sans}
        self._by_token = {
            bytes.fromhex(t): made[n] for n, who in config.callers.items() for t in who.token_sha256
        }

    def find(
        self, auth: Mapping[str, Iterable[bytes]], metadata: Iterable[tuple[str, Any]]
    ) -> Account:
        """Returns who calls: by the token if one came, else by the certificate's names.

        auth: the connection's properties, as gRPC has them. Raises TokenInvalid or CallerUnknown.
        """
        sent = [value for key, value in metadata if key == "authorization"]
        if sent:
            return self._of_token(sent)
        uris = [uri.decode(errors="replace") for uri in auth.get("peer_uri", ())]
        names = [dns.decode(errors="replace").lower() for dns in auth.get("peer_dns", ())]
        # A URI has a colon and a DNS name has none: neither passes for the other.
        sans = [u for u in uris if ":" in u] + [n for n in names if ":" not in n]
        found = {account.name: account for san in sans if (account := self._by_san.get(san))}
        if len(found) == 1:
            return found.popitem()[1]
        problem = "no caller has" if not found else "more than one caller has"
        listed = ", ".join(map(shown, sans[:4])) or "none"
        raise CallerUnknown(
            f"{problem} a name of this certificate: {listed}", metadata={"sans": listed}
        )

    def _of_token(self, sent: list[Any]) -> Account:
        value = sent[0] if len(sent) == 1 and isinstance(sent[0], str) else ""
        if not value.lower().startswith(_BEARER):
            raise TokenInvalid("the authorization is not one 'Bearer TOKEN'")
        digest = hashlib.sha256(value[len(_BEARER) :].encode()).digest()
        # All are compared, and each in the same time, so that the time taken tells nothing.
        matches = [a for known, a in self._by_token.items() if hmac.compare_digest(known, digest)]
        if not matches:
            raise TokenInvalid("no caller has this token")
        return matches[0]


def _account(name: str, caller: Caller, config: Config) -> Account:
    return Account(name, Role.named(caller.role), config.rates, config.quotas)
