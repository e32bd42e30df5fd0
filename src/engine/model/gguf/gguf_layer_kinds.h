// SPDX-License-Identifier: Apache-2.0
//
// The metadata of files whose layers are of two kinds, with windows and of full attention: which
// layers have windows, what a kind has of its own, and the rotation of each.
//
// Thread safety: pure functions of keys that no other thread uses.
#pragma once

#include <string_view>
#include <vector>

#include "model/gguf/gguf_keys.h"

namespace wideep::model {

// Of a file that does not list its layers: one in `period` layers has no window, the first or the
// last of them; 0: the file must list them.
struct WindowPeriod {
  int64_t layers = 0;
  bool first = false;
};

// Which layers have windows, by attention.sliding_window_pattern: a list, or another period.
std::vector<bool> sliding_layers(GgufKeys& keys, WindowPeriod otherwise);
// The same as layer_types of config.json.
GgufKeys::Json layer_words(const std::vector<bool>& slides);

// The number of layers with windows, or of the others, of a key that has one for each layer or one
// for all; null: there are no such layers, or no such key. Complains if they differ.
GgufKeys::Json number_of_kind(GgufKeys& keys, std::string_view key, const std::vector<bool>& slides,
                              bool of_sliding);

struct KindRotations {
  double full_share = 1.0;  // of rope.dimension_count, which rotate in layers of full attention
  bool scales = true;       // those of full attention; else scaling is a contradiction
};
// rope_parameters, with an object for each kind. Takes rope_theta and rope_scaling from config.
void read_kind_rotations(GgufKeys& keys, const KindRotations& rotations = {});

}  // namespace wideep::model
