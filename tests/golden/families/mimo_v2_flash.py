# SPDX-License-Identifier: Apache-2.0
"""MiMo-V2-Flash: windows with sinks and twice the heads of keys and values, scaled values."""

import torch
from transformers import MiMoV2FlashConfig

from families.family import Family
from families.kinds import BASE, MIXED, ODD, OPTIONS, complete, default, layers, ropes, yarn


def draw(name, shape, generator):
    if name.endswith("sinks"):
        return 1.0 + torch.randn(shape, generator=generator)
    return None


ROTATED = {"partial_rotary_factor": 0.334}  # assumed of a kind without one
FAMILIES = [
    Family(
        name="mimo_v2_flash",
        config=MiMoV2FlashConfig,
        base={k: v for k, v in BASE.items() if k != "num_experts"}
        | dict(n_routed_experts=6, head_dim=12, v_head_dim=8, rope_parameters=None, _rope="new"),
        shapes={
            "plain": dict(_minimal=True),
            "published": dict(
                num_hidden_layers=7,
                num_key_value_heads=1,
                routed_scaling_factor=None,
                _minimal=True,
                _keys={
                    "add_full_attention_sink_bias": False,
                    "add_swa_attention_sink_bias": True,
                    "attention_chunk_size": 15,
                    "attention_value_scale": 0.707,
                    "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, 1],
                    "layernorm_epsilon": 1e-5,
                    "moe_layer_freq": [0, 1, 1, 1, 1, 1, 1],
                    "n_shared_experts": None,
                    "partial_rotary_factor": 0.334,
                    "rope_theta": 5000000,
                    "routed_scaling_factor": None,
                    "scoring_func": "sigmoid",
                    "sliding_window": 15,
                    "sliding_window_size": 15,
                    "swa_head_dim": 12,
                    "swa_num_attention_heads": 4,
                    "swa_num_key_value_heads": 2,
                    "swa_rope_theta": 10000,
                    "swa_v_head_dim": 8,
                    "topk_method": "noaux_tc",
                },
                _extra={"model.mtp.layers.0.eh_proj.weight": (32, 64)},
            ),
            "groups": dict(
                layer_types=layers("sfs"),
                mlp_layer_types=["sparse", "sparse", "dense"],
                n_routed_experts=8,
                n_group=4,
                topk_group=2,
                num_experts_per_tok=3,
                norm_topk_prob=False,
                routed_scaling_factor=2.5,
                attention_bias=True,
                tie_word_embeddings=True,
                v_head_dim=20,
                attention_value_scale=1.5,
                rope_parameters=ropes(
                    default(1e4, partial_rotary_factor=0.5), yarn(partial_rotary_factor=1.0)
                ),
            ),
            "odd": ODD
            | dict(
                num_attention_heads=6,
                n_routed_experts=5,
                v_head_dim=10,
                attention_value_scale=None,
                rope_parameters=ropes(
                    yarn(partial_rotary_factor=0.4), default(100.0, partial_rotary_factor=0.8)
                ),
            ),
        },
        options=OPTIONS
        | dict(
            num_key_value_heads=[1, 2],
            head_dim=[12, 24],
            v_head_dim=[8, 12, 20],
            n_routed_experts=[4, 9, 16],
            norm_topk_prob=[True, True, False],
            routed_scaling_factor=[1.0, 2.5],
            attention_bias=[False, True],
            attention_value_scale=[0.707, 1.5, None],
            rope_parameters=[
                ropes(default(5e6, **ROTATED), default(1e4, **ROTATED)),
                ropes(yarn(partial_rotary_factor=0.5), default(1e4, partial_rotary_factor=0.5)),
                ropes(default(1e5, partial_rotary_factor=1.0), yarn(**ROTATED)),
            ],
            _layers=MIXED,
            _dense=[[], [0], [1]],
        ),
        complete=complete,
        draw=draw,
    )
]
