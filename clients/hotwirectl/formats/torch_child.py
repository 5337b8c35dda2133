"""Unpickles .pt files, in a process of its own: the one place that loads them with torch.

    python -P torch_child.py REQUEST

REQUEST is a JSON file: {"max_bytes", "seconds", "files": [[in, out], ...]}. For each file, `out`
becomes a safetensors file of float32 tensors, or nothing, and one line of JSON is printed: what
became of it. It is run by its path and imports nothing of ours, so that it needs no more than
torch and safetensors. `weights_only` lets no code of a file run; the limits are for all else.
"""

import json
import pickle
import re
import resource
import sys
from pathlib import Path
from typing import Any

_EXTRA_MISSING, _PICKLE_REFUSED = "EXTRA_MISSING", "PICKLE_REFUSED"
_INVALID, _TOO_LARGE, _AMBIGUOUS = "VECTOR_FORMAT_INVALID", "VECTOR_TOO_LARGE", "VECTOR_AMBIGUOUS"
# What libraries call the map from layer to row.
_MAPS = ("layer_activations", "directions")
_MOST_TEXT, _MOST_TEXTS = 300, 32
# What an unpickler that stops says of what the file wanted to call.
_GLOBAL = re.compile(r"GLOBAL:? ([A-Za-z_][\w.]{0,80})")


class Refused(Exception):
    """Raised for a file that is not taken: a reason and why."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason
        self.why = why


def main(request: Path) -> None:
    """Does what a request asks."""
    asked = json.loads(request.read_text(encoding="utf-8"))
    try:
        import safetensors.torch  # noqa: F401 - before the limits, which are for the files
        import torch
    except ImportError as error:
        _say({"reason": _EXTRA_MISSING, "why": str(error)})
        return
    # A thread's stack and its memory pool would count against the limit.
    torch.set_num_threads(1)
    limit(asked["max_bytes"], asked["seconds"])
    for source, target in asked["files"]:
        _say(answer(Path(source), Path(target), asked["max_bytes"]))


def limit(max_bytes: int, seconds: float) -> None:
    """Bounds what this process may still take: memory, time, files."""
    taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    room = taken * resource.getpagesize() + 4 * max_bytes + (512 << 20)
    cpu = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime + seconds) + 1
    for what, most in (
        (resource.RLIMIT_AS, room),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, 2 * max_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (bound, hard))


def answer(source: Path, target: Path, max_bytes: int) -> dict[str, Any]:
    """Converts one file; returns what to say of it."""
    from safetensors.torch import save_file

    try:
        tensors, about = described(loaded(source), max_bytes)
        save_file(tensors, target)
    except Refused as error:
        return {"reason": error.reason, "why": error.why}
    except MemoryError:
        return {"reason": _TOO_LARGE, "why": "unfolds to more memory than a vector has"}
    except Exception as error:  # noqa: BLE001 - whatever the file makes torch raise
        return {"reason": _INVALID, "why": f"torch can't read it: {_first_line(error)}"}
    return about


def loaded(source: Path) -> Any:
    """Returns what a file holds, of tensors and plain values alone."""
    import torch

    try:
        return torch.load(source, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = _GLOBAL.search(str(error))
        what = f": {named[1]}" if named else ""
        why = f"its pickle holds more than tensors and plain values, and could run code{what}"
        raise Refused(_PICKLE_REFUSED, why) from error


def described(value: Any, max_bytes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the tensors to write, by layer or as one matrix "rows", and what to say of them."""
    import torch

    if isinstance(value, torch.Tensor):
        return _one(value, max_bytes)
    if not isinstance(value, dict) or not value:
        kind = type(value).__name__
        raise Refused(_INVALID, f"it holds a {kind}, and no tensor or map of layers to tensors")
    for name in _MAPS:
        if isinstance(value.get(name), dict):
            tensors, about = _by_layer(value[name], max_bytes)
            return tensors, about | {"map": name, "metadata": _texts(value)}
    found = {key: each for key, each in value.items() if isinstance(each, torch.Tensor)}
    if len(found) == 1:
        ((key, tensor),) = found.items()
        tensors, about = _one(tensor, max_bytes)
        return tensors, about | {
            "key": str(key),
            "metadata": _texts(value),
            **_layer(value, tensor),
        }
    return _by_layer(value, max_bytes)


def _by_layer(value: dict[Any, Any], max_bytes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    import torch

    if not all(isinstance(each, torch.Tensor) for each in value.values()) or len(value) > 4096:
        raise Refused(_AMBIGUOUS, f"nothing in it says which is the vector: {_keys(value)}")
    if any(each.dim() != 1 for each in value.values()):
        raise Refused(_AMBIGUOUS, f"it holds several tensors that are no rows: {_keys(value)}")
    budget = max_bytes // len(value)
    rows = {str(key): _float32(each, budget) for key, each in value.items()}
    if len(rows) != len(value):
        raise Refused(_INVALID, "it has a layer twice")
    dtypes = sorted({_dtype(each) for each in value.values()})
    return rows, {"form": "layers", "dtype": ",".join(dtypes)}


def _one(tensor: Any, max_bytes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    if tensor.dim() not in (1, 2):
        raise Refused(
            _INVALID, f"its tensor has shape {list(tensor.shape)}; wanted [layers, width]"
        )
    form = "row" if tensor.dim() == 1 else "matrix"
    rows = _float32(tensor, max_bytes).reshape(-1, tensor.shape[-1])
    return {"rows": rows}, {"form": form, "dtype": _dtype(tensor)}


def _float32(tensor: Any, max_bytes: int) -> Any:
    import torch

    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        raise Refused(_INVALID, "its tensor is sparse, quantised, or has no values")
    if not tensor.dtype.is_floating_point or tensor.numel() == 0:
        raise Refused(_INVALID, f"its tensor is {_dtype(tensor)} {list(tensor.shape)}: no floats")
    # A view can claim any shape, whatever lies behind it.
    if tensor.numel() * 4 > max_bytes:
        size = tensor.numel() * 4
        raise Refused(_TOO_LARGE, f"unfolds to {size} bytes; {max_bytes} is the most")
    return tensor.detach().to(torch.float32).contiguous().clone()


def _layer(value: dict[Any, Any], tensor: Any) -> dict[str, Any]:
    layer = value.get("layer")
    known = isinstance(layer, int) and not isinstance(layer, bool) and layer >= 0
    return {"layer": layer} if known and tensor.dim() == 1 else {}


def _texts(value: dict[Any, Any]) -> dict[str, str]:
    kept = {
        str(key): str(each)
        for key, each in value.items()
        if isinstance(each, str | int | float) and len(f"{key}{each}") <= _MOST_TEXT
    }
    return dict(list(kept.items())[:_MOST_TEXTS])


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _keys(value: dict[Any, Any]) -> str:
    return ", ".join(str(key)[:40] for key in list(value)[:6])


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
