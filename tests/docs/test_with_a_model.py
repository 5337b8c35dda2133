"""The same pages with a real `vllm serve`, started once, and the blocks that run a model."""

import shlex
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.demo.servers import free_port
from tests.docs.pages import ROOT, SLOW, WORLD, Block, blocks
from tests.docs.test_commands import ids, run, with_commands
from tests.docs.world import BIN, SmallWorld, World
from tests.support.engine_models import smollm2
from tests.support.engine_process import environment, kill_group

START_S = 600
pytestmark = [pytest.mark.slow, pytest.mark.timeout(START_S + 300)]


def serves(block: Block) -> list[str]:
    """The block's commands that start vLLM."""
    typed = (c.text for c in block.commands()) if block.is_terminal else ()
    return [text for text in typed if text.startswith("vllm serve ")]


def needs_vllm(page: Path) -> bool:
    """Whether a page's commands go to a vLLM, in a world in which nothing else happens."""
    found = blocks(page)
    asks = any("localhost:8000" in block.text for block in found)
    return asks and not any(WORLD in block.marks for block in found)


WITH_VLLM = [page for page in with_commands() if needs_vllm(page)]
WITH_SLOW_BLOCKS = [
    page
    for page in with_commands()
    if page not in WITH_VLLM and any(SLOW in block.marks for block in blocks(page))
]


@dataclass
class Served:
    """A `vllm serve` as the pages start it: its port, and XDG_RUNTIME_DIR of it and its daemon."""

    port: int
    runtime: Path


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """The one command that all pages have for it, with a port of its own."""
    smollm2()
    (command,) = {text for page in WITH_VLLM for block in blocks(page) for text in serves(block)}
    words = shlex.split(command.partition(" > ")[0])
    runtime = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))
    found = Served(free_port(), runtime)
    env = environment(runtime / "hotwire") | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    words = [str(BIN / words[0]), *words[1:], "--port", str(found.port)]
    with (runtime / "log").open("wb") as log:
        process = subprocess.Popen(
            words, env=env, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        wait_for(found, process)
        yield found
    finally:
        kill_group(process)
        shutil.rmtree(runtime, ignore_errors=True)


def wait_for(served: Served, process: "subprocess.Popen[bytes]") -> None:
    """Waits until it serves."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://localhost:{served.port}/health", timeout=5).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise RuntimeError((served.runtime / "log").read_text(errors="replace")[-3000:])


@pytest.mark.parametrize("page", WITH_VLLM, ids=ids)
def test_commands_work_with_vllm(page: Path, served: Served, short_dir: Path) -> None:
    """Each page has a home and a daemon of its own."""
    run(blocks(page), World(short_dir, served.runtime, served.port))


@pytest.mark.parametrize("page", WITH_SLOW_BLOCKS, ids=ids)
def test_slow_commands_work(page: Path, short_dir: Path) -> None:
    """With nodes that have no model, and the slow blocks in their places."""
    run(blocks(page), SmallWorld(short_dir))
