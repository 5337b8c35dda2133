"""What a policy may say, and how it changes: defaults, masks, etag."""

import hashlib
import json
import math
from collections.abc import Container, Iterator, Mapping

from google.protobuf import timestamp_pb2

from hotwired import fingerprint
from hotwired.errors import EtagMismatch, FieldMaskInvalid, PolicyInvalid, shown
from hotwired.v1 import policy_pb2, steering_service_pb2
from hotwired.vector_file import MAX_LAYER

_LIMITS = ("max_relative_dose", "max_total_relative_dose")
_LIVE = "max_live_relative_dose"
_LIMIT_MAPS = ("max_relative_dose_by_vector", "max_relative_dose_by_caller")
_MAPS = ("reference_norms", *_LIMIT_MAPS)
_FINGERPRINT = "reference_norms_fingerprint"
_SETTABLE = (
    "kill_switch",
    "dose_mode",
    *_LIMITS,
    _LIVE,
    "apply_to_running",
    *_LIMIT_MAPS,
    "allow_unmonitored",
    "strict",
    "default_spec",
    "default_mode",
    "reference_norms",
    _FINGERPRINT,
)
MAX_DEFAULT_SPEC_BYTES = 16 * 1024
MAX_LABEL_CHARS = 256
# The least normal fp32 number: a lower limit could not be kept by any scale.
_LEAST_LIVE = 2.0**-126
# Fields that can be unset, which is not the same as zero or empty.
_OPTIONAL = (*_LIMITS, _LIVE, _FINGERPRINT)


def default() -> policy_pb2.Policy:
    """Returns the policy of a fresh store: no limits, nothing refused, steering on."""
    return policy_pb2.Policy(
        dose_mode=policy_pb2.DOSE_MODE_REJECT, default_mode=policy_pb2.DEFAULT_MODE_FALLBACK
    )


def updated(
    current: policy_pb2.Policy, request: steering_service_pb2.SetPolicyRequest
) -> policy_pb2.Policy:
    """Returns the policy that a request asks for, checked, without an etag and a time.

    Raises PolicyInvalid, FieldMaskInvalid or EtagMismatch.
    """
    if not request.HasField("policy"):
        raise PolicyInvalid("the policy is missing", violations=(("policy", "Required."),))
    _check_etag(current, request.policy.etag)
    wanted = policy_pb2.Policy()
    wanted.CopyFrom(current)
    fields = _masked(request)
    for field in fields:
        _copy_field(request.policy, wanted, field)
    if "reference_norms" in fields and _FINGERPRINT not in fields:
        # It said whose the table before was.
        wanted.ClearField(_FINGERPRINT)
    if wanted.dose_mode == policy_pb2.DOSE_MODE_UNSPECIFIED:
        wanted.dose_mode = policy_pb2.DOSE_MODE_REJECT
    if wanted.default_mode == policy_pb2.DEFAULT_MODE_UNSPECIFIED:
        wanted.default_mode = policy_pb2.DEFAULT_MODE_FALLBACK
    if violations := tuple(_violations(wanted)):
        message = "; ".join(f"{field}: {problem}" for field, problem in violations[:4])
        raise PolicyInvalid(message, violations=violations)
    return _bare(wanted)


def stamped(policy: policy_pb2.Policy, generation: int, seconds: float) -> policy_pb2.Policy:
    """Returns a policy with its etag and update time.

    generation: the one that holds it first; it makes the etag new with every change, also when
    an older policy is set again. seconds: the wall clock's.
    """
    result = _bare(policy)
    content = result.SerializeToString(deterministic=True)
    result.etag = hashlib.sha256(b"%d:" % generation + content).hexdigest()[:16]
    result.update_time.CopyFrom(timestamp(seconds))
    return result


def same(left: policy_pb2.Policy, right: policy_pb2.Policy) -> bool:
    """Whether two policies say the same, whatever their etags and times."""
    return _bare(left) == _bare(right)


def same_norms(left: policy_pb2.Policy, right: policy_pb2.Policy) -> bool:
    """Whether two policies have the same reference norms, of the same model."""
    return (left.reference_norms, left.reference_norms_fingerprint) == (
        right.reference_norms,
        right.reference_norms_fingerprint,
    )


def timestamp(seconds: float) -> timestamp_pb2.Timestamp:
    """Returns a time in seconds since the epoch as a Timestamp, to the microsecond."""
    micros = round(seconds * 1e6)
    return timestamp_pb2.Timestamp(seconds=micros // 10**6, nanos=micros % 10**6 * 1000)


def _bare(policy: policy_pb2.Policy) -> policy_pb2.Policy:
    result = policy_pb2.Policy()
    result.CopyFrom(policy)
    result.ClearField("etag")
    result.ClearField("update_time")
    return result


def _check_etag(current: policy_pb2.Policy, etag: str) -> None:
    if etag and etag != current.etag:
        raise EtagMismatch(
            f"the policy was changed since it was read: its etag is {current.etag}",
            metadata={"expected": shown(etag), "actual": current.etag},
        )


def _masked(request: steering_service_pb2.SetPolicyRequest) -> tuple[str, ...]:
    paths = tuple(dict.fromkeys(request.update_mask.paths))
    if not paths or paths == ("*",):
        return _SETTABLE
    if unknown := [path for path in paths if path not in _SETTABLE]:
        names = ", ".join(shown(path) for path in unknown[:4])
        message = f"can't be set by a mask: {names}; settable: {', '.join(_SETTABLE)}"
        raise FieldMaskInvalid(message, violations=(("update_mask", message),))
    return paths


def _copy_field(source: policy_pb2.Policy, target: policy_pb2.Policy, field: str) -> None:
    target.ClearField(field)
    if field in _MAPS:
        getattr(target, field).update(getattr(source, field))
    elif field not in _OPTIONAL or source.HasField(field):
        setattr(target, field, getattr(source, field))


def _violations(policy: policy_pb2.Policy) -> Iterator[tuple[str, str]]:
    if policy.dose_mode not in policy_pb2.DoseMode.values():
        yield "policy.dose_mode", f"{policy.dose_mode} is no mode"
    for field in _LIMITS:
        limit = getattr(policy, field)
        if policy.HasField(field) and not (math.isfinite(limit) and limit >= 0):
            yield f"policy.{field}", f"{limit} is not a finite number >= 0"
    yield from _violations_of_live(policy)
    yield from _violations_of_maps(policy)
    yield from _violations_of_default(policy)
    for layer, norm in sorted(policy.reference_norms.items()):
        if layer > MAX_LAYER:
            yield "policy.reference_norms", f"layer {layer} is over {MAX_LAYER}"
        elif not (math.isfinite(norm) and norm > 0):
            yield f"policy.reference_norms[{layer}]", f"{norm} is not a finite number > 0"
    if policy.HasField(_FINGERPRINT) and (problem := _fingerprint_problem(policy)):
        yield f"policy.{_FINGERPRINT}", problem


def _violations_of_live(policy: policy_pb2.Policy) -> Iterator[tuple[str, str]]:
    limit = policy.max_live_relative_dose
    if policy.HasField(_LIVE) and not _LEAST_LIVE <= limit < math.inf:
        yield f"policy.{_LIVE}", f"{limit} is not a finite number > 0 in fp32"


def _violations_of_maps(policy: policy_pb2.Policy) -> Iterator[tuple[str, str]]:
    for field in _LIMIT_MAPS:
        for key, limit in sorted(getattr(policy, field).items()):
            if not 0 < len(key) <= MAX_LABEL_CHARS:
                yield f"policy.{field}", f"a key must have 1 to {MAX_LABEL_CHARS} characters"
            elif not (math.isfinite(limit) and limit >= 0):
                yield f"policy.{field}[{shown(key)}]", f"{limit} is not a finite number >= 0"


def _violations_of_default(policy: policy_pb2.Policy) -> Iterator[tuple[str, str]]:
    if policy.default_mode not in policy_pb2.DefaultMode.values():
        yield "policy.default_mode", f"{policy.default_mode} is no mode"
    text = policy.default_spec
    if len(text.encode()) > MAX_DEFAULT_SPEC_BYTES:
        yield "policy.default_spec", f"longer than {MAX_DEFAULT_SPEC_BYTES} bytes"
    elif text and not names_in_default(text):
        yield "policy.default_spec", "not a JSON object with an id, nor a list of them"


def names_in_default(text: str) -> frozenset[str]:
    """Returns the vectors that a default specification names; none if it is not one."""
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError):
        return frozenset()
    items = loaded if isinstance(loaded, list) else [loaded]
    if not all(isinstance(item, dict) and isinstance(item.get("id"), str) for item in items):
        return frozenset()
    targets = {item["to"] for item in items if isinstance(item.get("to"), str)}
    return frozenset({item["id"] for item in items} | targets)


def check_default(policy: policy_pb2.Policy, registered: Container[str]) -> None:
    """Raises PolicyInvalid if the default names a vector that is not registered."""
    missing = [n for n in names_in_default(policy.default_spec) if n not in registered]
    if missing:
        names_missing = ", ".join(map(shown, sorted(missing)[:4]))
        problem = f"no vector is registered as {names_missing}"
        raise PolicyInvalid(problem, violations=(("policy.default_spec", problem),))


def detail(wanted: policy_pb2.Policy) -> dict[str, str]:
    """Returns what the audit record of a policy says."""
    return {
        "kill_switch": str(wanted.kill_switch).lower(),
        "dose_mode": policy_pb2.DoseMode.Name(wanted.dose_mode),
        "max_relative_dose": _limit(wanted, "max_relative_dose"),
        "max_total_relative_dose": _limit(wanted, "max_total_relative_dose"),
        "max_live_relative_dose": _limit(wanted, "max_live_relative_dose"),
        "apply_to_running": str(wanted.apply_to_running).lower(),
        "max_relative_dose_by_vector": _limits(wanted.max_relative_dose_by_vector),
        "max_relative_dose_by_caller": _limits(wanted.max_relative_dose_by_caller),
        "default_spec": shown(wanted.default_spec),
        "default_mode": policy_pb2.DefaultMode.Name(wanted.default_mode),
        "strict": str(wanted.strict).lower(),
        "reference_norms": str(len(wanted.reference_norms)),
    }


def _limit(wanted: policy_pb2.Policy, field: str) -> str:
    return f"{getattr(wanted, field):g}" if wanted.HasField(field) else "none"


def _limits(limits: Mapping[str, float]) -> str:
    return ", ".join(f"{shown(name)}: {limits[name]:g}" for name in sorted(limits)) or "none"


def _fingerprint_problem(policy: policy_pb2.Policy) -> str:
    """Why the fingerprint can't be that of the reference norms; empty if it can."""
    try:
        depth = fingerprint.shape_of(policy.reference_norms_fingerprint).num_layers
    except ValueError as error:
        return str(error)
    if not policy.reference_norms:
        return "there are no reference_norms that it could be of"
    last = max(policy.reference_norms)
    return f"reference_norms has layer {last}, the model {depth} layers" if last >= depth else ""
