// SPDX-License-Identifier: Apache-2.0
//
// Each family's reader reads the file, and what it asks for is compared with what is there. Keys of
// the file that a family does not read weigh most, since they are what is to be added; of two
// families with as many, the one that takes the values is nearer, then the one that asks for fewer
// keys that the file lacks.
#include "model/config/nearest_family.h"

#include <algorithm>

#include "formats/complaint.h"
#include "model/config/config_fields.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// What config_reader.cc reads of every family.
constexpr const char* kCommonKeys[] = {
    "architectures",       "bos_token_id",        "dtype",       "eos_token_id",
    "hidden_size",         "mlp_layer_types",     "model_type",  "num_attention_heads",
    "num_hidden_layers",   "rms_norm_eps",        "torch_dtype", "max_position_embeddings",
    "quantization_config", "tie_word_embeddings", "vocab_size"};

// Of fewer keys nothing is said.
constexpr size_t kFewest = 6;

int valid_or(const nlohmann::json& text, const char* key, int64_t max, int otherwise) {
  formats::Complaint ignored("");
  const JsonObject object(&text, "", &ignored);
  const int found = positive(object, key, max);
  return ignored.status().ok() ? found : otherwise;
}

struct Reading {
  std::vector<std::string> unread;
  size_t num_read = 0;
  bool has_experts = false;
  bool takes_values = false;
  size_t num_lacking = 0;  // keys that the family asks for and the file does not have
};

Reading read_as(const Family& family, const nlohmann::json& text) {
  formats::Complaint ignored("");
  JsonObject::Asked asked;
  const JsonObject object(&text, "", &ignored, &asked);
  ModelConfig config;
  config.family = family.model_type;
  config.vocab_size = valid_or(text, "vocab_size", kMaxVocab, 32000);
  config.hidden_size = valid_or(text, "hidden_size", kMaxHidden, 4096);
  config.num_layers = valid_or(text, "num_hidden_layers", kMaxLayers, 32);
  config.num_heads = valid_or(text, "num_attention_heads", kMaxHeads, 32);
  config.max_position_embeddings = valid_or(text, "max_position_embeddings", kMaxPositions, 4096);
  config.layers.resize(static_cast<size_t>(config.num_layers));
  family.read(object, &config);
  Reading reading;
  reading.has_experts = config.has_experts();
  reading.takes_values = ignored.status().ok();
  reading.num_lacking = static_cast<size_t>(std::ranges::count_if(asked, [&](const auto& key) {
    return key.find('.') == std::string::npos && !object.has(key);
  }));
  for (const char* key : kCommonKeys) object.has(key);
  for (const std::string_view key :
       {family.hidden, family.heads, family.layers, family.positions}) {
    object.has(key);
  }
  reading.unread = unknown_keys(object);
  for (const auto& [key, value] : text.items()) {
    if (asked.contains(key) && !value.is_null()) ++reading.num_read;
  }
  return reading;
}

bool is_nearer(const Reading& a, const Reading& b) {
  if (a.unread.size() != b.unread.size()) return a.unread.size() < b.unread.size();
  if (a.takes_values != b.takes_values) return a.takes_values;
  return a.num_lacking < b.num_lacking;
}

}  // namespace

std::optional<NearestFamily> nearest_family(const JsonObject& root, bool has_experts) {
  const auto within = root.raw().find("text_config");
  const bool wrapped = within != root.raw().end() && within->is_object();
  const nlohmann::json& text = wrapped ? *within : root.raw();
  std::optional<Reading> best;
  const Family* nearest = nullptr;
  for (const Family& family : families()) {
    Reading reading = read_as(family, text);
    if (reading.has_experts != has_experts) continue;
    if (best && !is_nearer(reading, *best)) continue;
    best = std::move(reading);
    nearest = &family;
  }
  const size_t at_least = std::max(kFewest, best ? best->unread.size() + 1 : 0);
  if (!best || best->num_read < at_least) return std::nullopt;
  return NearestFamily{nearest, std::move(best->unread)};
}

}  // namespace wideep::model
