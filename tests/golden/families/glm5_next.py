# SPDX-License-Identifier: Apache-2.0
"""GLM-5.3-Flash (text): Kimi Delta Attention with bounded decays, latent attention without positions
to groups of positions that an indexer chooses, hyper-connections."""

import json
import tempfile

from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.glm5_next.configuration_glm5_next import Glm5NextTextConfig
from transformers.models.glm5_next.modeling_glm5_next import (
    Glm5NextForConditionalGeneration,
    Glm5NextPreTrainedModel,
    Glm5NextTextModel,
)

from families.family import Family
from families.glm import LATENT_OPTIONS, ROUTER_OPTIONS, complete_groups, mtp_tensors
from families.kimi_linear import draw

# The smallest vision model: its weights are not in the files.
VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 1,
    "out_hidden_size": 16,
    "projection_intermediate_size": 16,
}
WORDS = {"L": "linear_attention", "F": "indexed_attention"}
SIZES = {
    "linear_head_dim": "head_dim",
    "linear_num_heads": "num_heads",
    "linear_conv_kernel_dim": "short_conv_kernel_size",
    "linear_lower_bound": "gate_lower_bound",
}


class TextLM(Glm5NextPreTrainedModel):
    """The text model with its head; transformers has one only beside the vision model."""

    config: Glm5NextTextConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = Glm5NextTextModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, ids, use_cache=False):
        hidden = self.model(ids, use_cache=use_cache).last_hidden_state
        return CausalLMOutput(logits=self.lm_head(hidden))


AutoModelForCausalLM.register(Glm5NextTextConfig, TextLM, exist_ok=True)


def load(directory, dtype):
    """Through the class that transformers has: it reads the published names and keys."""
    values = json.loads((directory / "config.json").read_text())
    tensors = load_file(directory / "model.safetensors")
    tensors = {n: t for n, t in tensors.items() if not n.startswith("model.visual.")}
    with tempfile.TemporaryDirectory() as other:
        with open(f"{other}/config.json", "w", encoding="utf-8") as file:
            json.dump(values | {"vision_config": VISION}, file)
        save_file(tensors, f"{other}/model.safetensors", metadata={"format": "pt"})
        whole = Glm5NextForConditionalGeneration.from_pretrained(
            other, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
        ).eval()
    text = TextLM(whole.config.text_config).to(dtype).eval()
    text.model, text.lm_head = whole.model.language_model, whole.lm_head
    return text


def wrap(values):
    """As published where the sizes of the delta rule are in an object of their own."""
    if values.pop("_listed", False):
        sizes = {inner: values.pop(key) for key, inner in SIZES.items()}
        values["linear_attn_config"] = sizes | {"safe_gate": sizes["gate_lower_bound"] is not None}
        values["mla_use_nope"] = values["mhc"] = True
    values.pop("architectures")
    return {
        "architectures": ["Glm5NextForConditionalGeneration"],
        "model_type": "glm5_next",
        "text_config": values,
        "tie_word_embeddings": values.get("tie_word_embeddings", False),
        "vision_config": {"model_type": "glm5_next_vision", "hidden_size": 16},
        "image_token_id": 62,
    }


def published_name(name):
    return name.replace("model.", "model.language_model.", 1)


def complete(values):
    count = values["num_hidden_layers"]
    letters = (values.pop("_kinds") * 3)[:count]
    values["layer_types"] = [WORDS[letter.upper()] for letter in letters]
    # A small letter shares the choice of the layer before it.
    values["indexer_types"] = ["shared" if letter == "f" else "full" for letter in letters]
    dense = values.pop("_dense", 1)
    values["mlp_layer_types"] = ["dense"] * dense + ["sparse"] * (count - dense)
    values["num_key_value_heads"] = values["num_attention_heads"]
    values["index_topk"] = values["index_kpool"] * values.pop("_best")
    return complete_groups(values)


BASE = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=16,
    moe_intermediate_size=6,
    num_hidden_layers=3,
    num_attention_heads=4,
    q_lora_rank=16,
    kv_lora_rank=12,
    qk_nope_head_dim=12,
    v_head_dim=12,
    n_routed_experts=6,
    num_experts_per_tok=2,
    linear_head_dim=8,
    linear_num_heads=4,
    index_n_heads=4,
    index_head_dim=12,
    index_kpool=4,
    hc_mult=2,
    swiglu_limit=1.0,
    max_position_embeddings=256,
    pad_token_id=None,
    _best=4,
    _kinds="LF",
)
SHAPES = {
    "plain": dict(_extra={"model.visual.patch_embed.weight": (4,)}),
    "minimal": dict(
        _minimal=True,
        _dense=2,
        _kinds="LLLF",
        num_hidden_layers=4,
        index_kpool=16,
        _best=2,
        _keys={"qk_rope_head_dim": 0},
    ),
    "published": dict(
        hc_mult=4,
        linear_conv_kernel_dim=3,
        _keys={"_listed": True, "num_nextn_predict_layers": 1, "first_k_dense_replace": 1},
        _extra={published_name(n): shape for n, shape in mtp_tensors(3).items()},
    ),
    "shared": dict(
        _kinds="FfL",
        _dense=0,
        index_kpool=1,
        _best=9,
        linear_lower_bound=None,
        tie_word_embeddings=True,
        attention_bias=True,
        n_shared_experts=2,
        n_routed_experts=12,
        n_group=4,
        topk_group=2,
        hc_sinkhorn_iters=2,
        hc_eps=1e-3,
    ),
    "odd": dict(
        vocab_size=65,
        hidden_size=34,
        intermediate_size=22,
        moe_intermediate_size=9,
        num_attention_heads=3,
        kv_lora_rank=10,
        q_lora_rank=14,
        qk_nope_head_dim=10,
        v_head_dim=14,
        n_routed_experts=5,
        num_experts_per_tok=3,
        norm_topk_prob=False,
        rms_norm_eps=1e-3,
        linear_head_dim=17,
        linear_num_heads=3,
        linear_conv_kernel_dim=5,
        linear_lower_bound=-2.5,
        index_n_heads=6,
        index_head_dim=13,
        index_kpool=5,
        hc_mult=3,
        _kinds="FL",
    ),
    "wide": dict(index_kpool=37, _best=1, linear_num_heads=2),
}

FAMILIES = [
    Family(
        name="glm5_next",
        config=Glm5NextTextConfig,
        base=BASE,
        shapes={name: complete(BASE | shape) for name, shape in SHAPES.items()},
        options=dict(
            hidden_size=[32, 48, 64],
            num_hidden_layers=[2, 3, 4],
            num_attention_heads=[2, 4, 8],
            linear_head_dim=[4, 8, 20],
            linear_num_heads=[1, 2, 4],
            linear_conv_kernel_dim=[2, 4, 5],
            linear_lower_bound=[-5.0, -1.0, None],
            index_n_heads=[4, 6],
            index_head_dim=[16, 20],
            index_kpool=[1, 3, 4, 8, 16],
            hc_mult=[2, 4],
            hc_sinkhorn_iters=[1, 5, 20],
            swiglu_limit=[0.7, 10.0],
            tie_word_embeddings=[False, True],
            attention_bias=[False, True],
            rms_norm_eps=[1e-6, 1e-5, 1e-3],
            _best=[1, 2, 5],
            _kinds=["LF", "FL", "FfL", "LFFf"],
            _dense=[0, 1],
            _keys=[{}, {"_listed": True}],
            **{k: v for k, v in LATENT_OPTIONS.items() if k != "qk_rope_head_dim"},
            **ROUTER_OPTIONS,
        ),
        longest=120,
        complete=complete,
        has_fused_layout=False,  # transformers writes its convolutions apart
        published_names=published_name,
        wrap=wrap,
        load=load,
        draw=draw,
    )
]
