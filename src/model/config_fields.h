// SPDX-License-Identifier: Apache-2.0
//
// The parts of reading config.json: one function per group of keys. A reader fills its fields of
// the config and records errors in the document. A check compares fields after all of them were
// read without errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"
#include "model/config.h"

namespace wideep::model {

// Limits far above any published model, so that products of sizes do not overflow.
inline constexpr int64_t kMaxHidden = 65536;
inline constexpr int64_t kMaxIntermediate = 1 << 20;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 4096;
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxSharedExperts = 64;
inline constexpr int64_t kMaxVocab = 1 << 24;
inline constexpr int64_t kMaxPositions = 0x7fffffff;

// An integer from 1 to `max`.
inline int positive(const formats::JsonObject& object, std::string_view key, int64_t max) {
  return static_cast<int>(object.integer(key, {.min = 1, .max = max}));
}

// The keys of each architecture, and the conditions between them.
void read_deepseek_v3(const formats::JsonObject& root, ModelConfig* config);
void check_deepseek_v3(const formats::JsonObject& root, const ModelConfig& config);
void read_qwen3_moe(const formats::JsonObject& root, ModelConfig* config);
void check_qwen3_moe(const formats::JsonObject& root, const ModelConfig& config);

// The storage format of matrices from quantization_config; bf16 without one. Records an error for
// formats that wideep does not read.
kernels::WeightFormat read_quantization(const formats::JsonObject& root);

// rope_theta and rope_scaling, or rope_parameters, or both when they agree.
// REQUIRES: config has its architecture and max_position_embeddings.
RopeConfig read_rope(const formats::JsonObject& root, const ModelConfig& config);

// The words of a list with one for each layer, without those beyond the last layer; empty if the
// key is absent. Records an error for anything but a list of strings.
std::vector<std::string> read_layer_words(const formats::JsonObject& root, std::string_view key,
                                          int num_layers);

// Adds a line to config->notes that names the keys of config.json that nothing reads and that are
// not known to be without effect on the result. file: for the line.
void note_unknown_keys(const formats::JsonObject& root, const std::string& file,
                       ModelConfig* config);

// Record an error for any other value than `only`; an absent key is accepted.
void require_word(const formats::JsonObject& root, std::string_view key, const std::string& only);
void require_flag(const formats::JsonObject& root, std::string_view key, bool only);

// Records an error for an odd head size, which cannot be split into rotary pairs.
void check_even(const formats::JsonObject& root, std::string_view key, int value);

}  // namespace wideep::model
