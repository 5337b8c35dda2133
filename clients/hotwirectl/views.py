"""What results look like to people: pure functions from messages to text."""

import time
from collections.abc import Iterable, Mapping

from hotwire_client import (
    CanaryArm,
    DefaultMode,
    DoseMode,
    EngineStats,
    GetPolicyResponse,
    NodeOutcome,
    NodeState,
    Policy,
    Stats,
    Vector,
)
from hotwirectl import text

_SHORT_REVISION = 8
_MICROSECONDS = 1e6
# The lines of a watch come one by one, so their columns cannot be as wide as the widest value.
_SAMPLE_WIDTH = 8
_CANARY_TITLES = ("ENGINE", "VECTOR", "REVISION", "ARM", "REQUESTS")


def short(revision: str) -> str:
    """Returns the first characters of a revision."""
    return revision[:_SHORT_REVISION]


def vector(v: Vector) -> str:
    """Everything about one vector, and a line for each layer."""
    head = text.fields(
        [
            ("name", v.name),
            ("revision", v.revision),
            ("model", v.model),
            ("state", state(v)),
            ("expires", _expires(v)),
            ("layers", layers(v)),
            ("width", str(v.hidden_size)),
            ("dtype", v.source_dtype),
            ("size", text.size(v.size_bytes)),
            ("generation", str(v.generation)),
            ("created", text.moment(v.create_time)),
            ("updated", text.moment(v.update_time)),
            *((f"metadata.{text.escaped(k)}", v.metadata[k]) for k in sorted(v.metadata)),
            *(_canary(v) if v.HasField("canary") else []),
        ]
    )
    names = ["any"] if v.any_layer else [str(layer) for layer in v.layers]
    columns = [names, list(map(text.number, v.norms)), list(map(text.number, v.canary.norms))]
    titles = ("LAYER", "NORM", "CANARY")[: 3 if v.HasField("canary") else 2]
    rows = zip(*columns[: len(titles)], strict=False)
    return head + "\n\n" + text.columns(titles, rows)


def state(v: Vector) -> str:
    """Whether requests can have it: "enabled", "disabled" or "expired"."""
    if v.disabled:
        return "disabled"
    expired = v.HasField("expire_time") and v.expire_time.ToNanoseconds() <= time.time_ns()
    return "expired" if expired else "enabled"


def expiry_facts(v: Vector) -> list[str]:
    """When it expires, such as "expires in 23h", if it does."""
    return [f"expires in {text.remaining(v.expire_time)}"] if v.HasField("expire_time") else []


def canary_facts(v: Vector) -> list[str]:
    """Its canary and the share of that, such as "canary de80ba1b 5%", if there is one."""
    return [f"canary {short(v.canary.revision)} {percent(v)}"] if v.HasField("canary") else []


def _expires(v: Vector) -> str:
    if not v.HasField("expire_time"):
        return "never"
    left = v.expire_time.ToNanoseconds() - time.time_ns()
    utc = v.expire_time.ToJsonString()[:19] + "Z"
    return f"{utc} (in {text.remaining(v.expire_time)})" if left > 0 else utc


def percent(v: Vector) -> str:
    """The share of requests that get its canary, such as "5%"."""
    return f"{text.number(v.canary.percent)}%"


def _canary(v: Vector) -> list[tuple[str, str]]:
    c = v.canary
    return [
        ("canary.revision", c.revision),
        ("canary.percent", text.number(c.percent)),
        ("canary.dtype", c.source_dtype),
        ("canary.size", text.size(c.size_bytes)),
        ("canary.generation", str(c.generation)),
        ("canary.created", text.moment(c.create_time)),
        *((f"canary.metadata.{text.escaped(k)}", c.metadata[k]) for k in sorted(c.metadata)),
    ]


def policy(response: GetPolicyResponse) -> str:
    """The policy, a line for each field."""
    p = response.policy
    return text.fields(
        [
            ("kill_switch", "on (nothing is steered)" if p.kill_switch else "off"),
            ("dose_mode", enum_word(DoseMode.Name(p.dose_mode), "DOSE_MODE_")),
            ("max_relative_dose", _limit(p.max_relative_dose, p.HasField("max_relative_dose"))),
            (
                "max_total_relative_dose",
                _limit(p.max_total_relative_dose, p.HasField("max_total_relative_dose")),
            ),
            (
                "max_live_relative_dose",
                _limit(p.max_live_relative_dose, p.HasField("max_live_relative_dose")),
            ),
            ("apply_to_running", text.yes(p.apply_to_running)),
            ("max_relative_dose_by_vector", _limits(p.max_relative_dose_by_vector)),
            ("max_relative_dose_by_caller", _limits(p.max_relative_dose_by_caller)),
            ("default_spec", text.escaped(p.default_spec) or "none"),
            ("default_mode", enum_word(DefaultMode.Name(p.default_mode), "DEFAULT_MODE_")),
            ("allow_unmonitored", text.yes(p.allow_unmonitored)),
            ("strict", text.yes(p.strict)),
            ("reference_norms", _norms(p.reference_norms)),
            *_model_of_norms(p),
            ("generation", str(response.generation)),
            ("etag", p.etag),
            ("updated", text.moment(p.update_time)),
        ]
    )


def stats(s: Stats, *, wide: bool = False) -> str:
    """The daemon's figures, a line for each engine, for each counted reason and canary's arm."""
    head = text.fields(
        [
            ("generation", str(s.generation)),
            ("vectors", str(s.vectors)),
            ("store", text.size(s.store_bytes)),
            ("kill_switch", "on" if s.kill_switch else "off"),
            ("converged", text.yes(s.converged)),
            ("uptime", text.duration(s.uptime_seconds)),
            ("memory", text.size(s.daemon_rss_bytes)),
        ]
    )
    parts = [head]
    if s.engines:
        titles = _ENGINE_TITLES + (_ENGINE_MORE if wide else ())
        rows = ([*_engine_row(e), *(_engine_more(e) if wide else ())] for e in s.engines)
        parts.append(text.columns(titles, rows))
    if reasons := [row for e in s.engines for row in _reasons(e)]:
        parts.append(text.columns(("ENGINE", "COUNTER", "REASON", "COUNT"), reasons))
    if arms := [row for e in s.engines for row in _arms(e)]:
        parts.append(text.columns(_CANARY_TITLES, arms))
    return "\n\n".join(parts)


def samples(s: Stats, *, titled: bool) -> str:
    """One line for each engine, or one for the daemon alone, that starts with the time."""
    time = s.sample_time.ToJsonString()[11:19]
    blank = ["-"] * (len(_ENGINE_TITLES) - 2)
    rows = [_engine_row(e) for e in s.engines] or [["-", str(s.generation), *blank]]
    lines = [[time, *row] for row in rows]
    titles = ("TIME", *_ENGINE_TITLES)
    widths = [max(len(t), _SAMPLE_WIDTH) for t in titles]
    padded = [
        "  ".join(text.escaped(v).ljust(w) for v, w in zip(line, widths, strict=True)).rstrip()
        for line in ([titles] if titled else []) + lines
    ]
    return "\n".join(padded)


def outcome(outcomes: Iterable[NodeOutcome]) -> str:
    """How many of the nodes use a change, such as "3/3 nodes"."""
    states = [o.state for o in outcomes]
    return f"{states.count(NodeState.NODE_STATE_CONVERGED)}/{len(states)} nodes"


def left_out(outcomes: Iterable[NodeOutcome]) -> list[str]:
    """A sentence for each node that a converged change does not reach."""
    return [
        f"{o.node} is {enum_word(NodeState.Name(o.state), 'NODE_STATE_')}"
        + (f": {o.detail}" if o.detail else "")
        for o in outcomes
        if o.state != NodeState.NODE_STATE_CONVERGED
    ]


_ENGINE_TITLES = (
    "ENGINE",
    "GENERATION",
    "REQUESTS",
    "STEERED",
    "UNSTEERED",
    "LIVE",
    "TOKENS",
    "ROWS",
    "SLOTS",
    "FILL-US",
)


_ENGINE_MORE = ("FILL-STEPS", "DOSE-DECISIONS", "PROGRAM-ERRORS")


def _engine_more(e: EngineStats) -> list[str]:
    return [
        str(e.fill_steps_total),
        str(sum(e.dose_decisions_total.values())),
        str(sum(e.program_errors_total.values())),
    ]


def _engine_row(e: EngineStats) -> list[str]:
    fill = e.fill_seconds_total / e.fill_steps_total if e.fill_steps_total else 0.0
    return [
        e.engine,
        str(e.generation),
        str(e.requests_total),
        str(e.requests_steered_total),
        str(sum(e.requests_unsteered_total.values())),
        str(e.requests_live),
        str(e.steered_tokens_total),
        f"{e.rows_in_use}/{e.rows_capacity}",
        f"{e.slots_in_use}/{e.slots_capacity}",
        f"{fill * _MICROSECONDS:.1f}",
    ]


def _reasons(e: EngineStats) -> list[list[str]]:
    counters: list[tuple[str, Mapping[str, int]]] = [
        ("unsteered", e.requests_unsteered_total),
        ("dose", e.dose_decisions_total),
        ("program-error", e.program_errors_total),
    ]
    return [
        [e.engine, counter, reason, str(counts[reason])]
        for counter, counts in counters
        for reason in sorted(counts)
        if counts[reason]
    ]


def _arms(e: EngineStats) -> list[list[str]]:
    """A line for each revision of vectors with a canary, those of one vector together."""
    return [
        [
            e.engine,
            c.vector,
            short(c.revision),
            enum_word(CanaryArm.Name(c.arm), "CANARY_ARM_"),
            str(c.requests_total),
        ]
        for c in sorted(e.canary_requests_total, key=lambda c: (c.vector, c.revision, c.arm))
    ]


def layers(v: Vector) -> str:
    """Its layers as ranges, or "any"."""
    return "any" if v.any_layer else text.layers(v.layers)


def _limit(value: float, is_set: bool) -> str:  # noqa: FBT001 - a value and whether there is one
    return text.number(value) if is_set else "none"


def _limits(limits: Mapping[str, float]) -> str:
    named = [f"{text.escaped(name)} {text.number(limits[name])}" for name in sorted(limits)]
    return ", ".join(named) or "none"


def _norms(norms: Mapping[int, float]) -> str:
    if not norms:
        return "none"
    low, high = min(norms.values()), max(norms.values())
    return f"layers {text.layers(sorted(norms))} ({text.number(low)} to {text.number(high)})"


def _model_of_norms(p: Policy) -> list[tuple[str, str]]:
    mark = p.reference_norms_fingerprint
    return [("reference_norms_fingerprint", mark)] if mark else []


def enum_word(name: str, prefix: str) -> str:
    """An enum value's name as a word, such as "converged"."""
    return name.removeprefix(prefix).lower()
