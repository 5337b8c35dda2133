"""The engine as `vllm serve` has it: an AsyncLLM here, its core and its worker in processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from tests.support.engine_host import Answer, Ask, answer_of, params_of, prompt_of
from tests.support.situations import Turn


class AsyncHost:
    """An AsyncLLM, and what a test may do with it: one call at a time, its loop at rest between."""

    def __init__(self, options: dict[str, Any], before: Callable[[], None] | None = None) -> None:
        if before is not None:
            before()
        self._loop = asyncio.new_event_loop()
        self.engine = self._loop.run_until_complete(_start(options))

    def generate(self, asks: Sequence[Ask]) -> list[Answer]:
        """Run requests side by side."""
        return self._loop.run_until_complete(_gather(self.engine, asks))

    def converse(self, name: str, chunks: Sequence[Ask], queued: bool) -> list[Turn]:  # noqa: FBT001
        """Run a session of these chunks: each once the one before is done, or all at once."""
        return self._loop.run_until_complete(_converse(self.engine, name, chunks, queued=queued))

    def beam_search(self, prompt: tuple[int, ...], asked: dict[str, Any]) -> list[Answer]:
        """Run a beam search as a completion request with these fields asks for it."""
        return self._loop.run_until_complete(_beam_search(self.engine, prompt, asked))

    def reset_prefix_cache(self) -> bool:
        """Forget every cached block."""
        return bool(self._loop.run_until_complete(self.engine.reset_prefix_cache()))

    def finish(self) -> None:
        """Nothing is left running between calls."""


async def _start(options: dict[str, Any]) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**options))


async def _gather(engine: Any, asks: Sequence[Ask]) -> list[Answer]:
    runs = [_last(engine.generate(prompt_of(a), params_of(a), f"r{at}")) for at, a in _named(asks)]
    return [answer_of(output) for output in await asyncio.gather(*runs)]


def _named(asks: Sequence[Ask]) -> list[tuple[int, Ask]]:
    return list(enumerate(asks))


async def _last(outputs: AsyncGenerator[Any, None]) -> Any:
    last = None
    async for output in outputs:
        last = output
    return last


async def _converse(engine: Any, name: str, chunks: Sequence[Ask], *, queued: bool) -> list[Turn]:
    tokens: list[int] = []
    logprobs: list[dict[int, float]] = []
    there = asyncio.Condition()
    inputs = _inputs(chunks, tokens, None if queued else there)
    async for output in engine.generate(inputs, _streaming(chunks[0]), name):
        choice = output.outputs[0]
        logprobs += [{t: p.logprob for t, p in at.items()} for at in choice.logprobs or ()]
        async with there:
            tokens += choice.token_ids
            there.notify_all()
    return _turns(chunks, tokens, logprobs)


async def _inputs(
    chunks: Sequence[Ask], tokens: list[int], there: asyncio.Condition | None
) -> AsyncGenerator[Any, None]:
    from vllm.engine.protocol import StreamingInput
    from vllm.inputs import tokens_input

    wanted = 0
    for chunk in chunks:
        if there is not None:
            async with there:
                await there.wait_for(lambda: len(tokens) >= wanted)  # noqa: B023
        yield StreamingInput(tokens_input(list(chunk.prompt)), _streaming(chunk))  # type: ignore[arg-type]
        wanted += chunk.tokens


def _streaming(chunk: Ask) -> Any:
    from vllm.sampling_params import RequestOutputKind

    return params_of(chunk, output_kind=RequestOutputKind.DELTA)


def _turns(
    chunks: Sequence[Ask], tokens: list[int], logprobs: list[dict[int, float]]
) -> list[Turn]:
    turns, at = [], 0
    for chunk in chunks:
        end = at + chunk.tokens
        turns.append(Turn(tuple(tokens[at:end]), tuple(logprobs[at:end])))
        at = end
    return turns


async def _beam_search(engine: Any, prompt: tuple[int, ...], asked: dict[str, Any]) -> list[Answer]:
    from vllm.entrypoints.generate.beam_search.online import BeamSearchOnlineMixin
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.inputs import tokens_input

    class Search(BeamSearchOnlineMixin):
        engine_client, renderer = engine, engine.renderer

    request = CompletionRequest(prompt=list(prompt), use_beam_search=True, **asked)
    params = request.to_beam_search_params(request.max_tokens, {})
    output = await _last(
        Search().beam_search(prompt=tokens_input(list(prompt)), request_id="beams", params=params)
    )
    return [_beam(prompt, choice) for choice in output.outputs]


def _beam(prompt: tuple[int, ...], choice: Any) -> Answer:
    logprobs = tuple({t: p.logprob for t, p in at.items()} for at in choice.logprobs)
    return Answer(prompt, tuple(choice.token_ids), choice.text, logprobs, 0, ())
