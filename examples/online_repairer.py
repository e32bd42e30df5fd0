# SPDX-License-Identifier: Apache-2.0
"""Replays routing window by window: wideep.Repairer beside vLLM's policy. Each window is served by
what was known before it, with an equal split; moves are experts that a rank has to copy.

    pip install . && python examples/online_repairer.py     # WIDEEP_DATA_DIR: with recorded traces
"""

import os
import pathlib

import numpy as np

import wideep

EXPERTS, TOP_K, RANKS, SLOTS, WINDOW = 64, 6, 8, 72, 2048

# One array [tokens, layers, top_k] for each kind of text: DeepSeek-V2-Lite's, or made up.
files = sorted(pathlib.Path(os.environ.get("WIDEEP_DATA_DIR", ".")).glob("*v2lite/*.ids.u8"))
texts = [np.fromfile(file, np.uint8).reshape(-1, 26, TOP_K) for file in files]
rng = np.random.default_rng(0)
for _ in range(0 if texts else 3):
    scores = rng.normal(size=(4, EXPERTS)) + rng.gumbel(size=(20 * WINDOW, 4, EXPERTS))
    texts.append(np.argsort(-scores)[..., :TOP_K])
starts = [(text, start) for text in texts for start in range(0, len(text) - WINDOW + 1, WINDOW)]


def count(tokens):  # [layers, experts]
    return np.stack([np.bincount(layer.ravel(), minlength=EXPERTS) for layer in tokens.swapaxes(0, 1)])


windows = [count(text[start : start + WINDOW]) for text, start in starts]


def replay(name, update):
    placement, moves, imbalance = wideep.plan(windows[0], SLOTS, RANKS).placement, 0, []
    for i, load in enumerate(windows[1:], start=1):
        imbalance.append(wideep.imbalance(placement, load, RANKS).mean())
        old, placement = placement, update(placement, i)
        moves += wideep.count_moves(old, placement, RANKS).mean()
    print(f"{name:<28}imbalance {np.mean(imbalance):.3f}, {moves:6.1f} moves per layer")


def as_vllm(every):
    """vLLM's placements (wideep.integrations.vllm): planned from scratch from the last windows."""

    def update(placement, i):
        if i % every:
            return placement
        return wideep.plan(sum(windows[i + 1 - every : i + 1]), SLOTS, RANKS, "deepseek").placement

    return update


def repair(placement, i):
    repairer.step(windows[i])
    return repairer.placement


print(f"{len(windows)} windows of {WINDOW} tokens, {len(windows[0])} layers of {EXPERTS} experts")
replay("planned once", lambda placement, i: placement)
for every in (1, 4, 16):
    replay(f"vLLM's policy, every {every}", as_vllm(every))
repairer = wideep.Repairer(wideep.plan(windows[0], SLOTS, RANKS).placement, EXPERTS, RANKS, TOP_K)
replay("wideep.Repairer", repair)
