"""Draws the way of a vector and of a request through the processes.

python -m bench.pictures.request_path docs/request-path.png
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch

LANES = (
    "hotwirectl",
    "hotwired",
    "frontend",
    "engine",
    "worker\nrank 0",
    "worker\nrank 1",
    "client",
)
CTL, DAEMON, FRONTEND, ENGINE, RANK_0, RANK_1, CLIENT = range(7)
VECTOR, REQUEST = "#8a4b08", "#0b4f8a"
SHADE = "#f3f3f3"


@dataclass(frozen=True)
class Step:
    """An arrow from a lane to another, or what happens within one if they are the same.

    also: another lane that it reaches, or in which the same happens.
    """

    start: int
    end: int
    text: str
    also: int | None = None


PUSH = (
    Step(CTL, DAEMON, "RegisterVector"),
    Step(DAEMON, DAEMON, "checks the file; its canonical bytes' sha256 is the revision"),
    Step(DAEMON, RANK_1, "Stage: bytes, to every rank; one refusal ends it all", RANK_0),
    Step(DAEMON, DAEMON, "stores the blob, then the row: generation n"),
    Step(DAEMON, ENGINE, "Commit n: names → revisions, policy"),
    Step(DAEMON, FRONTEND, "Commit n"),
    Step(DAEMON, CTL, "in use on 4/4 nodes"),
)
ASK = (
    Step(CLIENT, FRONTEND, "HTTP: vllm_xargs names vector, layer, scale"),
    Step(FRONTEND, FRONTEND, "strict, and can't be done: HTTP 400"),
    Step(FRONTEND, ENGINE, "the request"),
    Step(ENGINE, ENGINE, "admits: dose; program of revisions; cache keys"),
    Step(ENGINE, RANK_1, "each step: schedule, programs, stamp (n, on or off, limit)", RANK_0),
    Step(RANK_0, RANK_0, "token → row; the op steers", RANK_1),
    Step(ENGINE, FRONTEND, "tokens"),
    Step(FRONTEND, CLIENT, "the answer, with the id that its receipt is found by"),
)


def draw(out: Path) -> None:
    """Writes the picture."""
    figure, axes = plt.subplots(figsize=(11, 7.6), layout="constrained")
    rows = len(PUSH) + len(ASK) + 3
    axes.set(xlim=(-0.6, len(LANES) - 0.4), ylim=(-rows, 0.9))
    axes.axis("off")
    for x, name in enumerate(LANES):
        axes.plot([x, x], [-rows, 0], color="#bbbbbb", linewidth=1, zorder=0)
        box = {"boxstyle": "round,pad=0.35", "facecolor": SHADE, "edgecolor": "#888888"}
        axes.text(x, 0.35, name, ha="center", va="center", fontsize=10, bbox=box)
    inside = FancyBboxPatch(
        (FRONTEND - 0.45, -rows), 3.9, rows + 0.8, boxstyle="round,pad=0", facecolor="#f7fbff"
    )
    inside.set(edgecolor="#9db8d2", linestyle="--", zorder=-1)
    axes.add_patch(inside)
    axes.text(
        RANK_1 + 0.42,
        -rows + 0.15,
        "vllm serve, one plugin",
        ha="right",
        fontsize=9,
        color="#5b7a99",
    )
    _steps(axes, PUSH, -1.0, VECTOR, "A vector is pushed")
    _steps(axes, ASK, -len(PUSH) - 2.3, REQUEST, "A request is steered")
    figure.savefig(out, dpi=130)


def _steps(axes: Any, steps: tuple[Step, ...], top: float, colour: str, title: str) -> None:
    axes.text(-0.55, top + 0.25, title, fontsize=11, fontweight="bold", color=colour)
    for number, step in enumerate(steps, 1):
        _step(axes, step, top - number + 0.2, colour, f"{number}  {step.text}")


def _step(axes: Any, step: Step, y: float, colour: str, text: str) -> None:
    label = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.9}
    style = {"fontsize": 8.5, "color": colour, "bbox": label, "va": "center"}
    ends = [step.end] if step.also is None else [step.end, step.also]
    if step.start == step.end:
        axes.plot(ends, [y] * len(ends), "o", color=colour, markersize=5)
        right, left = {"x": step.start + 0.1}, {"x": step.start - 0.1, "ha": "right"}
        axes.text(y=y, s=text, **(right if step.also is None else left), **style)
        return
    arrow = {"arrowstyle": "->", "color": colour, "linewidth": 1.4}
    for end in ends:
        axes.annotate("", (end, y), (step.start, y), arrowprops=arrow)
    axes.text((step.start + step.end) / 2, y + 0.3, text, ha="center", **style)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
