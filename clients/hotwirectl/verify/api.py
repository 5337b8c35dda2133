"""vLLM's OpenAI API, as verify asks it: a few completions, by the standard library."""

import http.client
import json
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from hotwirectl.verify.answers import Answer, Top

TIMEOUT_SECONDS = 120.0
_UNIX = "unix:"
_REFUSAL = re.compile(r"hotwire: ([A-Z_]+): (.*)", re.DOTALL)


class ApiError(Exception):
    """The server cannot be reached, or its answer is none that a completion can be read from."""


class RefusedError(Exception):
    """The server answered that what the request asks of hotwire can't be done.

    reason: in UPPER_SNAKE_CASE.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Ask:
    """One greedy completion to ask for.

    spec: what goes under "hotwire"; None for nothing. salt: keeps the prefix cache to those that
    have the same one. dp_rank: the data-parallel rank that is to run it.
    """

    prompt: str
    spec: object = None
    tokens: int = 8
    salt: str = ""
    tops: int = 5
    dp_rank: int | None = None

    def body(self, model: str) -> dict[str, Any]:
        """Returns the request's JSON."""
        body: dict[str, Any] = {
            "model": model,
            "prompt": self.prompt,
            "max_tokens": self.tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        if self.salt:
            body["cache_salt"] = self.salt
        if self.tops:
            body |= {"logprobs": self.tops, "return_tokens_as_token_ids": True}
        if self.spec is not None:
            body["vllm_xargs"] = {"hotwire": json.dumps(self.spec)}
        return body

    def headers(self) -> dict[str, str]:
        """Returns the headers that go with it."""
        return {} if self.dp_rank is None else {"X-data-parallel-rank": str(self.dp_rank)}


class Api:
    """A client of one vLLM server.

    Args:
        url: `http://host:port` or `https://...`, or `unix:PATH` for `vllm serve --uds PATH`.
        key: The server's API key, if it wants one.

    Raises:
        ValueError: The url is none of these.
    """

    def __init__(self, url: str, key: str = "") -> None:
        self.url = url
        self._parts = _parts(url)
        self._key = key

    def models(self) -> dict[str, int | None]:
        """Returns the names that the server serves, and the most tokens each takes if it says so.

        Raises:
            ApiError: It does not answer, or not as vLLM does.
        """
        form = self._call("GET", "/v1/models")
        try:
            return {str(card["id"]): card.get("max_model_len") for card in form["data"]}
        except (KeyError, TypeError, AttributeError) as error:
            raise ApiError("the answer to /v1/models is no list of models") from error

    def complete(self, model: str, ask: Ask) -> Answer:
        """Returns the completion.

        Raises:
            RefusedError: What it asks of hotwire is refused.
            ApiError: Anything else than a completion came.
        """
        start = time.perf_counter()
        form = self._call("POST", "/v1/completions", ask.body(model), ask.headers())
        seconds = time.perf_counter() - start
        try:
            return _answer(form, seconds)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ApiError("the answer is no completion") from error

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        sent = {"Content-Type": "application/json", **(headers or {})}
        if self._key:
            sent["Authorization"] = f"Bearer {self._key}"
        connection = _connection(self._parts)
        try:
            text = json.dumps(body) if body is not None else None
            connection.request(method, self._parts.path.rstrip("/") + path, text, sent)
            response = connection.getresponse()
            return _checked(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"the server does not answer: {_why(error)}") from error
        finally:
            connection.close()


def _parts(url: str) -> SplitResult:
    if url.startswith(_UNIX):
        return SplitResult("unix", url.removeprefix(_UNIX), "", "", "")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url} is neither http://HOST:PORT nor unix:PATH")
    _ = parts.port  # raises ValueError for one that is none
    return parts


def _connection(parts: SplitResult) -> http.client.HTTPConnection:
    if parts.scheme == "unix":
        return _UnixConnection(parts.netloc)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)


class _UnixConnection(http.client.HTTPConnection):
    """A connection to the Unix socket at a path."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _checked(status: int, raw: bytes) -> Any:
    try:
        form = json.loads(raw)
    except ValueError as error:
        raise ApiError(f"HTTP {status}, and no JSON") from error
    if status == http.HTTPStatus.OK:
        return form
    message = _message(form)
    if found := _REFUSAL.search(message):
        raise RefusedError(found[1], found[2])
    raise ApiError(f"HTTP {status}: {message}")


def _message(form: Any) -> str:
    error = form.get("error", form) if isinstance(form, dict) else form
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message)[:500]


def _answer(form: Any, seconds: float) -> Answer:
    choice = form["choices"][0]
    details = form["usage"].get("prompt_tokens_details") or {}
    return Answer(
        request_id=str(form["id"]),
        text=str(choice["text"]),
        tops=_tops(choice.get("logprobs")),
        cached_tokens=details.get("cached_tokens"),
        seconds=seconds,
    )


def _tops(logprobs: Any) -> tuple[Top, ...]:
    if not logprobs:
        return ()
    pairs = zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True)
    return tuple(Top(str(token), dict(top or {})) for token, top in pairs)


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or "no reason given"
