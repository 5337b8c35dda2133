"""How the steering op is registered: once, opaque to tracers, without Triton, mutating in place."""

import importlib
import re
import subprocess
import sys

import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch._subclasses.fake_tensor import FakeTensorMode

from hotwire_plugin import op
from hotwire_plugin.op_reference import steer_reference
from tests.unit.op_cases import make

STEER = torch.ops.hotwired.steer.default


def test_opcheck() -> None:
    """torch's own checks of a custom op pass: schema and mutation, fake, autograd, AOT dispatch."""
    for residual in (True, False):
        torch.library.opcheck(STEER, make(5, 16, residual=residual).args)


def test_loading_again_registers_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload, and a load after sys.modules was purged, share the first load's op and gate."""
    gate = op.cpu_gate
    assert importlib.reload(op).cpu_gate is gate
    for name in ("hotwire_plugin.op", "hotwire_plugin.op_cpu"):
        monkeypatch.delitem(sys.modules, name)
    again = importlib.import_module("hotwire_plugin.op")
    assert again is not op
    assert again.cpu_gate is gate


def test_fake_tensors() -> None:
    """On fake and meta tensors the op does nothing and returns nothing."""
    assert STEER(*make(5, 16).to("meta").args) is None
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [mode.from_tensor(x) if x is not None else None for x in make(5, 16).args]
        assert STEER(*fake) is None


def test_needs_no_triton() -> None:
    """Importing the op, running it on the CPU and warming a CPU work where Triton isn't there."""
    code = """
import sys
sys.modules["triton"] = None
import torch
from hotwire_plugin import op
from tests.unit.op_cases import check, make
check(torch.ops.hotwired.steer, make(3, 8))
op.warm(8, torch.float32, torch.device("cpu"), 4)
assert "hotwire_plugin.op_triton" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_inductor_keeps_the_mutation_and_copies_nothing() -> None:
    """Compiled with a dynamic batch, the op writes the matmul's own output, for any batch size."""
    torch._dynamo.reset()
    weight = torch.eye(16)

    def step(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        hidden = x @ weight
        torch.ops.hotwired.steer(hidden, *others)
        return hidden @ weight

    compiled = torch.compile(step, fullgraph=True, dynamic=True)
    case = make(5, 16)
    got, codes = run_and_get_code(compiled, *case.args)
    assert torch.equal(got, step(*case.args))
    assert torch.allclose(got, steer_reference(*case.args), atol=1e-5)
    for tokens in (9, 2, 33):
        other = make(tokens, 16, seed=tokens)
        assert torch.equal(compiled(*other.args), step(*other.args))
    assert len(codes) == 1
    # Nothing but the two matmuls and the op, on the first matmul's buffer: a copy of hidden would
    # be a kernel of its own.
    assert re.findall(r"hotwired\.steer\.default\((\w+),", codes[0]) == ["buf0"]
    assert "cpp_fused" not in codes[0]
    assert codes[0].count("extern_kernels.mm(") == 2


def _steer_input(*args: torch.Tensor | None) -> None:
    torch.ops.hotwired.steer(*args)


def test_inductor_writes_an_input_in_place() -> None:
    """A graph that steers its own input changes the caller's tensor."""
    torch._dynamo.reset()
    compiled = torch.compile(_steer_input, fullgraph=True)
    case, same = make(5, 16), make(5, 16)
    _, codes = run_and_get_code(compiled, *case.args)
    torch.ops.hotwired.steer(*same.args)
    assert torch.equal(case.hidden, same.hidden)
    assert "cpp_fused" not in codes[0]
    assert "copy_" not in codes[0]
