# SPDX-License-Identifier: Apache-2.0
"""Kimi-K2 and the text of Kimi-K2.5: DeepSeek-V3 under other names."""

import json
import tempfile

from safetensors.torch import load_file, save_file
from transformers import DeepseekV3Config

from families.family import Family, load_model, load_text_part
from families.glm import LATENT_OPTIONS, ROUTER_OPTIONS, complete_groups

PREFIX = "language_model."
YARN = {
    "rope_type": "yarn",
    "rope_theta": 5e4,
    "factor": 8.0,
    "beta_fast": 1.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 32,
}


def published_keys(values):
    """The name of the model, and `type` where transformers now writes rope_type."""
    rope = values.get("rope_scaling")
    if rope:
        rope["type"] = rope.pop("rope_type")
    values["num_nextn_predict_layers"] = values.pop("num_mtp_layers", 0)
    for key in ("qk_head_dim", "head_dim"):
        values.pop(key, None)
    return values | {"model_type": "kimi_k2", "scoring_func": "sigmoid", "topk_method": "noaux_tc"}


def wrap(values):
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "media_placeholder_token_id": 60,
        "text_config": values | {"architectures": ["DeepseekV3ForCausalLM"]},
        "vision_config": {"model_type": "kimi_k25_vision", "num_hidden_layers": 1},
    }


def as_deepseek(values):
    return values | {"model_type": "deepseek_v3"}


def load_k2(directory, dtype):
    with tempfile.TemporaryDirectory() as other:
        values = json.loads((directory / "config.json").read_text())
        with open(f"{other}/config.json", "w", encoding="utf-8") as file:
            json.dump(as_deepseek(values), file)
        tensors = load_file(directory / "model.safetensors")
        save_file(tensors, f"{other}/model.safetensors", metadata={"format": "pt"})
        return load_model(other, dtype)


def load_k25(directory, dtype):
    def rename(name):
        return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None

    return load_text_part(directory, dtype, rename, as_deepseek)


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
    n_shared_experts=1,
    n_routed_experts=6,
    num_experts_per_tok=3,
    n_group=1,
    topk_group=1,
    first_k_dense_replace=1,
    routed_scaling_factor=2.827,
    max_position_embeddings=256,
    num_mtp_layers=0,
    rope_parameters=YARN,
)
OPTIONS = dict(
    hidden_size=[32, 48, 64],
    num_hidden_layers=[2, 3],
    num_attention_heads=[4, 8],
    first_k_dense_replace=[0, 1],
    rope_parameters=[YARN, YARN | {"beta_fast": 32.0, "factor": 16.0}],
    rms_norm_eps=[1e-6, 1e-5],
    _fused=[False, False, True],
    **LATENT_OPTIONS,
    **(ROUTER_OPTIONS | {"n_group": [1]}),
)


def complete(values):
    return complete_groups(values | {"num_key_value_heads": values["num_attention_heads"]})


SHAPES = {
    "plain": {},
    "all_moe": dict(first_k_dense_replace=0, n_routed_experts=12, moe_intermediate_size=4),
    "beta32": dict(
        rope_parameters=YARN | {"beta_fast": 32.0, "factor": 16.0},
        rms_norm_eps=1e-5,
        n_shared_experts=2,
    ),
    "odd": dict(
        vocab_size=69,
        hidden_size=36,
        moe_intermediate_size=11,
        num_attention_heads=3,
        num_key_value_heads=3,
        qk_rope_head_dim=10,
        v_head_dim=14,
        n_routed_experts=7,
        norm_topk_prob=False,
    ),
}

VISION = {"vision_tower.patch_embed.proj.weight": (4, 3), "mm_projector.proj.0.bias": (4,)}

FAMILIES = [
    Family(
        name="kimi_k2",
        config=DeepseekV3Config,
        base=BASE,
        shapes=SHAPES,
        options=OPTIONS,
        complete=complete,
        published_keys=published_keys,
        load=load_k2,
    ),
    Family(
        name="kimi_k25",
        config=DeepseekV3Config,
        base=BASE,
        shapes={name: SHAPES[name] | {"_extra": VISION} for name in ("plain", "beta32", "odd")},
        options=OPTIONS,
        complete=complete,
        has_fused_layout=False,  # kimi_k2 has it
        published_keys=published_keys,
        published_names=lambda name: PREFIX + name,
        wrap=wrap,
        load=load_k25,
    ),
]
