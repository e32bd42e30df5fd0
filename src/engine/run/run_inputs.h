// SPDX-License-Identifier: Apache-2.0
//
// What a run reads before it is planned: small files, and the names and shapes of the weights.
//
// Thread safety: plain values; functions for one thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/kernels.h"
#include "model/model_files.h"
#include "model/model_forms.h"
#include "run/run_options.h"
#include "tokenizer/tokenizer.h"
#include "weights/tensor_source.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::run {

// A model as its files describe it, and the initial placement of its experts.
struct ModelFacts {
  model::ModelConfig config;
  model::ModelForms forms;  // of the matrices in memory
  balance::ModelPlacement placement;
};

struct RunInputs {
  const kernels::Kernels* kernels = nullptr;
  ModelFacts model;
  std::optional<tokenizer::Tokenizer> tokenizer;       // nullopt: the model has none and needs none
  std::optional<model::ModelFiles> files;              // nullopt: weights are random
  std::unique_ptr<weights::TensorSource> own_tensors;  // random, or a benchmark's

  const weights::TensorSource& tensors() const { return files ? files->tensors() : *own_tensors; }
  // Lines for the user about the model's files: of the configuration and of the tokenizer.
  std::vector<std::string> notes() const;
};

// Adds the prediction layer to the model if it drafts (speculative_config). Errors (invalid input):
// the model has none that wideep can run, or settings of drafts do not fit the model.
Status add_prediction(const parallel::ParallelConfig& settings, model::ModelConfig* config);

// Errors (invalid input): files that are missing or wrong, and settings that do not fit them.
Result<RunInputs> read_run_inputs(const RunOptions& options);

// The build and the model, as far as they decide the bits of what is computed; of the weights those
// that are open.
transport::Settings what_computes(const RunOptions& options, const RunInputs& inputs);

// What all ranks of a run must have in common beside their plans: the build and the files, of the
// weights those that are open.
transport::Settings fingerprints(const RunOptions& options, const RunInputs& inputs);

// Checkpoint bytes that loading will read, over all ranks: dense weights once; the expert of each
// slot, or with a host pool each expert once. 0 for random weights.
uint64_t bytes_to_load(const RunInputs& inputs, bool has_host_pool);

}  // namespace wideep::run
