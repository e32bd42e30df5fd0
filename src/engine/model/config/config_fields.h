// SPDX-License-Identifier: Apache-2.0
//
// The parts of reading config.json: one function per group of keys. A reader fills its fields of
// the config and records errors in the document. A check compares fields after all of them were
// read without errors.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"
#include "model/config/config.h"

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

// Sets stored_format and declared from quantization_config, if there is one. Records an error for
// formats that wideep does not read, and for keys that change what the tensors mean. Adds a line to
// config->notes that names keys that are not known. file: for the line.
void read_quantization(const formats::JsonObject& root, const std::string& file,
                       ModelConfig* config);

// The same from files that lie beside a config.json without a quantization_config: ModelOpt's
// hf_quant_config.json and AutoGPTQ's quantize_config.json. Without them, or without a method in
// them, *config is unchanged. Errors (invalid input): a method that wideep does not read.
Status read_quantization_beside(const std::string& model_dir, ModelConfig* config);

// Whether a key of quantization_config stands for a transform that the tensors do not show: weights
// may be rotated, so that inputs must be, too.
bool is_weight_transform(std::string_view key);
// Whether a value says nothing: null, false, empty, or an object of such values.
bool says_nothing(const nlohmann::json& value);

// rope_theta and rope_scaling, or rope_parameters, or both when they agree.
// theta_by_default: of a file without theta; 0: theta is required. more_keys: of the same object,
// which the caller reads.
// REQUIRES: config has its attention and max_position_embeddings.
RopeConfig read_rope(const formats::JsonObject& root, const ModelConfig& config,
                     double theta_by_default = 0, std::span<const std::string_view> more_keys = {});

// The rotary parameters of one object in rope_parameters, for layers of a kind.
// theta_by_default: of an object without theta; 0: theta is required.
RopeConfig read_rope_object(const formats::JsonObject& root, const formats::JsonObject& rope,
                            const ModelConfig& config, double theta_by_default = 0);
// Those of rope_type proportional: a share of the pairs rotates, at the frequencies of whole heads.
RopeConfig read_proportional_rope(const formats::JsonObject& rope, int head_dim);

// max_position_embeddings, or the original positions times the factor of a rotary scaling that
// states both, if that is more: the usual way to switch YaRN on leaves the former as it is.
// REQUIRES: nothing of the other values.
int usable_positions(const formats::JsonObject& root, int positions);

// The words of a list with one for each layer, without those beyond the last layer; empty if the
// key is absent. Records an error for anything but a list of strings.
std::vector<std::string> read_layer_words(const formats::JsonObject& root, std::string_view key,
                                          int num_layers);

// The keys of the object that nothing has asked for and that are not known to be without effect on
// the result, printable.
std::vector<std::string> unknown_keys(const formats::JsonObject& root);

// Adds a line to config->notes that names the unknown keys. file: for the line.
void note_unknown_keys(const formats::JsonObject& root, const std::string& file,
                       ModelConfig* config);

// Whether nothing has recorded an error yet, so that values can be compared.
inline bool readable(const formats::JsonObject& root) { return root.is_valid(); }

// Record an error for any other value than `only`; an absent key is accepted.
void require_word(const formats::JsonObject& root, std::string_view key, const std::string& only);
void require_flag(const formats::JsonObject& root, std::string_view key, bool only);

// Records an error for an odd head size, which cannot be split into rotary pairs.
void check_even(const formats::JsonObject& root, std::string_view key, int value);

}  // namespace wideep::model
