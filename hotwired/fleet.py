"""The nodes there are: found by their sockets, grouped by what they say of themselves."""

import asyncio
import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hotwired.log import get
from hotwired.node_link import NodeLink
from hotwired.run_dir import NODES, is_live
from hotwired.signal import Signal
from hotwired.snapshot import Facts

STALE_SECONDS = 3.0
"""How long a socket must refuse before it is removed, if its process may still be alive."""


@dataclass(slots=True)
class Group:
    """One engine (data-parallel rank) and its workers. With one process, all are one link."""

    dp_rank: int
    engine: NodeLink | None = None
    workers: list[NodeLink] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether all workers that the engine's model is spread over are known."""
        sizes = [
            worker.described.pp_size * worker.described.tp_size
            for worker in (*self.workers, *([self.engine] if self.engine else ()))
            if worker.described
        ]
        return bool(self.workers) and len(self.workers) >= max(sizes, default=1)


class Instance:
    """The described nodes of one vLLM instance that take orders."""

    def __init__(self, instance_id: str, links: list[NodeLink]) -> None:
        self.instance_id = instance_id
        self.links = links
        self.groups: dict[int, Group] = {}
        for link in links:
            self._add(link)

    @property
    def workers(self) -> list[NodeLink]:
        """The workers of all groups."""
        return [worker for group in self.groups.values() for worker in group.workers]

    @property
    def engines(self) -> list[NodeLink]:
        """The engines of all groups."""
        return [group.engine for group in self.groups.values() if group.engine is not None]

    @property
    def facts(self) -> Facts | None:
        """What a vector must fit; None as long as no node knows its model."""
        ranked = sorted(self.links, key=lambda link: not (link.is_worker or link.is_engine))
        for link in ranked:
            if (found := link.described) is not None and found.hidden_size and found.num_layers:
                return Facts(found.model, found.hidden_size, found.num_layers, found.dtype)
        return None

    def group_of(self, link: NodeLink) -> Group | None:
        """Returns the group that a link belongs to; None for a frontend alone."""
        if link.described is None or not (link.is_worker or link.is_engine):
            return None
        return self.groups[link.described.dp_rank]

    def _add(self, link: NodeLink) -> None:
        if link.described is None or not (link.is_worker or link.is_engine):
            return
        rank = link.described.dp_rank
        group = self.groups.setdefault(rank, Group(rank))
        if link.is_worker:
            group.workers.append(link)
        if link.is_engine:
            group.engine = link


class Fleet:
    """The links to all nodes under a run directory. `changed` fires when anything is learnt."""

    def __init__(self, run_dir: Path) -> None:
        self.changed = Signal()
        self.links: dict[str, NodeLink] = {}
        self._directory = run_dir / NODES
        self._closing: set[asyncio.Task[None]] = set()

    def ordered(self) -> list[NodeLink]:
        """Returns all links in the order of their names."""
        return [self.links[name] for name in sorted(self.links)]

    def instances(self) -> list[Instance]:
        """Returns the instances that have a described node which takes orders."""
        by_id: dict[str, list[NodeLink]] = {}
        for link in self.ordered():
            if link.described is not None and link.takes_orders:
                by_id.setdefault(link.described.instance_id, []).append(link)
        return [Instance(instance_id, links) for instance_id, links in by_id.items()]

    def scan(self) -> None:
        """Looks for sockets: links new ones, drops those gone, removes those left by the dead."""
        found = dict(self._sockets())
        for name, link in list(self.links.items()):
            if found.get(name) != (link.path, link.inode) or self._is_stale(link):
                self._drop(link)
        for name, (path, inode) in found.items():
            if name not in self.links and path.exists():
                self.links[name] = NodeLink(path, inode)
                get().info("node found", node=name)
                self.changed.fire()

    async def close(self) -> None:
        """Closes all links."""
        for link in list(self.links.values()):
            self._drop(link)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _sockets(self) -> Iterator[tuple[str, tuple[Path, int]]]:
        for path in sorted(self._directory.glob("*/*.sock")):
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            name = f"{path.parent.name}/{path.stem}"
            # What isn't Unicode, or isn't fit to be shown, was not named by a node.
            if stat.S_ISSOCK(status.st_mode) and name.isprintable():
                yield name, (path, status.st_ino)

    def _is_stale(self, link: NodeLink) -> bool:
        if not link.failures or not self._is_dead(link):
            return False
        try:
            link.path.unlink(missing_ok=True)
        except PermissionError:
            return False  # another user's, of a common group: it stays until that user's is back
        get().info("stale socket removed", node=link.name, path=str(link.path))
        with contextlib.suppress(OSError):  # other sockets are still in it
            link.path.parent.rmdir()
        return True

    def _is_dead(self, link: NodeLink) -> bool:
        refusing_long = time.monotonic() - link.failing_since > STALE_SECONDS
        pid = link.described.pid if link.described else 0
        try:
            return not is_live(link.path) and (refusing_long or _is_gone(pid))
        except OSError:
            return False

    def _drop(self, link: NodeLink) -> None:
        get().info("node gone", node=link.name)
        del self.links[link.name]
        for task in link.tasks.values():
            task.cancel()
        closing = asyncio.get_running_loop().create_task(link.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        self.changed.fire()


def _is_gone(pid: int) -> bool:
    """Whether there is no such process. Another container's process is never seen, nor is it 0."""
    if pid == 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
