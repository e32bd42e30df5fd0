# SPDX-License-Identifier: Apache-2.0
"""Qwen3-Next and the text of Qwen3.5-MoE: gated delta nets between layers of gated attention."""

import torch
from transformers import Qwen3_5MoeTextConfig, Qwen3NextConfig

from families.family import Family, load_text_part, write_tensors


def draw(name, shape, generator):
    if name.endswith("A_log"):
        return torch.log(0.1 + 3.0 * torch.rand(shape, generator=generator))
    if name.endswith("dt_bias"):
        return torch.randn(shape, generator=generator) - 1.0
    if name.endswith("conv1d.weight"):
        return torch.randn(shape, generator=generator) * 0.6
    if "norm" in name and "linear_attn" not in name:  # these weights are added to one
        return 0.2 * torch.randn(shape, generator=generator)
    return None


def complete(values):
    values["linear_num_value_heads"] = values["linear_num_key_heads"] * values.pop(
        "_values_per_key", 2
    )
    return values


def rope(theta, factor):
    return {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": factor}


def wrap(values):
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": values | {"attn_output_gate": True, "mamba_ssm_dtype": "float32"},
        "tie_word_embeddings": values.get("tie_word_embeddings", False),
        "vision_config": {"model_type": "qwen3_5_moe", "depth": 1},
    }


def to_text(name):
    if name.startswith(("model.visual.", "mtp.")):
        return None
    return name.replace("model.language_model.", "model.")


def to_published(name):
    name = to_text(name)
    return name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name


def load(directory, dtype):
    return load_text_part(directory, dtype, to_text)


def write_stacked(family, model, files, directory):
    """Published with stacked experts; with _fused False each expert apart, which occurs too."""
    write_tensors(family, model, {"_fused": True} | files, directory)


BASE = dict(
    vocab_size=64,
    hidden_size=32,
    moe_intermediate_size=8,
    shared_expert_intermediate_size=10,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_experts=4,
    num_experts_per_tok=2,
    linear_key_head_dim=8,
    linear_value_head_dim=6,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    max_position_embeddings=256,
    rope_parameters=rope(1e7, 0.25),
)
TWO = ["linear_attention", "full_attention"]
OPTIONS = dict(
    hidden_size=[32, 48, 64],
    moe_intermediate_size=[8, 16, 33],
    shared_expert_intermediate_size=[8, 20],
    num_hidden_layers=[4, 5],
    num_attention_heads=[4, 8],
    num_key_value_heads=[1, 2, 4],
    head_dim=[8, 16],
    num_experts=[4, 9, 16],
    num_experts_per_tok=[1, 2, 4],
    linear_key_head_dim=[4, 8, 16],
    linear_value_head_dim=[6, 8, 12],
    linear_num_key_heads=[1, 2, 4],
    _values_per_key=[1, 2, 3],
    linear_conv_kernel_dim=[2, 4, 5],
    attention_bias=[False, True],
    tie_word_embeddings=[False, True],
    rope_parameters=[rope(1e7, 0.25), rope(1e4, 0.5), rope(1e4, 1.0)],
    rms_norm_eps=[1e-6, 1e-3],
    _fused=[False, True],
    _rope=["old", "new"],
)
MTP = {"mtp.fc.weight": (32, 64), "mtp.norm.weight": (32,)}

FAMILIES = [
    Family(
        name="qwen3_next",
        config=Qwen3NextConfig,
        base=BASE | {"intermediate_size": 20},
        shapes={
            "plain": dict(_minimal=True),
            "alternate": dict(
                num_hidden_layers=3,
                layer_types=[*TWO, "linear_attention"],
                norm_topk_prob=False,
                num_experts=5,
                mlp_only_layers=[0],
                _extra=MTP,
            ),
            "wide": dict(
                num_hidden_layers=2,
                layer_types=TWO,
                linear_num_key_heads=3,
                linear_num_value_heads=3,
                linear_key_head_dim=16,
                linear_value_head_dim=16,
                head_dim=16,
                tie_word_embeddings=True,
                attention_bias=True,
                rope_parameters=rope(1e4, 0.5),
                _rope="new",
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=34,
                intermediate_size=22,
                moe_intermediate_size=9,
                shared_expert_intermediate_size=11,
                num_hidden_layers=2,
                layer_types=["full_attention", "linear_attention"],
                num_attention_heads=3,
                num_key_value_heads=1,
                head_dim=20,
                num_experts=5,
                num_experts_per_tok=3,
                linear_num_key_heads=1,
                linear_num_value_heads=3,
                linear_key_head_dim=10,
                linear_value_head_dim=7,
                linear_conv_kernel_dim=3,
                rms_norm_eps=1e-3,
                rope_parameters=rope(1e3, 0.6),
            ),
        },
        later_shapes={
            # Keys and values of one size, which llama.cpp asks for.
            "square": dict(_minimal=True, linear_value_head_dim=8),
        },
        options=OPTIONS | {"mlp_only_layers": [[], [0]], "norm_topk_prob": [True, False]},
        complete=complete,
        draw=draw,
    ),
    Family(
        name="qwen3_5_moe",
        config=Qwen3_5MoeTextConfig,
        base=BASE | {"_rope": "new"},
        shapes={
            "plain": dict(_keys={"mlp_only_layers": [], "mtp_num_hidden_layers": 1}, _extra=MTP),
            "minimal": dict(_minimal=True, _extra={"model.visual.pos_embed.weight": (4, 4)}),
            "per_expert": dict(
                _fused=False,
                num_hidden_layers=2,
                layer_types=TWO,
                linear_num_key_heads=3,
                linear_num_value_heads=3,
                linear_value_head_dim=16,
                num_experts=5,
                num_experts_per_tok=3,
                attention_bias=True,
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=34,
                moe_intermediate_size=9,
                shared_expert_intermediate_size=11,
                num_hidden_layers=2,
                layer_types=TWO,
                num_attention_heads=3,
                num_key_value_heads=1,
                head_dim=20,
                num_experts=5,
                linear_num_key_heads=1,
                linear_num_value_heads=3,
                linear_key_head_dim=10,
                linear_value_head_dim=7,
                linear_conv_kernel_dim=5,
                tie_word_embeddings=True,
                rms_norm_eps=1e-3,
                rope_parameters=rope(1e3, 0.6),
            ),
        },
        later_shapes={
            "square": dict(
                _keys={"mlp_only_layers": [], "mtp_num_hidden_layers": 1},
                _extra=MTP,
                linear_value_head_dim=8,
            ),
        },
        options=OPTIONS,
        complete=complete,
        has_fused_layout=False,  # the published layout is one
        published_names=to_published,
        wrap=wrap,
        draw=draw,
        write=write_stacked,
        load=load,
    ),
]
