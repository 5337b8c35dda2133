"""Files of vectors as the libraries that people use write them."""

import contextlib
import io
import runpy
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotwirectl.failures import CommandFailedError, Failure
from hotwirectl.formats.raw import RawVector, Rows

ROWS: Rows = np.arange(1, 13, dtype=np.float32).reshape(4, 3) / 8
"""Four rows of three values that every float type holds exactly."""


def raw(count: int, **fields: Any) -> RawVector:
    """Returns a vector of so many rows, row i holding i."""
    rows = np.repeat(np.arange(count, dtype=np.float32)[:, None], 3, axis=1)
    return RawVector(
        **{"name": "v", "format": "npz", "rows": rows, "numbers": None, "dtype": "F32"} | fields
    )


def write_gguf(
    path: Path,
    tensors: Mapping[str, Any],
    *,
    architecture: str = "controlvector",
    **texts: str,
) -> Path:
    """Writes a control vector with the gguf package."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, architecture)
    writer.add_string("controlvector.model_hint", "llama")
    writer.add_array("some.numbers", [1, 2, 3])
    writer.add_array("some.texts", ["a", "b"])
    for key, text in texts.items():
        writer.add_string(f"general.{key}", text)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_pt(path: Path, value: Any, **options: Any) -> Path:
    """Writes anything with torch.save."""
    import torch

    torch.save(value, path, **options)
    return path


def load_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets .pt files be loaded in this process, where torch is imported already, without limits.

    For tests of what comes after; those of the process itself start a real one.
    """

    def run_child(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        import torch

        main = runpy.run_path(command[-2])["main"]
        main.__globals__["limit"] = lambda *_: None
        printed, threads = io.StringIO(), torch.get_num_threads()
        with contextlib.redirect_stdout(printed):
            main(Path(command[-1]))
        torch.set_num_threads(threads)
        return subprocess.CompletedProcess(command, 0, printed.getvalue().encode())

    monkeypatch.setattr("hotwirectl.formats.torch_file.subprocess.run", run_child)


def refusal(call: Any, *arguments: Any) -> Failure:
    """Returns the failure of a call that must be refused, with exit code 2."""
    with pytest.raises(CommandFailedError) as caught:
        call(*arguments)
    assert caught.value.failure.exit_code == 2
    return caught.value.failure
