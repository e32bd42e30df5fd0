// SPDX-License-Identifier: Apache-2.0
//
// What a run reads before it is planned: small files, and of the weights only names and shapes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/kernels.h"
#include "model/model_forms.h"
#include "run/run_options.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::run {

// A model as its files describe it, and where its experts are when serving begins.
struct ModelFacts {
  model::ModelConfig config;
  model::ModelForms forms;  // of the matrices in memory
  balance::ModelPlacement placement;
};

struct RunInputs {
  const kernels::Kernels* kernels = nullptr;
  ModelFacts model;
  std::optional<tokenizer::Tokenizer> tokenizer;  // nothing: none was needed, and there is none
  std::unique_ptr<weights::TensorSource> tensors;
  const weights::Checkpoint* checkpoint = nullptr;  // the tensors; null: they are made up
};

// Errors (invalid input): files that are missing or wrong, and settings that do not fit them.
Result<RunInputs> read_run_inputs(const RunOptions& options);

// What started ranks must have alike beside their plans: this build and these files.
transport::Settings fingerprints(const RunOptions& options, const RunInputs& inputs);

// Checkpoint bytes that loading will read, of all ranks together: dense weights once; each slot's
// expert, or with a host pool each expert once. 0: weights are made up.
uint64_t bytes_to_load(const RunInputs& inputs, bool has_host_pool);

}  // namespace wideep::run
