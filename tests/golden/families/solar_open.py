# SPDX-License-Identifier: Apache-2.0
"""Solar Open: no norms of queries and keys, experts in all layers, DeepSeek-V3's router."""

from transformers import SolarOpenConfig

from families.family import Family
from families.glm import ROUTER_OPTIONS, YARN, complete_groups


def rope(theta=1e6, **more):
    return {"rope_type": "default", "rope_theta": theta} | more


OPTIONS = {key: choices for key, choices in ROUTER_OPTIONS.items() if key != "intermediate_size"}

FAMILIES = [
    Family(
        name="solar_open",
        config=SolarOpenConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            moe_intermediate_size=8,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            n_routed_experts=6,
            num_experts_per_tok=2,
            max_position_embeddings=256,
            rope_parameters=rope(),
        ),
        shapes={
            "plain": dict(_minimal=True),
            "published": dict(
                rope_parameters=rope(1e6) | YARN,
                num_experts_per_tok=3,
                _keys={
                    "first_k_dense_replace": 0,
                    "intermediate_size": 40,
                    "partial_rotary_factor": 1.0,
                    "use_qk_norm": False,
                },
            ),
            "tied": dict(
                tie_word_embeddings=True,
                attention_bias=True,
                num_key_value_heads=1,
                n_group=2,
                n_shared_experts=2,
                norm_topk_prob=False,
                rope_parameters=rope(1e3),
                _rope="new",
            ),
            "odd": dict(
                vocab_size=67,
                hidden_size=34,
                moe_intermediate_size=9,
                num_attention_heads=3,
                num_key_value_heads=3,
                head_dim=20,
                routed_scaling_factor=2.5,
                rms_norm_eps=1e-3,
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            num_hidden_layers=[2, 3],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 16, 24],
            attention_bias=[False, True],
            tie_word_embeddings=[False, True],
            rope_parameters=[rope(), rope(1e4), rope() | YARN],
            _fused=[False, False, True],
            _rope=["old", "new"],
            **OPTIONS,
        ),
        complete=complete_groups,
    )
]
