// SPDX-License-Identifier: Apache-2.0
//
// Families that are known and not computed, with what they need. A line leaves when its family
// comes.
#include <algorithm>
#include <iterator>

#include "model/families/family.h"

namespace wideep::model {
namespace {

// What names begin with: model_type, also that of a text model within, and class.
struct NotComputed {
  std::string_view model_type;
  std::string_view class_name;
  std::string_view reason;
};

constexpr std::string_view kNoOracle =
    "transformers has no class for it, against which wideep's results could be checked";

constexpr NotComputed kNotComputed[] = {
    {"deepseek_v41", "DeepseekV41", kNoOracle},
    {"kimi_k3", "KimiK3",
     "it needs attention to the outputs of earlier layers, experts in a latent space and the "
     "activation SiTU, which wideep does not compute"},
    {"mistral_large4", "MistralLarge4",
     "it needs an indexer, keys and values of other layers and capped logits; wideep does not "
     "compute the family"},
    {"qwen4_exp", "Qwen4Exp",
     "it needs residual connections in several streams and embeddings of n-grams, which wideep "
     "does not compute"},
    {"hy_v4", "HYV4",
     "it needs hyper-connections and sinks in latent attention, which wideep does not compute"},
    {"axk1", "AXK1", "it needs a norm after the experts; wideep does not compute the family"},
    {"longcat_flash", "LongcatFlash",
     "it needs experts that compute nothing and layers of two attentions, which wideep does not "
     "compute"},
    {"muse_spark", "MuseSpark",
     "it needs gates of the residual stream and experts of another width than the model, which "
     "wideep does not compute"},
    {"inkling", "Inkling",
     "it needs convolutions beside attention and scores by relative position, which wideep does "
     "not compute"},
    {"kolibri1", "Kolibri1",
     "it needs norms after attention and experts, and a choice by logits with a bias; wideep "
     "does not compute the family"},
    {"jamba", "Jamba", "it needs Mamba layers, which wideep does not compute"},
    {"jetmoe", "JetMoe", "it needs a router of attention heads, which wideep does not compute"},
    {"zaya", "Zaya",
     "it needs convolved and compressed attention and a router of several layers, which wideep "
     "does not compute"},
    {"flex_olmo", "FlexOlmo",
     "it needs norms after attention and experts in place of those before; wideep does not "
     "compute the family"},
    {"grok", "Grok", kNoOracle},
    {"arctic", "ArcticFor", kNoOracle},
    {"smallthinker", "SmallThinker", kNoOracle},
    {"grove_moe", "GroveMoe", kNoOracle},
    {"llada", "LLaDA", kNoOracle},
    {"bailing_moe", "BailingMoe", kNoOracle},
};

}  // namespace

std::string_view reason_for_refusal(std::string_view name) {
  const auto* found = std::ranges::find_if(kNotComputed, [&](const NotComputed& each) {
    return name.starts_with(each.model_type) || name.starts_with(each.class_name);
  });
  return found == std::end(kNotComputed) ? "" : found->reason;
}

}  // namespace wideep::model
