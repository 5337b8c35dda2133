"""Finding a model's decoder blocks, and the modules inside a block, by structure."""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

HIDDEN = "hidden_states"
HYPER_HIDDEN = "x"
"""What a block with hyper-connections calls the streams that it takes."""

RESIDUAL = "residual"

STREAMS = "hc_mult"
"""Where a block with hyper-connections keeps the number of its residual streams."""

FUSED = "use_fused_mhc"
"""Where such a block says that it returns its streams not yet mixed."""

ATTENTION_NAMES = ("self_attn", "attn", "attention", "self_attention", "linear_attn")
MLP_NAMES = ("mlp", "feed_forward", "ffn", "block_sparse_moe", "moe", "mlps")
BESIDE_MLP = ("shared_mlp", "share_expert", "experts")
"""Modules of a block that add to what its MLP returns: then no one module returns it all."""

CHILD_NAMES = {"attn_out": ATTENTION_NAMES, "mlp_out": (*MLP_NAMES, *BESIDE_MLP)}

KV_LAYER = "get_kv_cache_spec"
"""What a layer of vLLM that owns key-values or a recurrent state has, and no other module."""

_STREAM = re.compile(
    r"(<class ')?((typing\.)?(Optional|Union|[tT]uple)\[)*(torch\.)?(Float)?Tensor\b"
)
_HYPER = re.compile(r"^m?hc_|hyper_connection")


class NotSteerable(Exception):
    """The model cannot be steered correctly; the message says why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Block:
    """A decoder block, and how the residual stream goes through it.

    Attributes:
        module: the block.
        parameters: the names of its forward's parameters, in order.
        hidden: the one that takes the stream, or its first half.
        split: whether the stream is handed on as the sum of two halves, hidden and residual.
        streams: how many residual streams there are.
    """

    module: nn.Module
    parameters: tuple[str, ...]
    hidden: str
    split: bool
    streams: int


def find_layers(model: nn.Module, num_layers: int, streams: int = 1) -> dict[int, Block]:
    """Return this rank's decoder blocks by their number in the whole model.

    They are the one ModuleList of ``num_layers`` members, of whatever classes, that take the
    residual stream; blocks of other pipeline stages stand in it as identities. In a multimodal
    model only the language model is looked at. ``streams`` is the number of residual streams that
    the model is configured with.

    Raises:
        NotSteerable: there is no such list, more than one, a block of an unknown signature, or
            streams that are not where they are known to be.
    """
    lists = list(_block_lists(_language_model(model), num_layers))
    if len(lists) > 1:
        # A tower or a predictor as deep as the model keeps no state for the requests' tokens.
        lists = [found for found in lists if any(map(_keeps_state, found.values()))] or lists
    if len(lists) != 1:
        raise NotSteerable(f"{len(lists)} lists of {num_layers} decoder blocks found, not one")
    blocks = {index: _read(index, module) for index, module in lists[0].items()}
    if any(block.streams != streams for block in blocks.values()):
        raise NotSteerable(f"the blocks do not hand on {streams} residual streams in a known way")
    return blocks


def child_at(block: Block, site: str) -> nn.Module | None:
    """Return the module whose output is the site ``attn_out`` or ``mlp_out``, if there is one.

    None: the block has no such module, or several that only together return what the site means,
    or what it returns is not whole on this rank.
    """
    found = [
        child
        for name in CHILD_NAMES[site]
        if isinstance(child := getattr(block.module, name, None), nn.Module)
    ]
    if len(found) != 1 or not _returns_one_half(found[0]) or _partial(found[0], site):
        return None
    return found[0]


def _language_model(model: nn.Module) -> nn.Module:
    getter = getattr(model, "get_language_model", None)
    inner = getter() if callable(getter) else None
    return inner if isinstance(inner, nn.Module) else model


def _block_lists(module: nn.Module, num_layers: int) -> Iterator[dict[int, nn.Module]]:
    """Yield the lists of blocks; what is inside a block, such as its experts, is none."""
    for child in module.children():
        blocks = _members(child, num_layers) if isinstance(child, nn.ModuleList) else None
        if blocks:
            yield blocks
        else:
            yield from _block_lists(child, num_layers)


def _members(modules: nn.ModuleList, num_layers: int) -> dict[int, nn.Module] | None:
    if len(modules) != num_layers:
        return None
    own = {i: m for i, m in enumerate(modules) if not isinstance(m, nn.Identity)}
    return own if all(_hidden_parameter(m) for m in own.values()) else None


def _keeps_state(module: nn.Module) -> bool:
    return any(hasattr(m, KV_LAYER) for m in module.modules())


def _hidden_parameter(module: nn.Module) -> str | None:
    parameters = inspect.signature(module.forward).parameters
    if HIDDEN in parameters:
        return HIDDEN
    return HYPER_HIDDEN if hasattr(module, STREAMS) and HYPER_HIDDEN in parameters else None


def _read(index: int, module: nn.Module) -> Block:
    """Return what there is to know of a block.

    Raises:
        NotSteerable: what it returns is not known to be a residual stream.
    """
    signature = inspect.signature(module.forward)
    where = f"block {index} ({type(module).__name__})"
    if hasattr(module, "altup"):
        raise NotSteerable(f"{where} predicts several streams from one (AltUp)")
    if not hasattr(module, STREAMS) and any(map(_HYPER.search, _names(module))):
        raise NotSteerable(f"{where} mixes several residual streams in a way that is not known")
    if hasattr(module, STREAMS) and getattr(module, FUSED, True):
        raise NotSteerable(f"{where} leaves the mixing of its streams to the next block's kernel")
    returns, takes_residual = signature.return_annotation, RESIDUAL in signature.parameters
    # By vLLM's convention what takes a residual returns the two halves.
    if returns is signature.empty and not takes_residual:
        raise NotSteerable(f"{where} does not say what it returns")
    if returns is not signature.empty and not _returns_stream(returns):
        raise NotSteerable(
            f"{where} returns {_text(returns)!r}: neither a residual stream nor its "
            "(hidden, residual) halves"
        )
    streams = int(getattr(module, STREAMS, 1))
    return Block(
        module=module,
        parameters=tuple(signature.parameters),
        hidden=_hidden_parameter(module) or HIDDEN,
        split=streams == 1 and takes_residual and _reads(module, RESIDUAL),
        streams=streams,
    )


def _names(module: nn.Module) -> list[str]:
    own = (name for name, _ in (*module.named_parameters(recurse=False), *module.named_children()))
    return [*own, *vars(module)]


def _returns_stream(annotation: object) -> bool:
    return _STREAM.match(_text(annotation)) is not None


def _text(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else str(annotation)


def _reads(module: nn.Module, parameter: str) -> bool:
    """Whether the forward looks at a parameter before it gives that name another value.

    Some blocks take the second half for form's sake, and return as such what is already in the
    first: there the stream is the first half alone.
    """
    for instruction in dis.get_instructions(inspect.unwrap(module.forward)):
        names = instruction.argval
        names = names if isinstance(names, tuple) else (names,)
        kinds: list[str] = re.findall("LOAD|STORE", instruction.opname)
        if parameter in names and kinds:
            return bool(kinds[min(names.index(parameter), len(kinds) - 1)] == "LOAD")
    return False


def _returns_one_half(child: nn.Module) -> bool:
    """Whether a module returns what it adds to the stream, in its width and in a tensor of its own.

    vLLM's own attention layers return heads, before the projection to the stream's width.
    """
    if hasattr(child, KV_LAYER) and not any(map(_projects, child.modules())):
        return False
    parameters = inspect.signature(child.forward).parameters
    return RESIDUAL not in parameters and "output" not in parameters


def _projects(module: nn.Module) -> bool:
    return bool(getattr(module, "input_is_parallel", False))


def _partial(child: nn.Module, site: str) -> bool:
    """Whether the block adds up over the tensor-parallel ranks what this module returns."""
    inside = child.modules() if site == "attn_out" else child.children()
    return any(
        _projects(m) and not getattr(m, "reduce_results", True) and getattr(m, "tp_size", 1) > 1
        for m in inside
    )
