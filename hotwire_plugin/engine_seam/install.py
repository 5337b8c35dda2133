"""Which seam belongs to which module of vLLM."""

from __future__ import annotations

from hotwire_plugin.engine_seam import (
    beams,
    block_hash,
    compile_cache,
    core,
    frontend,
    scheduler,
    worker,
)
from hotwire_plugin.engine_seam.patch import when_imported

SEAMS = {
    "vllm.config.vllm": compile_cache.install,
    "vllm.v1.core.kv_cache_utils": block_hash.install,
    "vllm.v1.core.block_pool": block_hash.install,
    "vllm.v1.simple_kv_offload.manager": block_hash.install,
    "vllm.v1.core.sched.scheduler": scheduler.install,
    "vllm.v1.engine.core": core.install,
    "vllm.v1.engine.input_processor": frontend.install_refusals,
    "vllm.v1.engine.async_llm": frontend.install_async,
    "vllm.v1.engine.llm_engine": frontend.install_sync,
    "vllm.entrypoints.openai.completion.protocol": beams.install_params,
    "vllm.entrypoints.openai.chat_completion.protocol": beams.install_params,
    "vllm.entrypoints.generate.beam_search.online": beams.install_search,
    "vllm.entrypoints.generate.beam_search.utils": beams.install_beams,
    "vllm.v1.worker.gpu_worker": worker.install,
}


def install_all() -> None:
    """Have every seam installed as vLLM imports its module. Imports nothing of vLLM itself."""
    for module, install in SEAMS.items():
        when_imported(module, install)
