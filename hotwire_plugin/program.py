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
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hotwire_plugin.positions import EVERYWHERE, SCOPES, Positions
from hotwire_plugin.shape import DEFAULT_SITE, SITES

PROGRAM_KEY = "hotwire_program"
SPEC_KEY = "hotwire"
CALLER_KEY = "hotwire_caller"
MAX_OPS_PER_LAYER = 8
MAX_LAYER = 2047  # as for a vector's layers
MAX_STREAM = 63
OPS = ("add", "norm_add", "ablate", "clamp", "swap")
"""What hotwire_plugin.op_forms gives a formula for."""

UNBOUNDED = (-math.inf, math.inf)

_VERSION = "hotwire.program.v2"
_REVISION = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FP32_MAX = (2.0 - 2.0**-23) * 2.0**127
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
    layer: the block it acts at, 0-based over all pipeline stages.
    scale: how much of it is done, exactly representable in fp32 once in a Program; 0 is nothing.
    op: one of OPS.
    scope: the phase it acts in, one of SCOPES; positions: which of that phase's positions.
    site: where in the block, one of shape.SITES; stream: which residual stream, None for all.
    bounds: of clamp, the least and the greatest component it leaves, in fp32.
    target: of swap, the vector that takes the component over.
    """

    revision: str
    layer: int
    scale: float
    op: str
    scope: str
    positions: Positions = EVERYWHERE
    site: str = DEFAULT_SITE
    stream: int | None = None
    bounds: tuple[float, float] = UNBOUNDED
    target: str = ""

    @property
    def effect(self) -> tuple[object, ...]:
        """What it does where it acts, whatever those positions are."""
        low, high = self.bounds
        return (
            *(self.layer, self.site, self.stream, self.op, self.revision, self.target),
            *(self.scale.hex(), low.hex(), high.hex()),
        )


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


def limit_in_fp32(limit: float) -> float:
    """Rounds a limit down to an fp32 number; beyond the fp32 range there is none."""
    return math.inf if limit > _FP32_MAX else to_fp32_down(limit)


def effect_digest(ops: Iterable[ProgramOp], limit: float) -> str:
    """Returns the digest of what a set of operations does together, where all of them act."""
    text = "\n".join(repr(op.effect) for op in ops)
    return hashlib.sha256(f"{_VERSION}\n{limit.hex()}\n{text}".encode()).hexdigest()


@dataclass(frozen=True)
class Program:
    """The operations of one request, in canonical order.

    ops: ordered by layer and site and, within those, as given; scales rounded to fp32; those of
    scale 0 left out. limit: the most that they may add together at a site, over the norm of the
    token's own stream there; rounded down to fp32; infinite for none. Programs with the same effect
    in the same order are equal and have equal digests.
    Raises ProgramError if nothing is left, if a site has more than MAX_OPS_PER_LAYER operations
    or if an operation is malformed. Program.build returns None instead when nothing is left.
    """

    ops: tuple[ProgramOp, ...]
    limit: float = math.inf
    digest: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        ops = _canonical(self.ops)
        object.__setattr__(self, "limit", _checked_limit(self.limit))
        if not ops:
            raise _EmptyProgramError("PROGRAM_INVALID", "a program needs an operation that acts")
        object.__setattr__(self, "ops", ops)
        object.__setattr__(self, "digest", _digest(ops, self.limit))

    @classmethod
    def build(cls, ops: Iterable[ProgramOp], limit: float = math.inf) -> "Program | None":
        """Returns the program of the operations, or None if all of them have scale 0."""
        try:
            return cls(tuple(ops), limit)
        except _EmptyProgramError:
            return None

    @classmethod
    def decode(cls, raw: object) -> "Program":
        """Reads what encode() wrote. Raises ProgramError for anything else."""
        digest, ops, limit = _read(raw)
        program = cls(ops, limit)
        if program.digest != digest or program.ops != ops:
            raise _invalid("the digest does not match the operations")
        return program

    def encode(self) -> str:
        """Returns the program as one short line of JSON."""
        return self._encoded

    @property
    def revisions(self) -> frozenset[str]:
        """The revisions it needs."""
        return self._revisions

    @property
    def places(self) -> tuple[tuple[str, Positions], ...]:
        """The different (scope, positions) of its operations."""
        return tuple(dict.fromkeys((op.scope, op.positions) for op in self.ops))

    @property
    def skips_special(self) -> bool:
        """Whether it depends on which of the prompt's tokens are special."""
        return any(op.positions.skip_special for op in self.ops)

    def without(self, special: tuple[int, ...]) -> "Program":
        """Returns the program with the prompt's special positions spelt out as exclusions."""
        folded = {p: p.without(special) for p in {op.positions for op in self.ops}}
        ops = tuple(replace(op, positions=folded[op.positions]) for op in self.ops)
        return Program(ops, self.limit)

    @cached_property
    def _revisions(self) -> frozenset[str]:
        targets = {op.target for op in self.ops if op.target}
        return frozenset({op.revision for op in self.ops} | targets)

    @cached_property
    def _encoded(self) -> str:
        revisions = sorted(self._revisions)
        number = {revision: i for i, revision in enumerate(revisions)}
        positions = list(dict.fromkeys(op.positions for op in self.ops))
        place = {each: i for i, each in enumerate(positions)}
        content = {
            "version": _VERSION,
            "digest": self.digest,
            "revisions": revisions,
            "positions": [each.encode() for each in positions],
            "ops": [_written(op, number, place) for op in self.ops],
            "limit": None if math.isinf(self.limit) else self.limit,
        }
        return json.dumps(content, separators=(",", ":"), allow_nan=False)


def _canonical(ops: tuple[ProgramOp, ...]) -> tuple[ProgramOp, ...]:
    for op in ops:
        _check(op)
    revisions = {op.revision for op in ops} | {op.target for op in ops if op.op == "swap"}
    if not all(_REVISION.fullmatch(revision) for revision in revisions):
        raise _invalid("a revision is 64 lower-case hex digits")
    scales = {scale: _finite_fp32(scale) for scale in {op.scale for op in ops}}
    kept = [_with_scale(op, scales[op.scale]) for op in ops if scales[op.scale] != 0.0]
    kept.sort(key=_place)  # stable: the order within a site stays
    for (layer, _), count in Counter(_place(op) for op in kept).items():
        if count > MAX_OPS_PER_LAYER:
            raise ProgramError(
                "TOO_MANY_OPS", f"layer {layer} has more than {MAX_OPS_PER_LAYER} operations"
            )
    return tuple(kept)


def _check(op: ProgramOp) -> None:
    if op.op not in OPS or op.scope not in SCOPES or op.site not in SITES:
        raise _invalid("unknown op, scope or site")
    if type(op.layer) is not int or not 0 <= op.layer <= MAX_LAYER:
        raise _invalid(f"layer must be in 0..{MAX_LAYER}")
    if op.stream is not None and not (type(op.stream) is int and 0 <= op.stream <= MAX_STREAM):
        raise _invalid(f"stream must be in 0..{MAX_STREAM}")
    if (op.op == "swap") != bool(op.target):
        raise _invalid("a swap, and nothing else, has a target")
    if op.bounds != UNBOUNDED and (op.op != "clamp" or not _ordered(op.bounds)):
        raise _invalid("a clamp, and nothing else, has bounds, of which the lower is first")


def _ordered(bounds: tuple[float, float]) -> bool:
    low, high = bounds
    exact = all(math.isinf(bound) or _finite_fp32(bound) == bound for bound in bounds)
    return exact and low <= high and low < math.inf and high > -math.inf


def _place(op: ProgramOp) -> tuple[int, int]:
    return op.layer, SITES.index(op.site)


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
    return replace(op, scale=scale)


def _checked_limit(limit: float) -> float:
    if type(limit) not in (float, int) or not limit > 0:
        raise _invalid("a limit must be above 0")
    return limit_in_fp32(limit)


def _digest(ops: tuple[ProgramOp, ...], limit: float) -> str:
    encoded = {positions: str(positions.encode()) for positions in {op.positions for op in ops}}
    lines = [_VERSION, limit.hex()]
    lines += [f"{op.effect} {op.scope} {encoded[op.positions]}" for op in ops]
    return hashlib.sha256("\n".join(lines).encode("ascii")).hexdigest()


_PLAIN: list[Any] = [0, DEFAULT_SITE, None, [None, None], None]
"""What most operations have for positions, site, stream, bounds and target."""


def _written(op: ProgramOp, number: dict[str, int], place: dict[Positions, int]) -> list[object]:
    """An operation as a list; what most operations leave out is at its end, and left out."""
    low, high = op.bounds
    whole: list[object] = [number[op.revision], op.layer, op.scale, op.op, op.scope]
    rest: list[object] = [place[op.positions], op.site, op.stream]
    bounds = [None if math.isinf(low) else low, None if math.isinf(high) else high]
    rest += [bounds, number[op.target] if op.target else None]
    while rest and rest[-1] == _PLAIN[len(rest) - 1]:
        rest.pop()
    return whole + rest


def _read(raw: object) -> tuple[str, tuple[ProgramOp, ...], float]:
    """Returns digest, operations and limit as they are written, still unchecked in value."""
    if not isinstance(raw, str):
        raise _invalid("an encoded program is a string")
    try:
        content = json.loads(raw)
        if content["version"] != _VERSION:
            raise _invalid("unknown version of the encoding")
        revisions = content["revisions"]
        positions = [Positions.decode(each) for each in content["positions"]]
        ops = tuple(_op(item, revisions, positions) for item in content["ops"])
        limit = content["limit"]
        return str(content["digest"]), ops, math.inf if limit is None else limit
    except (ValueError, TypeError, LookupError, RecursionError) as exc:
        raise _invalid("an encoded program is malformed") from exc


def _op(item: Any, revisions: Any, positions: list[Positions]) -> ProgramOp:
    whole = [*item, *_PLAIN[len(item) - 5 :]]
    number, layer, scale, op, scope, place, site, stream, bounds, target = whole
    for index in (number, place, target or 0):
        if type(index) is not int or index < 0:
            raise TypeError("revisions and positions are referred to by their number")
    revision = revisions[number]
    texts = (revision, op, scope, site)
    if not all(isinstance(text, str) for text in texts) or type(scale) not in (float, int):
        raise TypeError("revision, op, scope and site are strings, scale is a number")
    return ProgramOp(
        *(revision, layer, scale, op, scope, positions[place], site, stream, _bounds(*bounds)),
        target="" if target is None else revisions[target],
    )


def _bounds(low: float | None, high: float | None) -> tuple[float, float]:
    return (-math.inf if low is None else float(low), math.inf if high is None else float(high))
