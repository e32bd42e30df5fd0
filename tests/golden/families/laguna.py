# SPDX-License-Identifier: Apache-2.0
"""Laguna: heads by layer, their results gated by softplus, rotations by kind of layer."""

from transformers import LagunaConfig

from families.family import Family
from families.kinds import (
    BASE,
    FULL,
    MIXED,
    ODD,
    OPTIONS,
    complete,
    default,
    layers,
    ropes,
    yarn,
)

PARTIAL = [
    ropes(default(5e5, partial_rotary_factor=0.5), default(1e4)),
    ropes(yarn(partial_rotary_factor=0.5), default(1e4, partial_rotary_factor=1.0)),
    ropes(default(1e5), yarn(partial_rotary_factor=0.25)),
]

FAMILIES = [
    Family(
        name="laguna",
        config=LagunaConfig,
        base=BASE
        | dict(
            shared_expert_intermediate_size=10,
            layer_types=layers("fss"),
            rope_parameters=PARTIAL[0],
            _rope="new",
        ),
        shapes={
            "plain": dict(_minimal=True),
            "heads": dict(
                num_hidden_layers=4,
                layer_types=layers("fsfs"),
                num_attention_heads_per_layer=[4, 6, 4, 2],
                rope_parameters=PARTIAL[1],
                moe_routed_scaling_factor=2.5,
                gating="per-head",
            ),
            "elements": dict(
                gating="per-element",
                attention_bias=True,
                moe_router_logit_softcapping=1.5,
                tie_word_embeddings=True,
                mlp_layer_types=["sparse"] * 3,
                rope_parameters=PARTIAL[2],
                _keys={"gating_types": ["per_element"] * 3},
            ),
            "full": dict(
                num_hidden_layers=2,
                layer_types=layers("ff"),
                rope_parameters={FULL: default(1e4)},
                num_attention_heads_per_layer=[2, 4],
                gating="per-element",
            ),
            "odd": ODD
            | dict(
                shared_expert_intermediate_size=11,
                num_attention_heads_per_layer=[3, 5, 3],
                num_experts=5,
                mlp_layer_types=["sparse", "dense", "sparse"],
                rope_parameters=ropes(
                    yarn(partial_rotary_factor=0.4), default(100.0, partial_rotary_factor=0.8)
                ),
            ),
        },
        options=OPTIONS
        | dict(
            num_experts=[4, 9, 16],
            shared_expert_intermediate_size=[8, 20],
            gating=[True, "per-head", "per-element"],
            moe_routed_scaling_factor=[1.0, 2.5],
            moe_router_logit_softcapping=[0.0, 0.0, 2.0],
            attention_bias=[False, True],
            rope_parameters=PARTIAL,
            _layers=MIXED,
            _dense=[[], [0], [1, 2]],
            _heads=[[4], [4, 8], [8, 4, 12]],
        ),
        complete=complete,
    )
]
