"""What a run came to: as data, and as a block of text to paste into a bug report."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hotwire_client import DoseMode, Policy
from hotwirectl import text
from hotwirectl.verify import costs, node_checks
from hotwirectl.verify.machine import scrubbed
from hotwirectl.verify.results import Check, Status, Timing
from hotwirectl.verify.stage import Stage


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
            "cost": costs.form(self.timings),
            "idle_cost": costs.idle_cost(self.timings),
        }

    def block(self) -> str:
        """Returns the text."""
        table = costs.table(self.timings)
        parts = [self._head(), _nodes(self.stage), _checks(self.checks), table]
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
        if policy.HasField(name):
            found[name] = text.number(getattr(policy, name))
    found["reference_norms"] = str(len(policy.reference_norms) or "none")
    found["default_spec"] = "set" if policy.default_spec else "none"
    return found


def _nodes(stage: Stage) -> str:
    rows = [
        (n.name, ",".join(node_checks.roles(n)), node_checks.word(n), ",".join(n.sites))
        for n in stage.nodes
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
    rows = [(_word(check.status), check.name, check.seen) for check in checks]
    return text.columns(("RESULT", "CHECK", "WHAT WAS SEEN"), rows)


def _word(status: Status) -> str:
    return status.upper() if status is Status.FAILED else status
