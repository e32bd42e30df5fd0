# SPDX-License-Identifier: Apache-2.0
"""The text of Gemma 4: heads by kind of layer, norms around all parts, a dense MLP beside experts."""

import torch
from transformers import Gemma4TextConfig

from families.family import Family, load_text_part


def draw(name, shape, generator):
    if name.endswith(("layer_scalar", "per_expert_scale")):
        return 0.5 + torch.rand(shape, generator=generator)
    if name.endswith("router.scale"):
        return 1.0 + 0.3 * torch.randn(shape, generator=generator)
    if name.endswith("router.proj.weight"):  # its input has length 1
        return 3.0 * torch.randn(shape, generator=generator)
    if "embed_tokens" in name:  # multiplied by √hidden, and the head
        return torch.randn(shape, generator=generator) / shape[-1] ** 0.5
    return None


def complete(values):
    kinds = {"s": "sliding_attention", "f": "full_attention"}
    layers = values.pop("_layers", "sf")
    values["layer_types"] = [kinds[kind] for kind in layers]
    values["num_hidden_layers"] = len(layers)
    if not values["enable_moe_block"]:
        values |= dict(num_experts=None, top_k_experts=None, moe_intermediate_size=None)
    return values


def published_keys(values):
    """Published files have two keys for what transformers saves layer by layer."""
    overrides = values.pop("per_layer_config", None) or {}
    if values.pop("saves_layers", False) and overrides:
        return values | {"per_layer_config": overrides}
    full = overrides.get(str(len(values["layer_types"]) - 1), {})
    values["global_head_dim"] = full.get("head_dim", values["head_dim"])
    values["num_global_key_value_heads"] = full.get("num_key_value_heads")
    return values


def wrap(values):
    return {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "text_config": values | {"architectures": ["Gemma4ForCausalLM"]},
        "tie_word_embeddings": values.get("tie_word_embeddings", True),
        "vision_config": {"model_type": "gemma4_vision"},
        "audio_config": None,
        "image_token_id": 60,
    }


OTHER_PARTS = ("model.vision_tower.", "model.embed_vision.", "model.audio_tower.")


def to_text(name):
    return None if name.startswith(OTHER_PARTS) else name.replace("model.language_model.", "model.")


def to_published(name):
    return name.replace("model.", "model.language_model.", 1)


def load(directory, dtype):
    return load_text_part(directory, dtype, to_text)


def ropes(sliding, full, share):
    return {
        "sliding_attention": {"rope_type": "default", "rope_theta": sliding},
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": full,
            "partial_rotary_factor": share,
        },
    }


BASE = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=24,
    moe_intermediate_size=8,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    global_head_dim=16,
    num_global_key_value_heads=1,
    attention_k_eq_v=True,
    enable_moe_block=True,
    num_experts=6,
    top_k_experts=2,
    sliding_window=16,
    max_position_embeddings=256,
    hidden_size_per_layer_input=0,
    final_logit_softcapping=30.0,
    layer_types=["sliding_attention", "full_attention"],
    rope_parameters=ropes(1e4, 1e6, 0.25),
    _rope="new",
)
THREE = ["sliding_attention", "full_attention", "full_attention"]

FAMILIES = [
    Family(
        name="gemma4_text",
        config=Gemma4TextConfig,
        base=BASE,
        shapes={
            "plain": dict(num_hidden_layers=3, layer_types=THREE),
            "values": dict(
                attention_k_eq_v=False,
                attention_bias=True,
                tie_word_embeddings=False,
                final_logit_softcapping=None,
                saves_layers=True,
                rope_parameters=ropes(100.0, 1e4, 1.0),
            ),
            "dense": dict(
                enable_moe_block=False,
                num_experts=None,
                top_k_experts=None,
                moe_intermediate_size=None,
                sliding_window=5,
                num_key_value_heads=4,
                num_global_key_value_heads=2,
                saves_layers=True,
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=36,
                intermediate_size=22,
                moe_intermediate_size=9,
                num_attention_heads=6,
                num_key_value_heads=3,
                head_dim=10,
                global_head_dim=14,
                num_global_key_value_heads=2,
                num_experts=5,
                top_k_experts=3,
                sliding_window=7,
                final_logit_softcapping=3.0,
                rms_norm_eps=1e-3,
                rope_parameters=ropes(1e3, 1e5, 0.5),
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            intermediate_size=[24, 40],
            moe_intermediate_size=[8, 16, 33],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 16],
            global_head_dim=[8, 16, 24],
            num_global_key_value_heads=[1, 2, None],
            attention_k_eq_v=[True, True, False],
            attention_bias=[False, False, True],
            enable_moe_block=[True, True, True, False],
            num_experts=[4, 9, 16],
            top_k_experts=[1, 2, 4],
            sliding_window=[5, 16, 64],
            final_logit_softcapping=[30.0, 5.0, None],
            tie_word_embeddings=[True, False],
            rms_norm_eps=[1e-6, 1e-3],
            rope_parameters=[ropes(1e4, 1e6, 0.25), ropes(100.0, 1e4, 0.5), ropes(1e4, 1e4, 1.0)],
            saves_layers=[False, True],
            _layers=["sf", "ssf", "fsf", "ff"],
        ),
        complete=complete,
        has_fused_layout=False,  # the published layout is one
        published_keys=published_keys,
        draw=draw,
    ),
    Family(
        name="gemma4",
        config=Gemma4TextConfig,
        base=BASE,
        shapes={
            "plain": dict(
                num_attention_heads=8,
                num_key_value_heads=4,
                num_global_key_value_heads=2,
                _extra={
                    "model.vision_tower.encoder.layers.0.mlp.up_proj.linear.weight": (4, 4),
                    "model.embed_vision.embedding_projection.weight": (32, 4),
                },
            ),
        },
        options=dict(
            num_experts=[4, 9],
            top_k_experts=[1, 3],
            attention_k_eq_v=[True, False],
            saves_layers=[False, True],
        ),
        has_fused_layout=False,
        published_keys=published_keys,
        published_names=to_published,
        wrap=wrap,
        draw=draw,
        load=load,
    ),
]
