// SPDX-License-Identifier: Apache-2.0
//
// The order of a description: family → tokens and sizes → quantization → the family's own keys →
// checks of what several keys say → keys that nobody has asked for. A reader records its error and
// goes on; after each part read_document() returns the first one. So a part may use what the parts
// before it have read without checking it again, and one wrong key yields one message, not ten.
#include "model/config/config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>

#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/json.h"
#include "formats/python_json.h"
#include "model/config/architecture.h"
#include "model/config/config_fields.h"
#include "model/config/model_path.h"
#include "model/config/null_keys.h"
#include "model/families/family.h"
#include "model/gguf/gguf_config.h"

namespace wideep::model {
namespace {

using formats::JsonDocument;
using formats::JsonObject;

// Files that Python has written may have numbers that JSON does not.
Result<JsonDocument> parse_python(std::string text, const std::string& name) {
  formats::quote_python_numbers(&text);
  return JsonDocument::parse(text, name);
}

Result<JsonDocument> read_python(const std::string& path) {
  WIDEEP_TRY_ASSIGN(std::string text, formats::read_file(path));
  return parse_python(std::move(text), path);
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

// Wrappers of several modalities may have some of these keys outside the text model's object.
const JsonObject& with_key(const JsonObject& text, const JsonObject& root, std::string_view key) {
  return text.has(key) ? text : root;
}

// Records an error if both have the key, with different values.
void refuse_two(const JsonObject& text, const JsonObject& root, std::string_view key) {
  if (&text.raw() == &root.raw() || !text.has(key) || !root.has(key)) return;
  const std::string name(key);
  if (text.raw().at(name) == root.raw().at(name)) return;
  root.complain(key, "contradicts text_config's; give one of them");
}

void read_tokens(const JsonObject& text, const JsonObject& root, const std::string& file,
                 const Family& family, ModelConfig* config) {
  config->vocab_size = positive(text, "vocab_size", kMaxVocab);
  config->bos_token_id = read_begin_token(with_key(text, root, "bos_token_id"), file, config);
  config->eos_token_ids = read_end_tokens(with_key(text, root, "eos_token_id"), file, config);
  constexpr std::string_view kTied = "tie_word_embeddings";
  const JsonObject& first = family.outer_ties && root.has(kTied) ? root : text;
  config->tie_word_embeddings = with_key(first, root, kTied).boolean_or(kTied, family.ties);
}

void read_common(const JsonObject& text, const Family& family, ModelConfig* config) {
  // Under transformers' name, or the family's own.
  const auto size = [&](std::string_view usual, std::string_view own, int64_t max) {
    const std::string_view key = text.has(usual) ? usual : own;
    const int found = positive(text, key, max);
    if (key != own) expect_equal(text, own, key, found);
    return found;
  };
  constexpr Family kUsual;
  config->hidden_size = size(kUsual.hidden, family.hidden, kMaxHidden);
  config->num_layers = family.count_layers != nullptr && !text.has(kUsual.layers)
                           ? family.count_layers(text)
                           : size(kUsual.layers, family.layers, kMaxLayers);
  config->num_heads = size(kUsual.heads, family.heads, kMaxHeads);
  config->max_position_embeddings =
      usable_positions(text, size(kUsual.positions, family.positions, kMaxPositions));
  const char* epsilon =
      text.has("norm_eps") && !text.has("rms_norm_eps") ? "norm_eps" : "rms_norm_eps";
  constexpr formats::NumberRange kEpsilons = {.min = 1e-12, .max = 0.1};
  config->rms_norm_eps =
      static_cast<float>(family.norm_eps > 0 ? text.number_or(epsilon, family.norm_eps, kEpsilons)
                                             : text.number(epsilon, kEpsilons));
  check_dtype(text, "dtype");
  check_dtype(text, "torch_dtype");
}

// mlp_layer_types repeats, as words, what other keys say.
void check_layer_types(const JsonObject& root, const ModelConfig& config) {
  const std::vector<std::string> types =
      read_layer_words(root, "mlp_layer_types", config.num_layers);
  for (size_t layer = 0; layer < types.size(); ++layer) {
    const bool by_token = config.layers[layer].by_token;
    const bool is_moe = config.layers[layer].is_moe;
    const char* expected = by_token ? "hash_moe" : is_moe ? "sparse" : "dense";
    if (types[layer] == expected) continue;
    if (types[layer] == "moe" && is_moe && !by_token) continue;
    root.complain(fmt::format("mlp_layer_types[{}]", layer),
                  fmt::format("expected {}, as the other keys say, found {}", expected,
                              base::printable(types[layer])));
  }
}

// partial_rotary_factor beside the other rotary parameters: a family that does not read it rotates
// whole heads. In latent attention it is the share of the rotated part (all of it), or of the head.
void check_rotary_share(const JsonObject& root, const ModelConfig& config) {
  constexpr std::string_view kKey = "partial_rotary_factor";
  const int head = config.is_mla() ? config.qk_rope_head_dim : config.head_dim;
  const int rotary = config.is_mla() ? head : config.grouped_query.rotary_dim;
  if (head == 0) return;  // no layer rotates
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!root.has(name)) continue;
    const JsonObject rope = root.object(name);
    const double share = rope.number_or(kKey, static_cast<double>(rotary) / head);
    if (std::abs(share * head - rotary) < 1) continue;
    if (config.is_mla() && std::abs(share * config.head_dim - rotary) < 1) continue;
    rope.complain(kKey, fmt::format("found {}, but {} of the {} dimensions of a head are rotated "
                                    "(by the other keys, or by the family)",
                                    share, rotary, head));
  }
}

// The divisors of frequencies of each kind of attention: which of a head's dimensions it rotates may
// stand behind them in the file.
void check_divisors(const JsonObject& root, const ModelConfig& config) {
  for (int kind = 0; kind < config.num_attention_kinds(); ++kind) {
    const AttentionKind attention = config.attention_kind(kind);
    const auto pairs = static_cast<size_t>(
        (config.is_mla() ? config.qk_rope_head_dim : attention.options.rotary_dim) / 2);
    const size_t found = attention.rope.divisors.size();
    if (found == 0 || found == pairs) continue;
    root.complain("short_factor, long_factor",
                  fmt::format("expected lists of {} positive numbers, one for each pair of rotated "
                              "dimensions, found {}",
                              pairs, found));
  }
}

Result<ModelConfig> read_document(const JsonDocument& document, const std::string& file) {
  const JsonObject root = document.root();
  const Family* family = find_family(root);
  WIDEEP_TRY(document.status());
  const bool wrapped = root.has("text_config");
  const JsonObject text = wrapped ? root.object("text_config") : root;
  ModelConfig config;
  config.family = family->model_type;
  if (wrapped || !family->text_type.empty()) check_text_model_type(text, *family);
  read_tokens(text, root, file, *family, &config);
  read_common(text, *family, &config);
  refuse_two(text, root, "quantization_config");
  read_quantization(with_key(text, root, "quantization_config"), file, &config);
  WIDEEP_TRY(document.status());
  config.layers.resize(static_cast<size_t>(config.num_layers));
  family->read(text, &config);
  WIDEEP_TRY(document.status());
  check_layer_types(text, config);
  check_rotary_share(text, config);
  check_divisors(text, config);
  check_nulls(text, family->model_type);
  WIDEEP_TRY(document.status());
  if (wrapped) text.has("architectures");
  note_unknown_keys(text, file, &config);
  return config;
}

// generation_config.json overrides the end tokens: a chat model may end a turn with another token
// than a text.
Status read_generation_config(const std::string& path, ModelConfig* config) {
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return {};
  WIDEEP_TRY_ASSIGN(const JsonDocument document, read_python(path));
  const JsonObject root = document.root();
  read_begin_token(root, path, config);  // only reported: prompts begin as the tokenizer says
  if (!root.has("eos_token_id")) return document.status();
  config->eos_token_ids = read_end_tokens(root, path, config);
  return document.status();
}

}  // namespace

Status add_prediction_layers(int count, ModelConfig* config) {
  if (config->num_mtp_layers == 0) {
    return invalid_input(
        fmt::format("a model of {} whose files have no layers that predict further tokens "
                    "(num_nextn_predict_layers); choose another decoding_type",
                    config->family));
  }
  if (!config->names_mtp_layers) {
    return invalid_input(fmt::format(
        "{}: wideep does not know the tensors of its layers that predict further tokens; choose "
        "another decoding_type",
        config->family));
  }
  if (count > config->num_mtp_layers) {
    return invalid_input(
        fmt::format("expected at most {} drafts, a layer of config.json for each "
                    "(num_nextn_predict_layers), found {}",
                    config->num_mtp_layers, count));
  }
  config->num_prediction_layers = count;
  config->layers.resize(static_cast<size_t>(config->num_all_layers()), config->prediction_layer);
  return {};
}

Result<ModelConfig> parse_model_config(const std::string& json, const std::string& name) {
  WIDEEP_TRY_ASSIGN(const JsonDocument document, parse_python(json, name));
  return read_document(document, name);
}

Result<ModelConfig> read_model_config(const std::string& model_dir) {
  WIDEEP_TRY(check_model_path(model_dir));
  if (tensor_files::is_gguf(model_dir)) {
    WIDEEP_TRY_ASSIGN(const tensor_files::GgufFiles files,
                      tensor_files::GgufFiles::open(model_dir));
    return read_gguf_config(files);
  }
  const std::filesystem::path dir = model_dir;
  const std::string file = dir / "config.json";
  WIDEEP_TRY_ASSIGN(const JsonDocument document, read_python(file));
  WIDEEP_TRY_ASSIGN(ModelConfig config, read_document(document, file));
  constexpr std::string_view kInFile = "quantization_config";
  const JsonObject root = document.root();
  const bool in_text = root.has("text_config") && root.object("text_config").has(kInFile);
  if (!root.has(kInFile) && !in_text) {
    WIDEEP_TRY(read_quantization_beside(dir, &config));
  }
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
  if (!words.empty() && static_cast<int>(words.size()) < num_layers) {
    root.complain(key, fmt::format("expected a word for each of the {} layers, found {}",
                                   num_layers, words.size()));
    return {};
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
