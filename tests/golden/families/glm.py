# SPDX-License-Identifier: Apache-2.0
"""GLM-4.5 (grouped queries, partial rotation) and GLM-4.7-Flash (latent attention), both with
DeepSeek-V3's router."""

from transformers import Glm4MoeConfig, Glm4MoeLiteConfig

from families.family import Family


def mtp_tensors(layer, hidden_size=32):
    """Some of a published layer for multi-token prediction, which the model itself does not use."""
    shapes = {
        "enorm": (hidden_size,),
        "hnorm": (hidden_size,),
        "eh_proj": (hidden_size, 2 * hidden_size),
    }
    return {f"model.layers.{layer}.{name}.weight": shape for name, shape in shapes.items()}


def complete_groups(values):
    """Experts that fill their groups, and enough of them in the groups kept."""
    groups = values.get("n_group") or 1
    values["topk_group"] = min(values.get("topk_group") or 1, groups)
    experts = max(2, values["n_routed_experts"] // groups)
    values["n_routed_experts"] = experts * groups
    values["num_experts_per_tok"] = min(
        values["num_experts_per_tok"], experts * values["topk_group"]
    )
    return values


def half(theta=1e4, factor=0.5, **more):
    return {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": factor} | more


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}

ROUTER_OPTIONS = dict(
    n_routed_experts=[4, 8, 16],
    num_experts_per_tok=[1, 2, 4],
    n_group=[1, 1, 2, 4],
    topk_group=[1, 2],
    n_shared_experts=[1, 2],
    norm_topk_prob=[True, True, False],
    routed_scaling_factor=[1.0, 2.5],
    moe_intermediate_size=[12, 16, 33],
    intermediate_size=[24, 40],
)

LATENT_OPTIONS = dict(
    q_lora_rank=[12, 24],
    kv_lora_rank=[8, 16, 20],
    qk_nope_head_dim=[8, 16],
    qk_rope_head_dim=[4, 8, 12],
    v_head_dim=[8, 12, 16],
)

FAMILIES = [
    Family(
        name="glm4_moe",
        config=Glm4MoeConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=16,
            moe_intermediate_size=6,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            n_routed_experts=6,
            num_experts_per_tok=2,
            max_position_embeddings=256,
            num_mtp_layers=0,
        ),
        shapes={
            "plain": dict(_minimal=True, rope_parameters=half()),
            "norm_bias": dict(
                use_qk_norm=True,
                attention_bias=True,
                routed_scaling_factor=2.5,
                num_mtp_layers=1,
                _extra=mtp_tensors(2),
            ),
            "tied": dict(
                tie_word_embeddings=True,
                first_k_dense_replace=0,
                attention_bias=True,
                n_group=2,
                n_shared_experts=2,
                moe_intermediate_size=8,
                norm_topk_prob=False,
                rope_parameters=half(1e6, 0.75),
                _rope="new",
            ),
            "odd": dict(
                vocab_size=67,
                hidden_size=34,
                intermediate_size=30,
                moe_intermediate_size=9,
                num_attention_heads=3,
                num_key_value_heads=1,
                head_dim=20,
                use_qk_norm=True,
                n_routed_experts=6,
                num_experts_per_tok=3,
                rms_norm_eps=1e-3,
                rope_parameters=half(1e3, 0.6),
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            num_hidden_layers=[2, 3],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 16, 24],
            first_k_dense_replace=[0, 1],
            use_qk_norm=[False, True],
            attention_bias=[False, True],
            tie_word_embeddings=[False, True],
            rope_parameters=[half(), half(1e6, 0.25), half(1e3, 1.0), half() | YARN],
            _fused=[False, False, True],
            _rope=["old", "new"],
            **ROUTER_OPTIONS,
        ),
        complete=complete_groups,
    ),
    Family(
        name="glm4_moe_lite",
        config=Glm4MoeLiteConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=16,
            moe_intermediate_size=6,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            q_lora_rank=16,
            kv_lora_rank=12,
            qk_nope_head_dim=12,
            qk_rope_head_dim=8,
            v_head_dim=16,
            n_routed_experts=6,
            num_experts_per_tok=2,
            max_position_embeddings=256,
        ),
        shapes={
            "plain": dict(_minimal=True),
            "unfactored": dict(
                q_lora_rank=None,
                mlp_layer_types=["sparse", "sparse"],
                rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                _rope="new",
                _extra=mtp_tensors(2),
                _keys={"num_nextn_predict_layers": 1},
            ),
            "bias": dict(
                attention_bias=True,
                tie_word_embeddings=True,
                n_shared_experts=2,
                moe_intermediate_size=8,
                n_group=2,
                norm_topk_prob=False,
            ),
            "odd": dict(
                vocab_size=67,
                hidden_size=34,
                moe_intermediate_size=9,
                num_attention_heads=3,
                num_key_value_heads=3,
                kv_lora_rank=14,
                qk_nope_head_dim=10,
                qk_rope_head_dim=6,
                v_head_dim=14,
                n_routed_experts=6,
                num_experts_per_tok=3,
                mlp_layer_types=["sparse", "dense"],
                rms_norm_eps=1e-3,
                rope_interleave=False,
                rope_parameters=YARN | {"rope_theta": 1e3, "mscale": 1.0, "mscale_all_dim": 0.7},
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            num_hidden_layers=[2, 3],
            num_attention_heads=[4, 8],
            attention_bias=[False, True],
            tie_word_embeddings=[False, True],
            rope_interleave=[True, True, False],
            _fused=[False, False, True],
            _rope=["old", "new"],
            **(LATENT_OPTIONS | {"q_lora_rank": [None, 12, 24]}),
            **ROUTER_OPTIONS,
        ),
        complete=lambda values: complete_groups(
            values | {"num_key_value_heads": values["num_attention_heads"]}
        ),
    ),
]
