"""By what their files are called: which can be read, and what becomes of the others."""

from pathlib import Path

import click

SAFETENSORS, GGUF, NPZ = ".safetensors", ".gguf", ".npz"
TORCH = (".pt", ".pth")

#: The file that makes a directory one of directions.
MANIFEST = "manifest.json"

_KNOWN = (SAFETENSORS, GGUF, NPZ, *TORCH)
_PICKLE = "a pickle can run code when it is read"

# What other formats that people hold vectors in lack.
_OTHERS = {
    ".bin": _PICKLE,
    ".ckpt": _PICKLE,
    ".npy": "np.savez makes an .npz of it",
    ".pickle": _PICKLE,
    ".pkl": _PICKLE,
}


def is_known(path: Path) -> bool:
    """Whether a path is called like a vector's file, or is a directory of them."""
    return path.suffix.lower() in _KNOWN or (path / MANIFEST).is_file()


def check(path: Path) -> None:
    """Raises click.UsageError unless a path is a directory, or called like what can be read."""
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in _KNOWN:
        return
    why = f": {_OTHERS[suffix]}" if suffix in _OTHERS else ""
    raise click.UsageError(
        f"{path.name} is not taken{why}. Save the vector as {SAFETENSORS}, with one tensor "
        f"[layers, hidden] or a tensor `layers.N` for each layer; {', '.join(_KNOWN[1:])} are "
        "read, too"
    )


def check_out(path: Path) -> None:
    """Raises click.UsageError unless a file to be written is called .safetensors."""
    if path.suffix.lower() != SAFETENSORS:
        raise click.UsageError(f"{path.name} is not called {SAFETENSORS}, which it would be")
