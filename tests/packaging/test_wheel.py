"""What is in the wheel, and what it says of itself."""

import email
import re
import zipfile
from pathlib import PurePosixPath

import pytest

from tests.packaging import environments

PACKAGES = {
    "hotwired": environments.ROOT,
    "hotwire_plugin": environments.ROOT,
    "hotwire_client": environments.ROOT / "clients",
    "hotwirectl": environments.ROOT / "clients",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """This tree's wheel."""
    return zipfile.ZipFile(environments.build_wheel(tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def info(wheel: zipfile.ZipFile) -> str:
    """The folder of the wheel's metadata."""
    return next(name for name in wheel.namelist() if name.endswith("/METADATA")).rpartition("/")[0]


def test_it_holds_the_four_packages_and_nothing_else(wheel: zipfile.ZipFile, info: str) -> None:
    """Every source, every stub, every mark of types; no test, bench or proto."""
    there = {name for name in wheel.namelist() if not name.startswith(info)}
    wanted = {
        str(path.relative_to(parent))
        for package, parent in PACKAGES.items()
        for path in (parent / package).rglob("*")
        if path.suffix in {".py", ".pyi", ".typed"}
    }
    assert there == wanted
    assert {PurePosixPath(name).parts[0] for name in there} == set(PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= there
    stubs = [name for name in there if name.endswith("_pb2.py")]
    assert "hotwired/v1/steering_service_pb2.py" in stubs
    assert "hotwired/node/v1/node_pb2.py" in stubs
    assert {f"{name}i" for name in stubs} <= there


def test_entry_points(wheel: zipfile.ZipFile, info: str) -> None:
    """Two commands, and the plugin that vLLM looks for."""
    text = wheel.read(f"{info}/entry_points.txt").decode()
    assert re.findall(r"^(\[.+\]|.+ = .+)$", text, re.MULTILINE) == [
        "[console_scripts]",
        "hotwirectl = hotwirectl.main:main",
        "hotwired = hotwired.main:main",
        "[vllm.general_plugins]",
        "hotwire_plugin = hotwire_plugin:register",
    ]


def test_metadata(wheel: zipfile.ZipFile, info: str) -> None:
    """The licence lies in it; nothing heavy is needed unless an extra is asked for."""
    assert wheel.read(f"{info}/licenses/LICENSE") == (environments.ROOT / "LICENSE").read_bytes()
    metadata = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"vllm", "cpu", "norms", "plot"} <= set(metadata.get_all("Provides-Extra", []))
    needs = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not [line for line in needs if re.match(r"torch|vllm|transformers|matplotlib", line)]
    assert [line for line in needs if line.startswith("protobuf")] == ["protobuf<8,>=6.33.5"]


def test_the_classifiers_are_the_versions_that_are_tested() -> None:
    """Neither more nor less is said than is run."""
    said = re.findall(r"Python :: (3\.\d+)", str(environments.project()["classifiers"]))
    assert tuple(said) == environments.VERSIONS


def test_stubs_run_on_the_oldest_protobuf_that_is_allowed() -> None:
    """Generated code refuses an older runtime than the one it was made for."""
    line = re.compile(r"^# Protobuf Python Version: (\d+\.\d+\.\d+)$", re.MULTILINE)
    for stub in (environments.ROOT / "hotwired").rglob("*_pb2.py"):
        made_for = line.search(stub.read_text())
        assert made_for is not None
        assert tuple(map(int, made_for[1].split("."))) <= (6, 33, 5), stub
