import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from hotwired.v1 import node_pb2 as _node_pb2
from hotwired.v1 import policy_pb2 as _policy_pb2
from hotwired.v1 import receipt_pb2 as _receipt_pb2
from hotwired.v1 import stats_pb2 as _stats_pb2
from hotwired.v1 import vector_pb2 as _vector_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CanaryAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANARY_ACTION_UNSPECIFIED: _ClassVar[CanaryAction]
    CANARY_ACTION_PROMOTE: _ClassVar[CanaryAction]
    CANARY_ACTION_DROP: _ClassVar[CanaryAction]
CANARY_ACTION_UNSPECIFIED: CanaryAction
CANARY_ACTION_PROMOTE: CanaryAction
CANARY_ACTION_DROP: CanaryAction

class RegisterVectorRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: RegisterVectorHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[RegisterVectorHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class RegisterVectorHeader(_message.Message):
    __slots__ = ("name", "size_bytes", "sha256", "model", "validate_only", "expire_time", "ttl", "canary_percent")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    CANARY_PERCENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    size_bytes: int
    sha256: str
    model: str
    validate_only: bool
    expire_time: _timestamp_pb2.Timestamp
    ttl: _duration_pb2.Duration
    canary_percent: float
    def __init__(self, name: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., model: _Optional[str] = ..., validate_only: bool = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., canary_percent: _Optional[float] = ...) -> None: ...

class RegisterVectorResponse(_message.Message):
    __slots__ = ("vector", "generation", "converged", "nodes", "unchanged")
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    vector: _vector_pb2.Vector
    generation: int
    converged: bool
    nodes: _containers.RepeatedCompositeFieldContainer[_node_pb2.NodeOutcome]
    unchanged: bool
    def __init__(self, vector: _Optional[_Union[_vector_pb2.Vector, _Mapping]] = ..., generation: _Optional[int] = ..., converged: bool = ..., nodes: _Optional[_Iterable[_Union[_node_pb2.NodeOutcome, _Mapping]]] = ..., unchanged: bool = ...) -> None: ...

class GetVectorRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetVectorResponse(_message.Message):
    __slots__ = ("vector",)
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    vector: _vector_pb2.Vector
    def __init__(self, vector: _Optional[_Union[_vector_pb2.Vector, _Mapping]] = ...) -> None: ...

class DownloadVectorRequest(_message.Message):
    __slots__ = ("name", "revision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    revision: str
    def __init__(self, name: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class DownloadVectorResponse(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: DownloadVectorHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[DownloadVectorHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class DownloadVectorHeader(_message.Message):
    __slots__ = ("vector", "sha256", "size_bytes")
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    vector: _vector_pb2.Vector
    sha256: str
    size_bytes: int
    def __init__(self, vector: _Optional[_Union[_vector_pb2.Vector, _Mapping]] = ..., sha256: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ListVectorsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListVectorsResponse(_message.Message):
    __slots__ = ("vectors", "next_page_token", "total_size")
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    vectors: _containers.RepeatedCompositeFieldContainer[_vector_pb2.Vector]
    next_page_token: str
    total_size: int
    def __init__(self, vectors: _Optional[_Iterable[_Union[_vector_pb2.Vector, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total_size: _Optional[int] = ...) -> None: ...

class UpdateVectorRequest(_message.Message):
    __slots__ = ("name", "update_mask", "disabled", "expire_time", "ttl", "canary_percent", "canary_action", "revision", "canary_revision", "validate_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    CANARY_PERCENT_FIELD_NUMBER: _ClassVar[int]
    CANARY_ACTION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CANARY_REVISION_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    update_mask: _field_mask_pb2.FieldMask
    disabled: bool
    expire_time: _timestamp_pb2.Timestamp
    ttl: _duration_pb2.Duration
    canary_percent: float
    canary_action: CanaryAction
    revision: str
    canary_revision: str
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., disabled: bool = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., canary_percent: _Optional[float] = ..., canary_action: _Optional[_Union[CanaryAction, str]] = ..., revision: _Optional[str] = ..., canary_revision: _Optional[str] = ..., validate_only: bool = ...) -> None: ...

class UpdateVectorResponse(_message.Message):
    __slots__ = ("vector", "generation", "converged", "nodes", "unchanged")
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    vector: _vector_pb2.Vector
    generation: int
    converged: bool
    nodes: _containers.RepeatedCompositeFieldContainer[_node_pb2.NodeOutcome]
    unchanged: bool
    def __init__(self, vector: _Optional[_Union[_vector_pb2.Vector, _Mapping]] = ..., generation: _Optional[int] = ..., converged: bool = ..., nodes: _Optional[_Iterable[_Union[_node_pb2.NodeOutcome, _Mapping]]] = ..., unchanged: bool = ...) -> None: ...

class DeleteVectorRequest(_message.Message):
    __slots__ = ("name", "revision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    revision: str
    def __init__(self, name: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class DeleteVectorResponse(_message.Message):
    __slots__ = ("vector", "generation", "converged", "nodes")
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    vector: _vector_pb2.Vector
    generation: int
    converged: bool
    nodes: _containers.RepeatedCompositeFieldContainer[_node_pb2.NodeOutcome]
    def __init__(self, vector: _Optional[_Union[_vector_pb2.Vector, _Mapping]] = ..., generation: _Optional[int] = ..., converged: bool = ..., nodes: _Optional[_Iterable[_Union[_node_pb2.NodeOutcome, _Mapping]]] = ...) -> None: ...

class GetPolicyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPolicyResponse(_message.Message):
    __slots__ = ("policy", "generation")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    policy: _policy_pb2.Policy
    generation: int
    def __init__(self, policy: _Optional[_Union[_policy_pb2.Policy, _Mapping]] = ..., generation: _Optional[int] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("policy", "update_mask", "validate_only")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    policy: _policy_pb2.Policy
    update_mask: _field_mask_pb2.FieldMask
    validate_only: bool
    def __init__(self, policy: _Optional[_Union[_policy_pb2.Policy, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., validate_only: bool = ...) -> None: ...

class SetPolicyResponse(_message.Message):
    __slots__ = ("policy", "generation", "converged", "nodes")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    policy: _policy_pb2.Policy
    generation: int
    converged: bool
    nodes: _containers.RepeatedCompositeFieldContainer[_node_pb2.NodeOutcome]
    def __init__(self, policy: _Optional[_Union[_policy_pb2.Policy, _Mapping]] = ..., generation: _Optional[int] = ..., converged: bool = ..., nodes: _Optional[_Iterable[_Union[_node_pb2.NodeOutcome, _Mapping]]] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("stats",)
    STATS_FIELD_NUMBER: _ClassVar[int]
    stats: _stats_pb2.Stats
    def __init__(self, stats: _Optional[_Union[_stats_pb2.Stats, _Mapping]] = ...) -> None: ...

class WatchStatsRequest(_message.Message):
    __slots__ = ("interval_seconds",)
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    interval_seconds: float
    def __init__(self, interval_seconds: _Optional[float] = ...) -> None: ...

class WatchStatsResponse(_message.Message):
    __slots__ = ("stats",)
    STATS_FIELD_NUMBER: _ClassVar[int]
    stats: _stats_pb2.Stats
    def __init__(self, stats: _Optional[_Union[_stats_pb2.Stats, _Mapping]] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes", "generation")
    NODES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[_node_pb2.Node]
    generation: int
    def __init__(self, nodes: _Optional[_Iterable[_Union[_node_pb2.Node, _Mapping]]] = ..., generation: _Optional[int] = ...) -> None: ...

class GetReceiptsRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class GetReceiptsResponse(_message.Message):
    __slots__ = ("receipts", "truncated")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedCompositeFieldContainer[_receipt_pb2.Receipt]
    truncated: bool
    def __init__(self, receipts: _Optional[_Iterable[_Union[_receipt_pb2.Receipt, _Mapping]]] = ..., truncated: bool = ...) -> None: ...
