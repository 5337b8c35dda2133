"""What `Host` does for one kind of request alone: functions for `Engine.call("run", ...)`."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.engine_host import Answer, Ask, Host, answer_of, params_of, prompt_of


@dataclass(frozen=True)
class Turn:
    """What came back of one chunk of a session: its tokens, and those reported for each."""

    tokens: tuple[int, ...]
    logprobs: tuple[dict[int, float], ...]


def generate_as(
    host: Host, asks: Sequence[Ask], fields: dict[str, Any], adapter: str | None = None
) -> list[Answer]:
    """Run a batch with these fields of SamplingParams set, and with this LoRA adapter."""
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import StructuredOutputsParams

    if "structured_outputs" in fields:
        fields = fields | {
            "structured_outputs": StructuredOutputsParams(**fields["structured_outputs"])
        }
    params = [params_of(ask, **fields) for ask in asks]
    lora = LoRARequest("tiny", 1, adapter) if adapter else None
    prompts = [prompt_of(ask) for ask in asks]
    outputs = host.llm.generate(prompts, params, use_tqdm=False, lora_request=lora)
    host.step()
    return [answer_of(output) for output in outputs]


def prompt_logprobs(host: Host, ask: Ask, count: int) -> list[dict[int, float]]:
    """Return what is reported for each prompt token but the first, which nothing foretells."""
    params = params_of(ask, prompt_logprobs=count)
    (output,) = host.llm.generate([prompt_of(ask)], [params], use_tqdm=False)
    host.step()
    return [{t: p.logprob for t, p in at.items()} for at in output.prompt_logprobs[1:]]


def from_embeds(host: Host, asks: Sequence[Ask], model: str) -> list[Answer]:
    """Run a batch whose prompts are given as the embeddings of their tokens."""
    from safetensors.torch import load_file

    table = load_file(Path(model) / "model.safetensors")["model.embed_tokens.weight"]
    prompts = [{"prompt_embeds": table[list(ask.prompt)]} for ask in asks]  # type: ignore[arg-type]
    outputs = host.llm.generate(prompts, [params_of(ask) for ask in asks], use_tqdm=False)
    host.step()
    for output in outputs:
        output.prompt_token_ids = output.prompt_token_ids or ()
    return [
        replace(answer_of(output), prompt=tuple(ask.prompt))  # type: ignore[arg-type]
        for ask, output in zip(asks, outputs, strict=True)
    ]


def converse(host: Host, name: str, chunks: Sequence[Ask], *, queued: bool = False) -> list[Turn]:
    """Run a session of these chunks: each once the one before it is done, or all in the queue."""
    turns = []
    if queued:
        for chunk in chunks:
            send_chunk(host, name, chunk)
    for chunk in chunks:
        if not queued:
            send_chunk(host, name, chunk)
        turns.append(finish_turn(host, name, chunk.tokens))
    send_chunk(host, name, Ask((0,)), last=True)
    host.step(2)
    return turns


def send_chunk(host: Host, name: str, chunk: Ask, *, last: bool = False) -> None:
    """Send a chunk of a session, as AsyncLLM does; the last one only closes it."""
    from vllm.sampling_params import RequestOutputKind

    engine = host.llm.llm_engine
    params = params_of(chunk, output_kind=RequestOutputKind.DELTA)
    request = engine.input_processor.process_inputs(
        name,
        prompt_of(chunk),
        params,
        supported_tasks=engine.get_supported_tasks(),
        resumable=not last,
    )
    request.external_req_id = name
    # Both sides make the prompt longer, in a process of one's own by a list of one's own.
    own = copy(request)
    own.prompt_token_ids = list(request.prompt_token_ids)
    engine.output_processor.add_request(request, None, None, 0)
    engine.engine_core.add_request(own)


def finish_turn(host: Host, name: str, count: int) -> Turn:
    """Step until a session has generated so many more tokens."""
    tokens: list[int] = []
    logprobs: list[dict[int, float]] = []
    for _ in range(10 * count):
        for output in host.llm.llm_engine.step():
            if output.request_id == name:
                choice = output.outputs[0]
                tokens += choice.token_ids
                logprobs += [{t: p.logprob for t, p in at.items()} for at in choice.logprobs or ()]
        if len(tokens) >= count:
            return Turn(tuple(tokens), tuple(logprobs))
    host.abort([name])
    raise RuntimeError(f"{len(tokens)} of {count} tokens came")


def reset_while_running(host: Host) -> bool:
    """Forget every cached block, at the cost of preempting all that runs."""
    return bool(host.llm.reset_prefix_cache(reset_running_requests=True))


def sleep(host: Host, level: int) -> None:
    """Put the engine to sleep with its requests kept."""
    host.llm.sleep(level=level, mode="keep")


def wake_up(host: Host, tags: list[str] | None = None) -> None:
    """Wake the engine up."""
    host.llm.wake_up(tags)


def reload_weights(host: Host, path: str) -> None:
    """Load the weights of another model of the same shape in place, as a trainer does."""
    host.llm.collective_rpc("update_config", args=({"load_config": {"load_format": "auto"}},))
    host.llm.collective_rpc("reload_weights", kwargs={"weights_path": path})
    host.llm.reset_prefix_cache()


def counters(host: Host, part: str) -> dict[str, int]:
    """Return vLLM's own counters that have this in their names."""
    metrics = host.llm.get_metrics()
    return {m.name: int(m.value) for m in metrics if part in m.name and hasattr(m, "value")}
