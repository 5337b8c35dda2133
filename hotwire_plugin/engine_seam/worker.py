"""The worker: arms the model once its weights are there, before vLLM measures its memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotwire_plugin.armed import Armed
from hotwire_plugin.engine_seam import runner_v1, runner_v2
from hotwire_plugin.engine_seam.identity import identity_of, refused_feature, streams_of
from hotwire_plugin.engine_seam.patch import replace
from hotwire_plugin.layers import NotSteerable
from hotwire_plugin.log import named
from hotwire_plugin.process import process
from hotwire_plugin.worker import WorkerRole, WorkerSizes

logger = logging.getLogger("hotwire_plugin.engine_seam")


def install(module: ModuleType) -> None:
    """Arm each model as soon as it is loaded."""
    replace(module.Worker, "load_model", _then_arm)


def armed_of(worker: Any) -> Armed:
    """Return where this worker steers, or why it cannot. Called in every worker by the engine."""
    role = process.worker
    reason = process.disarmed_reason or ("" if role else "the worker was not armed")
    places = () if role is None or reason else tuple(role.places)
    slots = role.slots if role else 0
    return Armed(reason, _identity(worker).pp_rank, places, slots)


def _then_arm(inner: Callable[..., Any]) -> Callable[..., Any]:
    def load_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = inner(self, *args, **kwargs)
        try:
            _arm(self)
        except Exception as error:
            known = isinstance(error, NotSteerable)
            process.disarm(str(error) if known else f"{type(error).__name__}: {error}")
            logger.error(
                "hotwired is disarmed, the model serves on unsteered: %s",
                error,
                exc_info=not known,
                extra=named("disarmed", error=str(error)),
            )
        process.serve(_identity(self), "worker")
        return result

    return load_model


def _arm(worker: Any) -> None:
    config = worker.vllm_config
    if process.disarmed_reason:
        raise NotSteerable(process.disarmed_reason)
    if config.model_config.is_encoder_decoder:
        raise NotSteerable("an encoder-decoder model has more than one stream of tokens")
    if feature := refused_feature(config):
        raise NotSteerable(f"{feature} is on, which moves tokens where steering cannot follow")
    identity = _identity(worker)
    sizes = WorkerSizes(
        hidden_size=identity.hidden_size,
        num_layers=identity.num_layers,
        max_requests=config.scheduler_config.max_num_seqs,
        max_tokens=worker.model_runner.max_num_tokens,
        bank_bytes=process.settings.bank_bytes,
        streams=streams_of(config.model_config),
        sites=process.settings.sites,
    )
    role = WorkerRole(
        worker.model_runner.get_model(),
        sizes,
        process.blob_store(identity),
        worker.device,
        config.model_config.dtype,
    )
    runner = runner_v2 if worker.use_v2_model_runner else runner_v1
    runner.follow(worker.model_runner, role.fill)
    process.become_worker(identity, role)


def _identity(worker: Any) -> Any:
    from vllm.distributed import get_pp_group, get_tp_group

    return identity_of(
        worker.vllm_config,
        pp_rank=get_pp_group().rank_in_group,
        tp_rank=get_tp_group().rank_in_group,
    )
