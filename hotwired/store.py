"""What is stored, and the same in memory: registry and blobs behind one disk thread."""

import asyncio
import functools
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from hotwired.blobs import BlobDir
from hotwired.registry import Change, Registry, Stored, translated
from hotwired.snapshot import Desired, Entry

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Store:
    """The state directory. `desired` is what is stored, always.

    `pending` counts the calls that are staging a revision: no row may refer to it yet, and yet it
    must not be discarded.
    """

    def __init__(self, directory: Path) -> None:
        self.desired: Desired
        self.pending: Counter[str] = Counter()
        self.directory = directory
        self._registry = Registry(directory / "registry.db")
        self._blobs = BlobDir(directory / "blobs", directory / "quarantine")
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk")
        # Of their own, so that who downloads holds up no change.
        self._downloads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="downloads")

    def open(self) -> None:
        """Reads what is stored and removes leftovers. Raises as Registry.open."""
        has_blobs = self._blobs.directory.is_dir() and any(self._blobs.directory.iterdir())
        stored = self._registry.open(may_create=not has_blobs)
        self._blobs.open(stored.blobs)
        self.desired = _desired(stored)

    def close(self) -> None:
        """Waits for the disk and closes the database."""
        for threads in (self._downloads, self._disk):
            threads.shutdown(wait=True)
        self._registry.close()

    @property
    def blob_bytes(self) -> int:
        """The bytes of all blobs."""
        return self._blobs.total_bytes

    @property
    def unreadable(self) -> set[str]:
        """The revisions whose blob is missing or damaged."""
        return self._blobs.unreadable

    @contextmanager
    def pended(self, revision: str) -> Iterator[None]:
        """Counts a revision as pending."""
        self.pending[revision] += 1
        try:
            yield
        finally:
            self.pending[revision] -= 1
            if not self.pending[revision]:
                del self.pending[revision]

    async def read_blob(self, revision: str) -> bytes:
        """Returns canonical bytes. Raises BlobCorrupt or StoreUnavailable."""
        return await self._on_disk(self._blobs.read, revision)

    async def blob_chunks(self, revision: str, chunk_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yields canonical bytes in chunks, of which one at a time is held.

        Close it, if it is left early. Raises as read_blob, before the first chunk if damaged.
        """
        file = await self._on(self._downloads, self._blobs.open_checked, revision)
        with file:
            while chunk := await self._on(self._downloads, file.read, chunk_bytes):
                yield chunk

    async def write_blob(self, revision: str, data: bytes) -> None:
        """Stores a blob, unless it is there. Raises StoreFull or StoreUnavailable."""
        await self._on_disk(self._blobs.put, revision, data)

    async def drop_blob(self, revision: str) -> None:
        """Removes a blob that no row refers to and at most one call is staging."""
        if not self.desired.names_of(revision) and self.pending[revision] <= 1:
            await self._on_disk(self._blobs.remove, revision)

    async def apply(self, change: Change, blob: tuple[str, bytes] | None = None) -> Desired:
        """Stores a change, its blob first, and returns the new desired state.

        blob: a revision and its canonical bytes. Raises StoreFull, StoreUnavailable or
        StoreCorrupt; nothing is changed then.
        """
        await self._on_disk(self._apply, change, blob)
        before = self.desired
        self.desired = before.changed(
            change.generation, put=change.put, delete=change.delete, policy=change.policy
        )
        for revision in _dropped(before, self.desired, change):
            await self._on_disk(self._blobs.remove, revision)
        return self.desired

    def _apply(self, change: Change, blob: tuple[str, bytes] | None) -> None:
        added = blob[0] if blob is not None and self._blobs.put(*blob) else None
        try:
            self._registry.apply(change)
        except BaseException:
            if added is not None:
                self._blobs.remove(added)
            raise

    async def _on_disk(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._on(self._disk, call, *args, **kwargs)

    async def _on(
        self, threads: Executor, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        bound = functools.partial(call, *args, **kwargs)
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, bound)
        except OSError as exc:
            raise translated(exc, self.directory) from exc


def _desired(stored: Stored) -> Desired:
    entries = {vector.name: Entry.of(vector) for vector in stored.vectors}
    return Desired(stored.generation, stored.policy, entries)


def _dropped(before: Desired, after: Desired, change: Change) -> list[str]:
    """Returns the revisions that a change left without a name."""
    name = change.delete or (change.put.name if change.put is not None else "")
    entry = before.entries.get(name)
    had = entry.revisions if entry is not None else ()
    return [revision for revision in had if not after.names_of(revision)]
