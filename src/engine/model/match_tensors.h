// SPDX-License-Identifier: Apache-2.0
//
// Compares the tensors of a checkpoint with its config.json before anything is loaded. Loading asks
// for the tensors that it needs; what else the files hold would be ignored silently, and the model
// might be another one than the files say.
//
// Thread safety: pure function.
#pragma once

#include <span>
#include <string>

#include "model/config/config.h"
#include "weights/tensor_source.h"

namespace wideep::model {

// files: the tensors as the files name them. names: of all of them. where: the begin of messages.
//
// Decides, as transformers does, which tensors are embedding and LM head of a config with
// tie_word_embeddings: a head of its own is used if it differs from the embedding, and a file with
// the head only has the embedding under that name. Sets both in the config.
//
// Appends to config->notes: such a decision, and tensors that are not used.
//
// Errors (invalid input): a tensor that the configuration excludes (layers beyond
// num_hidden_layers, experts beyond n_routed_experts, shared experts, biases); a scale beside a
// matrix that has none; a whole model in a layout that is not read. A single missing
// tensor is left to loading.
Status match_tensors(const weights::TensorSource& files, std::span<const std::string> names,
                     const std::string& where, ModelConfig* config);

}  // namespace wideep::model
