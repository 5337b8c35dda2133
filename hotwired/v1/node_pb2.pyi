import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_ROLE_UNSPECIFIED: _ClassVar[NodeRole]
    NODE_ROLE_FRONTEND: _ClassVar[NodeRole]
    NODE_ROLE_ENGINE: _ClassVar[NodeRole]
    NODE_ROLE_WORKER: _ClassVar[NodeRole]

class NodeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_STATE_UNSPECIFIED: _ClassVar[NodeState]
    NODE_STATE_CONVERGED: _ClassVar[NodeState]
    NODE_STATE_RECONCILING: _ClassVar[NodeState]
    NODE_STATE_REJECTED: _ClassVar[NodeState]
    NODE_STATE_UNREACHABLE: _ClassVar[NodeState]
    NODE_STATE_DISARMED: _ClassVar[NodeState]
    NODE_STATE_STANDALONE: _ClassVar[NodeState]
NODE_ROLE_UNSPECIFIED: NodeRole
NODE_ROLE_FRONTEND: NodeRole
NODE_ROLE_ENGINE: NodeRole
NODE_ROLE_WORKER: NodeRole
NODE_STATE_UNSPECIFIED: NodeState
NODE_STATE_CONVERGED: NodeState
NODE_STATE_RECONCILING: NodeState
NODE_STATE_REJECTED: NodeState
NODE_STATE_UNREACHABLE: NodeState
NODE_STATE_DISARMED: NodeState
NODE_STATE_STANDALONE: NodeState

class Node(_message.Message):
    __slots__ = ("name", "instance_id", "roles", "dp_rank", "pp_rank", "tp_rank", "state", "detail", "generation", "revisions_held", "boot_id", "pid", "model", "hidden_size", "num_layers", "dtype", "vllm_version", "plugin_version", "last_seen_time", "sites")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    PP_RANK_FIELD_NUMBER: _ClassVar[int]
    TP_RANK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_HELD_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    VLLM_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_TIME_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    name: str
    instance_id: str
    roles: _containers.RepeatedScalarFieldContainer[NodeRole]
    dp_rank: int
    pp_rank: int
    tp_rank: int
    state: NodeState
    detail: str
    generation: int
    revisions_held: int
    boot_id: str
    pid: int
    model: str
    hidden_size: int
    num_layers: int
    dtype: str
    vllm_version: str
    plugin_version: str
    last_seen_time: _timestamp_pb2.Timestamp
    sites: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., instance_id: _Optional[str] = ..., roles: _Optional[_Iterable[_Union[NodeRole, str]]] = ..., dp_rank: _Optional[int] = ..., pp_rank: _Optional[int] = ..., tp_rank: _Optional[int] = ..., state: _Optional[_Union[NodeState, str]] = ..., detail: _Optional[str] = ..., generation: _Optional[int] = ..., revisions_held: _Optional[int] = ..., boot_id: _Optional[str] = ..., pid: _Optional[int] = ..., model: _Optional[str] = ..., hidden_size: _Optional[int] = ..., num_layers: _Optional[int] = ..., dtype: _Optional[str] = ..., vllm_version: _Optional[str] = ..., plugin_version: _Optional[str] = ..., last_seen_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sites: _Optional[_Iterable[str]] = ...) -> None: ...

class NodeOutcome(_message.Message):
    __slots__ = ("node", "state", "detail")
    NODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    node: str
    state: NodeState
    detail: str
    def __init__(self, node: _Optional[str] = ..., state: _Optional[_Union[NodeState, str]] = ..., detail: _Optional[str] = ...) -> None: ...
