"""What the pages' commands find: a home with files, vLLM's nodes, a daemon and an HTTP server.

A small world has the plugin's real nodes and decisions without a model behind them, and anything
may happen in it; the real one has a `vllm serve`, which pages share.
"""

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hotwire_plugin import __version__
from hotwire_plugin.node_service import Node
from hotwired.node.v1 import node_pb2
from tests.daemon.harness import Daemon, Instance, eventually
from tests.docs import files
from tests.docs.stand_in import LAYERS, SLOTS, Engine, StandIn

BIN = Path(sys.executable).parent
FIRST_INSTANCE, NEXT_INSTANCE = "7f3a9", "b81c4"
NO_STEERING = "sequence parallelism is on, which moves tokens where steering cannot follow"
SMALL_DISK = 64 << 10


class Nodes(Instance):
    """The nodes of a vLLM that serves the demo model, without the model."""

    def _node(self, role: str, rank: int, **fields: Any) -> Node:
        node = super()._node(role, rank, vllm_version="0.32.0", **fields)
        node.plugin_version = __version__
        if (held := node.blobs) is not None:
            node.worker_report = lambda: node_pb2.WorkerReport(
                blob_bytes=held.bytes_held, rows_capacity=257, slots_capacity=SLOTS
            )
        return node

    def engine(self) -> Engine:
        """Puts an engine behind them, and returns it."""
        node, frontend = self.nodes["engine-0"], self.nodes["frontend-0"]
        assert node.holder is not None
        assert frontend.holder is not None
        made = Engine(node.holder, frontend.holder)
        node.engine_report, node.receipts = made.role.report, made.role.receipts
        return made


class World:
    """One page's world: its home under a root with a short path. See `Happenings` for the rest."""

    def __init__(self, root: Path, runtime: Path | None = None, port: int = 0) -> None:
        self.home = root / "home"
        self.home.mkdir()
        files.write(self.home)
        self._put_vllm(root / "bin")
        self.runtime = runtime or root / "x"
        self.run_dir = self.runtime / "hotwire"
        self.run_dir.mkdir(parents=True, mode=0o700, exist_ok=True)
        self.port = port
        self.daemon = Daemon(root)
        self.daemon.run_dir, self.daemon.socket = self.run_dir, self.run_dir / "hotwired.sock"
        self.daemon.state_dir = self.home / ".local" / "state" / "hotwired"
        self.daemon._log = self.home / "hotwired.log"

    @property
    def environment(self) -> dict[str, str]:
        """What the reader's shell has."""
        passed = ("LANG", "LC_ALL", "USER", "TMPDIR", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
        given = {name: os.environ[name] for name in passed if name in os.environ}
        return given | {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "PATH": os.pathsep.join([str(self.home.parent / "bin"), str(BIN), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "EDITOR": "true",
            "HF_HUB_OFFLINE": "1",
            "MPLCONFIGDIR": str(files.ROOT / ".cache" / "matplotlib"),
            "GOCACHE": str(self.home.parent / "go"),
            "GOTOOLCHAIN": "local",
        }

    @property
    def places(self) -> dict[str, str]:
        """What the pages write for this world's places, by these."""
        return {str(self.runtime): "/run/user/1000", str(self.home): "/home/me"}

    def here(self, text: str) -> str:
        """A command or a file of a page, with this world's port."""
        return text.replace("localhost:8000", f"localhost:{self.port}")

    def _put_vllm(self, folder: Path) -> None:
        """Puts a `vllm` first on the PATH that only waits: what it would start runs already."""
        folder.mkdir()
        (folder / "vllm").write_text("#!/bin/sh\nexec sleep infinity\n")
        (folder / "vllm").chmod(0o755)

    def close(self) -> None:
        """Ends it."""
        self.daemon.close()


class SmallWorld(World):
    """A world without a model, in which things happen when a page says `<!-- world: ... -->`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.nodes = self._nodes(FIRST_INSTANCE)
        self.http = StandIn(self.nodes.engine())
        self.port = self.http.server_port
        self._disk = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    def _nodes(self, instance_id: str) -> Nodes:
        shape = {"hidden_size": files.WIDTH, "num_layers": LAYERS, "model": files.MODEL.name}
        return Nodes(self.run_dir, instance_id, **shape).start()

    def happens(self, what: str) -> None:
        """Makes it happen, and waits until it has."""
        happenings: dict[str, Callable[[], object]] = {
            "the daemon is stopped": self.daemon.stop,
            "the daemon is killed": self.daemon.kill,
            "the daemon runs again": self._run_again,
            "a worker cannot steer": lambda: self._disarm(NO_STEERING),
            "the worker can steer": lambda: self._disarm(""),
            "a worker is gone": lambda: self.nodes.stop_node("worker-0"),
            "the worker is back": self._worker_is_back,
            "vLLM is started again": self._restart_vllm,
            "the disk is full": lambda: self._limit_disk(SMALL_DISK),
            "the disk has room": lambda: self._limit_disk(self._disk[0]),
            "a blob is damaged": self._damage_a_blob,
            "there are files of hotwire-vllm": lambda: files.write_pickled(self.home),
            "there are norms of hotwire-vllm": lambda: files.write_bare_norms(self.home),
        }
        happenings[what]()

    def settle(self) -> None:
        """Waits until the daemon has brought all nodes to where they should be."""
        self.daemon.wait_for(3)

    def _run_again(self) -> None:
        self.daemon.start()
        self.settle()

    def _disarm(self, reason: str) -> None:
        for key in ("engine-0", "worker-0"):
            self.nodes.nodes[key].disarmed_reason = reason
        self.http.engine.disarmed = reason
        eventually(lambda: ("DISARMED" in self.daemon.states().values()) == bool(reason))

    def _worker_is_back(self) -> None:
        self.nodes.start_node("worker")
        self.settle()

    def _restart_vllm(self) -> None:
        self.nodes.stop()
        self._start_vllm()

    def _start_vllm(self) -> None:
        self.nodes = self._nodes(NEXT_INSTANCE)
        self.http.engine = self.nodes.engine()
        self.settle()

    def _limit_disk(self, most: int) -> None:
        assert self.daemon.process is not None
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE, (most, self._disk[1]))

    def _damage_a_blob(self) -> None:
        self.nodes.stop()
        self.daemon.stop()
        blob = next((self.daemon.state_dir / "blobs").iterdir())
        damaged = bytearray(blob.read_bytes())
        damaged[-1] ^= 1
        blob.write_bytes(damaged)
        self.daemon.start()
        self._start_vllm()

    def close(self) -> None:
        """Ends it."""
        super().close()
        self.http.close()
        self.nodes.stop()


@contextmanager
def started(world: World, *, with_daemon: bool) -> Iterator[World]:
    """Starts a world's daemon, unless the page does, and ends it all."""
    try:
        if with_daemon:
            world.daemon.start()
            if isinstance(world, SmallWorld):
                world.settle()
        yield world
    finally:
        world.close()
