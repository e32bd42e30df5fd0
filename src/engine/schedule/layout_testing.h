// SPDX-License-Identifier: Apache-2.0
//
// For tests of the scheduler: a layout whose pages are small.
#pragma once

#include "model/config/config.h"
#include "model/kv_layout.h"

namespace wideep::engine {

inline model::KvLayout small_layout() {
  model::ModelConfig config;
  config.num_layers = 1;
  config.layers.resize(1);
  config.num_kv_heads = 1;
  config.head_dim = 4;
  return {config, Dtype::kF32};
}

}  // namespace wideep::engine
