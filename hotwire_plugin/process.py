"""What this process of vLLM offers: its roles, and the one socket that carries them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace

from hotwire_plugin import __version__
from hotwire_plugin.admission import Admission
from hotwire_plugin.armed import sites_of
from hotwire_plugin.blobs import BlobStore
from hotwire_plugin.engine_role import EngineRole
from hotwire_plugin.log import named, set_up_logging
from hotwire_plugin.node_service import Node, NodeServer
from hotwire_plugin.settings import settings_from
from hotwire_plugin.shape import SITES, ModelShape
from hotwire_plugin.snapshot import SnapshotHolder
from hotwire_plugin.standalone import Standalone, from_environment
from hotwire_plugin.worker import WorkerRole
from hotwired.errors import HotwireError
from hotwired.run_dir import run_dir, socket_path
from hotwired.vector_file import check_fits

SpecialTokens = Callable[[], AbstractSet[int] | None]
"""Returns the ids of the tokenizer's special tokens, None without a tokenizer."""

logger = logging.getLogger("hotwire_plugin.process")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is within its vLLM instance, and the model it serves."""

    instance_id: str
    dp_rank: int
    pp_rank: int
    tp_rank: int
    pp_size: int
    tp_size: int
    model: str
    hidden_size: int
    num_layers: int
    dtype: str
    vllm_version: str


def standalone_for(identity: Identity) -> Standalone | None:
    """Return what the environment says, without the vectors that do not fit this model."""
    whole = from_environment(os.environ)
    if whole is None:
        return None
    vectors = {}
    for name, vector in whole.vectors.items():
        try:
            check_fits(
                vector,
                hidden_size=identity.hidden_size,
                num_layers=identity.num_layers,
                dtype=identity.dtype,
            )
        except HotwireError as error:
            fault = named("vector left out", vector=name, error=str(error))
            logger.error("vector %s is left out: %s", name, error, extra=fault)
        else:
            vectors[name] = vector
    metas = {name: meta for name, meta in whole.snapshot.vectors.items() if name in vectors}
    return Standalone(vectors, replace(whole.snapshot, vectors=metas))


class Process:
    """The roles of this process. There is one, :data:`process`, and it starts out with none."""

    def __init__(self) -> None:
        self.registered = False
        self.disarmed_reason = ""
        self.settings = settings_from(os.environ)
        self.engine: EngineRole | None = None
        self.worker: WorkerRole | None = None
        self.frontend: Admission | None = None
        self._node: Node | None = None
        self._server: NodeServer | None = None
        self._holder = SnapshotHolder()
        self._standalone: Standalone | None = None
        self._shape: ModelShape | None = None

    def disarm(self, reason: str) -> None:
        """Steer nothing in this process; the first reason is the one that is reported."""
        self.disarmed_reason = self.disarmed_reason or reason
        if self._node is not None:
            self._node.disarmed_reason = self.disarmed_reason

    def become_worker(self, identity: Identity, role: WorkerRole) -> None:
        """Take the worker role with an armed model."""
        self.worker = role
        node = self._node_for(identity)
        node.blobs, node.worker_report = role.blobs, role.report
        armed = {place.site for place in role.places}
        node.sites = tuple(site for site in SITES if site in armed)

    def become_engine(
        self,
        identity: Identity,
        disarmed_reason: str,
        shape: ModelShape,
        special_tokens: SpecialTokens,
    ) -> None:
        """Take the engine role, disarmed if a worker is, and serve."""
        if disarmed_reason:
            self.disarm(disarmed_reason)
        node = self._node_for(identity)
        self._shape = shape
        admission = Admission(self._holder, shape, self._why_disarmed, special_tokens)
        self.engine = EngineRole(admission, self._holder)
        node.engine_report, node.receipts = self.engine.report, self.engine.receipts
        node.sites = sites_of(shape)
        self.serve(identity, "engine")

    def become_frontend(
        self, identity: Identity, shape: ModelShape, special_tokens: SpecialTokens
    ) -> None:
        """Take the frontend role, and serve. What the engine of this process knows goes first."""
        node = self._node_for(identity)
        shape = self._shape or shape
        self.frontend = Admission(self._holder, shape, self._why_disarmed, special_tokens)
        node.sites = sites_of(shape)
        self.serve(identity, "frontend")

    def blob_store(self, identity: Identity) -> BlobStore:
        """Return a store for vectors of this identity's model; a standalone one comes filled."""
        blobs = BlobStore(
            identity.hidden_size, identity.num_layers, identity.dtype, self.settings.blob_bytes
        )
        self._node_for(identity)
        for vector in self._standalone.vectors.values() if self._standalone else ():
            blobs.add(vector)
        return blobs

    def serve(self, identity: Identity, role: str) -> None:
        """Add a role to this process's socket, which is opened for the first.

        Never raises: without a socket, requests are admitted by the last snapshot there is.
        """
        set_up_logging()
        node = self._node_for(identity)
        node.roles.add(role)
        if role != "worker" and self._standalone:
            self._holder.commit(self._standalone.snapshot)
        if self._server is None:
            self._server = self._listen(node, role)

    def _listen(self, node: Node, role: str) -> NodeServer | None:
        path = socket_path(
            run_dir(), node.instance_id, role, node.dp_rank, node.pp_rank, node.tp_rank
        )
        server = NodeServer(node, path)
        try:
            server.start()
        except (HotwireError, OSError) as error:
            unheard = named("not listening", path=str(path), error=str(error))
            logger.error("no daemon can reach this process: %s", error, extra=unheard)
            return None
        logger.info("listening on %s", path, extra=named("listening", path=str(path)))
        return server

    def _node_for(self, identity: Identity) -> Node:
        """Return this process's node; a new instance in the same process gets a new one."""
        if self._node is None or self._node.instance_id != identity.instance_id:
            self.close()
            self._holder = self._holder if self._node is None else SnapshotHolder()
            self._standalone, self._shape = standalone_for(identity), None
            self._node = Node(
                **asdict(identity),
                plugin_version=__version__,
                holder=self._holder,
                disarmed_reason=self.disarmed_reason,
                standalone=self._standalone is not None,
            )
        return self._node

    def forget(self) -> None:
        """Start out anew in a forked child: roles and gRPC objects stay with the parent."""
        registered, reason = self.registered, self.disarmed_reason
        self.__init__()  # type: ignore[misc]
        self.registered, self.disarmed_reason = registered, reason

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _why_disarmed(self) -> str | None:
        return self.disarmed_reason or None


process = Process()
os.register_at_fork(after_in_child=process.forget)
