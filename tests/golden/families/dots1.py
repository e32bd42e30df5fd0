# SPDX-License-Identifier: Apache-2.0
"""dots.llm1: norms per head, windows from some layer on, DeepSeek-V3's router."""

from transformers import Dots1Config

from families.family import Family
from families.glm import ROUTER_OPTIONS, YARN, complete_groups


def rope(theta=1e4, **more):
    return {"rope_type": "default", "rope_theta": theta} | more


FAMILIES = [
    Family(
        name="dots1",
        config=Dots1Config,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=24,
            moe_intermediate_size=8,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            n_routed_experts=6,
            n_shared_experts=1,
            num_experts_per_tok=2,
            max_position_embeddings=256,
            rope_parameters=rope(),
        ),
        shapes={
            "plain": dict(_minimal=True),
            "published": dict(
                first_k_dense_replace=1,
                norm_topk_prob=True,
                routed_scaling_factor=2.5,
                n_shared_experts=2,
                num_experts_per_tok=3,
                sliding_window=None,
                rope_parameters=rope(1e7),
                _keys={"scoring_func": "noaux_tc"},
            ),
            "window": dict(
                num_hidden_layers=3,
                num_key_value_heads=2,
                attention_bias=True,
                sliding_window=9,
                max_window_layers=1,
                first_k_dense_replace=1,
                n_group=2,
                topk_group=1,
            ),
            "odd": dict(
                vocab_size=67,
                hidden_size=36,
                intermediate_size=30,
                moe_intermediate_size=9,
                num_attention_heads=3,
                num_key_value_heads=1,
                tie_word_embeddings=True,
                sliding_window=5,
                layer_types=["sliding_attention", "full_attention"],
                norm_topk_prob=True,
                rms_norm_eps=1e-3,
                rope_parameters=rope(1e3) | YARN,
                _rope="new",
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            num_hidden_layers=[2, 3],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            first_k_dense_replace=[0, 1],
            sliding_window=[None, 7, 16],
            max_window_layers=[0, 1, 62],
            attention_bias=[False, True],
            tie_word_embeddings=[False, True],
            rope_parameters=[rope(), rope(1e6), rope() | YARN],
            _fused=[False, False, True],
            _rope=["old", "new"],
            **ROUTER_OPTIONS,
        ),
        complete=complete_groups,
    )
]
