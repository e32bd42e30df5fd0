# SPDX-License-Identifier: Apache-2.0
"""Step-3.7-Flash (text): gates and numbers of heads by kind of layer, limits of activations by
layer, experts stacked by matrix."""

import json
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, Step3p7Config, Step3p7ForConditionalGeneration
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig
from transformers.models.step3p7.modeling_step3p7 import Step3p7PreTrainedModel, Step3p7TextModel

from families.family import Family, stored
from families.kinds import (
    BASE,
    FULL,
    MIXED,
    ODD,
    OPTIONS,
    SLIDING,
    complete,
    default,
    layers,
    ropes,
    yarn,
)

# The smallest vision model: its weights are not in the files.
VISION = {"width": 16, "layers": 1, "heads": 2, "image_size": 28, "mlp_ratio": 2.0}


class TextLM(Step3p7PreTrainedModel):
    """The text model with its head; transformers has one only beside the vision model."""

    config: Step3p7TextConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = Step3p7TextModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, ids, use_cache=False):
        hidden = self.model(ids, use_cache=use_cache).last_hidden_state
        return CausalLMOutput(logits=self.lm_head(hidden))


AutoModelForCausalLM.register(Step3p7TextConfig, TextLM, exist_ok=True)


def draw(name, shape, generator):
    if "norm" in name:  # these weights are added to one
        return 0.2 * torch.randn(shape, generator=generator)
    return None


def published(name, tensor):
    """The tensors of the published files that one in memory is made of."""
    if ".mlp.experts." not in name:
        name = name.replace(".mlp.gate.weight", ".moe.gate.weight")
        name = name.replace(".mlp.gate.e_score_correction_bias", ".moe.router_bias")
        return {name.replace(".mlp.shared_experts.", ".share_expert."): tensor}
    stem = name.split(".mlp.experts.")[0]
    if name.endswith("down_proj"):
        return {f"{stem}.moe.down_proj.weight": tensor}
    gate, up = tensor.chunk(2, dim=1)
    return {f"{stem}.moe.gate_proj.weight": gate, f"{stem}.moe.up_proj.weight": up}


def write(_, model, files, directory):
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        if files.get("_fused"):  # as transformers holds them
            made = {name.replace("model.", "model.language_model.", 1): tensor}
        else:
            made = published(name, tensor)
        for published_name, part in made.items():
            dtype = torch.float32 if name.endswith("correction_bias") else torch.bfloat16
            tensors[published_name] = stored(name, part, dtype)
    for name, shape in files.get("_extra", {}).items():
        tensors[name] = torch.full(shape, 0.5, dtype=torch.bfloat16)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def load(directory, dtype):
    """Through the class that transformers has: it reads the published names and keys."""
    values = json.loads((directory / "config.json").read_text())
    tensors = load_file(directory / "model.safetensors")
    tensors = {n: t for n, t in tensors.items() if not n.startswith(("vision", "vit_"))}
    with tempfile.TemporaryDirectory() as other:
        with open(f"{other}/config.json", "w", encoding="utf-8") as file:
            json.dump(values | {"vision_config": VISION}, file)
        save_file(tensors, f"{other}/model.safetensors", metadata={"format": "pt"})
        whole = Step3p7ForConditionalGeneration.from_pretrained(
            other, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
        ).eval()
    text = TextLM(whole.config.text_config).to(dtype).eval()
    text.model, text.lm_head = whole.model.language_model, whole.lm_head
    return text


def legacy(values):
    """The keys of the published file: lists with a value for each layer, and one for each layer
    that predicts further tokens."""
    types, more = values["layer_types"], values.get("num_nextn_predict_layers", 0)
    ropes_of = values.pop("rope_parameters")
    padded = types + [SLIDING] * more
    sparse = [i for i, word in enumerate(values.pop("mlp_layer_types")) if word == "sparse"]
    values.pop("per_layer_config")
    values["layer_types"] = padded
    values["rope_theta"] = [ropes_of[kind]["rope_theta"] for kind in padded]
    values["partial_rotary_factors"] = [
        ropes_of[kind].get("partial_rotary_factor", 1.0) for kind in padded
    ]
    scaling = {
        k: v
        for k, v in ropes_of[FULL].items()
        if k not in ("rope_theta", "partial_rotary_factor")
    }
    if scaling["rope_type"] != "default":
        values |= {"rope_scaling": scaling, "yarn_only_types": [FULL]}
    for key in ("swiglu_limits", "swiglu_limits_shared"):
        values[key] = [limit or 0.0 for limit in values[key] or [0.0] * len(types)] + [0.0] * more
    heads = values.pop("num_key_value_heads")
    return values | {
        "moe_layers_enum": ",".join(map(str, sparse)),
        "attention_other_setting": {
            "attention_type": SLIDING,
            "num_attention_heads": values.pop("num_sliding_attention_heads"),
            "num_attention_groups": heads,
            "head_dim": values["head_dim"],
            "true_head_dim": values["head_dim"],
        },
        "num_attention_groups": heads,
        "moe_num_experts": values.pop("n_routed_experts"),
        "moe_top_k": values.pop("num_experts_per_tok"),
        "use_moe": True,
        "use_moe_router_bias": True,
        "moe_router_activation": "sigmoid",
        "moe_every_n_layer": 1,
        "moe_layer_offset": 0,
        "need_fp32_gate": True,
        "norm_expert_weight": True,
        "use_head_wise_attn_gate": True,
        "use_qk_norm": True,
        "zero_centered": True,
        "sink": False,
        "att_impl_type": "GQA",
        "use_rope_layers": [],
    }


def wrap(values):
    if values.pop("_legacy", False):
        values = legacy(values)
    if "architectures" in values:
        values["architectures"] = ["Step3p5ForCausalLM"]
    return {
        "architectures": ["Step3p7ForConditionalGeneration"],
        "model_type": "step3p7",
        "text_config": values,
        "tie_word_embeddings": values.get("tie_word_embeddings", False),
        "vision_config": {"model_type": "step3p5_vision", "width": 16},
        "image_token_id": 63,
        "projector_bias": False,
    }


def complete_step(values):
    for key in ("swiglu_limits", "swiglu_limits_shared"):
        if values.get(key):
            values[key] = (values[key] * 2)[: values["num_hidden_layers"]]
    return complete(values)

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1500.0,
    "factor": 2.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 32.0,
    "original_max_position_embeddings": 32,
    "partial_rotary_factor": 0.5,
}
ROPES = [
    ropes(default(5e6, partial_rotary_factor=0.5), default(1e4, partial_rotary_factor=1.0)),
    ropes(LLAMA3, default(1e4)),
    ropes(yarn(partial_rotary_factor=0.5), default(1e4, partial_rotary_factor=0.25)),
]
LIMITS = [None, [None, 0.4, 0.0], [0.3, 1.0, None]]
LEGACY = {"_legacy": True}

FAMILIES = [
    Family(
        name="step3p7",
        config=Step3p7TextConfig,
        base={k: v for k, v in BASE.items() if k != "num_experts"}
        | dict(
            n_routed_experts=6,
            share_expert_dim=10,
            layer_types=layers("fss"),
            mlp_layer_types=["dense", "sparse", "sparse"],
            num_sliding_attention_heads=6,
            rope_parameters=ROPES[0],
            _rope="new",
        ),
        shapes={
            "plain": dict(
                num_hidden_layers=4,
                layer_types=layers("fsfs"),
                mlp_layer_types=None,
                num_sliding_attention_heads=None,
                rope_parameters=ropes(default(1e4), default(1e4)),
                _minimal=True,
            ),
            "published": dict(
                num_nextn_predict_layers=1,
                moe_router_scaling_factor=3.0,
                swiglu_limits=LIMITS[1],
                swiglu_limits_shared=LIMITS[2],
                rope_parameters=ROPES[1],
                query_pre_attn_scalar=8,
                _keys=LEGACY,
                _extra={
                    "model.layers.3.eh_proj.weight": (32, 64),
                    "model.layers.3.self_attn.g_proj.weight": (6, 32),
                    "vision_model.conv1.weight": (16, 3, 2, 2),
                    "vit_large_projector.weight": (32, 64),
                },
            ),
            "limits": dict(
                swiglu_limits=LIMITS[2],
                swiglu_limits_shared=LIMITS[1],
                mlp_layer_types=["sparse", "dense", "sparse"],
                layer_types=layers("sfs"),
                attention_bias=True,
                tie_word_embeddings=True,
                query_pre_attn_scalar=11,
                rope_parameters=ROPES[2],
            ),
            "odd": ODD
            | dict(
                layer_types=layers("sff"),
                num_sliding_attention_heads=5,
                n_routed_experts=5,
                share_expert_dim=11,
                rope_parameters=ropes(
                    yarn(partial_rotary_factor=0.4), default(100.0, partial_rotary_factor=0.8)
                ),
            ),
        },
        options=OPTIONS
        | dict(
            n_routed_experts=[4, 9, 16],
            share_expert_dim=[8, 20],
            num_sliding_attention_heads=[4, 8, 12],
            moe_router_scaling_factor=[1.0, 3.0],
            swiglu_limits=LIMITS,
            swiglu_limits_shared=LIMITS,
            attention_bias=[False, True],
            rope_parameters=ROPES,
            _layers=MIXED,
            _dense=[[], [0], [1]],
            _keys=[{}, LEGACY],
        ),
        complete=complete_step,
        draw=draw,
        wrap=wrap,
        write=write,
        load=load,
    )
]
