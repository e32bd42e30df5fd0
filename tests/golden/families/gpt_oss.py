# SPDX-License-Identifier: Apache-2.0
"""GPT-OSS: MXFP4 experts as published, sinks, windows in every other layer, biases everywhere."""

import json
import math
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig

from families.family import FLOAT32_NAMES, Family, load_model, stored

# The magnitudes of the OCP e2m1 format; bit 3 of a code is the sign.
MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
VALUES = torch.cat([MAGNITUDES, -MAGNITUDES])
MATRICES = ("gate_up_proj", "down_proj")


def encode(matrix):
    """[E, out, in] float32 as MXFP4: blocks u8 [E, out, in/32, 16], scales u8 [E, out, in/32]."""
    groups = matrix.unflatten(-1, (-1, 32))
    exponent = torch.floor(torch.log2(groups.abs().amax(-1).clamp_min(2.0**-100))) - 2
    scaled = groups / torch.exp2(exponent)[..., None]
    codes = (scaled[..., None] - VALUES).abs().argmin(-1).to(torch.uint8)
    return codes[..., 0::2] | (codes[..., 1::2] << 4), (exponent + 127).to(torch.uint8)


def decode(blocks, scales):
    """What encode wrote, [E, out, in] float32."""
    codes = torch.stack([blocks & 15, blocks >> 4], dim=-1).flatten(-2).long()
    return (VALUES[codes] * torch.exp2(scales.float() - 127)[..., None]).flatten(-2)


def draw(name, shape, generator):
    if name.endswith("sinks"):
        return 1.0 + torch.randn(shape, generator=generator)
    if name.endswith(MATRICES):  # stored [E, in, out]
        gain = 2.5 if name.endswith("gate_up_proj") else 1.2
        return torch.randn(shape, generator=generator) * (gain / math.sqrt(shape[-2]))
    return None


def write(_, model, files, directory):
    dtype = files.get("_dtype", torch.bfloat16)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        if name.endswith(MATRICES) and files.get("_quantised", True):
            blocks, scales = encode(tensor.transpose(1, 2))
            tensors |= {f"{name}_blocks": blocks.contiguous(), f"{name}_scales": scales}
        else:
            tensors[name] = stored(name, tensor, dtype)
    assert not any(name.endswith(FLOAT32_NAMES) for name in tensors)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    if files.get("_quantised", True):
        files.setdefault("_keys", {})["quantization_config"] = {
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
        }


def load(directory, dtype):
    """Through a checkpoint of the decoded experts."""
    values = json.loads((directory / "config.json").read_text())
    values.pop("quantization_config", None)
    tensors = load_file(directory / "model.safetensors")
    for name in [n for n in tensors if n.endswith("_blocks")]:
        base = name.removesuffix("_blocks")
        decoded = decode(tensors.pop(name), tensors.pop(f"{base}_scales"))
        tensors[base] = decoded.transpose(1, 2).contiguous()
    with tempfile.TemporaryDirectory() as plain:
        with open(f"{plain}/config.json", "w", encoding="utf-8") as file:
            json.dump(values, file)
        save_file(tensors, f"{plain}/model.safetensors", metadata={"format": "pt"})
        return load_model(plain, dtype)


YARN = {
    "rope_type": "yarn",
    "rope_theta": 1500.0,
    "factor": 8.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 32,
}

FAMILIES = [
    Family(
        name="gpt_oss",
        config=GptOssConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            num_local_experts=6,
            num_experts_per_tok=2,
            sliding_window=16,
            max_position_embeddings=256,
            rope_parameters=YARN,
        ),
        shapes={
            "plain": dict(rope_parameters=None, _minimal=True),
            "yarn": dict(
                num_hidden_layers=3,
                num_key_value_heads=1,
                num_experts_per_tok=4,
                swiglu_limit=1.5,
                head_dim=8,
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=64,
                num_attention_heads=3,
                num_key_value_heads=1,
                head_dim=12,
                num_local_experts=5,
                swiglu_limit=2.0,
                swiglu_alpha=1.3,
                rms_norm_eps=1e-3,
                layer_types=["full_attention", "sliding_attention"],
                sliding_window=33,
                rope_parameters=YARN | {"truncate": True},
                _rope="new",
            ),
            "float32": dict(
                hidden_size=32,
                intermediate_size=12,
                num_attention_heads=3,
                num_key_value_heads=1,
                head_dim=10,
                num_local_experts=4,
                num_experts_per_tok=3,
                tie_word_embeddings=True,
                _quantised=False,
                _dtype=torch.float32,
            ),
        },
        options=dict(
            hidden_size=[32, 64, 96],
            intermediate_size=[32, 64],
            num_hidden_layers=[2, 3],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 16],
            num_local_experts=[4, 9, 16],
            num_experts_per_tok=[1, 2, 4],
            sliding_window=[5, 16, 64],
            swiglu_limit=[1.0, 7.0],
            tie_word_embeddings=[False, True],
            rope_parameters=[YARN, YARN | {"factor": 32.0}, YARN | {"truncate": True}],
            _quantised=[True, True, False],
            _rope=["old", "new"],
        ),
        has_fused_layout=False,  # the published layout is one
        draw=draw,
        write=write,
        load=load,
        rounded=MATRICES,
    )
]
