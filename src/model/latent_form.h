// SPDX-License-Identifier: Apache-2.0
//
// Which of its two forms multi-head latent attention takes for a token.
//
//   absorbed   the query is carried into the latent space: num_heads · (2 · rank + rope) products
//              per position, none of them repeated: generated tokens
//   expanded   keys and values of a head are expanded from the latents: (nope + rope + v) products
//              per position and head, and rank · (nope + v) per position and head and chunk:
//              prompts
//
// The two differ in bits, so the choice rests on what a token's request says of it, never on the
// batch or on how the prompt is cut into chunks (the promise of equal bits): on its role, and on
// the whole prompt's length.
#pragma once

#include <string_view>

#include "model/config.h"

namespace wideep::model {

enum class LatentForm { kAbsorbed, kExpanded };

struct LatentProblem {
  int position = 0;
  int prompt_length = 0;  // of the token's request
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;
  int v_head_dim = 0;
};

LatentForm choose_latent_form(const LatentProblem& problem);

// Whether a token's keys and values may depend on its role: in layers after one whose attention
// takes different forms for prompts and for generated tokens. Prompts of a page and more.
bool roles_differ(const ModelConfig& config);

// "absorbed", "expanded".
std::string_view latent_form_name(LatentForm form);

}  // namespace wideep::model
