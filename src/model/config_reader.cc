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

// Entries beyond the last layer belong to a longer model and have no effect.
void require_full_attention(const JsonObject& root, int num_layers) {
  for (const std::string& type : read_layer_words(root, "layer_types", num_layers)) {
    if (type == "full_attention" || type == "attention") continue;
    root.complain("layer_types", fmt::format("expected only full_attention, found {}; wideep "
                                             "computes no other",
                                             base::printable(type)));
  }
}

// A window whose size is null is none. (Without the key, transformers takes a default size.)
void refuse_sliding_window(const JsonObject& root) {
  const auto size = root.raw().find("sliding_window");
  if (size != root.raw().end() && size->is_null()) {
    root.boolean_or("use_sliding_window", false);
  } else {
    require_flag(root, "use_sliding_window", false);
  }
}

void require_silu(const JsonObject& root) {
  if (root.string_or("hidden_act", "silu") != "swish") require_word(root, "hidden_act", "silu");
}

// Features of other models that wideep does not support.
void refuse_features(const JsonObject& root) {
  require_silu(root);
  for (const char* key : {"attention_bias", "qkv_bias", "mlp_bias"}) require_flag(root, key, false);
  refuse_sliding_window(root);
}

// The dtype is a hint for transformers: wideep reads each tensor as it is stored. All names of
// PyTorch for floats are accepted, so that a misspelt or unsupported dtype is still found.
void check_dtype(const JsonObject& root, std::string_view key) {
  constexpr std::string_view kTorch = "torch.";
  const std::string found = root.string_or(key, "bfloat16");
  const std::string dtype = found.starts_with(kTorch) ? found.substr(kTorch.size()) : found;
  for (const char* known :
       {"bfloat16", "float32", "float16", "float64", "auto", "float", "half", "double"}) {
    if (dtype == known) return;
  }
  root.complain(
      key, fmt::format("expected bfloat16, float32 or float16, found {}", base::printable(found)));
}

bool is_token(int64_t id, int vocab_size) { return id >= 0 && id < vocab_size; }

std::string no_such_token(const std::string& file, std::string_view key, int64_t id,
                          int vocab_size) {
  return fmt::format("{}: {}: {} is not a token of the model (0 to {}), so it has no effect", file,
                     key, id, vocab_size - 1);
}

// eos_token_id: one id, a list of them, or absent. An id that the model cannot produce never ends a
// text; -1 is a usual way to write "none".
std::vector<int> read_end_tokens(const JsonObject& root, const std::string& file,
                                 ModelConfig* config) {
  constexpr std::string_view kKey = "eos_token_id";
  if (!root.has(kKey)) return {};
  const bool is_list = root.raw().at(kKey).is_array();
  std::vector<int> ends;
  for (const int64_t id : is_list ? root.integers(kKey) : std::vector{root.integer(kKey)}) {
    if (is_token(id, config->vocab_size)) {
      ends.push_back(static_cast<int>(id));
    } else {
      config->notes.push_back(no_such_token(file, kKey, id, config->vocab_size));
    }
  }
  return ends;
}

int read_begin_token(const JsonObject& root, const std::string& file, ModelConfig* config) {
  constexpr std::string_view kKey = "bos_token_id";
  if (!root.has(kKey)) return -1;
  const int64_t id = root.integer(kKey);
  if (is_token(id, config->vocab_size)) return static_cast<int>(id);
  config->notes.push_back(no_such_token(file, kKey, id, config->vocab_size));
  return -1;
}

void read_tokens(const JsonObject& root, const std::string& file, ModelConfig* config) {
  config->vocab_size = positive(root, "vocab_size", kMaxVocab);
  config->bos_token_id = read_begin_token(root, file, config);
  config->eos_token_ids = read_end_tokens(root, file, config);
  config->tie_word_embeddings = root.boolean_or("tie_word_embeddings", false);
}

void read_common(const JsonObject& root, const std::string& file, ModelConfig* config) {
  read_tokens(root, file, config);
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
  require_full_attention(root, config->num_layers);
}

// mlp_layer_types repeats, as words, what other keys say.
void check_layer_types(const JsonObject& root, const ModelConfig& config) {
  const std::vector<std::string> types =
      read_layer_words(root, "mlp_layer_types", config.num_layers);
  for (size_t layer = 0; layer < types.size(); ++layer) {
    const char* expected = config.is_moe_layer[layer] ? "sparse" : "dense";
    if (types[layer] == expected) continue;
    root.complain(fmt::format("mlp_layer_types[{}]", layer),
                  fmt::format("expected {}, as the other keys say, found {}", expected,
                              base::printable(types[layer])));
  }
}

Result<ModelConfig> read_document(const JsonDocument& document, const std::string& file) {
  const JsonObject root = document.root();
  ModelConfig config;
  config.architecture = read_architecture(root);
  WIDEEP_TRY(document.status());
  refuse_features(root);
  read_common(root, file, &config);
  config.stored_format = read_quantization(root);
  WIDEEP_TRY(document.status());

  const bool deepseek = config.architecture == Architecture::kDeepseekV3;
  deepseek ? read_deepseek_v3(root, &config) : read_qwen3_moe(root, &config);
  config.rope = read_rope(root, config);
  WIDEEP_TRY(document.status());

  deepseek ? check_deepseek_v3(root, config) : check_qwen3_moe(root, config);
  check_layer_types(root, config);
  WIDEEP_TRY(document.status());
  note_unknown_keys(root, file, &config);
  return config;
}

// generation_config.json overrides the end tokens: a chat model may end a turn with another token
// than a text.
Status read_generation_config(const std::string& path, ModelConfig* config) {
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return {};
  WIDEEP_TRY_ASSIGN(const JsonDocument document, JsonDocument::read(path));
  const JsonObject root = document.root();
  read_begin_token(root, path, config);  // only reported: prompts begin as the tokenizer says
  if (!root.has("eos_token_id")) return document.status();
  config->eos_token_ids = read_end_tokens(root, path, config);
  return document.status();
}

}  // namespace

Result<ModelConfig> parse_model_config(const std::string& json, const std::string& name) {
  WIDEEP_TRY_ASSIGN(const JsonDocument document, JsonDocument::parse(json, name));
  return read_document(document, name);
}

Result<ModelConfig> read_model_config(const std::string& model_dir) {
  const std::filesystem::path dir = model_dir;
  const std::string file = dir / "config.json";
  WIDEEP_TRY_ASSIGN(const JsonDocument document, JsonDocument::read(file));
  WIDEEP_TRY_ASSIGN(ModelConfig config, read_document(document, file));
  WIDEEP_TRY(read_generation_config(dir / "generation_config.json", &config));
  return config;
}

std::vector<std::string> read_layer_words(const JsonObject& root, std::string_view key,
                                          int num_layers) {
  if (!root.has(key)) return {};
  const nlohmann::json& list = root.raw().at(std::string(key));
  std::vector<std::string> words;
  for (const nlohmann::json& word : list.is_array() ? list : nlohmann::json::array({nullptr})) {
    if (!word.is_string()) {
      root.complain(key, "expected a list of a word for each layer");
      return {};
    }
    if (static_cast<int>(words.size()) < num_layers) words.push_back(word.get<std::string>());
  }
  return words;
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
