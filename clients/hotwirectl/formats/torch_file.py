"""Reads .pt files, by a process that has limits and hands back plain numbers or a refusal."""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hotwirectl import failures
from hotwirectl.formats import zip_file
from hotwirectl.formats.names import layer_number, listed
from hotwirectl.formats.raw import (
    MAX_BYTES,
    RawVector,
    Rows,
    damaged,
    float32,
    read_bytes,
    refused,
    stacked,
)
from hotwirectl.layer_bases import OUTPUT
from hotwired import errors, safetensors_file

FORMAT = "torch"
EXTRA = "convert"

#: For torch to be imported, and for each file.
START_SECONDS, FILE_SECONDS = 120.0, 20.0

_CHILD = Path(__file__).with_name("torch_child.py")
# How torch.save began before it wrote zip files: a pickle of protocol 2 or later.
_OLD_FORM = b"\x80"
_REASONS = {
    "PICKLE_REFUSED": "load it where you trust it, and torch.save the bare tensor",
    "VECTOR_AMBIGUOUS": "save the vector's tensor alone",
    "VECTOR_FORMAT_INVALID": "",
    "VECTOR_TOO_LARGE": "",
}


def read(path: Path) -> RawVector:
    """Returns the vector of a file: a tensor [layers, width] or [width], or a map of rows.

    Raises CommandFailedError; EXTRA_MISSING if torch is not installed.
    """
    return read_all([path])[0]


def read_all(paths: Sequence[Path]) -> list[RawVector]:
    """Returns the vectors of files, loaded by one process. Raises as read, for the first bad."""
    for path in paths:
        _check(path)
    with tempfile.TemporaryDirectory(prefix="hotwirectl-") as scratch:
        pairs = [(path, Path(scratch) / f"{n}.safetensors") for n, path in enumerate(paths)]
        said = _said(pairs, Path(scratch) / "request.json")
        return [
            _result(path, out, said[n] if n < len(said) else None)
            for n, (path, out) in enumerate(pairs)
        ]


def _check(path: Path) -> None:
    """Refuses what is too large before anything is unpickled."""
    data = read_bytes(path)
    if data.startswith(_OLD_FORM):
        return
    if not data.startswith(b"PK"):
        raise damaged(path, "it is no file of torch.save")
    with zip_file.opened(path, data) as archive:
        packed = [m for m in archive.infolist() if m.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise damaged(path, "its members are compressed, which torch never does")


def _said(pairs: Sequence[tuple[Path, Path]], request: Path) -> list[dict[str, Any]]:
    """Runs the process; returns the objects that it printed, one for each file it came to."""
    seconds = FILE_SECONDS * len(pairs)
    form = {
        "max_bytes": MAX_BYTES,
        "seconds": seconds,
        "files": [[str(path.resolve()), str(out)] for path, out in pairs],
    }
    request.write_text(json.dumps(form), encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(_CHILD), str(request)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=START_SECONDS + seconds,
            check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        printed = done.stdout
    except subprocess.TimeoutExpired as error:
        printed = error.stdout or b""
    # The last line may have been cut off.
    return [json.loads(line) for line in printed.split(b"\n")[:-1]]


def _result(path: Path, out: Path, said: dict[str, Any] | None) -> RawVector:
    if said is None:
        why = "the process that read it ended, or was ended, before it was done"
        raise refused(path, "READER_FAILED", why)
    if said.get("reason") == "EXTRA_MISSING":
        raise failures.extra_missing(f"reading {path.name}", EXTRA, ImportError(said["why"]))
    if "reason" in said:
        raise refused(path, said["reason"], said["why"], hint=_REASONS.get(said["reason"], ""))
    return _vector(path, out, said)


def _vector(path: Path, out: Path, said: dict[str, Any]) -> RawVector:
    try:
        tensors, _ = safetensors_file.read(read_bytes(out))
    except errors.HotwireError as error:
        raise damaged(path, f"what is in it makes no vector: {error.message}") from error
    arrays = {tensor.name: _array(tensor) for tensor in tensors}
    numbers, rows, base, assumed = _numbered(path, said, arrays)
    return RawVector(
        name=path.stem,
        format=FORMAT,
        rows=rows,
        numbers=numbers,
        dtype=said["dtype"],
        base=base,
        metadata=said.get("metadata", {}),
        assumed=tuple(assumed),
    )


def _numbered(
    path: Path, said: dict[str, Any], arrays: dict[str, Rows]
) -> tuple[tuple[int, ...] | None, Rows, str | None, list[str]]:
    """Returns the rows' numbers, the rows, what the numbers are, and what was assumed."""
    if said["form"] != "layers":
        assumed = [f"its tensor {said['key']!r} is the vector"] if "key" in said else []
        if said["form"] == "matrix":
            return None, arrays["rows"], None, assumed
        if "layer" not in said:
            number = layer_number(said.get("key"))
            return () if number is None else (number,), arrays["rows"], None, assumed
        assumed.append(f"it is for block {said['layer']}, its 'layer'")
        return (said["layer"],), arrays["rows"], OUTPUT, assumed
    numbers = {key: layer_number(key) for key in arrays}
    if None in numbers.values() or len(set(numbers.values())) != len(arrays):
        why = f"nothing in it says which is the vector: {listed(arrays)}"
        raise refused(path, "VECTOR_AMBIGUOUS", why, hint=_REASONS["VECTOR_AMBIGUOUS"])
    found = {number: arrays[key] for key, number in numbers.items() if number is not None}
    order, rows = stacked(path, found)
    if "map" not in said:
        return order, rows, None, []
    return order, rows, OUTPUT, [f"layer i of its {said['map']!r} is the output of block i"]


def _array(tensor: safetensors_file.Tensor) -> Rows:
    return float32(np.frombuffer(tensor.data, "<f4").reshape(tensor.shape))
