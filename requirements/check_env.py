"""Checks that vLLM's CPU engine works in this environment; says in a sentence why if not."""

import importlib
import importlib.metadata
import sys

UNWANTED = ("torchaudio", "torchcodec", "torchvision")
NEEDED = ("torch", "transformers", "vllm", "grpc", "triton")


def problems() -> list[str]:
    """One sentence per fault; empty if all is well."""
    found = [name for name in UNWANTED if _installed(name)]
    if found:
        names = " ".join(found)
        remedy = f"{sys.executable} -m pip uninstall -y {names}"
        return [f"beside torch 2.13.0+cpu, {names} breaks transformers: run `{remedy}`"]
    return [fault for name in NEEDED if (fault := _import_fault(name))]


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _import_fault(name: str) -> str:
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001  whatever an import raises is the finding
        return f"{name} is installed but does not import: {type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    faults = problems()
    for line in faults:
        print(f"set-up: {line}", file=sys.stderr)
    sys.exit(1 if faults else 0)
