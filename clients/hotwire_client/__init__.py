"""A typed client of hotwired, the steering daemon: `Client`, and `AsyncClient` for asyncio.

    with Client() as client:
        client.register_vector("joy.safetensors")

Results are the messages of `hotwired.v1`, re-exported here. Whatever goes wrong is a
`HotwireError`; see `hotwire_client.errors` for the tree.
"""

from hotwire_client.address import default_server, run_dir
from hotwire_client.aio import AsyncClient
from hotwire_client.client import Client
from hotwire_client.destination import Destination
from hotwire_client.downloads import Download
from hotwire_client.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    HotwireError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
    Violation,
)
from hotwire_client.requests import VectorUpdate
from hotwired.v1.node_pb2 import Node, NodeOutcome, NodeRole, NodeState
from hotwired.v1.policy_pb2 import DefaultMode, DoseMode, Policy
from hotwired.v1.receipt_pb2 import Receipt, ReceiptOp
from hotwired.v1.stats_pb2 import CanaryArm, CanaryCount, EngineStats, Stats, WorkerStats
from hotwired.v1.steering_service_pb2 import (
    CanaryAction,
    DeleteVectorResponse,
    GetPolicyResponse,
    GetReceiptsResponse,
    ListNodesResponse,
    RegisterVectorResponse,
    SetPolicyResponse,
    UpdateVectorResponse,
)
from hotwired.v1.vector_pb2 import Canary, Vector

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "AsyncClient",
    "Canary",
    "CanaryAction",
    "CanaryArm",
    "CanaryCount",
    "CancelledError",
    "Client",
    "DataLossError",
    "DeadlineExceededError",
    "DefaultMode",
    "DeleteVectorResponse",
    "Destination",
    "DoseMode",
    "Download",
    "EngineStats",
    "FailedPreconditionError",
    "GetPolicyResponse",
    "GetReceiptsResponse",
    "HotwireError",
    "InternalError",
    "InvalidArgumentError",
    "ListNodesResponse",
    "Node",
    "NodeOutcome",
    "NodeRole",
    "NodeState",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "Policy",
    "Receipt",
    "ReceiptOp",
    "RegisterVectorResponse",
    "ResourceExhaustedError",
    "SetPolicyResponse",
    "Stats",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "UpdateVectorResponse",
    "Vector",
    "VectorUpdate",
    "Violation",
    "WorkerStats",
    "default_server",
    "run_dir",
]
