# SPDX-License-Identifier: Apache-2.0
"""Mellum 2: Qwen3-MoE whose layers of each kind have a rotation of their own."""

from transformers import MellumConfig

from families.family import Family
from families.kinds import BASE, MIXED, ODD, OPTIONS, complete, default, layers, ropes, yarn

ROPES = [
    ropes(default(1e6), default(1e4)),
    ropes(yarn(), default(1e4)),
    ropes(default(1e5), yarn()),
]

FAMILIES = [
    Family(
        name="mellum",
        config=MellumConfig,
        base=BASE | dict(layer_types=layers("sfs"), rope_parameters=None, _rope="new"),
        shapes={
            "plain": dict(_minimal=True),
            "yarn": dict(
                rope_parameters=ROPES[1],
                mlp_layer_types=["dense", "sparse", "sparse"],
                attention_bias=True,
                norm_topk_prob=False,
                _extra={"mtp.fc.weight": (32, 64), "mtp.norm.weight": (32,)},
            ),
            "tied": dict(
                num_hidden_layers=2,
                layer_types=layers("fs"),
                num_key_value_heads=4,
                tie_word_embeddings=True,
                rope_parameters=ROPES[2],
            ),
            "odd": ODD
            | dict(
                layer_types=layers("ffs"),
                mlp_layer_types=["sparse", "sparse", "dense"],
                num_experts=5,
                rope_parameters=ropes(default(1e3), default(100.0)),
            ),
        },
        options=OPTIONS
        | dict(
            num_experts=[4, 9, 16],
            attention_bias=[False, True],
            norm_topk_prob=[True, True, False],
            rope_parameters=ROPES,
            _layers=MIXED,
            _dense=[[], [0], [1]],
        ),
        complete=complete,
    )
]
