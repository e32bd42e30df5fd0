# SPDX-License-Identifier: Apache-2.0
"""The families of golden models, one small file for each or for a few that are alike."""

import importlib

MODULES = (
    "mixtral",
    "olmoe",
    "qwen2_moe",
    "gpt_oss",
    "glm",
    "minimax_m2",
    "kimi",
    "llama4",
    "granite",
    "ernie4_5_moe",
    "hunyuan_v1_moe",
    "qwen3_next",
    "deepseek",
    "lfm2_moe",
    "dense",
    "mistral4",
    "hy_v3",
    "dots1",
    "solar_open",
    "exaone_moe",
    "gemma4",
    "mellum",
    "afmoe",
    "laguna",
    "mimo_v2_flash",
    "step3p7",
    "kimi_linear",
    "bailing_hybrid",
    "deepseek_v4",
    "nemotron_h",
    "minimax_m3",
    "glm5_next",
    "cohere2_moe",
    "phimoe",
    "dbrx",
)


def all_families():
    """Family by name, in the order of MODULES."""
    modules = [importlib.import_module(f"families.{name}") for name in MODULES]
    return {family.name: family for module in modules for family in module.FAMILIES}
