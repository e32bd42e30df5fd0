# SPDX-License-Identifier: Apache-2.0
"""Mistral 4 (latent attention, queries scaled by position, softmax router in groups), alone and as
the text of Mistral 3."""

from transformers import AutoModelForCausalLM, Mistral4Config, Mistral4ForCausalLM

from families.family import Family, load_text_part
from families.glm import LATENT_OPTIONS, ROUTER_OPTIONS, complete_groups

# transformers lists the class under another task.
AutoModelForCausalLM.register(Mistral4Config, Mistral4ForCausalLM, exist_ok=True)
PREFIX = "language_model."
# transformers computes it with scaled rotations only, and needs beta and the original positions.
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 24,
    "llama_4_scaling_beta": 0.3,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
LONG = YARN | {"original_max_position_embeddings": 128, "factor": 2.0}
BASE = dict(
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
    v_head_dim=12,
    n_routed_experts=6,
    num_experts_per_tok=2,
    max_position_embeddings=256,
    rope_parameters=YARN,
    _rope="new",
)
OPTIONS = dict(
    hidden_size=[32, 48, 64],
    num_hidden_layers=[2, 3],
    num_attention_heads=[4, 8],
    first_k_dense_replace=[0, 1],
    rope_parameters=[YARN, YARN | {"mscale": 0.7, "original_max_position_embeddings": 7}, LONG],
    rope_interleave=[True, True, False],
    attention_bias=[False, True],
    tie_word_embeddings=[False, True],
    rms_norm_eps=[1e-6, 1e-5],
    **(LATENT_OPTIONS | {"q_lora_rank": [None, 12, 24]}),
    **ROUTER_OPTIONS,
)
SHAPES = {
    "plain": dict(_minimal=True),
    "groups": dict(
        n_routed_experts=12,
        num_experts_per_tok=3,
        n_group=4,
        topk_group=2,
        first_k_dense_replace=1,
        routed_scaling_factor=2.5,
        rope_parameters=LONG,
    ),
    "unfactored": dict(
        q_lora_rank=None,
        tie_word_embeddings=True,
        n_shared_experts=2,
        norm_topk_prob=False,
        rope_parameters=YARN | {"original_max_position_embeddings": 5, "mscale_all_dim": 0.7},
    ),
    "odd": dict(
        vocab_size=65,
        hidden_size=36,
        moe_intermediate_size=9,
        num_attention_heads=3,
        num_key_value_heads=3,
        q_lora_rank=14,
        kv_lora_rank=10,
        qk_nope_head_dim=10,
        qk_rope_head_dim=6,
        v_head_dim=14,
        n_routed_experts=5,
        num_experts_per_tok=3,
        rms_norm_eps=1e-3,
        rope_interleave=False,
        attention_bias=True,
        rope_parameters=YARN | {"type": "yarn", "max_position_embeddings": 256},
    ),
}
VISION = {
    "vision_tower.patch_conv.weight": (4, 3),
    "multi_modal_projector.linear_1.weight": (4, 4),
}


def complete(values):
    return complete_groups(values | {"num_key_value_heads": values["num_attention_heads"]})


def wrap(values):
    return {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "model_type": "mistral3",
        "image_token_index": 10,
        "spatial_merge_size": 2,
        "text_config": {k: v for k, v in values.items() if k != "architectures"},
        "tie_word_embeddings": values.get("tie_word_embeddings", False),
        "vision_config": {"model_type": "pixtral", "num_hidden_layers": 1},
    }


def load_wrapped(directory, dtype):
    def rename(name):
        return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None

    return load_text_part(directory, dtype, rename)


FAMILIES = [
    Family(
        name="mistral4",
        config=Mistral4Config,
        base=BASE,
        shapes=SHAPES,
        options=OPTIONS,
        complete=complete,
        has_fused_layout=False,  # it is the published one
    ),
    Family(
        name="mistral3",
        config=Mistral4Config,
        base=BASE,
        shapes={name: SHAPES[name] | {"_extra": VISION} for name in ("groups", "odd")},
        options=OPTIONS,
        complete=complete,
        has_fused_layout=False,
        published_names=lambda name: PREFIX + name,
        wrap=wrap,
        load=load_wrapped,
    ),
]
