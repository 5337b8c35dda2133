import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Receipt(_message.Message):
    __slots__ = ("request_id", "engine", "generation", "caller", "by_default", "outcome", "reason", "message", "ops", "relative_dose", "worst_layer", "total_relative_dose", "max_live_relative_dose", "admit_time", "finished", "tokens_steered", "held_back")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    BY_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_DOSE_FIELD_NUMBER: _ClassVar[int]
    WORST_LAYER_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RELATIVE_DOSE_FIELD_NUMBER: _ClassVar[int]
    MAX_LIVE_RELATIVE_DOSE_FIELD_NUMBER: _ClassVar[int]
    ADMIT_TIME_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_STEERED_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    engine: str
    generation: int
    caller: str
    by_default: bool
    outcome: str
    reason: str
    message: str
    ops: _containers.RepeatedCompositeFieldContainer[ReceiptOp]
    relative_dose: float
    worst_layer: int
    total_relative_dose: float
    max_live_relative_dose: float
    admit_time: _timestamp_pb2.Timestamp
    finished: bool
    tokens_steered: int
    held_back: bool
    def __init__(self, request_id: _Optional[str] = ..., engine: _Optional[str] = ..., generation: _Optional[int] = ..., caller: _Optional[str] = ..., by_default: bool = ..., outcome: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., ops: _Optional[_Iterable[_Union[ReceiptOp, _Mapping]]] = ..., relative_dose: _Optional[float] = ..., worst_layer: _Optional[int] = ..., total_relative_dose: _Optional[float] = ..., max_live_relative_dose: _Optional[float] = ..., admit_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished: bool = ..., tokens_steered: _Optional[int] = ..., held_back: bool = ...) -> None: ...

class ReceiptOp(_message.Message):
    __slots__ = ("vector", "revision", "layer", "site", "op", "scale_asked", "scale_applied", "target", "target_revision")
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    SCALE_ASKED_FIELD_NUMBER: _ClassVar[int]
    SCALE_APPLIED_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TARGET_REVISION_FIELD_NUMBER: _ClassVar[int]
    vector: str
    revision: str
    layer: int
    site: str
    op: str
    scale_asked: float
    scale_applied: float
    target: str
    target_revision: str
    def __init__(self, vector: _Optional[str] = ..., revision: _Optional[str] = ..., layer: _Optional[int] = ..., site: _Optional[str] = ..., op: _Optional[str] = ..., scale_asked: _Optional[float] = ..., scale_applied: _Optional[float] = ..., target: _Optional[str] = ..., target_revision: _Optional[str] = ...) -> None: ...
