# SPDX-License-Identifier: Apache-2.0
"""Mixtral: softmax renormalised over the chosen, sliding window in all layers or none."""

from transformers import MixtralConfig

from families.family import Family

FAMILIES = [
    Family(
        name="mixtral",
        config=MixtralConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=8,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=6,
            max_position_embeddings=256,
        ),
        shapes={
            "plain": dict(_minimal=True),
            "window": dict(sliding_window=20, num_key_value_heads=1, _rope="new"),
            "tied": dict(
                tie_word_embeddings=True,
                num_local_experts=4,
                head_dim=12,
                rope_parameters={"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0},
            ),
            "odd": dict(
                vocab_size=67,
                hidden_size=34,
                intermediate_size=10,
                num_attention_heads=3,
                num_key_value_heads=3,
                head_dim=14,
                num_local_experts=5,
                num_experts_per_tok=3,
                rms_norm_eps=1e-3,
                sliding_window=33,
            ),
        },
        options=dict(
            hidden_size=[32, 40, 64],
            intermediate_size=[16, 20, 48],
            num_hidden_layers=[2, 3],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 16, 18],
            num_local_experts=[4, 7, 16],
            num_experts_per_tok=[1, 2, 3],
            sliding_window=[None, 9, 40, 64],
            tie_word_embeddings=[False, True],
            rms_norm_eps=[1e-6, 1e-5, 1e-3],
            _fused=[False, False, True],
            _rope=["old", "new"],
        ),
    )
]
