"""vLLM's OpenAI API, as a user of it would call it."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.demo.settings import COMPARED_TOKENS, LAYER, MODEL_NAME, REPETITION_PENALTY, VECTOR

TIMEOUT_SECONDS = 120.0


class RefusedError(Exception):
    """The server answered 400; the message is its own."""


@dataclass(frozen=True, slots=True)
class Steering:
    """What the request key `hotwire` asks for. A scale of None asks for nothing."""

    scale: float | None = None
    layer: int = LAYER
    name: str = VECTOR
    strict: bool = False

    def xargs(self) -> dict[str, Any]:
        """The part of the request's body that asks for it."""
        if self.scale is None:
            return {}
        wanted: dict[str, Any] = {"id": self.name, "layer": self.layer, "scale": self.scale}
        if self.strict:
            wanted["strict"] = True
        return {"vllm_xargs": {"hotwire": json.dumps(wanted)}}


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion: its text, and how many of its prompt's tokens came from the prefix cache."""

    text: str
    cached_tokens: int


@dataclass(slots=True)
class Api:
    """A client of the server at `url`. Every method may raise RefusedError or httpx.HTTPError."""

    url: str
    _client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self._client = httpx.Client(base_url=self.url, timeout=TIMEOUT_SECONDS, trust_env=False)

    def healthy(self) -> bool:
        """Whether the server serves."""
        try:
            return self._client.get("/health").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def complete(
        self, prompt: str, steering: Steering = Steering(), tokens: int = COMPARED_TOKENS
    ) -> Answer:
        """The greedy completion of a prompt."""
        body = {
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "repetition_penalty": REPETITION_PENALTY,
        }
        answer = self._post(body | steering.xargs())
        details = answer["usage"].get("prompt_tokens_details") or {}
        return Answer(answer["choices"][0]["text"], details.get("cached_tokens") or 0)

    def complete_together(
        self, requests: Sequence[tuple[str, Steering]], tokens: int = COMPARED_TOKENS
    ) -> list[Answer]:
        """The completions of several requests sent at once, in their order."""
        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(lambda each: self.complete(each[0], each[1], tokens), requests))

    def tokens(self, text: str) -> list[int]:
        """The ids of a text's tokens."""
        body = {"model": MODEL_NAME, "prompt": text, "add_special_tokens": False}
        response = self._client.post("/tokenize", json=body)
        response.raise_for_status()
        return list(response.json()["tokens"])

    def next_logprobs(
        self, prompts: Sequence[str], ids: Sequence[int], steering: Steering
    ) -> list[dict[int, float]]:
        """For each prompt, the log-probability of each of the tokens `ids` as the next one."""
        body = {
            "prompt": list(prompts),
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": 1,
            "logprob_token_ids": list(ids),
            "return_tokens_as_token_ids": True,
        }
        choices = self._post(body | steering.xargs())["choices"]
        tops = [c["logprobs"]["top_logprobs"][0] for c in sorted(choices, key=_index)]
        return [{i: top[f"token_id:{i}"] for i in ids} for top in tops]

    def surprise(self, prompts: Sequence[str], texts: Sequence[str]) -> float:
        """How unlikely the unsteered model finds each text after its prompt: nats a token, mean."""
        befores, afters = [self.tokens(p) for p in prompts], [self.tokens(t) for t in texts]
        both = [before + after for before, after in zip(befores, afters, strict=True)]
        body = {"prompt": both, "max_tokens": 1, "prompt_logprobs": 0}
        choices = sorted(self._post(body)["choices"], key=_index)
        each = [
            _surprise(choice["prompt_logprobs"][-len(after) :], after)
            for choice, after in zip(choices, afters, strict=True)
        ]
        return round(sum(each) / len(each), 3)

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        response = self._client.post("/v1/completions", json={"model": MODEL_NAME, **body})
        if response.status_code == httpx.codes.BAD_REQUEST:
            raise RefusedError(response.json()["error"]["message"])
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer


def _surprise(found: list[dict[str, Any]], ids: list[int]) -> float:
    logprobs = [entry[str(i)]["logprob"] for entry, i in zip(found, ids, strict=True)]
    return -float(sum(logprobs)) / len(ids)


def _index(choice: dict[str, Any]) -> int:
    return int(choice["index"])
