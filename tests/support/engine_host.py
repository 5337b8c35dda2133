"""A real vLLM engine that a test drives from another process: this is the engine's side.

    python -m tests.support.engine_host FD

reads pickled (method, args, kwargs) from the socket FD, calls that method of `Host` and answers
(True, result) or (False, (exception's class name, message)). It ends when the socket does.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any


@dataclass(frozen=True)
class Ask:
    """One request.

    prompt: text, or token ids. spec: what goes into extra_args["hotwire"], a string as it is and
    anything else as JSON; None asks for nothing. tokens: how many to generate, whatever they are.
    logprobs: how many of the likeliest to report for each. extra_args: more keys beside it.
    """

    prompt: str | tuple[int, ...]
    spec: object = None
    tokens: int = 16
    logprobs: int | None = 5
    n: int = 1
    temperature: float = 0.0
    seed: int | None = None
    extra_args: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came back of a request (of its first choice, unless it says otherwise).

    logprobs: for each token, those reported, by token id. cached: prompt tokens whose key-values
    came from the prefix cache. choices: the tokens of each of its n choices.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str
    logprobs: tuple[dict[int, float], ...]
    cached: int
    choices: tuple[tuple[int, ...], ...]

    @property
    def bits(self) -> tuple[object, ...]:
        """All that one change of a single bit on the way would change."""
        return self.tokens, self.logprobs

    def same_as(self, other: Answer) -> bool:
        """The same tokens, and figures up to the rounding of another batch geometry."""
        return self.tokens == other.tokens and self.distance(other) < 1e-3

    def differs_from(self, other: Answer) -> bool:
        """Not the same by far more than rounding, so that the one is not taken for the other."""
        return self.tokens != other.tokens or self.distance(other) > 0.05

    def distance(self, other: Answer) -> float:
        """The largest difference of a log-probability that both report of equally many tokens."""
        pairs = zip(self.logprobs, other.logprobs, strict=True)
        return max(abs(a[t] - b[t]) for a, b in pairs for t in a.keys() & b.keys())


class Host:
    """The engine, and what a test may do with it. The core runs in this process, step by step."""

    def __init__(self, options: dict[str, Any], before: Callable[[], None] | None = None) -> None:
        from vllm import LLM

        if before is not None:
            before()
        self.llm = LLM(disable_log_stats=False, **options)
        self._done: dict[str, Answer] = {}

    def generate(self, asks: Sequence[Ask]) -> list[Answer]:
        """Run requests as one batch: all of them are in it from the first step on."""
        prompts = [prompt_of(ask) for ask in asks]
        params = [params_of(ask) for ask in asks]
        outputs = self.llm.generate(prompts, params, use_tqdm=False)
        self.step()  # The workers hear of the requests' end.
        return [answer_of(output) for output in outputs]

    def generate_twice(self, ask: Ask) -> list[Answer]:
        """Run a request, and then once more with the very same parameters object."""
        params, prompts = params_of(ask), [prompt_of(ask)]
        return [answer_of(self.llm.generate(prompts, params, use_tqdm=False)[0]) for _ in "ab"]

    def add(self, asks: dict[str, Ask]) -> None:
        """Queue requests by name; they run when step() is called."""
        for name, ask in asks.items():
            self.llm.llm_engine.add_request(name, prompt_of(ask), params_of(ask))

    def step(self, count: int = 1) -> None:
        """Run engine steps."""
        for _ in range(count):
            for output in self.llm.llm_engine.step():
                if output.finished:
                    self._done[output.request_id] = answer_of(output)

    def finish(self) -> dict[str, Answer]:
        """Step until no request is left; return the answers by name since the last call."""
        while self.llm.llm_engine.has_unfinished_requests():
            self.step()
        self.step()  # The workers hear of the requests' end.
        done, self._done = self._done, {}
        return done

    def abort(self, names: list[str]) -> None:
        """Abort queued or running requests."""
        self.llm.llm_engine.abort_request(names)

    def reset_prefix_cache(self) -> bool:
        """Forget every cached block."""
        return bool(self.llm.reset_prefix_cache())

    def preemptions(self) -> int:
        """Return how often requests were preempted."""
        metrics = {metric.name: metric for metric in self.llm.get_metrics()}
        return int(metrics["vllm:num_preemptions"].value)

    def config(self, path: str) -> Any:
        """Return a value of vLLM's configuration, such as "cache_config.block_size"."""
        value = self.llm.llm_engine.vllm_config
        for name in path.split("."):
            value = getattr(value, name)
        return value if isinstance(value, str | int | float | None) else str(value)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return function(host, *args), which must be found by its module and name."""
        return function(self, *args)

    def on_workers(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call function(worker, *args) in each worker; return what each one returns."""
        return list(self.llm.collective_rpc(function, args=args))


def prompt_of(ask: Ask) -> Any:
    """Return a request's prompt as vLLM takes it."""
    return ask.prompt if isinstance(ask.prompt, str) else {"prompt_token_ids": list(ask.prompt)}


def params_of(ask: Ask, **fields: Any) -> Any:
    """Return a request's parameters as vLLM takes them, with these fields beside or instead."""
    from vllm import SamplingParams

    extra: dict[str, Any] = dict(ask.extra_args)
    if ask.spec is not None:
        extra["hotwire"] = ask.spec if isinstance(ask.spec, str) else json.dumps(ask.spec)
    asked = {
        "n": ask.n,
        "max_tokens": ask.tokens,
        "ignore_eos": True,
        "temperature": ask.temperature,
        "seed": ask.seed,
        "logprobs": ask.logprobs,
        "extra_args": extra or None,
    }
    return SamplingParams(**(asked | fields))


def answer_of(output: Any) -> Answer:
    """Return what came back of a request."""
    first = output.outputs[0]
    return Answer(
        prompt=tuple(output.prompt_token_ids),
        tokens=tuple(first.token_ids),
        text=first.text,
        logprobs=tuple({t: p.logprob for t, p in at.items()} for at in first.logprobs or ()),
        cached=output.num_cached_tokens or 0,
        choices=tuple(tuple(choice.token_ids) for choice in output.outputs),
    )


def _host(options: dict[str, Any], before: Callable[[], None] | None) -> Any:
    if options.pop("served", False):
        from tests.support.async_host import AsyncHost

        return AsyncHost(options, before)
    return Host(options, before)


def serve(connection: Connection) -> None:
    """Answer calls until the other side is gone."""
    options, before = connection.recv()
    host: Any = None
    call: tuple[str, tuple[Any, ...], dict[str, Any]] = ("ready", (), {})
    while True:
        try:
            if host is None:
                host = _host(options, before)
                result = None
            else:
                method, args, kwargs = call
                result = getattr(host, method)(*args, **kwargs)
            connection.send((True, result))
        except Exception as error:  # noqa: BLE001 - the test is told
            connection.send((False, (type(error).__name__, str(error))))
        try:
            call = connection.recv()
        except EOFError:
            return


if __name__ == "__main__":
    # Of the module by its name, so that what is pickled is found there on the other side too.
    importlib.import_module("tests.support.engine_host").serve(Connection(int(sys.argv[1])))
