// SPDX-License-Identifier: Apache-2.0
//
// What a rank's pages and states are among those that are kept by name (store/record.h): the class
// of their records, and the part of the canonical form that the rank has.
//
//   page     the layers that have keys and values, in order; of each its heads, keys, then values,
//            then the indexer's keys (model/kv_layout.h with all layers and heads)
//   state    the layers that have one, in order (model/state_layout.h with all layers)
//
// A pipeline stage has some layers, a rank of a tensor group some heads of each, and some units of
// their states; of these a rank has some again if others share its sequences. With more ranks
// than key-value heads several have the same head, and then the same part.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "model/kv_layout.h"
#include "model/parts/tensor_group.h"
#include "run/run_inputs.h"
#include "run/run_plan.h"
#include "store/record.h"
#include "wideep/status.h"

namespace wideep::run {

struct PageGeometry {
  std::string record_class;
  uint64_t page_bytes = 0;   // of the canonical form
  store::Part page;          // that the rank has; 0 pieces: it keeps no keys and values
  uint64_t state_bytes = 0;  // of the canonical form
  store::Part state;         // 0 pieces: it keeps no states
};

// The hash, 64 hexadecimal digits, of all beside tokens and salt that decides the bytes of keys,
// values and states, as docs/determinism.md lists it: program, C library, instruction set,
// checkpoint, and settings of precision. How the model is divided among ranks is not in it, except
// where sums depend on that. Equal for copies of a checkpoint. Reads a sample of the weights.
std::string record_class(const RunOptions& options, const RunInputs& inputs, const RunPlan& plan);

// Errors (invalid input): as part_of_page(); heads that are some of several of different sizes;
// ranks divide states that differ from layer to layer.
Result<PageGeometry> page_geometry(const RunPlan& plan, int rank, std::string record_class);

// Of `whole`, a layout of all layers and heads, what these layers and heads are. Errors (invalid
// input): the heads are some of several, and an indexer's keys are between those of two layers.
// REQUIRES: heads of all layers are alike, unless these are all.
Result<store::Part> part_of_page(const model::KvLayout& whole, parallel::LayerRange layers,
                                 const model::HeadRange& heads);

}  // namespace wideep::run
