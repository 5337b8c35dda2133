"""What one request gets: an ordered list of operations with every name resolved.

A program is made once, at admission, and travels in the request's extra_args to every rank. It
says everything that changes the request's KV, and its digest covers all of it. Pure: standard
library only.
"""

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

PROGRAM_KEY = "hotwire_program"
SPEC_KEY = "hotwire"
MAX_OPS_PER_LAYER = 8
MAX_LAYER = 2047  # as for a vector's layers
OPS = ("add",)
SCOPES = ("all", "prompt", "generated")

_VERSION = "hotwire.program.v1"
_REVISION = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FLOAT = struct.Struct("<f")
_BITS = struct.Struct("<I")


class ProgramError(Exception):
    """A program that can't be built or decoded.

    reason: TOO_MANY_OPS or PROGRAM_INVALID.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class _EmptyProgramError(ProgramError):
    """Nothing is left of a program."""


@dataclass(frozen=True, slots=True)
class ProgramOp:
    """One operation at one layer.

    revision: the vector, as 64 lower-case hex digits.
    layer: the block after which it acts, 0-based over all pipeline stages.
    scale: what the row is multiplied with, exactly representable in fp32 once in a Program.
    op: one of OPS.
    scope: the positions it acts on: "all", "prompt" or "generated".
    """

    revision: str
    layer: int
    scale: float
    op: str
    scope: str


def to_fp32(value: float) -> float:
    """Rounds to the nearest fp32 number; raises OverflowError if there is none that is finite."""
    rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return rounded


def to_fp32_down(value: float) -> float:
    """Rounds towards zero to an fp32 number; raises OverflowError above the fp32 range."""
    packed = _FLOAT.pack(value)
    rounded: float = _FLOAT.unpack(packed)[0]
    if abs(rounded) <= abs(value):
        return rounded
    (bits,) = _BITS.unpack(packed)  # sign and magnitude: one less is one step towards zero
    nearer: float = _FLOAT.unpack(_BITS.pack(bits - 1))[0]
    return nearer


@dataclass(frozen=True)
class Program:
    """The operations of one request, in canonical order.

    ops: ordered by layer and, within one, as given; scales rounded to fp32; those of scale 0 left
    out. Programs with the same effect in the same order are equal and have equal digests.
    Raises ProgramError if nothing is left, if a layer has more than MAX_OPS_PER_LAYER operations
    or if an operation is malformed. Program.build returns None instead when nothing is left.
    """

    ops: tuple[ProgramOp, ...]
    digest: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        ops = _canonical(self.ops)
        if not ops:
            raise _EmptyProgramError("PROGRAM_INVALID", "a program needs an operation that acts")
        object.__setattr__(self, "ops", ops)
        object.__setattr__(self, "digest", _digest(ops))

    @classmethod
    def build(cls, ops: Iterable[ProgramOp]) -> "Program | None":
        """Returns the program of the operations, or None if all of them have scale 0."""
        try:
            return cls(tuple(ops))
        except _EmptyProgramError:
            return None

    @classmethod
    def decode(cls, raw: object) -> "Program":
        """Reads what encode() wrote. Raises ProgramError for anything else."""
        digest, ops = _read(raw)
        program = cls(ops)
        if program.digest != digest or program.ops != ops:
            raise _invalid("the digest does not match the operations")
        return program

    def encode(self) -> str:
        """Returns the program as one short line of JSON."""
        return self._encoded

    @property
    def steers_prompt(self) -> bool:
        """Whether any position of the prompt is changed."""
        return bool(self._prompt)

    @property
    def revisions(self) -> frozenset[str]:
        """The revisions it needs."""
        return self._revisions

    def active(self, phase: str) -> tuple[ProgramOp, ...]:
        """Returns the operations of a phase, "prompt" or "generated", in order."""
        return self._prompt if phase == "prompt" else self._generated

    def first_steered(self, prompt_len: int) -> int:
        """Returns the first position whose KV depends on the program."""
        return 0 if self.steers_prompt else prompt_len

    @cached_property
    def _prompt(self) -> tuple[ProgramOp, ...]:
        return tuple(op for op in self.ops if op.scope != "generated")

    @cached_property
    def _generated(self) -> tuple[ProgramOp, ...]:
        return tuple(op for op in self.ops if op.scope != "prompt")

    @cached_property
    def _revisions(self) -> frozenset[str]:
        return frozenset(op.revision for op in self.ops)

    @cached_property
    def _encoded(self) -> str:
        revisions = sorted(self._revisions)
        number = {revision: i for i, revision in enumerate(revisions)}
        ops = [[number[op.revision], op.layer, op.scale, op.op, op.scope] for op in self.ops]
        content = {"version": _VERSION, "digest": self.digest, "revisions": revisions, "ops": ops}
        return json.dumps(content, separators=(",", ":"), allow_nan=False)


def _canonical(ops: tuple[ProgramOp, ...]) -> tuple[ProgramOp, ...]:
    for op in ops:
        if op.op not in OPS or op.scope not in SCOPES:
            raise _invalid("unknown op or scope")
        if type(op.layer) is not int or not 0 <= op.layer <= MAX_LAYER:
            raise _invalid(f"layer must be in 0..{MAX_LAYER}")
    if not all(_REVISION.fullmatch(revision) for revision in {op.revision for op in ops}):
        raise _invalid("a revision is 64 lower-case hex digits")
    scales = {scale: _finite_fp32(scale) for scale in {op.scale for op in ops}}
    kept = [_with_scale(op, scales[op.scale]) for op in ops if scales[op.scale] != 0.0]
    kept.sort(key=lambda op: op.layer)  # stable: the order within a layer stays
    for first, ninth in zip(kept, kept[MAX_OPS_PER_LAYER:], strict=False):
        if first.layer == ninth.layer:
            raise ProgramError(
                "TOO_MANY_OPS", f"layer {first.layer} has more than {MAX_OPS_PER_LAYER} operations"
            )
    return tuple(kept)


def _invalid(message: str) -> ProgramError:
    return ProgramError("PROGRAM_INVALID", message)


def _finite_fp32(scale: float) -> float:
    try:
        rounded = to_fp32(scale)
    except (OverflowError, struct.error) as exc:
        raise _invalid("a scale must be finite in fp32") from exc
    if not math.isfinite(rounded):
        raise _invalid("a scale must be finite in fp32")
    return rounded


def _with_scale(op: ProgramOp, scale: float) -> ProgramOp:
    if scale == op.scale and type(op.scale) is float:
        return op
    return ProgramOp(op.revision, op.layer, scale, op.op, op.scope)


def _digest(ops: tuple[ProgramOp, ...]) -> str:
    lines = [_VERSION]
    lines += [f"{op.layer} {op.revision} {op.op} {op.scope} {op.scale.hex()}" for op in ops]
    return hashlib.sha256("\n".join(lines).encode("ascii")).hexdigest()


def _read(raw: object) -> tuple[str, tuple[ProgramOp, ...]]:
    """Returns the digest and the operations as they are written, still unchecked in value."""
    if not isinstance(raw, str):
        raise _invalid("an encoded program is a string")
    try:
        content = json.loads(raw)
        if content["version"] != _VERSION:
            raise _invalid("unknown version of the encoding")
        revisions = content["revisions"]
        return str(content["digest"]), tuple(_op(item, revisions) for item in content["ops"])
    except (ValueError, TypeError, LookupError, RecursionError) as exc:
        raise _invalid("an encoded program is malformed") from exc


def _op(item: Any, revisions: Any) -> ProgramOp:
    number, layer, scale, op, scope = item
    if type(number) is not int or number < 0 or type(scale) not in (float, int):
        raise TypeError("an operation is [revision number, layer, scale, op, scope]")
    revision = revisions[number]
    if not (isinstance(revision, str) and isinstance(op, str) and isinstance(scope, str)):
        raise TypeError("revision, op and scope are strings")
    return ProgramOp(revision, layer, scale, op, scope)
