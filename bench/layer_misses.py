#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far docs/beyond_memory.md's formula is off by taking misses of a layer as independent.

    bench/layer_misses.py IDS LAYERS TOP_K EXPERTS       one file of ids: uint8 [token][layer][top_k]

Keeps the experts that the first half of the tokens chose most, and counts how many of each token and
layer of the second half are not among them. Prints the time of a layer by the formula, by the mean
of misses alone, both against the recorded counts: for records that are read in 0.1 to 3 times of
what a layer's experts are computed in.
"""
import math
import sys

MAX_TOKENS = 24000


def misses(ids, shape, share):
    """[top_k + 1] how often so many experts of a layer are not in memory."""
    layers, top_k, experts = shape
    tokens = min(MAX_TOKENS, len(ids) // (layers * top_k))
    half = tokens // 2 * layers * top_k
    chosen = [[0] * experts for _ in range(layers)]
    for at in range(half):
        chosen[at // top_k % layers][ids[at]] += 1
    least = sorted((count for layer in chosen for count in layer), reverse=True)[int(share * layers * experts)]
    found = [0] * (top_k + 1)
    for at in range(half, tokens * layers * top_k, top_k):
        layer = chosen[at // top_k % layers]
        found[sum(layer[ids[at + i]] <= least for i in range(top_k))] += 1
    return [count / sum(found) for count in found]


def layer_time(probabilities, record, top_k):
    """In units of what computing a layer's experts takes."""
    return sum(p * (1.0 if m == 0 else max(1.0, m * record + 1 / top_k)) for m, p in enumerate(probabilities))


def main():
    path, *shape = sys.argv[1:]
    layers, top_k, experts = (int(number) for number in shape)
    with open(path, "rb") as file:
        ids = file.read(MAX_TOKENS * layers * top_k)
    print("in memory  hit rate  record  formula     mean of misses")
    for share in (0.25, 0.5, 0.75):
        recorded = misses(ids, (layers, top_k, experts), share)
        mean = sum(m * p for m, p in enumerate(recorded))
        each = mean / experts
        formula = [math.comb(experts, m) * each**m * (1 - each)**(experts - m) for m in range(experts + 1)]
        for record in (0.1, 0.3, 1.0, 3.0):
            seconds = layer_time(recorded, record, top_k)
            off = [layer_time(formula, record, top_k) / seconds - 1, max(1.0, mean * record) / seconds - 1]
            print(f"{share:9}  {1 - mean / top_k:8.3f}  {record:6}  {100 * off[0]:+6.1f} %  {100 * off[1]:+6.1f} %")


if __name__ == "__main__":
    main()
