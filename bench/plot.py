"""The figures of the docs, drawn from the curves of a report: small SVG files, readable on light and on dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from msgspec import Struct

from .measure import Curve

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, BOTTOM, TOP = 78, 40, 58, 46  # around the plot; the legend needs more at the top
LEGEND_ROW = 22
LETTER_WIDTH = 7.0  # of the 13 px font, about
# Both palettes keep a distance for eyes that see fewer colours; marks differ in shape too.
LIGHT = ("#0072b2", "#d55e00", "#008f6b", "#a3459b", "#8a6d00")
DARK = ("#56b4e9", "#ff9e4a", "#3fd0a4", "#e59adf", "#f0d54a")
MARKS = (
    '<circle cx="{x}" cy="{y}" r="4"/>',
    '<rect x="{x0}" y="{y0}" width="8" height="8"/>',
    '<path d="M{x} {y1}l5 9h-10z"/>',
    '<path d="M{x} {y2}l6 6l-6 6l-6-6z"/>',
    '<path d="M{x} {y3}l5-9h-10z"/>',
)


class Axis(Struct, frozen=True, kw_only=True):
    """Where a value lies between 0 and 1, and what is written along it."""

    label: str
    place: Callable[[float], float]
    ticks: list[tuple[float, str]]


class Figure(Struct, frozen=True, kw_only=True):
    """What a figure is called and how its axes run."""

    title: str
    across: Callable[[Sequence[float]], Axis]
    up: Callable[[Sequence[float]], Axis]


def decades(label: str) -> Callable[[Sequence[float]], Axis]:
    """Powers of ten, as many as it takes."""

    def axis(values: Sequence[float]) -> Axis:
        low = math.floor(math.log10(min(values)))
        high = max(math.ceil(math.log10(max(values))), low + 1)
        ticks = [(10.0**power, _number(10.0**power)) for power in range(low, high + 1)]
        return Axis(label=label, place=lambda value: (math.log10(value) - low) / (high - low), ticks=ticks)

    return axis


def from_zero(label: str) -> Callable[[Sequence[float]], Axis]:
    """Even steps of 1, 2 or 5 times a power of ten."""

    def axis(values: Sequence[float]) -> Axis:
        rough = max(values) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough)
        count = math.ceil(max(values) / step)
        ticks = [(step * number, _number(step * number)) for number in range(count + 1)]
        return Axis(label=label, place=lambda value: value / (step * count), ticks=ticks)

    return axis


def doubling(label: str) -> Callable[[Sequence[float]], Axis]:
    """1, 2, 4, 8 at equal distances."""

    def axis(values: Sequence[float]) -> Axis:
        low, high = math.log2(min(values)), math.log2(max(values))
        ticks = [(value, _number(value)) for value in sorted(set(values))]
        return Axis(label=label, place=lambda value: _inset((math.log2(value) - low) / (high - low)), ticks=ticks)

    return axis


def named(label: str, names: Sequence[str]) -> Callable[[Sequence[float]], Axis]:
    """Names at equal distances, for the values 0, 1, 2, …"""

    def axis(values: Sequence[float]) -> Axis:
        del values
        ticks = [(float(number), name) for number, name in enumerate(names)]
        return Axis(label=label, place=lambda value: _inset(value / (len(names) - 1)), ticks=ticks)

    return axis


FIGURES = {
    "growth": Figure(
        title="A long past: what each verb takes",
        across=decades("letters in the room"),
        up=decades("milliseconds, median"),
    ),
    "contention": Figure(
        title="Processes that send into one room at once",
        across=doubling("processes"),
        up=from_zero("durable letters per second, all together"),
    ),
    "latency": Figure(
        title="How long a durable send takes",
        across=named("share of the sends that are faster", ("50 %", "90 %", "99 %", "99.9 %", "worst")),
        up=decades("milliseconds"),
    ),
}


def write_figures(curves: Sequence[Curve], folder: Path) -> list[str]:
    """Draw what there are curves for; the names of the figures."""
    folder.mkdir(exist_ok=True)
    drawn = [name for name in FIGURES if any(curve.figure == name for curve in curves)]
    for name in drawn:
        svg = draw(FIGURES[name], [curve for curve in curves if curve.figure == name])
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
    return drawn


def draw(figure: Figure, curves: Sequence[Curve]) -> str:
    rows = _legend_rows(curves)
    top = TOP + LEGEND_ROW * len(rows) + 12
    height = HEIGHT + LEGEND_ROW * len(rows)
    across = figure.across([x for curve in curves for x, _ in curve.points])
    up = figure.up([y for curve in curves for _, y in curve.points])
    sheet = _Sheet(across=across, up=up, top=top, bottom=height - BOTTOM)
    body = [
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>',
        f'<text class="title" x="{LEFT}" y="28">{escape(figure.title)}</text>',
        *_legend(rows, curves),
        *sheet.grid(),
        *(sheet.curve(curve, number) for number, curve in enumerate(curves)),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-label="{escape(figure.title)}">'
    )
    return "\n".join([head, _style(), *body, "</svg>\n"])


class _Sheet(Struct, frozen=True, kw_only=True):
    """The plot itself: from values to places on the paper."""

    across: Axis
    up: Axis
    top: float
    bottom: float

    def x(self, value: float) -> float:
        return round(LEFT + self.across.place(value) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        return round(self.bottom - self.up.place(value) * (self.bottom - self.top), 1)

    def grid(self) -> list[str]:
        drawn = []
        for value, label in self.up.ticks:
            y = self.y(value)
            drawn.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
            drawn.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(label)}</text>')
        for value, label in self.across.ticks:
            x = self.x(value)
            drawn.append(f'<path class="axis" d="M{x} {self.bottom}v5"/>')
            drawn.append(f'<text x="{x}" y="{self.bottom + 20}" text-anchor="middle">{escape(label)}</text>')
        middle = (self.top + self.bottom) / 2
        return [
            *drawn,
            f'<path class="axis" d="M{LEFT} {self.bottom}H{WIDTH - RIGHT}"/>',
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{self.bottom + 44}" text-anchor="middle">'
            f"{escape(self.across.label)}</text>",
            f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.up.label)}</text>",
        ]

    def curve(self, curve: Curve, number: int) -> str:
        places = [(self.x(x), self.y(y)) for x, y in curve.points]
        path = "M" + "L".join(f"{x} {y}" for x, y in places)
        marks = "".join(_mark(number, x, y) for x, y in places)
        return f'<g class="c{number}"><path class="line" d="{path}"/>{marks}</g>'


def _legend_rows(curves: Sequence[Curve]) -> list[list[int]]:
    """Which curves stand in which row, so that no row is wider than the plot."""
    rows: list[list[int]] = [[]]
    used = 0.0
    for number, curve in enumerate(curves):
        wide = _entry_width(curve)
        if rows[-1] and used + wide > WIDTH - LEFT - RIGHT:
            rows.append([])
            used = 0.0
        rows[-1].append(number)
        used += wide
    return rows


def _legend(rows: Sequence[Sequence[int]], curves: Sequence[Curve]) -> list[str]:
    drawn = []
    for row, numbers in enumerate(rows):
        x, y = float(LEFT), TOP + LEGEND_ROW * row + 6
        for number in numbers:
            mark = _mark(number, x + 13, y)
            drawn.append(f'<g class="c{number}"><path class="line" d="M{x} {y}h26"/>{mark}</g>')
            drawn.append(f'<text x="{x + 33}" y="{y + 4}">{escape(curves[number].name)}</text>')
            x += _entry_width(curves[number])
    return drawn


def _entry_width(curve: Curve) -> float:
    return 33 + LETTER_WIDTH * len(curve.name) + 16


def _mark(number: int, x: float, y: float) -> str:
    places = {"x": x, "y": y, "x0": x - 4, "y0": y - 4, "y1": y - 5, "y2": y - 6, "y3": y + 5}
    return MARKS[number % len(MARKS)].format(**places)


def _style() -> str:
    def colours(palette: Sequence[str]) -> str:
        return "".join(
            f".c{number}{{fill:{colour}}}.c{number} .line{{stroke:{colour}}}"
            for number, colour in enumerate(palette)
        )

    light = ".paper{fill:#fff}text{fill:#24292f}.grid{stroke:#d8dee4}.axis{stroke:#57606a}" + colours(LIGHT)
    dark = ".paper{fill:#161b22}text{fill:#e6edf3}.grid{stroke:#30363d}.axis{stroke:#8b949e}" + colours(DARK)
    common = (
        "text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}"
        ".title{font-size:16px;font-weight:600}.line{fill:none;stroke-width:2.2}"
    )
    return f"<style>{common}{light}@media(prefers-color-scheme:dark){{{dark}}}</style>"


def _inset(share: float) -> float:
    """Away from the edges of the plot."""
    return 0.04 + 0.92 * share


def _number(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
