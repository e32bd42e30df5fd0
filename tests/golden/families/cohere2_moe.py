# SPDX-License-Identifier: Apache-2.0
"""Command A+: attention and experts side by side, layer norms, windows, scaled logits."""

from transformers import Cohere2MoeConfig

from families.family import Family

YARN = dict(
    rope_type="yarn",
    factor=4.0,
    original_max_position_embeddings=32,
    beta_fast=32.0,
    beta_slow=1.0,
)


def rope(theta=1e4, **more):
    return {"rope_type": "default", "rope_theta": theta} | more


def kinds(letters):
    return [{"L": "sliding_attention", "G": "full_attention"}[letter] for letter in letters]


def published_keys(values):
    """rope_theta is a field of its own, whose default contradicts rope_parameters."""
    if "rope_parameters" in values:
        values.pop("rope_theta", None)
    return values


FAMILIES = [
    Family(
        name="cohere2_moe",
        config=Cohere2MoeConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=8,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            num_experts=6,
            num_experts_per_tok=2,
            max_position_embeddings=256,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=53,
            sliding_window=9,
            sliding_window_pattern=2,
            logit_scale=0.25,
            rope_parameters=rope(),
        ),
        shapes={
            "plain": dict(_minimal=True),
            "published": dict(
                num_hidden_layers=5,
                first_k_dense_replace=1,
                layer_types=kinds("GLLLG"),
                mlp_layer_types=["dense"] + 4 * ["sparse"],
                prefix_dense_intermediate_size=20,
                expert_selection_fn="sigmoid",
                num_shared_experts=2,
                num_experts_per_tok=3,
                rope_parameters=rope(5e4),
                _rope="new",
            ),
            "sum": dict(
                tie_word_embeddings=False,
                attention_bias=True,
                num_key_value_heads=1,
                num_shared_experts=1,
                shared_expert_combination_strategy="sum",
                expert_selection_fn="sigmoid",
                norm_topk_prob=False,
                sliding_window_pattern=1,
            ),
            "rms": dict(
                rms_norm_eps=1e-4,
                layer_types=kinds("LG"),
                mlp_layer_types=["sparse", "dense"],
                prefix_dense_sliding_window_pattern=2,
                num_shared_experts=1,
                _fused=True,
            ),
            "odd": dict(
                vocab_size=67,
                hidden_size=34,
                intermediate_size=9,
                num_hidden_layers=3,
                num_attention_heads=3,
                num_key_value_heads=3,
                head_dim=20,
                num_experts=5,
                sliding_window=5,
                sliding_window_pattern=3,
                layer_norm_eps=1e-3,
                rope_parameters=rope(1e3) | YARN,
                _rope="new",  # transformers ignores rope_scaling of this family
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            num_hidden_layers=[2, 3, 5],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 16, 24],
            first_k_dense_replace=[0, 1],
            prefix_dense_sliding_window_pattern=[1, 2],
            prefix_dense_intermediate_size=[None, 20],
            sliding_window=[4, 9, 30],
            sliding_window_pattern=[1, 2, 3, 4],
            attention_bias=[False, True],
            tie_word_embeddings=[False, True],
            num_experts_per_tok=[1, 2, 3],
            expert_selection_fn=["softmax", "sigmoid"],
            norm_topk_prob=[True, False],
            num_shared_experts=[0, 1, 2],
            shared_expert_combination_strategy=["average", "sum"],
            logit_scale=[0.0625, 1.0],
            rms_norm_eps=[None, None, 1e-5],
            layer_norm_eps=[1e-5, 1e-3],
            rope_parameters=[rope(), rope(1e6), rope() | YARN],
            _fused=[False, False, True],
            _rope=["new"],
        ),
        published_keys=published_keys,
    )
]
