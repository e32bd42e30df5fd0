// SPDX-License-Identifier: Apache-2.0
//
// Chooses the form in which multi-head latent attention computes a token.
//
//   absorbed   the query is projected into the latent space: (2 · rank + rope) products per
//              position and head. For generated tokens.
//   expanded   keys and values of a head are expanded from the latents: (nope + rope + v) products
//              per position and head, plus rank · (nope + v) per position, head and chunk for the
//              expansion, which the queries of a chunk share. For prompts.
//
// The two forms differ in bits. So the choice depends only on properties of the request (the
// token's role and the length of the whole prompt), never on the batch or on the chunks of the
// prompt: the promise of equal bits.
//
// Thread safety: pure functions.
#pragma once

#include <string_view>

#include "model/config/config.h"

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

// Whether the keys and values of a token may depend on its role. They do from the second layer on,
// if attention takes different forms for prompts and for generated tokens. Only prompts that are
// long enough for the expanded form matter, which includes all that fill a page.
bool roles_differ(const ModelConfig& config);

// "absorbed", "expanded".
std::string_view latent_form_name(LatentForm form);

}  // namespace wideep::model
