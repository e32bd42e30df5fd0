# SPDX-License-Identifier: Apache-2.0
"""Replays routing window by window: wideep.Repairer beside vLLM's policy. Each window is served by
what was known before it, with an equal split; moves are experts that a rank has to copy.

    pip install . && python examples/online_repairer.py     # WIDEEP_DATA_DIR: a recorded trace
"""

import os
import pathlib

import numpy as np

import wideep

EXPERTS, TOP_K, RANKS, SLOTS, WINDOW = 64, 6, 8, 72, 2048

files = sorted(pathlib.Path(os.environ.get("WIDEEP_DATA_DIR", ".")).glob("*v2lite/*.ids.u8"))
if files:  # DeepSeek-V2-Lite, one file for each kind of text: [tokens, layers, top_k]
    texts = [np.fromfile(file, np.uint8).reshape(-1, 26, TOP_K) for file in files]
else:
    rng = np.random.default_rng(0)
    scores = np.log(rng.lognormal(0, 1, (3, 1, 4, EXPERTS)))  # three kinds of text, 4 layers
    texts = [np.argsort(-(s + rng.gumbel(size=(20 * WINDOW, 4, EXPERTS))))[..., :TOP_K] for s in scores]
tokens = [text[i : i + WINDOW] for text in texts for i in range(0, len(text) - WINDOW + 1, WINDOW)]
windows = [np.array([np.bincount(layer, minlength=EXPERTS) for layer in t.swapaxes(0, 1).reshape(t.shape[1], -1)]) for t in tokens]


def replay(name, update):
    placement = wideep.plan(windows[0], SLOTS, RANKS).placement
    imbalance, moves = [], 0
    for i, load in enumerate(windows[1:], start=1):
        imbalance.append(wideep.imbalance(placement, load, RANKS).mean())
        old, placement = placement, update(placement, i)
        moves += wideep.count_moves(old, placement, RANKS).mean()
    print(f"{name:<28}imbalance {np.mean(imbalance):.3f}, {moves:6.1f} moves per layer")


def as_vllm(every):  # plans from scratch from the last windows; wideep.integrations.vllm has proof
    def update(placement, i):
        last = np.sum(windows[max(0, i + 1 - every) : i + 1], axis=0)
        return placement if i % every else wideep.plan(last, SLOTS, RANKS, planner="deepseek").placement

    return update


repairer = wideep.Repairer(wideep.plan(windows[0], SLOTS, RANKS).placement, EXPERTS, RANKS, TOP_K)


def repair(placement, i):
    repairer.step(windows[i])
    return repairer.placement


print(f"{len(windows)} windows of {WINDOW} tokens, {len(windows[0])} layers of {EXPERTS} experts")
replay("planned once", lambda placement, i: placement)
for every in (1, 4, 16):
    replay(f"vLLM's policy, every {every}", as_vllm(every))
replay("wideep.Repairer", repair)
