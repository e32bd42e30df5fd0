# SPDX-License-Identifier: Apache-2.0
"""Granite-MoE, with and without a shared expert: multipliers at four places, softmax over the k.

Granite 4 (H) has Mamba-2 in most layers and attention without positions in the others.
"""

from transformers import GraniteMoeConfig, GraniteMoeHybridConfig, GraniteMoeSharedConfig

from families.family import Family

BASE = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=8,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=6,
    num_experts_per_tok=2,
    max_position_embeddings=256,
    embedding_multiplier=3.0,
    residual_multiplier=0.6,
    attention_multiplier=0.2,
    logits_scaling=0.5,
    tie_word_embeddings=True,
)
SHAPES = {
    "plain": {},
    "minimal": dict(
        embedding_multiplier=1.0,
        residual_multiplier=1.0,
        attention_multiplier=1.0,
        logits_scaling=1.0,
        tie_word_embeddings=False,
        _minimal=True,
    ),
    "bias": dict(
        attention_bias=True,
        num_key_value_heads=4,
        num_local_experts=8,
        intermediate_size=6,
        num_experts_per_tok=5,
        _rope="new",
    ),
    "odd": dict(
        vocab_size=65,
        hidden_size=36,
        intermediate_size=11,
        num_attention_heads=3,
        num_key_value_heads=1,
        num_local_experts=5,
        num_experts_per_tok=3,
        logits_scaling=3.0,
        rms_norm_eps=1e-3,
        rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
    ),
}
OPTIONS = dict(
    hidden_size=[32, 48, 64],
    intermediate_size=[12, 16, 33],
    num_hidden_layers=[2, 3],
    num_attention_heads=[4, 8],
    num_key_value_heads=[1, 2, 4],
    num_local_experts=[4, 9, 16],
    num_experts_per_tok=[1, 2, 4],
    embedding_multiplier=[1.0, 12.0],
    residual_multiplier=[1.0, 0.22],
    attention_multiplier=[0.1, 0.3],
    logits_scaling=[0.5, 4.0],
    attention_bias=[False, True],
    tie_word_embeddings=[False, True],
    _fused=[False, False, True],
    _rope=["old", "new"],
)



def complete_hybrid(values):
    values["mamba_d_head"] = 2 * values["hidden_size"] // values["mamba_n_heads"]
    return values


FAMILIES = [
    Family(name="granitemoe", config=GraniteMoeConfig, base=BASE, shapes=SHAPES, options=OPTIONS),
    Family(
        name="granitemoeshared",
        config=GraniteMoeSharedConfig,
        base=BASE | {"shared_intermediate_size": 20},
        shapes={
            "plain": SHAPES["plain"],
            "no_shared": SHAPES["minimal"] | {"shared_intermediate_size": 0},
            "bias": SHAPES["bias"],
            "odd": SHAPES["odd"] | {"shared_intermediate_size": 13},
        },
        options=OPTIONS | {"shared_intermediate_size": [0, 16, 33]},
    ),
    Family(
        name="granitemoehybrid",
        config=GraniteMoeHybridConfig,
        base=BASE
        | dict(
            shared_intermediate_size=20,
            layer_types=["linear_attention", "full_attention"],
            mamba_n_heads=8,
            mamba_d_head=8,
            mamba_d_state=12,
            mamba_chunk_size=8,
        ),
        shapes={
            "plain": {},
            "minimal": dict(
                embedding_multiplier=1.0,
                residual_multiplier=1.0,
                attention_multiplier=1.0,
                logits_scaling=1.0,
                tie_word_embeddings=False,
                _minimal=True,
            ),
            "groups": dict(
                num_hidden_layers=3,
                layer_types=["linear_attention", "full_attention", "linear_attention"],
                mamba_n_heads=4,
                mamba_n_groups=2,
                mamba_d_head=16,
                mamba_d_conv=3,
                mamba_conv_bias=False,
                mamba_proj_bias=True,
                position_embedding_type="rope",
                time_step_limit=(0.4, 0.9),
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=36,
                intermediate_size=11,
                num_attention_heads=3,
                num_key_value_heads=1,
                num_local_experts=5,
                num_experts_per_tok=3,
                shared_intermediate_size=13,
                mamba_n_heads=3,
                mamba_d_head=24,
                mamba_d_state=19,
                mamba_chunk_size=16,
                logits_scaling=3.0,
                rms_norm_eps=1e-3,
            ),
            "dense": dict(num_local_experts=0, num_experts_per_tok=0),
        },
        options=OPTIONS
        | dict(
            num_hidden_layers=[2],
            hidden_size=[32, 64],
            shared_intermediate_size=[16, 33],
            mamba_n_heads=[4, 8],
            mamba_n_groups=[1, 2, 4],
            mamba_d_state=[8, 16, 33],
            mamba_conv_bias=[True, False],
            mamba_proj_bias=[False, True],
            position_embedding_type=["rope", None],
            layer_types=[
                ["linear_attention", "full_attention"],
                ["full_attention", "linear_attention"],
                ["linear_attention", "linear_attention"],
            ],
        ),
        complete=complete_hybrid,
    ),
]
