# SPDX-License-Identifier: Apache-2.0
"""The text of Llama 4: chunked attention with rotation, full without, weights on the inputs."""

import math

import torch
from transformers import Llama4TextConfig

from families.family import Family, load_text_part

PREFIX = "language_model."
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e3,
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 1.0,
    "original_max_position_embeddings": 32,
}
DEFAULT = {"rope_type": "default", "rope_theta": 5e5}


def draw(name, shape, generator):
    if name.endswith(("experts.gate_up_proj", "experts.down_proj")):  # stored [E, in, out]
        return torch.randn(shape, generator=generator) * (1.8 / math.sqrt(shape[-2]))
    return None


def wrap(values):
    return {
        "architectures": ["Llama4ForConditionalGeneration"],
        "model_type": "llama4",
        "text_config": values | {"architectures": ["Llama4ForCausalLM"]},
        "vision_config": {"model_type": "llama4_vision_model", "num_hidden_layers": 1},
    }


def load(directory, dtype):
    def rename(name):
        return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None

    return load_text_part(directory, dtype, rename)


VISION = {"vision_model.class_embedding": (8,), "multi_modal_projector.linear_1.weight": (4, 8)}

FAMILIES = [
    Family(
        name="llama4",
        config=Llama4TextConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=12,
            intermediate_size_mlp=24,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            num_local_experts=4,
            num_experts_per_tok=1,
            attention_chunk_size=24,
            floor_scale=16,
            max_position_embeddings=512,
            _extra=VISION,
        ),
        shapes={
            "scout": dict(rope_parameters=LLAMA3, use_qk_norm=True, attn_scale=0.3),
            "maverick": dict(
                interleave_moe_layer_step=2,
                use_qk_norm=False,
                num_local_experts=6,
                rope_parameters=DEFAULT,
            ),
            "minimal": dict(
                _minimal=True, num_local_experts=8, intermediate_size=6, floor_scale=8192
            ),
            "odd": dict(
                vocab_size=66,
                hidden_size=34,
                intermediate_size=10,
                intermediate_size_mlp=22,
                num_hidden_layers=3,
                num_attention_heads=3,
                num_key_value_heads=1,
                head_dim=14,
                num_local_experts=5,
                no_rope_layers=[1, 0, 1],
                moe_layers=[0, 2],
                attention_chunk_size=33,
                attention_bias=True,
                attn_scale=0.5,
                rms_norm_eps=1e-3,
                tie_word_embeddings=True,
                _rope="new",
                rope_parameters=DEFAULT,
            ),
            "no_tuning": dict(
                num_hidden_layers=2,
                no_rope_layer_interval=2,
                attn_temperature_tuning=False,
                attention_chunk_size=64,
                rope_parameters=LLAMA3 | {"high_freq_factor": 4.0, "factor": 8.0},
            ),
        },
        later_shapes={
            # The settings of published models, which a GGUF file does not hold.
            "published": dict(
                rope_parameters=LLAMA3 | {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
                attention_chunk_size=8192,
                floor_scale=8192,
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            intermediate_size=[12, 16, 33],
            num_hidden_layers=[2, 4, 5],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 16],
            num_local_experts=[4, 9, 16],
            num_experts_per_tok=[1],
            interleave_moe_layer_step=[1, 2],
            use_qk_norm=[True, False],
            no_rope_layer_interval=[2, 3, 4],
            attention_chunk_size=[7, 32, 64, None],
            attn_temperature_tuning=[True, False],
            floor_scale=[5, 16],
            attn_scale=[0.1, 0.5],
            attention_bias=[False, True],
            tie_word_embeddings=[False, True],
            rope_parameters=[DEFAULT, LLAMA3, LLAMA3 | {"high_freq_factor": 4.0}],
            _rope=["old", "new"],
        ),
        has_fused_layout=False,  # the published layout is one
        published_names=lambda name: PREFIX + name,
        wrap=wrap,
        draw=draw,
        load=load,
    )
]
