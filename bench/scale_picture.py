#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/scale.svg from the numbers of build/bench/simulate/scale and engine_scale.

    bench/scale_picture.py scale.csv engine_scale.csv docs/images/scale.svg
"""
import csv
import math
import sys

DASHES = 'stroke-dasharray="5 4"'  # predicted, beside dots that are measured
COLORS = ["#0b66b0", "#c4500b", "#7b3fb3", "#1a7a3c"]
PANEL, GAP, ROW = 350, 40, 375
WIDTH, HEIGHT = 2 * (PANEL + GAP), 2 * ROW


class Panel:
    """A drawing with logarithmic axes: ranks to the right, values up."""

    def __init__(self, place, title, ranks, values):
        left, top = place % 2 * (PANEL + GAP), place // 2 * ROW
        self.left, self.right = left + 58, left + PANEL
        self.top, self.bottom = top + 52, top + 320
        self.ranks = ranks
        self.low = 10 ** math.floor(math.log10(min(values)))
        self.high = 10 ** math.ceil(math.log10(max(values)))
        self.parts = [text(self.left, top + 28, title, "start", 'font-weight="600"')]
        self.draw_axes()

    def x(self, ranks):
        share = math.log2(ranks / self.ranks[0]) / math.log2(self.ranks[-1] / self.ranks[0])
        return self.left + share * (self.right - self.left)

    def y(self, value):
        share = math.log10(value / self.low) / math.log10(self.high / self.low)
        return self.bottom - share * (self.bottom - self.top)

    def draw_axes(self):
        tick = self.low
        while tick <= self.high * 1.001:
            y = self.y(tick)
            self.parts.append(f'<path d="M{self.left} {y:.1f}H{self.right}" stroke="#dfe3e8"/>')
            self.parts.append(text(self.left - 7, y + 4, f"{tick:g}", "end"))
            tick *= 10
        for i, ranks in enumerate(self.ranks):
            if i % 2 == (len(self.ranks) - 1) % 2:
                self.parts.append(text(self.x(ranks), self.bottom + 18, f"{ranks:,}", "middle"))
        self.parts.append(text((self.left + self.right) / 2, self.bottom + 38, "EP (ranks)", "middle"))

    def line(self, points, color, dashes=""):
        path = "M" + "L".join(f"{self.x(r):.1f} {self.y(v):.1f}" for r, v in points)
        self.parts.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.8" {dashes}/>')

    def dots(self, points, color):
        for ranks, value in points:
            self.parts.append(f'<circle cx="{self.x(ranks):.1f}" cy="{self.y(value):.1f}" r="3.6" fill="{color}"/>')

    def legend(self, names):
        for i, name in enumerate(names):
            y = self.top + 4 + 17 * i
            self.parts.append(f'<rect x="{self.left + 12}" y="{y - 5}" width="11" height="11" rx="2" fill="{COLORS[i]}"/>')
            self.parts.append(text(self.left + 29, y + 5, name, "start"))


def text(x, y, content, anchor, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{content}</text>'


def read(*paths):
    """{(where, what): [(ranks, value, predicted or None)]}"""
    found = {}
    for path in paths:
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                predicted = float(row["predicted"]) if row["predicted"] else None
                found.setdefault((row["where"], row["what"]), []).append(
                    (int(row["ranks"]), float(row["value"]), predicted))
    return found


def iteration_panel(data):
    """Milliseconds of an iteration: both GPUs, and what the control plane of all layers takes."""
    parts = ["experts", "dispatch", "combine", "other"]
    lines = {}
    for gpu in ["h100_sxm", "gb200"]:
        rows = [data[gpu, part] for part in parts]
        lines[gpu] = [(same[0][0], sum(each[1] for each in same) * 1e3) for same in zip(*rows)]
    ranks = [r for r, _ in lines["gb200"]]
    panel = Panel(0, "an iteration of 64 requests a rank, ms", ranks,
                  [v for line in lines.values() for _, v in line] + [10])
    for color, line in zip(COLORS, lines.values()):
        panel.line(line, color)
        panel.dots(line, color)
    panel.legend(["H100, predicted", "GB200, predicted"])
    return panel


def engine_panel(data):
    names = ["all", "experts", "exchange", "agree"]
    rows = [data["engine", name] for name in names]
    powers_of_two = [r for r, _, _ in rows[0] if r & (r - 1) == 0]
    room_for_legend = [999]
    panel = Panel(1, "an iteration here, ms of a core for a rank", powers_of_two,
                  [v * 1e3 for line in rows for each in line for v in each[1:]] + room_for_legend)
    for color, line in zip(COLORS, rows):
        panel.line([(r, p * 1e3) for r, _, p in line], color, DASHES)
        panel.dots([(r, v * 1e3) for r, v, _ in line], color)
    panel.legend(["all", "experts", "counts, slots, dispatch and combine", "agreement"])
    return panel


def control_panel(data):
    names = ["agree us", "split us", "exchange us"]
    rows = [data["here", name] for name in names]
    values = [v * 1e6 for line in rows for each in line for v in each[1:] if v > 0]
    panel = Panel(2, "control plane of a rank: µs of a layer", [r for r, _, _ in rows[0]], values)
    for color, line in zip(COLORS, rows):
        panel.line([(r, p * 1e6) for r, _, p in line if r >= 8 and p > 0], color, DASHES)
        panel.dots([(r, v * 1e6) for r, v, _ in line], color)
    panel.legend(["agreement (of an iteration)", "counts and choice of slots", "dispatch and combine"])
    return panel


def memory_panel(data):
    line = data["here", "memory"]
    panel = Panel(3, "control plane of a rank: MB", [r for r, _, _ in line],
                  [v / 1e6 for each in line for v in each[1:] if v > 0])
    panel.line([(r, p / 1e6) for r, _, p in line if r >= 8], COLORS[0], DASHES)
    panel.dots([(r, v / 1e6) for r, v, _ in line], COLORS[0])
    panel.legend(["touched memory"])
    return panel


def main():
    *paths, output = sys.argv[1:]
    data = read(*paths)
    panels = [iteration_panel(data), engine_panel(data), control_panel(data), memory_panel(data)]
    body = "".join("".join(panel.parts) for panel in panels)
    with open(output, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
                   f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" fill="#333">'
                   f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{body}</svg>\n')


if __name__ == "__main__":
    main()
