"""Each command in README.md and docs/*.md is run, in order, one bash to a page.

What it prints is compared by its shape: see `shapes`. How a page marks its blocks: see `pages`.
"""

import shutil
from pathlib import Path

import pytest

from tests.docs.pages import MODEL_TEXT, NOT_RUN, ROOT, SLOW, WORLD, Block, Command, blocks, pages
from tests.docs.session import SECONDS, Session
from tests.docs.shapes import difference
from tests.docs.world import SmallWorld, World, started

PAGES = pages()
NOT_RUN_BY_ANY_TEST = [
    ("README.md", "`make test` is this test run, and `make demo` checks itself"),
    ("gpu.md", "installs into an environment with CUDA"),
    ("gpu.md", "needs a CUDA device"),
    ("gpu.md", "needs a CUDA device"),
    ("gpu.md", "needs a CUDA device"),
    ("migrating.md", "exchanges packages; tests/engine/test_standalone.py starts such an engine"),
    ("quickstart.md", "`make setup model` made the environment that the tests run in"),
    ("security.md", "needs root and a group; tests/daemon/test_places.py has both"),
    ("security.md", "needs another host; tests/daemon/test_remote.py calls by TLS"),
    ("traces.md", "needs a collector; tests/daemon/test_traces.py has one"),
]
"""Every block of commands that no test here runs, with the reason its page gives."""

ELSEWHERE = {
    "deploying": "tests/unit/test_deploy.py",
    "vector-formats": "tests/daemon/test_vector_formats_doc.py",
    "verify": "tests/engine/test_verify.py",
}
"""The pages whose commands have a test of their own, in another world."""

OPTIONAL = ("go", "node")
"""What may be missing on a machine: their snippets are only read then."""

CTRL_C_AFTER = 2.0
SLOW_SECONDS = 400.0


def ids(page: Path) -> str:
    """A page's name."""
    return page.stem


def with_commands() -> list[Path]:
    """The pages that have anything to run here."""
    here = [page for page in PAGES if page.stem not in ELSEWHERE]
    return [page for page in here if any(block.is_terminal for block in blocks(page))]


def test_the_other_tests_are_there() -> None:
    """And speak of their pages."""
    for page, test in ELSEWHERE.items():
        assert f"{page}.md" in (ROOT / test).read_text()


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem not in ELSEWHERE], ids=ids)
def test_no_block_of_commands_is_left_out(page: Path) -> None:
    """What looks like a command is run, or says why it is not."""
    stray = {block.line: block.stray for block in blocks(page) if block.stray}
    assert not stray, "a ```console fence is run; `<!-- not run: why -->` before ```sh is not"


def test_what_is_not_run_is_known() -> None:
    """So that it can't grow unseen."""
    found = [
        (page.name, block.marks[NOT_RUN])
        for page in PAGES
        for block in blocks(page)
        if NOT_RUN in block.marks
    ]
    assert found == NOT_RUN_BY_ANY_TEST


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_each_file_is_used(page: Path) -> None:
    """A file that the reader saves stands in a command, so that it is run, too."""
    found = blocks(page)
    for at, block in enumerate(found):
        if block.file:
            typed = [c.text for later in found[at:] if later.is_terminal for c in later.commands()]
            assert any(block.file in text.split() for text in typed), block.file


@pytest.fixture
def small_world(short_dir: Path) -> SmallWorld:
    """Nodes without a model, and no daemon yet."""
    return SmallWorld(short_dir)


@pytest.mark.parametrize("page", with_commands(), ids=ids)
def test_commands_work_as_the_page_says(page: Path, small_world: SmallWorld) -> None:
    """All but those that need a model."""
    found = [block for block in blocks(page) if SLOW not in block.marks]
    run(found, small_world)
    assert small_world.http.faults == []


def run(found: list[Block], world: World) -> None:
    """Does what a reader does: saves the files, types the commands."""
    typed = [c.text for block in found if block.is_terminal for c in block.commands()]
    serves = any(text.startswith("hotwired serve") for text in typed)
    with started(world, with_daemon=not serves), Session(world.environment, world.home) as bash:
        for block in found:
            if (what := block.marks.get(WORLD)) and isinstance(world, SmallWorld):
                world.happens(what)
            if block.file:
                (world.home / block.file).write_text(world.here(block.text))
            for command in block.commands() if block.is_terminal else ():
                check(command, block, bash, world)


def check(command: Command, block: Block, bash: Session, world: World) -> None:
    """Runs one command and compares."""
    typed = world.here(command.text)
    if typed.split()[0] in OPTIONAL and shutil.which(typed.split()[0]) is None:
        return
    if command.interrupted:
        status, printed = bash.interrupt_after(typed, CTRL_C_AFTER)
    else:
        status, printed = bash.run(typed, SLOW_SECONDS if SLOW in block.marks else SECONDS)
    where = f"line {command.line}: {command.text}"
    assert status == command.status, f"{where}\nended with {status}:\n{printed}"
    if MODEL_TEXT in block.marks:
        assert printed.strip() or not command.expected, where
    elif command.expected:
        wrong = difference(command.expected, printed, world.places)
        assert wrong is None, f"{where}\n{wrong}"
