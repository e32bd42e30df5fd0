// SPDX-License-Identifier: Apache-2.0
#include "model/parts/latent_form.h"

namespace wideep::model {
namespace {

// The shortest prompt for the expanded form: fewer queries do not repay the expansion of a page.
constexpr int kShortestExpanded = 32;

}  // namespace

LatentForm choose_latent_form(const LatentProblem& problem) {
  const int rank = problem.kv_lora_rank, rope = problem.qk_rope_head_dim;
  const int expanded = problem.qk_nope_head_dim + rope + problem.v_head_dim;
  const bool prompt = problem.position < problem.prompt_length;
  // bf16 products take elements in pairs, so the rotary part must begin at an even element.
  const bool even = problem.qk_nope_head_dim % 2 == 0;
  return prompt && even && problem.prompt_length >= kShortestExpanded && expanded < 2 * rank + rope
             ? LatentForm::kExpanded
             : LatentForm::kAbsorbed;
}

bool roles_differ(const ModelConfig& config) {
  if (!config.is_mla()) return false;
  const LatentProblem prompt{.position = 0,
                             .prompt_length = kShortestExpanded,
                             .kv_lora_rank = config.kv_lora_rank,
                             .qk_nope_head_dim = config.qk_nope_head_dim,
                             .qk_rope_head_dim = config.qk_rope_head_dim,
                             .v_head_dim = config.v_head_dim};
  return choose_latent_form(prompt) == LatentForm::kExpanded;
}

std::string_view latent_form_name(LatentForm form) {
  return form == LatentForm::kAbsorbed ? "absorbed" : "expanded";
}

}  // namespace wideep::model
