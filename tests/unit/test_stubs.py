"""The committed gRPC stubs, and docs/api.md, are what the protos say."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _stubs(base: Path) -> dict[str, str]:
    found = [*base.glob("hotwired/**/*_pb2*.py"), *base.glob("hotwired/**/*_pb2*.pyi")]
    return {str(path.relative_to(base)): path.read_text() for path in found}


def test_stubs_are_current(tmp_path: Path) -> None:
    """Promised: the stubs in the tree are those the protos generate; if not, run `make proto`."""
    bin_dir = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{bin_dir}:{os.environ['PATH']}"}
    command = ["bash", str(ROOT / "proto" / "generate.sh"), str(tmp_path)]
    subprocess.run(command, check=True, env=environment)
    generated, committed = _stubs(tmp_path), _stubs(ROOT)
    assert sorted(generated) == sorted(committed), "stale: run `make proto`"
    stale = [name for name, text in generated.items() if committed[name] != text]
    assert not stale, "stale: run `make proto`"


def test_the_reference_is_current(tmp_path: Path) -> None:
    """Every RPC, message, field and value with its comment; if not, run `make proto`."""
    out = tmp_path / "api.md"
    subprocess.run([sys.executable, str(ROOT / "proto" / "reference.py"), str(out)], check=True)
    text = out.read_text()
    assert text == (ROOT / "docs" / "api.md").read_text(), "stale: run `make proto`"
    for name in ("rpc RegisterVector(", "message ReceiptOp", "enum NodeState", "`scale_applied` ="):
        assert name in text
    assert " |  |\n" not in text
