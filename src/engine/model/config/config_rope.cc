// SPDX-License-Identifier: Apache-2.0
//
// Reads the rotary parameters as transformers does: from rope_theta and rope_scaling (published
// checkpoints), or from rope_parameters, which contains both (transformers 5).
//
// Both spellings may be there if they say the same. Keys beside the ones of the scaling are
// refused: a parameter that is overlooked changes every rotation a little, and the answers are only
// slightly wrong.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/printable.h"
#include "base/spelling.h"
#include "model/config/config_fields.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;
using Scaling = RopeConfig::Scaling;

// theta must exceed 1: YaRN divides by its logarithm.
constexpr formats::NumberRange kThetaRange = {.min = 2, .max = 1e12};
constexpr formats::NumberRange kFactorRange = {.min = 1, .max = 1e6};
constexpr formats::NumberRange kBetaRange = {.min = 1e-3, .max = 1e6};
constexpr formats::NumberRange kScaleRange = {.min = 0, .max = 1e3};

// Keys that are read with any kind of scaling, and keys that need linear or yarn.
// "finetuned" of some YaRN models says how they were trained. Sections of positions (mrope) are
// those of images; all positions of a text are equal.
const std::vector<std::string> kCommonKeys = {
    "rope_theta",    "rope_type",        "type", "partial_rotary_factor", "finetuned",
    "mrope_section", "mrope_interleaved"};
const std::vector<std::string> kScalingKeys = {
    "attention_factor", "beta_fast",       "beta_slow", "factor",
    "mscale",           "mscale_all_dim",  "truncate",  "original_max_position_embeddings",
    "low_freq_factor",  "high_freq_factor"};

bool is_one_of(const std::vector<std::string>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// To transformers these are errors, and not what absent keys are.
void refuse_nulls(const JsonObject& rope) {
  for (const char* key :
       {"rope_type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings"}) {
    if (is_null(rope, key)) rope.complain(key, "null: expected a value, or no such key");
  }
}

using Keys = std::span<const std::string_view>;

// Refuses unknown keys, and keys that have no effect with this scaling.
void refuse_other_keys(const JsonObject& rope, Scaling scaling, Keys more_keys) {
  refuse_nulls(rope);
  for (const std::string& key : rope.keys()) {
    if (is_one_of(kCommonKeys, key) || !rope.has(key)) continue;
    if (std::ranges::find(more_keys, key) != more_keys.end()) continue;
    if (!is_one_of(kScalingKeys, key)) {
      std::vector<std::string> known = kCommonKeys;
      known.insert(known.end(), kScalingKeys.begin(), kScalingKeys.end());
      rope.complain(key, "not a key of default, linear, llama3 or yarn rotary parameters" +
                             base::did_you_mean(key, known));
    } else if (scaling == Scaling::kNone) {
      rope.complain(key,
                    "expected rope_type linear, llama3 or yarn beside it, found default or none");
    }
  }
}

std::string scaling_name(const JsonObject& rope) {
  const std::string type = rope.string_or("type", "default");
  const std::string rope_type = rope.string_or("rope_type", type);
  if (rope.has("type") && type != rope_type) {
    rope.complain("type", fmt::format("expected rope_type's {}, found {}",
                                      base::printable(rope_type), base::printable(type)));
  }
  return rope_type;
}

Scaling read_scaling(const JsonObject& rope) {
  const std::string name = scaling_name(rope);
  if (name == "default") return Scaling::kNone;
  if (name == "linear") return Scaling::kLinear;
  if (name == "yarn") return Scaling::kYarn;
  if (name == "llama3") return Scaling::kLlama3;
  rope.complain(rope.has("rope_type") ? "rope_type" : "type",
                fmt::format("{} is not supported; supported: default, linear, llama3, yarn",
                            base::printable(name)));
  return Scaling::kNone;
}

// How much YaRN sharpens attention (arXiv:2309.00071, section 3.4), weighted as DeepSeek does.
double yarn_mscale(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

double yarn_attention_factor(const JsonObject& rope, double factor) {
  if (rope.has("attention_factor")) {
    return rope.number("attention_factor", {.min = 1e-6, .max = 1e6});
  }
  const double mscale = rope.number_or("mscale", 0, kScaleRange);
  const double all_dim = rope.number_or("mscale_all_dim", 0, kScaleRange);
  if (mscale == 0 || all_dim == 0) return yarn_mscale(factor, 1.0);
  return yarn_mscale(factor, mscale) / yarn_mscale(factor, all_dim);
}

// The key outside rope_scaling has priority. The default is max_position_embeddings.
int64_t read_original_positions(const JsonObject& root, const JsonObject& rope, int64_t positions) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  const formats::IntegerRange range = {.min = 1, .max = kMaxPositions};
  return root.integer_or(kKey, rope.integer_or(kKey, positions, range), range);
}

// A null factor is the ratio of the contexts.
double read_yarn_factor(const JsonObject& rope, const RopeConfig& config, int64_t positions) {
  const auto found = rope.raw().find("factor");
  if (found == rope.raw().end() || !found->is_null()) return rope.number("factor", kFactorRange);
  const double factor =
      static_cast<double>(positions) / static_cast<double>(config.original_max_position_embeddings);
  if (factor >= kFactorRange.min) return factor;
  rope.complain("factor", fmt::format("null means max_position_embeddings / "
                                      "original_max_position_embeddings, which is {}; expected at "
                                      "least 1",
                                      factor));
  return 1.0;
}

// A null or 0 means the default, as in transformers.
double nonzero_or(const JsonObject& rope, std::string_view key, double by_default) {
  if (rope.number_or(key, 0, {.min = 0, .max = kBetaRange.max}) == 0) return by_default;
  return rope.number(key, kBetaRange);
}

void read_yarn(const JsonObject& root, const JsonObject& rope, int64_t positions,
               RopeConfig* config) {
  config->original_max_position_embeddings = read_original_positions(root, rope, positions);
  config->factor = read_yarn_factor(rope, *config, positions);
  config->attention_factor = yarn_attention_factor(rope, config->factor);
  config->beta_fast = nonzero_or(rope, "beta_fast", config->beta_fast);
  config->beta_slow = nonzero_or(rope, "beta_slow", config->beta_slow);
  if (config->beta_fast < config->beta_slow) {
    rope.complain("beta_fast", fmt::format("expected at least beta_slow {}, found {}",
                                           config->beta_slow, config->beta_fast));
  }
  config->truncate = rope.boolean_or("truncate", !is_null(rope, "truncate"));
}

// As transformers' llama3: https://arxiv.org/abs/2407.21783 names the parameters.
void read_llama3(const JsonObject& root, const JsonObject& rope, int64_t positions,
                 RopeConfig* config) {
  config->original_max_position_embeddings = read_original_positions(root, rope, positions);
  config->factor = rope.number("factor", kFactorRange);
  config->low_freq_factor = rope.number("low_freq_factor", kFactorRange);
  config->high_freq_factor = rope.number("high_freq_factor", kFactorRange);
  if (config->high_freq_factor < config->low_freq_factor) {
    rope.complain("high_freq_factor",
                  fmt::format("expected at least low_freq_factor {}, found {}",
                              config->low_freq_factor, config->high_freq_factor));
  }
}

// short_factor or long_factor: a positive number for each pair of rotated dimensions. How many these
// are is checked where all of the model is known (config_reader.cc): files say it in other places.
std::vector<float> read_divisors(const JsonObject& rope, std::string_view key) {
  const auto wrong = [&] {
    rope.complain(key, "expected a list of positive numbers, one for each pair of dimensions");
    return std::vector<float>();
  };
  if (!rope.has(key) || !rope.raw().at(std::string(key)).is_array()) return wrong();
  std::vector<float> divisors;
  for (const nlohmann::json& each : rope.raw().at(std::string(key))) {
    const float divisor = each.is_number() ? each.get<float>() : 0.0f;
    if (!(divisor > 0.0f) || !std::isfinite(divisor)) return wrong();
    divisors.push_back(divisor);
  }
  return divisors.empty() ? wrong() : divisors;
}

// longrope has divisors for short texts and for long ones. Those that are the same do not depend on
// the length: `wideep quantize` writes the divisors of a GGUF file so. Where more_keys has Phi's
// scales of both, the number of positions decides which ones hold for all texts.
RopeConfig read_longrope(const JsonObject& rope, const ModelConfig& model, Keys more_keys) {
  RopeConfig config;
  std::vector<std::string> known = {"short_factor", "long_factor", "factor", "attention_factor",
                                    "original_max_position_embeddings"};
  for (const std::string_view key : more_keys) known.emplace_back(key);
  const bool has_scales = std::ranges::find(more_keys, "long_mscale") != more_keys.end();
  for (const std::string& key : rope.keys()) {
    if (is_one_of(kCommonKeys, key) || is_one_of(known, key)) continue;
    rope.complain(key, "not a key of longrope" + base::did_you_mean(key, known));
  }
  const int64_t original_positions =
      rope.integer("original_max_position_embeddings", {.min = 2, .max = kMaxPositions});
  const bool is_long = has_scales && model.max_position_embeddings > original_positions;
  config.divisors = read_divisors(rope, is_long ? "long_factor" : "short_factor");
  const std::vector<float> others = read_divisors(rope, is_long ? "short_factor" : "long_factor");
  if (readable(rope) && others.size() != config.divisors.size()) {
    rope.complain("long_factor",
                  fmt::format("expected {} positive numbers, as short_factor has, found {}",
                              is_long ? others.size() : config.divisors.size(),
                              is_long ? config.divisors.size() : others.size()));
  }
  if (has_scales) {
    config.original_max_position_embeddings = original_positions;
    const double short_scale = rope.number("short_mscale", kScaleRange);
    const double long_scale = rope.number("long_mscale", kScaleRange);
    config.attention_factor = is_long ? long_scale : short_scale;
    return config;
  }
  if (readable(rope) && others != config.divisors) {
    rope.complain(
        "long_factor",
        "expected the numbers of short_factor; wideep computes no frequencies that depend "
        "on the length of a text");
  }
  const auto original = static_cast<double>(original_positions);
  const double factor = rope.number_or(
      "factor", model.max_position_embeddings / std::max(original, 1.0), kScaleRange);
  const double recommended =
      factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(std::max(original, 2.0)));
  config.attention_factor =
      rope.number_or("attention_factor", recommended, {.min = 1e-6, .max = 1e6});
  return config;
}

// Reads one of the two spellings, without theta.
RopeConfig read_scaled(const JsonObject& root, const JsonObject& rope, const ModelConfig& model,
                       Keys more_keys) {
  RopeConfig config;
  if (rope.has("short_factor") && readable(rope) && scaling_name(rope) == "longrope") {
    return read_longrope(rope, model, more_keys);
  }
  config.scaling = read_scaling(rope);
  refuse_other_keys(rope, config.scaling, more_keys);
  if (config.scaling == Scaling::kNone) return config;
  if (config.scaling == Scaling::kLinear) {
    config.factor = rope.number("factor", kFactorRange);
  } else if (config.scaling == Scaling::kLlama3) {
    read_llama3(root, rope, model.max_position_embeddings, &config);
  } else {
    read_yarn(root, rope, model.max_position_embeddings, &config);
  }
  if (model.is_mla()) {
    const double all_dim = rope.number_or("mscale_all_dim", 0, kScaleRange);
    const double mscale = all_dim == 0 ? 1.0 : yarn_mscale(config.factor, all_dim);
    config.softmax_scale_multiplier = mscale * mscale;
  }
  return config;
}

std::optional<RopeConfig> read_spelling(const JsonObject& root, std::string_view key,
                                        const ModelConfig& model, Keys more_keys) {
  if (!root.has(key)) return std::nullopt;
  return read_scaled(root, root.object(key), model, more_keys);
}

// theta may be in several places, but must have the same value in all of them.
double read_theta(const JsonObject& root, double by_default) {
  std::optional<double> theta;
  const auto also = [&](const JsonObject& object) {
    if (!object.has("rope_theta")) return;
    const double found = object.number("rope_theta", kThetaRange);
    if (theta && *theta != found) {
      object.complain("rope_theta", fmt::format("found {} and, elsewhere in the file, {}; give one",
                                                found, *theta));
    }
    theta = found;
  };
  also(root);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (root.has(key)) also(root.object(key));
  }
  if (!theta && by_default > 0) return by_default;
  return theta ? *theta : root.number("rope_theta", kThetaRange);
}

}  // namespace

RopeConfig read_rope_object(const JsonObject& root, const JsonObject& rope,
                            const ModelConfig& config, double theta_by_default) {
  RopeConfig read = read_scaled(root, rope, config, {});
  read.theta = theta_by_default > 0 ? rope.number_or("rope_theta", theta_by_default, kThetaRange)
                                    : rope.number("rope_theta", kThetaRange);
  return read;
}

RopeConfig read_proportional_rope(const JsonObject& rope, int head_dim) {
  RopeConfig config;
  for (const std::string& key : rope.keys()) {
    if (is_one_of(kCommonKeys, key) || key == "factor") continue;
    rope.complain(key, "not a key of proportional rotary parameters");
  }
  config.theta = rope.number("rope_theta", kThetaRange);
  config.factor = rope.number_or("factor", 1.0, kFactorRange);
  if (config.factor != 1.0) config.scaling = Scaling::kLinear;
  constexpr std::string_view kShare = "partial_rotary_factor";
  const double share = rope.number_or(kShare, 1.0, {.min = 0, .max = 1});
  config.rotating_pairs = static_cast<int>(share * head_dim / 2);
  if (config.rotating_pairs == 0) {
    rope.complain(kShare, fmt::format("expected a share with which at least one pair of the {} "
                                      "dimensions of a head rotates, found {}",
                                      head_dim, share));
  }
  return config;
}

int usable_positions(const JsonObject& root, int positions) {
  for (const char* spelling : {"rope_scaling", "rope_parameters"}) {
    const auto found = root.raw().find(spelling);
    if (found == root.raw().end() || !found->is_object()) continue;
    const auto is = [&](const char* key, const char* word) {
      const auto value = found->find(key);
      return value != found->end() && *value == word;
    };
    const bool scales = is("rope_type", "yarn") || is("rope_type", "llama3") ||
                        is("type", "yarn") || is("type", "llama3");
    const nlohmann::json& original =
        root.raw().value("original_max_position_embeddings", nlohmann::json()).is_null()
            ? *found
            : root.raw();
    const auto number = [](const nlohmann::json& object, const char* key) {
      const auto value = object.find(key);
      return value != object.end() && value->is_number() ? value->get<double>() : 0.0;
    };
    const double scaled =
        number(original, "original_max_position_embeddings") * number(*found, "factor");
    if (!scales || !(scaled > positions) || scaled > static_cast<double>(kMaxPositions)) continue;
    positions = static_cast<int>(scaled);
  }
  return positions;
}

RopeConfig read_rope(const JsonObject& root, const ModelConfig& config, double theta_by_default,
                     Keys more_keys) {
  const std::optional<RopeConfig> classic = read_spelling(root, "rope_scaling", config, more_keys);
  const std::optional<RopeConfig> newer = read_spelling(root, "rope_parameters", config, more_keys);
  if (classic && newer && *classic != *newer) {
    root.complain("rope_scaling", "contradicts rope_parameters; give one of them");
  }
  RopeConfig rope = classic ? *classic : newer.value_or(RopeConfig{});
  rope.theta = read_theta(root, theta_by_default);
  return rope;
}

}  // namespace wideep::model
