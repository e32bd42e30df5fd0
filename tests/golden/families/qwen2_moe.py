# SPDX-License-Identifier: Apache-2.0
"""Qwen2-MoE: biases on q, k, v, a shared expert behind a sigmoid gate, windows in even layers."""

from transformers import Qwen2MoeConfig

from families.family import Family

FAMILIES = [
    Family(
        name="qwen2_moe",
        config=Qwen2MoeConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=16,
            moe_intermediate_size=8,
            shared_expert_intermediate_size=12,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_experts=6,
            num_experts_per_tok=2,
            max_position_embeddings=256,
        ),
        shapes={
            "plain": dict(_minimal=True),
            "window": dict(
                num_hidden_layers=3,
                num_experts=4,
                moe_intermediate_size=6,
                use_sliding_window=True,
                sliding_window=18,
                max_window_layers=2,
            ),
            "dense": dict(
                num_hidden_layers=2,
                mlp_only_layers=[0],
                norm_topk_prob=True,
                qkv_bias=False,
                tie_word_embeddings=True,
                num_key_value_heads=4,
            ),
            "odd": dict(
                vocab_size=66,
                hidden_size=30,
                intermediate_size=22,
                moe_intermediate_size=9,
                shared_expert_intermediate_size=13,
                num_hidden_layers=2,
                num_attention_heads=3,
                num_key_value_heads=1,
                decoder_sparse_step=2,
                num_experts=5,
                num_experts_per_tok=3,
                rms_norm_eps=1e-3,
                _rope="new",
                rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            moe_intermediate_size=[12, 16, 33],
            shared_expert_intermediate_size=[16, 20, 50],
            num_hidden_layers=[2, 3, 4],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            num_experts=[4, 9, 16],
            num_experts_per_tok=[1, 2, 4],
            norm_topk_prob=[False, True],
            qkv_bias=[True, True, False],
            decoder_sparse_step=[1, 1, 2],
            mlp_only_layers=[[], [0]],
            use_sliding_window=[False, True],
            sliding_window=[10, 40, 64],
            max_window_layers=[1, 3, 28],
            tie_word_embeddings=[False, True],
            _fused=[False, False, True],
            _rope=["old", "new"],
        ),
    )
]
