#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/hit_rates.svg from the JSON of `wideep balance cache`, one file for each model.

    bench/hit_rate_picture.py gpt-oss-20b=gptoss.json DeepSeek-V2-Lite=v2lite.json docs/images/hit_rates.svg

A panel for each model and batch, in which a line is a policy: hit rate over the share of experts in
memory, from nothing of both to all of both.
"""
import json
import sys

# Colours by policy, the same in all panels.
POLICIES = {"wideep": "#0b66b0", "oracle": "#1a7a3c", "lru": "#c4500b", "uniform": "#8a929c"}
NAMES = {"wideep": "wideep", "oracle": "best fixed set (oracle)",
         "lru": "least recently used", "uniform": "uniform router"}
PANEL, GAP, ROW = 350, 40, 375


class Panel:
    """A drawing with axes from 0 to 1: the share of experts in memory to the right, hit rate up."""

    def __init__(self, column, row, title):
        self.left, self.right = column * (PANEL + GAP) + 58, column * (PANEL + GAP) + PANEL
        self.top, self.bottom = row * ROW + 52, row * ROW + 320
        self.parts = [text(self.left, self.top - 24, title, "start", 'font-weight="600"')]
        for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
            y, x = self.y(tick), self.x(tick)
            self.parts.append(f'<path d="M{self.left} {y:.1f}H{self.right}" stroke="#dfe3e8"/>')
            self.parts.append(text(self.left - 7, y + 4, f"{tick:g}", "end"))
            self.parts.append(text(x, self.bottom + 18, f"{100 * tick:.0f} %", "middle"))
        self.parts.append(text((self.left + self.right) / 2, self.bottom + 38, "experts in memory", "middle"))

    def x(self, share):
        return self.left + share * (self.right - self.left)

    def y(self, rate):
        return self.bottom - rate * (self.bottom - self.top)

    def line(self, points, color, dashes=""):
        path = "M" + "L".join(f"{self.x(s):.1f} {self.y(r):.1f}" for s, r in points)
        self.parts.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.8" {dashes}/>')

    def legend(self):
        for i, (policy, color) in enumerate(POLICIES.items()):
            y = self.bottom - 72 + 17 * i
            self.parts.append(f'<rect x="{self.right - 165}" y="{y - 5}" width="11" height="11" rx="2" fill="{color}"/>')
            self.parts.append(text(self.right - 148, y + 5, NAMES[policy], "start"))


def text(x, y, content, anchor, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{content}</text>'


def panel_of(column, row, name, batch, budgets):
    requests = "one request" if batch == 1 else f"{batch} requests at once"
    panel = Panel(column, row, f"{name}, {requests}: hit rate")
    for policy, color in POLICIES.items():
        points = [(each["experts_in_memory"], each["hit_rate"][policy]) for each in budgets]
        panel.line([(0.0, 0.0)] + points + [(1.0, 1.0)], color,
                   'stroke-dasharray="5 4"' if policy == "uniform" else "")
    if column == 0 and row == 0:
        panel.legend()
    return panel


def main():
    *models, output = sys.argv[1:]
    panels, rows = [], 0
    for column, model in enumerate(models):
        name, path = model.split("=", 1)
        with open(path, encoding="utf-8") as file:
            budgets = json.load(file)["budgets"]
        batches = sorted({each["batch"] for each in budgets})
        rows = max(rows, len(batches))
        for row, batch in enumerate(batches):
            panels.append(panel_of(column, row, name, batch, [each for each in budgets if each["batch"] == batch]))
    width, height = len(models) * (PANEL + GAP), rows * ROW
    body = "".join("".join(panel.parts) for panel in panels)
    with open(output, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                   f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="#333">'
                   f'<rect width="{width}" height="{height}" fill="white"/>{body}</svg>\n')


if __name__ == "__main__":
    main()
