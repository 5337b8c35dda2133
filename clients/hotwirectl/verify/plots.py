"""Plots as SVG text: no scripts, nothing fetched, colours from the page's own style."""

import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 640, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 150, 20, 20, 40


def lines(points: Sequence[tuple[float, float]], limit: float, x: str, y: str) -> str:
    """Returns y over x, both on log scales, with a dashed line at the limit."""
    shown = sorted((a, b) for a, b in points if a > 0)
    across = _Log([a for a, _ in shown], _LEFT, _WIDTH - _RIGHT)
    up = _Log([*(b for _, b in shown if b > 0), limit], _HEIGHT - _BOTTOM, _TOP)
    places = [(across(a), up(max(b, up.low))) for a, b in shown]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    parts = [f'<polyline class="line" points="{path}"/>']
    parts += [f'<circle class="dot" cx="{a:.1f}" cy="{b:.1f}" r="4"/>' for a, b in places]
    parts += [_dashed(up(limit), "rounding")]
    parts += [_text(across(a), _HEIGHT - _BOTTOM + 16, f"{a:g}", "middle") for a, _ in shown]
    parts += [_text(_LEFT - 8, up(value) + 4, f"{value:.1g}", "end") for value in (up.low, up.high)]
    parts += [_text(_LEFT - 70, _TOP + 4, y, "end")]
    parts += [_text((_LEFT + _WIDTH) / 2, _HEIGHT - 6, x, "middle")]
    return _svg(parts, _HEIGHT, f"{y} by {x}")


def bars(values: Mapping[str, float], unit: str) -> str:
    """Returns a bar for each value, from the least power of ten below them, on a log scale."""
    step = 26
    across = _Log([value for value in values.values() if value > 0] or [1.0], _LEFT, _WIDTH - 110)
    parts = []
    for at, (name, value) in enumerate(values.items()):
        top = _TOP + step * at
        end = across(max(value, across.low))
        parts.append(_text(_LEFT - 8, top + 14, name, "end"))
        width = max(end - _LEFT, 1)
        parts.append(f'<rect class="bar" x="{_LEFT}" y="{top}" height="18" width="{width:.1f}"/>')
        parts.append(_text(end + 6, top + 14, f"{value:.2g} {unit}", "start"))
    return _svg(parts, _TOP + step * len(values) + 8, f"{unit} by place")


def strips(rows: Mapping[str, Sequence[float]], unit: str) -> str:
    """Returns a dot for each value, a row for each name, and a line at each row's median."""
    step = 40
    every = [value for values in rows.values() for value in values] or [1.0]
    across = _Linear(0.0, 1.05 * max(every), _LEFT, _WIDTH - _RIGHT)
    parts = []
    for at, (name, values) in enumerate(rows.items()):
        middle = _TOP + step * at + 12
        parts.append(_text(_LEFT - 8, middle + 4, name, "end"))
        parts += [
            f'<circle class="dot faint" cx="{across(v):.1f}" cy="{middle}" r="4"/>' for v in values
        ]
        if values:
            x = across(sorted(values)[len(values) // 2])
            parts.append(f'<path class="median" d="M{x:.1f} {middle - 12}v24"/>')
    bottom = _TOP + step * len(rows)
    for value in (0.0, max(every) / 2, max(every)):
        parts.append(_text(across(value), bottom + 14, f"{value:.3g}", "middle"))
    parts.append(_text((_LEFT + _WIDTH) / 2, bottom + 30, unit, "middle"))
    return _svg(parts, bottom + 36, unit)


class _Log:
    """Maps numbers above 0 to a coordinate, whole decades wide."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        finite = [v for v in values if 0 < v < math.inf] or [1.0]
        self.low = 10.0 ** math.floor(math.log10(min(finite)))
        self.high = 10.0 ** math.ceil(math.log10(max(finite)))
        if self.high == self.low:
            self.high *= 10
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        share = math.log10(value / self.low) / math.log10(self.high / self.low)
        return self._start + share * (self._end - self._start)


class _Linear:
    """Maps numbers to a coordinate."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._high, self._start, self._end = low, high, start, end

    def __call__(self, value: float) -> float:
        share = (value - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)


def _dashed(y: float, name: str) -> str:
    end = _WIDTH - _RIGHT
    line = f'<path class="limit" d="M{_LEFT} {y:.1f}H{end}"/>'
    return line + _text(end, y - 5, name, "end")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Sequence[str], height: float, label: str) -> str:
    inner = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">\n'
        f"{inner}\n</svg>"
    )
