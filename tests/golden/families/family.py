# SPDX-License-Identifier: Apache-2.0
"""What a family of golden models is, and the two files of a checkpoint: config.json, tensors.

A shape of a family is a dictionary of config values on top of the family's `base`. Keys that start
with an underscore say how the files are written:
  _fused    True: experts stacked, as transformers 5 keeps them in memory; else the published layout
  _rope     "new": rope_parameters; "old" (default): rope_theta, rope_scaling, partial_rotary_factor
  _minimal  True: leave out every key whose absence means the same
  _dtype    dtype of the stored weights, default bfloat16
  _extra    {name: shape} of tensors that published files have and the text model does not use
  _keys     {key: value} of published keys that transformers does not read
"""

import dataclasses
import json
import math
import tempfile
from typing import Callable

import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

# Kept in float32 by transformers whatever the dtype, and not rounded in the files.
FLOAT32_NAMES = ("e_score_correction_bias", "expert_bias")


def unchanged(value):
    return value


@dataclasses.dataclass
class Family:
    name: str
    config: type  # the config class of the text model
    base: dict  # config values that all shapes start from
    shapes: dict  # name of a shape: its changes
    options: dict  # config key: values among which a random model chooses
    complete: Callable = unchanged  # makes values that were chosen one by one fit together
    later_shapes: dict = dataclasses.field(default_factory=dict)  # their seeds follow the others'
    has_fused_layout: bool = True
    longest: int = 66  # prompt of a shape
    published_keys: Callable = unchanged  # values of config.json as published files spell them
    published_names: Callable = unchanged  # a tensor's name as saved -> as published
    wrap: Callable = unchanged  # text config -> config.json of a wrapper
    draw: Callable = lambda name, shape, generator: None  # weights unlike draw_weight's
    write: Callable = None  # writes model.safetensors in place of write_tensors
    load: Callable = None  # reads a model in place of load_model
    rounded: tuple = ()  # ends of names of tensors that the files hold in fewer bits


def split(values):
    """Config values, and those that say how the files are written."""
    files = {k: v for k, v in values.items() if k.startswith("_")}
    return {k: v for k, v in values.items() if k not in files}, files


def draw_weight(name, shape, generator):
    """Weights with which every part of the network shows in logits of order 1."""
    normal = torch.randn(shape, generator=generator)
    if name.endswith(("e_score_correction_bias", "expert_bias")):
        return 0.02 + 0.3 * torch.rand(shape, generator=generator)
    if name.endswith("bias"):
        return 0.2 * normal
    if "norm" in name:
        return 1.0 + 0.2 * normal
    if "embed_tokens" in name:
        return 0.4 * normal
    if name.endswith(("gate.weight", "router.weight", "gate.wg.weight")):
        return normal * (2.0 / math.sqrt(shape[-1]))
    gain = 2.0 if "down_proj" in name or "q_" in name else 1.2
    return normal * (gain / math.sqrt(max(1, shape[-1])))


def fill_weights(family, model, seed, dtype):
    """Draws every weight and rounds it to the dtype of the files."""
    generator = torch.Generator().manual_seed(seed)
    tensors = dict(model.named_parameters())
    drawn_buffers = (*FLOAT32_NAMES, "layer_scalar", "tid2eid")
    tensors |= {n: b for n, b in model.named_buffers() if n.endswith(drawn_buffers)}
    with torch.no_grad():
        for name, tensor in sorted(tensors.items()):
            drawn = family.draw(name, tensor.shape, generator)
            if drawn is None:
                drawn = draw_weight(name, tensor.shape, generator)
            tensor.copy_(drawn if name.endswith(FLOAT32_NAMES) else drawn.to(dtype))


def stored(name, tensor, dtype):
    return tensor.to(torch.float32 if name.endswith(FLOAT32_NAMES) else dtype).contiguous()


def saved_tensors(model, fused):
    """Tensors of a model by name: as kept in memory, or as transformers publishes them."""
    if fused:
        tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
        return {name: t for name, t in model.state_dict().items() if name not in tied}
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        return load_file(f"{directory}/model.safetensors")


def write_tensors(family, model, files, directory):
    dtype = files.get("_dtype", torch.bfloat16)
    saved = saved_tensors(model, files.get("_fused", False))
    tensors = {
        family.published_names(n): stored(n, t, dtype) for n, t in saved.items() if t.numel()
    }
    for name, shape in files.get("_extra", {}).items():
        tensors[name] = torch.full(shape, 0.5, dtype=dtype)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def rope_keys(values, form):
    """The rope parameters, of models that have them, in the old or the new spelling."""
    if "rope_parameters" not in values:
        return values
    rope = dict(values.pop("rope_parameters"))
    if form == "new":
        return values | {"rope_parameters": rope}
    values["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        values["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    values["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    return values


def special_float(values):
    """A number that JSON does not have, which transformers writes as an object."""
    return float(values["__float__"]) if "__float__" in values else values


def without_defaults(config, values):
    """The fewest keys that give the same config."""

    def meaning(keys):
        copy = json.dumps({k: values[k] for k in keys})
        copy = json.loads(copy, object_hook=special_float)
        try:
            return type(config).from_dict(copy).to_dict()
        except StrictDataclassClassValidationError:
            return None  # these contradict the default of a key that is left out

    kept = sorted(values)
    same = meaning(kept)
    for key in sorted(set(values) - {"model_type", "architectures"}):
        fewer = [k for k in kept if k != key]
        if meaning(fewer) == same:
            kept = fewer
    return {k: values[k] for k in kept}


# What transformers writes of its own: nothing of it describes the model.
BOOKKEEPING = set(
    """
    _name_or_path attention_dropout chunk_size_feed_forward id2label
    initializer_range is_encoder_decoder label2id output_attentions
    output_hidden_states return_dict output_router_logits problem_type
    pretraining_tp router_aux_loss_coef use_cache router_jitter_noise
    transformers_version dtype
    """.split()
)


def write_config(family, config, files, directory):
    """config.json in the spelling of published files."""
    values = json.loads(config.to_json_string(use_diff=False))
    values = {k: v for k, v in values.items() if k not in BOOKKEEPING}
    values = rope_keys(values, files.get("_rope", "old"))
    if files.get("_minimal"):
        values = without_defaults(config, values)
    values = family.published_keys(values) | files.get("_keys", {})
    values["dtype"] = str(files.get("_dtype", torch.bfloat16)).removeprefix("torch.")
    text = json.dumps(family.wrap(values), indent=1, sort_keys=True) + "\n"
    (directory / "config.json").write_text(text)


def build(family, values, seed, directory):
    """Writes the two files of a checkpoint; returns the model, float32 with the files' values."""
    config_values, files = split(family.base | values)
    config = family.config(**json.loads(json.dumps(config_values)))
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    config.architectures = [type(model).__name__]
    fill_weights(family, model, seed, files.get("_dtype", torch.bfloat16))
    (family.write or write_tensors)(family, model, files, directory)
    write_config(family, config, files, directory)
    return model


def load_model(directory, dtype):
    return AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
    ).eval()


def load_text_part(directory, dtype, rename, edit=unchanged):
    """The text model of a wrapper, through a checkpoint of its own; rename gives a tensor's name in
    it, or None for tensors of other parts; edit changes its config values."""
    values = json.loads((directory / "config.json").read_text())
    tensors = load_file(directory / "model.safetensors")
    with tempfile.TemporaryDirectory() as text:
        with open(f"{text}/config.json", "w", encoding="utf-8") as file:
            json.dump(edit(values["text_config"]), file)
        renamed = {rename(name): tensor for name, tensor in tensors.items() if rename(name)}
        save_file(renamed, f"{text}/model.safetensors", metadata={"format": "pt"})
        return load_model(text, dtype)


def load(family, directory, dtype):
    return (family.load or load_model)(directory, dtype)
