// SPDX-License-Identifier: Apache-2.0
//
// Three kinds of keys: those that are read, those that change no text, and the rest, which are
// named unless they have the value with which they do nothing. The tables list the second kind and
// these values, so that a key that is new in transformers is named and not passed over.
#include "run/sampling_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "formats/json.h"
#include "formats/json_text.h"
#include "model/config/model_path.h"
#include "tensor_files/gguf.h"

namespace wideep::run {
namespace {

using formats::JsonObject;
using nlohmann::json;

constexpr int kMaxTokens = 1 << 24;
constexpr double kAboveZero = std::numeric_limits<float>::min();

// Those that change no text, or are read elsewhere (model/config/config_reader.cc).
constexpr std::string_view kWithoutEffect[] = {
    "_from_model_config",
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_lookbehind",
    "bos_token_id",
    "cache_config",
    "cache_implementation",
    "chat_format",
    "compile_config",
    "decoder_start_token_id",
    "disable_compile",
    "eos_token_id",
    "is_assistant",
    "low_memory",
    "max_matching_ngram_size",
    "max_window_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "pad_token_id",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "remove_invalid_values",
    "renormalize_logits",
    "return_dict_in_generate",
    "return_legacy_cache",
    "target_lookbehind",
    "transformers_version",
    "use_cache",
};

// The values with which the others change nothing: transformers' defaults.
const std::pair<std::string_view, json> kNeutral[] = {
    {"diversity_penalty", 0},
    {"early_stopping", false},
    {"encoder_no_repeat_ngram_size", 0},
    {"encoder_repetition_penalty", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"frequency_penalty", 0},
    {"guidance_scale", 1},
    {"length_penalty", 1},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"no_repeat_ngram_size", 0},
    {"num_beam_groups", 1},
    {"num_beams", 1},
    {"num_return_sequences", 1},
    {"penalty_alpha", 0},
    {"presence_penalty", 0},
    {"token_healing", false},
    {"typical_p", 1},
};

bool changes_nothing(std::string_view key, const json& value) {
  const bool is_empty = (value.is_array() || value.is_object()) && value.empty();
  if (value.is_null() || is_empty) return true;
  if (std::ranges::find(kWithoutEffect, key) != std::end(kWithoutEffect)) return true;
  return std::ranges::any_of(
      kNeutral, [&](const auto& each) { return each.first == key && each.second == value; });
}

// "num_beams 4"; long lists without their elements.
std::string named(std::string_view key, const json& value) {
  constexpr size_t kMaxShown = 40;
  const std::string text = formats::json_text(value);
  return fmt::format("{} {}", base::printable(std::string(key), 60),
                     text.size() <= kMaxShown ? text : "…");
}

std::optional<float> read_number(const JsonObject& root, std::string_view key, double min,
                                 double max) {
  if (!root.has(key)) return {};
  return static_cast<float>(root.number(key, {.min = min, .max = max}));
}

// −1: all tokens, as 0.
std::optional<int> read_top_k(const JsonObject& root) {
  if (!root.has("top_k")) return {};
  return static_cast<int>(
      std::max<int64_t>(0, root.integer("top_k", {.min = -1, .max = kMaxTokens})));
}

Result<SamplingDefaults> read_file(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const formats::JsonDocument document, formats::JsonDocument::read(path));
  const JsonObject root = document.root();
  SamplingDefaults defaults{
      .temperature = read_number(root, "temperature", 0, 100),
      .top_p = read_number(root, "top_p", kAboveZero, 1),
      .min_p = read_number(root, "min_p", 0, 1),
      .repetition_penalty = read_number(root, "repetition_penalty", kAboveZero, 100),
      .top_k = read_top_k(root),
      .max_tokens = {},
      .source = path};
  // A card that says greedy means it, whatever temperature it has for those who want to sample.
  if (!root.boolean_or("do_sample", true)) defaults.temperature = 0.0f;
  if (root.has("max_new_tokens")) {
    defaults.max_tokens =
        static_cast<int>(root.integer("max_new_tokens", {.min = 1, .max = kMaxTokens}));
  }
  WIDEEP_TRY(document.status());
  for (const std::string& key : root.unasked_keys()) {
    const json& value = root.raw().at(key);
    if (!changes_nothing(key, value)) defaults.not_followed.push_back(named(key, value));
  }
  return defaults;
}

// ---- GGUF ----

constexpr std::string_view kGgufKeys = "general.sampling.";

Result<std::optional<float>> gguf_number(const tensor_files::GgufFile& file, std::string_view name,
                                         double min, double max) {
  const std::string key = std::string(kGgufKeys) + std::string(name);
  const tensor_files::GgufValue* value = file.find(key);
  if (value == nullptr) return std::optional<float>();
  const auto number = value->is_list() ? std::nullopt : value->number();
  if (number && *number >= min && *number <= max) {
    return std::optional(static_cast<float>(*number));
  }
  return invalid_input(fmt::format("{}: {}: expected a number from {} to {}, found {}", file.path(),
                                   key, min, max,
                                   number ? fmt::format("{}", *number) : value->describe()));
}

// What llama.cpp's samplers beyond ours would do, unless they are switched off.
std::vector<std::string> other_gguf_samplers(const tensor_files::GgufFile& file) {
  constexpr std::string_view kKnown[] = {"temp", "top_k", "top_p", "min_p", "penalty_repeat"};
  // These say how one of the others works.
  constexpr std::pair<std::string_view, std::string_view> kDetails[] = {
      {"penalty_last_n", "penalty_repeat"},
      {"xtc_threshold", "xtc_probability"},
      {"mirostat_tau", "mirostat"},
      {"mirostat_eta", "mirostat"}};
  const auto is_on = [&](std::string_view name) {
    const tensor_files::GgufValue* value = file.find(std::string(kGgufKeys) + std::string(name));
    if (value == nullptr) return false;
    const auto number = value->is_list() ? std::nullopt : value->number();
    return !number || *number != (name == "penalty_repeat" ? 1.0 : 0.0);
  };
  std::vector<std::string> names;
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(kGgufKeys)) continue;
    const std::string_view name = std::string_view(key).substr(kGgufKeys.size());
    if (std::ranges::find(kKnown, name) != std::end(kKnown)) continue;
    const auto detail =
        std::ranges::find_if(kDetails, [&](const auto& each) { return each.first == name; });
    if (is_on(detail == std::end(kDetails) ? name : detail->second)) names.emplace_back(name);
  }
  return names;
}

Result<SamplingDefaults> read_gguf(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const tensor_files::GgufFiles files, tensor_files::GgufFiles::open(path));
  const tensor_files::GgufFile& file = files.first();
  SamplingDefaults defaults;
  defaults.source = file.path();
  WIDEEP_TRY_ASSIGN(defaults.temperature, gguf_number(file, "temp", 0, 100));
  WIDEEP_TRY_ASSIGN(defaults.top_p, gguf_number(file, "top_p", kAboveZero, 1));
  WIDEEP_TRY_ASSIGN(defaults.min_p, gguf_number(file, "min_p", 0, 1));
  WIDEEP_TRY_ASSIGN(defaults.repetition_penalty,
                    gguf_number(file, "penalty_repeat", kAboveZero, 100));
  WIDEEP_TRY_ASSIGN(const auto top_k, gguf_number(file, "top_k", -1, kMaxTokens));
  if (top_k) defaults.top_k = std::max(0, static_cast<int>(*top_k));
  defaults.not_followed = other_gguf_samplers(file);
  return defaults;
}

}  // namespace

void SamplingDefaults::apply(engine::SamplingParams* params) const {
  params->temperature = temperature.value_or(params->temperature);
  params->top_p = top_p.value_or(params->top_p);
  params->min_p = min_p.value_or(params->min_p);
  params->repetition_penalty = repetition_penalty.value_or(params->repetition_penalty);
  params->top_k = top_k.value_or(params->top_k);
}

std::vector<std::string> SamplingDefaults::lines() const {
  std::vector<std::string> given;
  const auto add = [&](std::string_view name, const auto& value) {
    if (value) given.push_back(fmt::format("{} {}", name, *value));
  };
  add("temperature", temperature);
  add("top_k", top_k);
  add("top_p", top_p);
  add("min_p", min_p);
  add("repetition_penalty", repetition_penalty);
  std::vector<std::string> lines;
  if (!given.empty()) {
    lines.push_back(
        fmt::format("what a request does not say is {}, as {} has it "
                    "(--generation-config none: without)",
                    fmt::join(given, ", "), source));
  }
  if (max_tokens) {
    lines.push_back(
        fmt::format("an answer has at most {} tokens, max_new_tokens of {}", *max_tokens, source));
  }
  if (!not_followed.empty()) {
    lines.push_back(fmt::format("{}: not followed, though it would change texts: {}", source,
                                fmt::join(not_followed, ", ")));
  }
  return lines;
}

Result<SamplingDefaults> read_sampling_defaults(const std::string& model_dir,
                                                const std::string& from) {
  if (from == "none") return SamplingDefaults();
  const bool is_models = from == "auto";
  if (is_models && tensor_files::is_gguf(model_dir)) {
    WIDEEP_TRY(model::check_model_path(model_dir));  // else the first reader's message would win
    return read_gguf(model_dir);
  }
  const std::string path =
      std::filesystem::path(is_models ? model_dir : from) / "generation_config.json";
  std::error_code absent;
  if (std::filesystem::exists(path, absent)) return read_file(path);
  if (is_models) return SamplingDefaults();
  return invalid_input(fmt::format(
      "--generation-config: expected auto, none, or a directory with generation_config.json, found "
      "'{}'",
      base::printable(from, 80)));
}

}  // namespace wideep::run
