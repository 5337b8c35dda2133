import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from hotwired.v1 import node_pb2 as _node_pb2
from hotwired.v1 import policy_pb2 as _policy_pb2
from hotwired.v1 import receipt_pb2 as _receipt_pb2
from hotwired.v1 import stats_pb2 as _stats_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("boot_id", "instance_id", "roles", "dp_rank", "pp_rank", "tp_rank", "pp_size", "tp_size", "pid", "model", "hidden_size", "num_layers", "dtype", "vllm_version", "plugin_version", "armed", "disarmed_reason", "standalone", "generation", "revisions", "sites")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    PP_RANK_FIELD_NUMBER: _ClassVar[int]
    TP_RANK_FIELD_NUMBER: _ClassVar[int]
    PP_SIZE_FIELD_NUMBER: _ClassVar[int]
    TP_SIZE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    VLLM_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    ARMED_FIELD_NUMBER: _ClassVar[int]
    DISARMED_REASON_FIELD_NUMBER: _ClassVar[int]
    STANDALONE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    instance_id: str
    roles: _containers.RepeatedScalarFieldContainer[_node_pb2.NodeRole]
    dp_rank: int
    pp_rank: int
    tp_rank: int
    pp_size: int
    tp_size: int
    pid: int
    model: str
    hidden_size: int
    num_layers: int
    dtype: str
    vllm_version: str
    plugin_version: str
    armed: bool
    disarmed_reason: str
    standalone: bool
    generation: int
    revisions: _containers.RepeatedScalarFieldContainer[str]
    sites: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, boot_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., roles: _Optional[_Iterable[_Union[_node_pb2.NodeRole, str]]] = ..., dp_rank: _Optional[int] = ..., pp_rank: _Optional[int] = ..., tp_rank: _Optional[int] = ..., pp_size: _Optional[int] = ..., tp_size: _Optional[int] = ..., pid: _Optional[int] = ..., model: _Optional[str] = ..., hidden_size: _Optional[int] = ..., num_layers: _Optional[int] = ..., dtype: _Optional[str] = ..., vllm_version: _Optional[str] = ..., plugin_version: _Optional[str] = ..., armed: bool = ..., disarmed_reason: _Optional[str] = ..., standalone: bool = ..., generation: _Optional[int] = ..., revisions: _Optional[_Iterable[str]] = ..., sites: _Optional[_Iterable[str]] = ...) -> None: ...

class StageRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: StageHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[StageHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class StageHeader(_message.Message):
    __slots__ = ("revision", "size_bytes", "validate_only")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    revision: str
    size_bytes: int
    validate_only: bool
    def __init__(self, revision: _Optional[str] = ..., size_bytes: _Optional[int] = ..., validate_only: bool = ...) -> None: ...

class StageResponse(_message.Message):
    __slots__ = ("revision", "already_held")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ALREADY_HELD_FIELD_NUMBER: _ClassVar[int]
    revision: str
    already_held: bool
    def __init__(self, revision: _Optional[str] = ..., already_held: bool = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("generation", "vectors", "policy")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    generation: int
    vectors: _containers.RepeatedCompositeFieldContainer[SnapshotVector]
    policy: _policy_pb2.Policy
    def __init__(self, generation: _Optional[int] = ..., vectors: _Optional[_Iterable[_Union[SnapshotVector, _Mapping]]] = ..., policy: _Optional[_Union[_policy_pb2.Policy, _Mapping]] = ...) -> None: ...

class SnapshotVector(_message.Message):
    __slots__ = ("name", "revision", "layers", "norms", "any_layer", "disabled", "expire_time", "canary")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    NORMS_FIELD_NUMBER: _ClassVar[int]
    ANY_LAYER_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    name: str
    revision: str
    layers: _containers.RepeatedScalarFieldContainer[int]
    norms: _containers.RepeatedScalarFieldContainer[float]
    any_layer: bool
    disabled: bool
    expire_time: _timestamp_pb2.Timestamp
    canary: SnapshotCanary
    def __init__(self, name: _Optional[str] = ..., revision: _Optional[str] = ..., layers: _Optional[_Iterable[int]] = ..., norms: _Optional[_Iterable[float]] = ..., any_layer: bool = ..., disabled: bool = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., canary: _Optional[_Union[SnapshotCanary, _Mapping]] = ...) -> None: ...

class SnapshotCanary(_message.Message):
    __slots__ = ("revision", "norms", "percent")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NORMS_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    revision: str
    norms: _containers.RepeatedScalarFieldContainer[float]
    percent: float
    def __init__(self, revision: _Optional[str] = ..., norms: _Optional[_Iterable[float]] = ..., percent: _Optional[float] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("snapshot", "boot_id")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    boot_id: str
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., boot_id: _Optional[str] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...

class DiscardRequest(_message.Message):
    __slots__ = ("revisions",)
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    revisions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revisions: _Optional[_Iterable[str]] = ...) -> None: ...

class DiscardResponse(_message.Message):
    __slots__ = ("revisions",)
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    revisions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revisions: _Optional[_Iterable[str]] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportResponse(_message.Message):
    __slots__ = ("engine", "worker")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    engine: EngineReport
    worker: WorkerReport
    def __init__(self, engine: _Optional[_Union[EngineReport, _Mapping]] = ..., worker: _Optional[_Union[WorkerReport, _Mapping]] = ...) -> None: ...

class EngineReport(_message.Message):
    __slots__ = ("generation", "revisions_in_use", "requests_total", "requests_steered_total", "requests_unsteered_total", "dose_decisions_total", "requests_live", "canary_requests_total")
    class RequestsUnsteeredTotalEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class DoseDecisionsTotalEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_IN_USE_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_STEERED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_UNSTEERED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DOSE_DECISIONS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_LIVE_FIELD_NUMBER: _ClassVar[int]
    CANARY_REQUESTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    generation: int
    revisions_in_use: _containers.RepeatedScalarFieldContainer[str]
    requests_total: int
    requests_steered_total: int
    requests_unsteered_total: _containers.ScalarMap[str, int]
    dose_decisions_total: _containers.ScalarMap[str, int]
    requests_live: int
    canary_requests_total: _containers.RepeatedCompositeFieldContainer[_stats_pb2.CanaryCount]
    def __init__(self, generation: _Optional[int] = ..., revisions_in_use: _Optional[_Iterable[str]] = ..., requests_total: _Optional[int] = ..., requests_steered_total: _Optional[int] = ..., requests_unsteered_total: _Optional[_Mapping[str, int]] = ..., dose_decisions_total: _Optional[_Mapping[str, int]] = ..., requests_live: _Optional[int] = ..., canary_requests_total: _Optional[_Iterable[_Union[_stats_pb2.CanaryCount, _Mapping]]] = ...) -> None: ...

class WorkerReport(_message.Message):
    __slots__ = ("steered_tokens_total", "fill_steps_total", "fill_seconds_total", "rows_in_use", "rows_capacity", "slots_in_use", "slots_capacity", "blob_bytes", "program_errors_total")
    class ProgramErrorsTotalEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STEERED_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    FILL_STEPS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    FILL_SECONDS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ROWS_IN_USE_FIELD_NUMBER: _ClassVar[int]
    ROWS_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    SLOTS_IN_USE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    BLOB_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_ERRORS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    steered_tokens_total: int
    fill_steps_total: int
    fill_seconds_total: float
    rows_in_use: int
    rows_capacity: int
    slots_in_use: int
    slots_capacity: int
    blob_bytes: int
    program_errors_total: _containers.ScalarMap[str, int]
    def __init__(self, steered_tokens_total: _Optional[int] = ..., fill_steps_total: _Optional[int] = ..., fill_seconds_total: _Optional[float] = ..., rows_in_use: _Optional[int] = ..., rows_capacity: _Optional[int] = ..., slots_in_use: _Optional[int] = ..., slots_capacity: _Optional[int] = ..., blob_bytes: _Optional[int] = ..., program_errors_total: _Optional[_Mapping[str, int]] = ...) -> None: ...

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
