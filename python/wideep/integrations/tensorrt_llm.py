# SPDX-License-Identifier: Apache-2.0
"""TensorRT-LLM's load balancer, from Python: moe_load_balancer.yaml, or its content.

    plan = wideep.plan(load, num_slots=288, ep_size=32)
    write_load_balancer("moe_load_balancer.yaml", plan.placement, layers=range(3, 61))
    llm = LLM(model, moe_config=MoeConfig(load_balancer="moe_load_balancer.yaml"), ...)

TensorRT-LLM divides an expert's tokens equally among its replicas: plan with split "equal".
"""

from __future__ import annotations

import os
from typing import Any, Optional, Sequence, Union

import numpy as np
from numpy.typing import ArrayLike

from .._arrays import matrix


def load_balancer_config(
    placement: ArrayLike, layers: Optional[Sequence[int]] = None, layer_updates_per_iter: int = 0
) -> dict[str, Any]:
    """The settings as MoeConfig(load_balancer=...) takes them inline.

    placement: [L, S]. layers: [L] the model's indices of these layers; None: from 0 on.
    layer_updates_per_iter: 0: the placement stays; above 0: TensorRT-LLM replaces it online."""
    rows = matrix("placement", placement, np.int32)
    indices = list(range(len(rows)) if layers is None else layers)
    if len(indices) != len(rows) or len(set(indices)) != len(indices):
        raise ValueError(f"layers: expected {len(rows)} different ones, found {indices}")
    if rows.size and rows.min() < 0:
        layer, slot = (int(i) for i in np.argwhere(rows < 0)[0])
        raise ValueError(
            f"placement: layer {indices[layer]}, slot {slot}: expected an expert, found "
            f"{rows[layer, slot]}; TensorRT-LLM refuses slots that are not in use"
        )
    if layer_updates_per_iter < 0:
        raise ValueError(f"layer_updates_per_iter: expected 0 or more, found {layer_updates_per_iter}")
    return {
        "num_slots": rows.shape[1],
        "initial_global_assignments": {
            int(layer): row.tolist() for layer, row in sorted(zip(indices, rows), key=lambda x: x[0])
        },
        "layer_updates_per_iter": layer_updates_per_iter,
    }


def write_load_balancer(
    path: Union[str, os.PathLike],
    placement: ArrayLike,
    layers: Optional[Sequence[int]] = None,
    layer_updates_per_iter: int = 0,
) -> None:
    """Writes moe_load_balancer.yaml; arguments as above."""
    config = load_balancer_config(placement, layers, layer_updates_per_iter)
    lines = [f"num_slots: {config['num_slots']}", "initial_global_assignments:"]
    lines += [f"  {layer}: {row}" for layer, row in config["initial_global_assignments"].items()]
    lines.append(f"layer_updates_per_iter: {config['layer_updates_per_iter']}")
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")
