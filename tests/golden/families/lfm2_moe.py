# SPDX-License-Identifier: Apache-2.0
"""LFM2-MoE: short convolutions between layers of attention, sigmoid router with a bias."""

import torch
from transformers import Lfm2MoeConfig

from families.family import Family


def draw(name, shape, generator):
    if name.endswith("conv.conv.weight"):
        return torch.randn(shape, generator=generator) * 0.8
    return None


def published_keys(values):
    """Published files say tie_embedding."""
    if "tie_word_embeddings" in values:
        values["tie_embedding"] = values.pop("tie_word_embeddings")
    return values


def complete(values):
    values["layer_types"] = [
        {"c": "conv", "a": "full_attention"}[kind]
        for kind in values.pop("_layers", "ccacac")[: values["num_hidden_layers"]]
    ]
    return values


MIXED = ["conv", "full_attention", "conv"]

FAMILIES = [
    Family(
        name="lfm2_moe",
        config=Lfm2MoeConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=16,
            moe_intermediate_size=8,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_dense_layers=1,
            num_experts=6,
            num_experts_per_tok=2,
            max_position_embeddings=256,
            layer_types=MIXED,
        ),
        shapes={
            "plain": dict(_minimal=True),
            "untied": dict(
                tie_word_embeddings=False,
                conv_bias=True,
                num_hidden_layers=2,
                layer_types=["full_attention", "conv"],
                num_dense_layers=0,
                conv_L_cache=4,
                routed_scaling_factor=2.5,
            ),
            "no_bias": dict(
                use_expert_bias=False,
                norm_topk_prob=False,
                num_experts=7,
                num_key_value_heads=4,
                rope_parameters={"rope_type": "default", "rope_theta": 1e4},
                _rope="new",
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=36,
                intermediate_size=22,
                moe_intermediate_size=9,
                num_hidden_layers=3,
                num_attention_heads=3,
                num_key_value_heads=1,
                layer_types=["conv", "full_attention", "conv"],
                num_dense_layers=2,
                conv_L_cache=2,
                num_experts=5,
                num_experts_per_tok=3,
                norm_eps=1e-3,
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            moe_intermediate_size=[8, 16, 33],
            num_hidden_layers=[3, 4],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            num_dense_layers=[0, 1, 2],
            num_experts=[4, 9, 16],
            num_experts_per_tok=[1, 2, 4],
            conv_L_cache=[2, 3, 4],
            conv_bias=[False, True],
            use_expert_bias=[True, True, False],
            norm_topk_prob=[True, True, False],
            routed_scaling_factor=[1.0, 2.5],
            tie_word_embeddings=[True, False],
            _layers=["ccac", "acac", "caca"],
            _fused=[False, False, True],
            _rope=["old", "new"],
        ),
        complete=complete,
        published_keys=published_keys,
        draw=draw,
    )
]
