# SPDX-License-Identifier: Apache-2.0
"""MiniMax-M3 (text): blocks of positions that an indexer chooses, clamped SwiGLU, norms added to 1."""

import json
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLTextConfig
from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import (
    MiniMaxM3SparseForConditionalGeneration,
    MiniMaxM3VLForCausalLM,
)

from families.family import Family, load_model, stored

# The smallest vision model: its weights are not in the files.
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
}
SPARSE = "minimax_m3_sparse"
INSIDE = {
    "index_n_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks",
    "index_local_blocks": "sparse_local_block",
}


def draw(name, shape, generator):
    if "norm" in name:  # these weights are added to one
        return 0.2 * torch.randn(shape, generator=generator)
    return None


def published(name, tensor):
    """The tensors of the published files that one in memory is made of."""
    name = "language_model." + name.replace(".indexer.", ".index_").replace(
        ".mlp.gate.e_score", ".block_sparse_moe.e_score"
    )
    for part in ("gate", "experts", "shared_experts"):
        name = name.replace(f".mlp.{part}.", f".block_sparse_moe.{part}.")
    if name.endswith("experts.gate_up_proj"):
        stem = name.removesuffix("gate_up_proj")
        pairs = [matrix.chunk(2) for matrix in tensor]
        return {
            f"{stem}{e}.{word}.weight": half
            for e, pair in enumerate(pairs)
            for word, half in zip(("w1", "w3"), pair)
        }
    if name.endswith("experts.down_proj"):
        stem = name.removesuffix("down_proj")
        return {f"{stem}{e}.w2.weight": matrix for e, matrix in enumerate(tensor)}
    if name.endswith("gate_up_proj.weight"):
        stem = name.removesuffix("gate_up_proj.weight")
        gate, up = tensor.chunk(2)
        return {f"{stem}gate_proj.weight": gate, f"{stem}up_proj.weight": up}
    return {name: tensor}


def write(_, model, files, directory):
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        made = {name: tensor} if files.get("_fused") else published(name, tensor)
        for published_name, part in made.items():
            tensors[published_name] = stored(published_name, part, torch.bfloat16)
    for name, shape in files.get("_extra", {}).items():
        tensors[name] = torch.full(shape, 0.5, dtype=torch.bfloat16)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    if not files.get("_fused"):
        files["_keys"] = files.get("_keys", {}) | {"_wrapped": True}


def wrap(values):
    if not values.pop("_wrapped", False):
        return values
    words = values.pop("layer_types", None)
    if words is not None:
        sparse = {inner: values.pop(key) for key, inner in INSIDE.items() if key in values}
        values["sparse_attention_config"] = sparse | {
            "use_sparse_attention": True,
            "sparse_score_type": "max",
            "sparse_init_block": 0,
            "sparse_attention_freq": [int(word == SPARSE) for word in words],
            "sparse_disable_index_value": [int(word == SPARSE) for word in words],
        }
    words = values.pop("mlp_layer_types", None)
    if words is not None:
        values["moe_layer_freq"] = [int(word == "sparse") for word in words]
    values |= {
        "architectures": ["MiniMaxM3SparseForCausalLM"],
        "hidden_act": "swigluoai",
        "use_gemma_norm": True,
        "use_qk_norm": True,
        "qk_norm_type": "per_head",
        "use_routing_bias": True,
        "scoring_func": "sigmoid",
        "n_shared_experts": 1,
        "num_mtp_modules": 0,
    }
    return {
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "model_type": "minimax_m3_vl",
        "text_config": values,
        "tie_word_embeddings": values.get("tie_word_embeddings", False),
        "vision_config": {"model_type": "minimax_m3_vl_vision", "hidden_size": 16},
        "image_token_index": 62,
        "video_token_index": 63,
        "projector_hidden_size": 16,
    }


def load(directory, dtype):
    """Through the class with pictures, which reads the published names and keys."""
    values = json.loads((directory / "config.json").read_text())
    if "text_config" not in values:
        return load_model(directory, dtype)
    tensors = load_file(directory / "model.safetensors")
    tensors = {n: t for n, t in tensors.items() if n.startswith("language_model.")}
    with tempfile.TemporaryDirectory() as other:
        with open(f"{other}/config.json", "w", encoding="utf-8") as file:
            json.dump(values | {"vision_config": VISION}, file)
        save_file(tensors, f"{other}/model.safetensors", metadata={"format": "pt"})
        whole = MiniMaxM3SparseForConditionalGeneration.from_pretrained(
            other, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
        ).eval()
    text = MiniMaxM3VLForCausalLM(whole.config.text_config).to(dtype).eval()
    text.model, text.lm_head = whole.model.language_model, whole.lm_head
    return text


def complete(values):
    """Sizes that fit together, and words for each layer."""
    count = values["num_hidden_layers"]
    values["index_n_heads"] = values["num_key_value_heads"]
    rotated = values["rope_parameters"]["partial_rotary_factor"]
    values["rotary_dim"] = int(rotated * values["head_dim"])
    for key in ("layer_types", "mlp_layer_types"):
        if values.get(key):
            values[key] = (values[key] * 4)[:count]
    return values


def rope(theta, **more):
    return {"rope_type": "default", "rope_theta": theta} | more


YARN = {
    "rope_type": "yarn",
    "rope_theta": 1500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "partial_rotary_factor": 0.5,
}
ONE_SPARSE = ["full_attention", SPARSE]

FAMILIES = [
    Family(
        name="minimax_m3",
        config=MiniMaxM3VLTextConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=8,
            dense_intermediate_size=24,
            shared_intermediate_size=12,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            rotary_dim=8,
            num_local_experts=6,
            num_experts_per_tok=2,
            max_position_embeddings=512,
            bos_token_id=0,
            eos_token_id=1,
            mlp_layer_types=["dense", "sparse"],
            layer_types=ONE_SPARSE,
            index_n_heads=2,
            index_head_dim=12,
            index_block_size=64,
            index_topk_blocks=2,
            index_local_blocks=1,
            rope_parameters=rope(5e6, partial_rotary_factor=0.5),
        ),
        shapes={
            "plain": dict(_extra={"vision_tower.vision_model.pre_layrnorm.weight": (4,)}),
            "all_sparse": dict(
                layer_types=[SPARSE, SPARSE],
                mlp_layer_types=None,
                index_topk_blocks=3,
                index_local_blocks=2,
                swiglu_limit=1.0,
                swiglu_alpha=1.3,
                routed_scaling_factor=1.5,
                _rope="new",
            ),
            "full": dict(
                layer_types=["full_attention"] * 2,
                rope_parameters=rope(1e4),
                tie_word_embeddings=True,
                rotary_dim=16,
                _rope="new",
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=34,
                intermediate_size=11,
                num_attention_heads=3,
                num_key_value_heads=1,
                index_n_heads=1,
                index_head_dim=20,
                head_dim=12,
                rotary_dim=6,
                num_local_experts=5,
                num_experts_per_tok=3,
                rms_norm_eps=1e-3,
                rope_parameters=YARN,
                _rope="new",
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            intermediate_size=[12, 16, 33],
            num_hidden_layers=[2, 3],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[16, 24],
            num_local_experts=[4, 9, 16],
            num_experts_per_tok=[1, 2, 4],
            layer_types=[ONE_SPARSE, [SPARSE], ONE_SPARSE[::-1]],
            mlp_layer_types=[None, ["dense", "sparse"], ["sparse", "dense"]],
            index_head_dim=[12, 16, 32],
            index_topk_blocks=[2, 3],
            index_local_blocks=[1, 1, 2],
            swiglu_limit=[1.0, 7.0],
            tie_word_embeddings=[False, True],
            rope_parameters=[
                rope(5e6, partial_rotary_factor=0.5),
                rope(1e4, partial_rotary_factor=0.25),
                YARN,
            ],
            rms_norm_eps=[1e-6, 1e-3],
            _fused=[False, False, True],
        ),
        longest=200,
        complete=complete,
        draw=draw,
        write=write,
        load=load,
        wrap=wrap,
    )
]
