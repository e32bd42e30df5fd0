// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/printable.h"
#include "base/try.h"
#include "formats/json.h"
#include "model/config_fields.h"

namespace wideep::model {
namespace {

using formats::JsonDocument;
using formats::JsonObject;

struct ArchitectureName {
  Architecture architecture;
  const char* class_name;  // of "architectures"
  const char* model_type;  // of "model_type", where "architectures" is absent
};

constexpr std::array kArchitectures = {
    ArchitectureName{Architecture::kDeepseekV3, "DeepseekV3ForCausalLM", "deepseek_v3"},
    ArchitectureName{Architecture::kQwen3Moe, "Qwen3MoeForCausalLM", "qwen3_moe"},
};

std::string supported_architectures() {
  std::vector<std::string> names;
  for (const ArchitectureName& known : kArchitectures) names.emplace_back(known.class_name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// The first of "architectures": the class that computes the checkpoint.
std::string architecture_class(const JsonObject& root) {
  if (!root.has("architectures")) return "";
  const nlohmann::json& list = root.raw().at("architectures");
  if (list.is_array() && !list.empty() && list[0].is_string()) return list[0].get<std::string>();
  root.complain("architectures", "expected a list that begins with a class name");
  return "";
}

Architecture read_architecture(const JsonObject& root) {
  const std::string class_name = architecture_class(root);
  const std::string model_type = root.string_or("model_type", "");
  for (const ArchitectureName& known : kArchitectures) {
    if (class_name == known.class_name) return known.architecture;
    if (class_name.empty() && model_type == known.model_type) return known.architecture;
  }
  const bool by_class = !class_name.empty() || model_type.empty();
  const std::string& name = by_class ? class_name : model_type;
  root.complain(by_class ? "architectures" : "model_type",
                fmt::format("{}; supported: {}",
                            name.empty() ? "missing" : base::printable(name) + " is not supported",
                            supported_architectures()));
  return Architecture::kDeepseekV3;
}

void require_full_attention(const JsonObject& root) {
  if (!root.has("layer_types")) return;
  const nlohmann::json& types = root.raw().at("layer_types");
  const bool full = types.is_array() && std::all_of(types.begin(), types.end(), [](const auto& t) {
                      return t == "full_attention";
                    });
  if (!full) root.complain("layer_types", "expected only full_attention; wideep computes no other");
}

// Features of other models that wideep does not support.
void refuse_features(const JsonObject& root) {
  require_word(root, "hidden_act", "silu");
  for (const char* key : {"attention_bias", "qkv_bias", "mlp_bias", "use_sliding_window"}) {
    require_flag(root, key, false);
  }
  require_full_attention(root);
}

void check_dtype(const JsonObject& root, std::string_view key) {
  const std::string dtype = root.string_or(key, "bfloat16");
  for (const char* known : {"bfloat16", "float32", "float16"}) {
    if (dtype == known) return;
  }
  root.complain(
      key, fmt::format("expected bfloat16, float32 or float16, found {}", base::printable(dtype)));
}

// eos_token_id: one id, a list of them, or absent.
std::vector<int> read_end_tokens(const JsonObject& root, int vocab_size) {
  constexpr std::string_view kKey = "eos_token_id";
  const formats::IntegerRange range = {.min = 0, .max = vocab_size - 1};
  if (!root.has(kKey)) return {};
  if (!root.raw().at(kKey).is_array()) return {static_cast<int>(root.integer(kKey, range))};
  const std::vector<int64_t> ids = root.integers(kKey, range);
  return {ids.begin(), ids.end()};
}

void read_tokens(const JsonObject& root, ModelConfig* config) {
  config->vocab_size = positive(root, "vocab_size", kMaxVocab);
  config->bos_token_id = static_cast<int>(
      root.integer_or("bos_token_id", -1, {.min = 0, .max = config->vocab_size - 1}));
  config->eos_token_ids = read_end_tokens(root, config->vocab_size);
  config->tie_word_embeddings = root.boolean_or("tie_word_embeddings", false);
}

void read_common(const JsonObject& root, ModelConfig* config) {
  read_tokens(root, config);
  config->hidden_size = positive(root, "hidden_size", kMaxHidden);
  config->num_layers = positive(root, "num_hidden_layers", kMaxLayers);
  config->num_heads = positive(root, "num_attention_heads", kMaxHeads);
  config->max_position_embeddings = positive(root, "max_position_embeddings", kMaxPositions);
  config->rms_norm_eps =
      static_cast<float>(root.number("rms_norm_eps", {.min = 1e-12, .max = 0.1}));
  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  config->moe_intermediate_size = positive(root, "moe_intermediate_size", kMaxIntermediate);
  check_dtype(root, "dtype");
  check_dtype(root, "torch_dtype");
}

Result<ModelConfig> read_document(const JsonDocument& document) {
  const JsonObject root = document.root();
  ModelConfig config;
  config.architecture = read_architecture(root);
  WIDEEP_TRY(document.status());
  refuse_features(root);
  read_common(root, &config);
  config.stored_format = read_quantization(root);
  WIDEEP_TRY(document.status());

  const bool deepseek = config.architecture == Architecture::kDeepseekV3;
  deepseek ? read_deepseek_v3(root, &config) : read_qwen3_moe(root, &config);
  config.rope = read_rope(root, config);
  WIDEEP_TRY(document.status());

  deepseek ? check_deepseek_v3(root, config) : check_qwen3_moe(root, config);
  WIDEEP_TRY(document.status());
  return config;
}

// generation_config.json overrides the end tokens: a chat model may end a turn with another token
// than a text.
Status read_generation_config(const std::string& path, ModelConfig* config) {
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return {};
  WIDEEP_TRY_ASSIGN(const JsonDocument document, JsonDocument::read(path));
  const JsonObject root = document.root();
  if (!root.has("eos_token_id")) return {};
  config->eos_token_ids = read_end_tokens(root, config->vocab_size);
  return document.status();
}

}  // namespace

Result<ModelConfig> parse_model_config(const std::string& json, const std::string& name) {
  WIDEEP_TRY_ASSIGN(const JsonDocument document, JsonDocument::parse(json, name));
  return read_document(document);
}

Result<ModelConfig> read_model_config(const std::string& model_dir) {
  const std::filesystem::path dir = model_dir;
  WIDEEP_TRY_ASSIGN(const JsonDocument document, JsonDocument::read(dir / "config.json"));
  WIDEEP_TRY_ASSIGN(ModelConfig config, read_document(document));
  WIDEEP_TRY(read_generation_config(dir / "generation_config.json", &config));
  return config;
}

void require_word(const JsonObject& root, std::string_view key, const std::string& only) {
  const std::string found = root.string_or(key, only);
  if (found == only) return;
  root.complain(key, fmt::format("expected {}, found {}; wideep computes no other", only,
                                 base::printable(found)));
}

void require_flag(const JsonObject& root, std::string_view key, bool only) {
  if (root.boolean_or(key, only) == only) return;
  root.complain(key, fmt::format("expected {}, found {}; wideep computes no other", only, !only));
}

void check_even(const JsonObject& root, std::string_view key, int value) {
  if (value % 2 == 0) return;
  root.complain(key, fmt::format("expected an even size (rotary pairs), found {}", value));
}

}  // namespace wideep::model
