import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DoseMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DOSE_MODE_UNSPECIFIED: _ClassVar[DoseMode]
    DOSE_MODE_REJECT: _ClassVar[DoseMode]
    DOSE_MODE_CLAMP: _ClassVar[DoseMode]
    DOSE_MODE_WARN: _ClassVar[DoseMode]
    DOSE_MODE_SHADOW: _ClassVar[DoseMode]

class DefaultMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEFAULT_MODE_UNSPECIFIED: _ClassVar[DefaultMode]
    DEFAULT_MODE_FALLBACK: _ClassVar[DefaultMode]
    DEFAULT_MODE_ADD: _ClassVar[DefaultMode]
DOSE_MODE_UNSPECIFIED: DoseMode
DOSE_MODE_REJECT: DoseMode
DOSE_MODE_CLAMP: DoseMode
DOSE_MODE_WARN: DoseMode
DOSE_MODE_SHADOW: DoseMode
DEFAULT_MODE_UNSPECIFIED: DefaultMode
DEFAULT_MODE_FALLBACK: DefaultMode
DEFAULT_MODE_ADD: DefaultMode

class Policy(_message.Message):
    __slots__ = ("kill_switch", "dose_mode", "max_relative_dose", "max_total_relative_dose", "allow_unmonitored", "strict", "reference_norms", "etag", "update_time", "reference_norms_fingerprint", "max_live_relative_dose", "apply_to_running", "max_relative_dose_by_vector", "max_relative_dose_by_caller", "default_spec", "default_mode")
    class ReferenceNormsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    class MaxRelativeDoseByVectorEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class MaxRelativeDoseByCallerEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    KILL_SWITCH_FIELD_NUMBER: _ClassVar[int]
    DOSE_MODE_FIELD_NUMBER: _ClassVar[int]
    MAX_RELATIVE_DOSE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOTAL_RELATIVE_DOSE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_UNMONITORED_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_NORMS_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_NORMS_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MAX_LIVE_RELATIVE_DOSE_FIELD_NUMBER: _ClassVar[int]
    APPLY_TO_RUNNING_FIELD_NUMBER: _ClassVar[int]
    MAX_RELATIVE_DOSE_BY_VECTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_RELATIVE_DOSE_BY_CALLER_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SPEC_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_MODE_FIELD_NUMBER: _ClassVar[int]
    kill_switch: bool
    dose_mode: DoseMode
    max_relative_dose: float
    max_total_relative_dose: float
    allow_unmonitored: bool
    strict: bool
    reference_norms: _containers.ScalarMap[int, float]
    etag: str
    update_time: _timestamp_pb2.Timestamp
    reference_norms_fingerprint: str
    max_live_relative_dose: float
    apply_to_running: bool
    max_relative_dose_by_vector: _containers.ScalarMap[str, float]
    max_relative_dose_by_caller: _containers.ScalarMap[str, float]
    default_spec: str
    default_mode: DefaultMode
    def __init__(self, kill_switch: bool = ..., dose_mode: _Optional[_Union[DoseMode, str]] = ..., max_relative_dose: _Optional[float] = ..., max_total_relative_dose: _Optional[float] = ..., allow_unmonitored: bool = ..., strict: bool = ..., reference_norms: _Optional[_Mapping[int, float]] = ..., etag: _Optional[str] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reference_norms_fingerprint: _Optional[str] = ..., max_live_relative_dose: _Optional[float] = ..., apply_to_running: bool = ..., max_relative_dose_by_vector: _Optional[_Mapping[str, float]] = ..., max_relative_dose_by_caller: _Optional[_Mapping[str, float]] = ..., default_spec: _Optional[str] = ..., default_mode: _Optional[_Union[DefaultMode, str]] = ...) -> None: ...
