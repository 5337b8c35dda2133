"""Who a process is, read from vLLM's configuration."""

from __future__ import annotations

from typing import Any

from hotwire_plugin.process import Identity

REFUSED = {
    "sequence parallelism": "compilation_config.pass_config.enable_sp",
    "sequence-parallel mixture of experts": "parallel_config.use_sequence_parallel_moe",
    "microbatching": "parallel_config.enable_dbo",
    "microbatches": "parallel_config.use_ubatching",
    "prefill context parallelism": "parallel_config.prefill_context_parallel_size",
    "decode context parallelism": "parallel_config.decode_context_parallel_size",
}
"""What parts a batch's tokens in ways the token map does not follow, and where it is switched."""


def identity_of(vllm_config: Any, *, pp_rank: int = 0, tp_rank: int = 0) -> Identity:
    """Return the identity of the calling process."""
    import vllm

    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    text = model.hf_text_config
    return Identity(
        instance_id=vllm_config.instance_id,
        dp_rank=parallel.data_parallel_rank,
        pp_rank=pp_rank,
        tp_rank=tp_rank,
        pp_size=parallel.pipeline_parallel_size,
        tp_size=parallel.tensor_parallel_size,
        model=_model_name(model),
        hidden_size=text.hidden_size,
        num_layers=text.num_hidden_layers,
        dtype=str(model.dtype).removeprefix("torch."),
        vllm_version=vllm.__version__,
    )


def streams_of(model_config: Any) -> int:
    """Return the number of residual streams, more than one with hyper-connections."""
    return int(getattr(model_config.hf_text_config, "hc_mult", 1))


def counts_generated(vllm_config: Any) -> bool:
    """Whether each step knows how many tokens the steps before it have generated.

    A step that is scheduled before the drafts of the last one are verified takes all of them for
    accepted.
    """
    ahead = bool(getattr(vllm_config.scheduler_config, "async_scheduling", False))
    return not (ahead and vllm_config.speculative_config is not None)


def refused_feature(vllm_config: Any) -> str | None:
    """Return the name of a feature in use under which steering would be wrong, if there is one."""
    for feature, path in REFUSED.items():
        value = vllm_config
        for name in path.split("."):
            value = getattr(value, name, None)
        if value is not None and int(value) > (1 if path.endswith("_size") else 0):
            return feature
    return None


def _model_name(model: Any) -> str:
    served = model.served_model_name
    return str(served[0] if isinstance(served, list) else served or model.model)
