"""From raw figures to rows: median, p10, p90 and the ratio to vanilla before and after."""

from __future__ import annotations

import statistics
from typing import Any

Row = dict[str, Any]
STEP_METRICS = ("gpu_replay_ms", "wall_step_ms")


def rows_of(shape: str, figures: dict[str, dict[str, Any]]) -> list[Row]:
    """Return a row for each system, batch and metric. ``figures``: by engine, as it wrote them."""
    rows = [
        row
        for engine in figures.values()
        for state, measured in engine["states"].items()
        for row in _state_rows(shape, state, engine, measured)
    ]
    vanilla = _vanilla(rows)
    for row in rows:
        base = vanilla.get((row["batch"], row["metric"]))
        row["ratio"] = row["median"] / base if base and row["median"] else None
    return rows


def _state_rows(shape: str, state: str, engine: Row, measured: Row) -> list[Row]:
    rows = [
        _row(state, shape, int(batch), metric, metrics[metric])
        for batch, metrics in measured["batches"].items()
        for metric in STEP_METRICS
        if metrics[metric]
    ]
    rows.append(_row(state, shape, 1, "ttft_8k_ms", measured["ttft_8k_ms"][1:]))
    if measured["fill_us"] is not None:
        rows.append(_row(state, shape, 0, "fill_us", [measured["fill_us"]]))
    rows += [
        _row(state, shape, 0, metric, [engine[metric]])
        for metric in ("start_s", "compile_s", "buffers_mib")
        if engine.get(metric) is not None
    ]
    return rows


def _row(system: str, shape: str, batch: int, metric: str, values: list[float]) -> Row:
    ordered = sorted(values)
    return {
        "system": system,
        "shape": shape,
        "batch": batch,
        "metric": metric,
        "median": statistics.median(ordered),
        "p10": ordered[len(ordered) // 10],
        "p90": ordered[len(ordered) * 9 // 10],
        "n": len(ordered),
    }


def _vanilla(rows: list[Row]) -> dict[tuple[int, str], float]:
    """Return the mean of vanilla's medians before and after, by batch and metric."""
    medians: dict[tuple[int, str], list[float]] = {}
    for row in rows:
        if row["system"].startswith("vanilla"):
            medians.setdefault((row["batch"], row["metric"]), []).append(row["median"])
    return {key: statistics.mean(values) for key, values in medians.items()}


def table(rows: list[Row]) -> str:
    """Return what a person reads: milliseconds a step, and the ratio to vanilla."""
    batches = sorted({row["batch"] for row in rows if row["metric"] in STEP_METRICS})
    lines = []
    for metric in STEP_METRICS:
        lines.append(f"{metric:16}" + "".join(f"{'batch ' + str(b):>18}" for b in batches))
        by_system: dict[str, dict[int, Row]] = {}
        for row in rows:
            if row["metric"] == metric:
                by_system.setdefault(row["system"], {})[row["batch"]] = row
        lines += [_line(system, cells, batches) for system, cells in by_system.items()]
    others = [row for row in rows if row["metric"] not in STEP_METRICS]
    lines += [f"{row['system']:16}{row['metric']:>14} {row['median']:10.2f}" for row in others]
    return "\n".join(lines)


def _line(system: str, cells: dict[int, Row], batches: list[int]) -> str:
    text = ""
    for batch in batches:
        row = cells.get(batch)
        cell = f"{row['median']:.3f} ({row['ratio']:.4f})" if row and row["ratio"] else "-"
        text += f"{cell:>18}"
    return f"{system:16}{text}"
