# SPDX-License-Identifier: Apache-2.0
"""OLMoE: norms over the full width of q and k, then clipping."""

from transformers import OlmoeConfig

from families.family import Family

FAMILIES = [
    Family(
        name="olmoe",
        config=OlmoeConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=8,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            num_experts=6,
            num_experts_per_tok=3,
            max_position_embeddings=256,
            pad_token_id=None,
            eos_token_id=1,
        ),
        shapes={
            "plain": dict(_minimal=True),
            "clip": dict(clip_qkv=1.0, num_key_value_heads=2, num_experts=8),
            "bias": dict(attention_bias=True, norm_topk_prob=True, tie_word_embeddings=True),
            "odd": dict(
                vocab_size=65,
                hidden_size=36,
                intermediate_size=10,
                num_attention_heads=3,
                num_key_value_heads=1,
                num_experts=5,
                clip_qkv=0.7,
                rms_norm_eps=1e-3,
                rope_parameters={
                    "rope_type": "yarn",
                    "rope_theta": 1000.0,
                    "factor": 4.0,
                    "original_max_position_embeddings": 24,
                },
                _rope="new",
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            intermediate_size=[16, 20, 48],
            num_hidden_layers=[2, 3],
            num_attention_heads=[2, 4, 8],
            num_key_value_heads=[1, 2],
            num_experts=[5, 8, 16],
            num_experts_per_tok=[1, 2, 5],
            norm_topk_prob=[False, True],
            clip_qkv=[None, 0.5, 2.0],
            attention_bias=[False, True],
            tie_word_embeddings=[False, True],
            _fused=[False, False, True],
        ),
    )
]
