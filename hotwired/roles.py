"""Which role each method asks for. The one table; a method that is not in it is an admin's.

viewer: what changes nothing. operator: vectors, and the kill switch. admin: the policy, all.
"""

from enum import IntEnum
from typing import Any

from hotwired.v1 import steering_service_pb2 as pb


class Role(IntEnum):
    """What a caller may do; each may do what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @classmethod
    def named(cls, name: str) -> "Role":
        """Returns the role of a name in the configuration."""
        return cls[name.upper()]


_STEERING = "/hotwired.v1.SteeringService/"
_SET_POLICY = f"{_STEERING}SetPolicy"

LEAST: dict[str, Role] = {
    f"{_STEERING}RegisterVector": Role.OPERATOR,
    f"{_STEERING}GetVector": Role.VIEWER,
    f"{_STEERING}ListVectors": Role.VIEWER,
    f"{_STEERING}DownloadVector": Role.VIEWER,
    f"{_STEERING}UpdateVector": Role.OPERATOR,
    f"{_STEERING}DeleteVector": Role.OPERATOR,
    f"{_STEERING}GetPolicy": Role.VIEWER,
    # The kill switch alone; anything else of the policy is an admin's, see `asked`.
    _SET_POLICY: Role.OPERATOR,
    f"{_STEERING}Stats": Role.VIEWER,
    f"{_STEERING}WatchStats": Role.VIEWER,
    f"{_STEERING}ListNodes": Role.VIEWER,
    f"{_STEERING}GetReceipts": Role.VIEWER,
    "/grpc.health.v1.Health/Check": Role.VIEWER,
    "/grpc.health.v1.Health/List": Role.VIEWER,
    "/grpc.health.v1.Health/Watch": Role.VIEWER,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Role.VIEWER,
}
"""The least role of each method, by its full name."""


def asked(method: str, request: Any) -> Role:
    """Returns the role that a call asks for. request: None if it is a stream."""
    least = LEAST.get(method, Role.ADMIN)
    if method == _SET_POLICY and isinstance(request, pb.SetPolicyRequest):
        return least if _is_switch(request) else Role.ADMIN
    return least


def is_write(method: str) -> bool:
    """Whether a method changes something."""
    return LEAST.get(method, Role.ADMIN) > Role.VIEWER


def is_emergency(request: Any) -> bool:
    """Whether a request throws the kill switch, which must never have to wait."""
    return (
        isinstance(request, pb.SetPolicyRequest)
        and _is_switch(request)
        and request.policy.kill_switch
    )


def _is_switch(request: pb.SetPolicyRequest) -> bool:
    return list(request.update_mask.paths) == ["kill_switch"]
