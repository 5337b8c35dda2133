"""What a run came to: as data, and as a block of text to paste into a bug report."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hotwire_client import DoseMode, Policy
from hotwirectl import text
from hotwirectl.verify import cost, node_checks
from hotwirectl.verify.machine import scrubbed
from hotwirectl.verify.results import Check, Status, Timing
from hotwirectl.verify.stage import Stage

_BARE_NOTE = (
    "bare and armed ran one after the other: what differs by a few percent is not told apart"
)


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run.

    against: "a running server" or "a throwaway server". seconds: how long it took.
    """

    against: str
    checks: Sequence[Check]
    timings: Sequence[Timing]
    stage: Stage
    machine: dict[str, str]
    seconds: float

    def count(self, status: Status) -> int:
        """Returns how many checks ended so."""
        return sum(check.status is status for check in self.checks)

    @property
    def verdict(self) -> str:
        """One line."""
        return ", ".join(f"{self.count(status)} {status}" for status in Status)

    def form(self) -> dict[str, Any]:
        """Returns the JSON form."""
        nodes = [node_checks.form(node) for node in self.stage.nodes]
        return {
            "passed": self.count(Status.PASSED) == len(self.checks),
            "against": self.against,
            "model": scrubbed(self.stage.model),
            "seconds": round(self.seconds, 1),
            **self.machine,
            "nodes": [node | {"detail": scrubbed(str(node["detail"]))} for node in nodes],
            "policy": _policy(self.stage.policy),
            "checks": [_check_form(check) for check in self.checks],
            "cost": [_timing_form(timing, self.timings[0]) for timing in self.timings],
        }

    def block(self) -> str:
        """Returns the text."""
        parts = [self._head(), _nodes(self.stage), _checks(self.checks), self._cost()]
        return scrubbed("\n\n".join(parts))

    def _head(self) -> str:
        facts = self.machine
        node = self.stage.nodes[0]
        shape = f"{self.stage.layers}x{node.hidden_size}, {node.dtype}"
        return text.fields(
            [
                ("hotwirectl verify", f"{self.verdict} ({self.against}, {self.seconds:.0f} s)"),
                ("date", facts["date"]),
                ("device", facts["device"]),
                ("kernel", facts["kernel"]),
                ("model", f"{self.stage.model} ({shape})"),
                ("versions", _versions(self)),
                ("policy", ", ".join(f"{k} {v}" for k, v in _policy(self.stage.policy).items())),
            ]
        )

    def _cost(self) -> str:
        base = self.timings[0]
        rows = [_timing_row(timing, base) for timing in self.timings]
        table = text.columns(("COST", "MS/TOKEN", "P10-P90", "MORE"), rows)
        bare = any(timing.name == cost.BARE and timing.ms for timing in self.timings)
        return table + (f"\n{_BARE_NOTE}" if bare else "")


def _versions(report: Report) -> str:
    nodes = report.stage.nodes
    plugins = ", ".join(sorted({node.plugin_version for node in nodes}))
    engines = ", ".join(sorted({node.vllm_version for node in nodes}))
    own = report.machine
    return (
        f"hotwirectl {own['hotwirectl']}, plugin {plugins}, vLLM {engines}, Python {own['python']}"
    )


def _policy(policy: Policy) -> dict[str, str]:
    """Returns what of the policy bears on a run."""
    mode = DoseMode.Name(policy.dose_mode).removeprefix("DOSE_MODE_").lower()
    found = {
        "kill_switch": "on" if policy.kill_switch else "off",
        "dose_mode": "reject" if mode == "unspecified" else mode,
    }
    for name in ("max_relative_dose", "max_total_relative_dose", "max_live_relative_dose"):
        if policy.HasField(name):  # type: ignore[arg-type]
            found[name] = text.number(getattr(policy, name))
    found["reference_norms"] = (
        str(len(policy.reference_norms)) if policy.reference_norms else "none"
    )
    found["default_spec"] = "set" if policy.default_spec else "none"
    return found


def _nodes(stage: Stage) -> str:
    rows = [
        (
            node.name,
            ",".join(str(role) for role in node_checks.form(node)["roles"]),  # type: ignore[attr-defined]
            node_checks.word(node),
            ",".join(node.sites),
        )
        for node in stage.nodes
    ]
    return text.columns(("NODE", "ROLES", "STATE", "SITES"), rows)


def _check_form(check: Check) -> dict[str, Any]:
    form: dict[str, Any] = _finite(asdict(check))
    return form | {"seen": scrubbed(check.seen)}


def _finite(value: Any) -> Any:
    """Returns the value with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _checks(checks: Sequence[Check]) -> str:
    rows = [(check.status.upper() if check.status is Status.FAILED else check.status,
             check.name, check.seen) for check in checks]  # fmt: skip
    return text.columns(("RESULT", "CHECK", "WHAT WAS SEEN"), rows)


def _timing_row(timing: Timing, base: Timing) -> list[str]:
    if not timing.ms:
        return [timing.name, "-", "-", f"not shown: {timing.why_not}"]
    form = _timing_form(timing, base)
    more = (
        "-"
        if form["more"] is None
        else f"{form['more']:+.1%} ({form['more_p10']:+.1%} to {form['more_p90']:+.1%})"
    )
    return [timing.name, f"{form['p50']:.3g}", f"{form['p10']:.3g}-{form['p90']:.3g}", more]


def _timing_form(timing: Timing, base: Timing) -> dict[str, Any]:
    """Returns milliseconds a token, and what that is more than the base, as a share of it."""
    form: dict[str, Any] = {"name": timing.name, "ms": [round(ms, 4) for ms in timing.ms]}
    shares = [("p10", 0.1), ("p50", 0.5), ("p90", 0.9)]
    form |= {n: cost.quantile(timing.ms, q) if timing.ms else None for n, q in shares}
    more = cost.paired(timing, base) if timing is not base else []
    names = [("more_p10", 0.1), ("more", 0.5), ("more_p90", 0.9)]
    form |= {n: cost.quantile(more, q) if more else None for n, q in names}
    return form | {"why_not": timing.why_not}
