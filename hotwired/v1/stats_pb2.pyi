import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CanaryArm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANARY_ARM_UNSPECIFIED: _ClassVar[CanaryArm]
    CANARY_ARM_STABLE: _ClassVar[CanaryArm]
    CANARY_ARM_CANARY: _ClassVar[CanaryArm]
    CANARY_ARM_FALLBACK: _ClassVar[CanaryArm]
CANARY_ARM_UNSPECIFIED: CanaryArm
CANARY_ARM_STABLE: CanaryArm
CANARY_ARM_CANARY: CanaryArm
CANARY_ARM_FALLBACK: CanaryArm

class Stats(_message.Message):
    __slots__ = ("sample_time", "generation", "vectors", "store_bytes", "kill_switch", "converged", "engines", "uptime_seconds", "daemon_rss_bytes")
    SAMPLE_TIME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    STORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    KILL_SWITCH_FIELD_NUMBER: _ClassVar[int]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DAEMON_RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    sample_time: _timestamp_pb2.Timestamp
    generation: int
    vectors: int
    store_bytes: int
    kill_switch: bool
    converged: bool
    engines: _containers.RepeatedCompositeFieldContainer[EngineStats]
    uptime_seconds: float
    daemon_rss_bytes: int
    def __init__(self, sample_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., generation: _Optional[int] = ..., vectors: _Optional[int] = ..., store_bytes: _Optional[int] = ..., kill_switch: bool = ..., converged: bool = ..., engines: _Optional[_Iterable[_Union[EngineStats, _Mapping]]] = ..., uptime_seconds: _Optional[float] = ..., daemon_rss_bytes: _Optional[int] = ...) -> None: ...

class EngineStats(_message.Message):
    __slots__ = ("engine", "generation", "requests_total", "requests_steered_total", "requests_unsteered_total", "dose_decisions_total", "requests_live", "steered_tokens_total", "rows_in_use", "rows_capacity", "slots_in_use", "slots_capacity", "fill_steps_total", "fill_seconds_total", "program_errors_total", "canary_requests_total", "workers")
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
    class ProgramErrorsTotalEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_STEERED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_UNSTEERED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DOSE_DECISIONS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_LIVE_FIELD_NUMBER: _ClassVar[int]
    STEERED_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ROWS_IN_USE_FIELD_NUMBER: _ClassVar[int]
    ROWS_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    SLOTS_IN_USE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    FILL_STEPS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    FILL_SECONDS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_ERRORS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    CANARY_REQUESTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    engine: str
    generation: int
    requests_total: int
    requests_steered_total: int
    requests_unsteered_total: _containers.ScalarMap[str, int]
    dose_decisions_total: _containers.ScalarMap[str, int]
    requests_live: int
    steered_tokens_total: int
    rows_in_use: int
    rows_capacity: int
    slots_in_use: int
    slots_capacity: int
    fill_steps_total: int
    fill_seconds_total: float
    program_errors_total: _containers.ScalarMap[str, int]
    canary_requests_total: _containers.RepeatedCompositeFieldContainer[CanaryCount]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStats]
    def __init__(self, engine: _Optional[str] = ..., generation: _Optional[int] = ..., requests_total: _Optional[int] = ..., requests_steered_total: _Optional[int] = ..., requests_unsteered_total: _Optional[_Mapping[str, int]] = ..., dose_decisions_total: _Optional[_Mapping[str, int]] = ..., requests_live: _Optional[int] = ..., steered_tokens_total: _Optional[int] = ..., rows_in_use: _Optional[int] = ..., rows_capacity: _Optional[int] = ..., slots_in_use: _Optional[int] = ..., slots_capacity: _Optional[int] = ..., fill_steps_total: _Optional[int] = ..., fill_seconds_total: _Optional[float] = ..., program_errors_total: _Optional[_Mapping[str, int]] = ..., canary_requests_total: _Optional[_Iterable[_Union[CanaryCount, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[WorkerStats, _Mapping]]] = ...) -> None: ...

class WorkerStats(_message.Message):
    __slots__ = ("node", "steered_tokens_total", "program_errors_total")
    class ProgramErrorsTotalEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    STEERED_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_ERRORS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    node: str
    steered_tokens_total: int
    program_errors_total: _containers.ScalarMap[str, int]
    def __init__(self, node: _Optional[str] = ..., steered_tokens_total: _Optional[int] = ..., program_errors_total: _Optional[_Mapping[str, int]] = ...) -> None: ...

class CanaryCount(_message.Message):
    __slots__ = ("vector", "revision", "arm", "requests_total")
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    vector: str
    revision: str
    arm: CanaryArm
    requests_total: int
    def __init__(self, vector: _Optional[str] = ..., revision: _Optional[str] = ..., arm: _Optional[_Union[CanaryArm, str]] = ..., requests_total: _Optional[int] = ...) -> None: ...
