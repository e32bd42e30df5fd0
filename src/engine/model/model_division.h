// SPDX-License-Identifier: Apache-2.0
//
// How a model can be divided among ranks: its layers among the stages of a pipeline, its heads and
// experts within one.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "model/config/config.h"
#include "model/parts/moe_options.h"
#include "parallel/parallel_config.h"
#include "wideep/status.h"

namespace wideep::model {

// Indices of the layers that have experts, ascending.
std::vector<int> moe_layers(const ModelConfig& config);

// The layers of a pipeline stage. Prediction layers belong to the last one.
parallel::LayerRange stage_layers(const ModelConfig& config, int stage, int num_stages);

// Errors (invalid input): a kind of parallelism that the model, or a part of it, cannot do: states
// of sequences are not divided among ranks; there are more stages than layers; layers of a stage
// share the choice of positions that a layer of an earlier stage made.
Status check_parts(const parallel::ParallelConfig& settings, const ModelConfig& config);

// Errors (invalid input): moe_tensor_parallel_size cannot cut the model's experts, or cannot cut
// results in the format of moe_config.combine_dtype.
Status check_slices(const parallel::ParallelConfig& settings, const ModelConfig& config,
                    const MoeOptions& moe);

}  // namespace wideep::model
