// SPDX-License-Identifier: Apache-2.0
//
// Order: decide on the head → list what loading will read → sort what is left over. Each unused
// tensor gets the first reason that fits: harmless, a tied head, a prediction layer that does not
// run, a copy, another part of the model, excluded by config.json, a part of a matrix, unknown.
//
// Errors come before notes, and the layout last: only when several needed tensors are missing and
// others are unknown, is it another layout; either alone is a broken or a richer file.
#include "model/match_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "base/try.h"
#include "model/tensor_list.h"
#include "weights/stored_matrix.h"

namespace wideep::model {
namespace {

using tensor_files::TensorEntry;
using weights::TensorSource;

constexpr const char* kHead = "lm_head.weight";

// The number after the first occurrence of `part` in a name: "….experts.12.…" has 12 after
// ".experts.".
std::optional<int> number_after(std::string_view name, std::string_view part) {
  const size_t at = name.find(part);
  if (at == std::string_view::npos) return {};
  const std::string_view digits = name.substr(at + part.size());
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end == digits.data() + digits.size() || *end != '.') return {};
  return number;
}

// What the configuration has instead of the tensor; "": it allows the tensor.
std::string objection(const ModelConfig& config, std::string_view name) {
  const auto layer = number_after(name, "layers.");
  if (!layer) return {};
  if (*layer >= config.num_all_layers()) return fmt::format("{} layers", config.num_all_layers());
  const auto expert = number_after(name, ".experts.");
  if (expert && *expert >= config.routing.num_experts) {
    return fmt::format("{} experts", config.routing.num_experts);
  }
  const bool shared = name.find(".shared_") != std::string_view::npos;
  if (shared && config.shared_intermediate_size == 0) return "no shared experts";
  const bool bias = name.ends_with(".bias") && !name.ends_with("norm.bias");
  return bias ? "no biases" : "";
}

// The module of a part of a quantised matrix: "m" of "m.weight_scale_inv".
std::optional<std::string_view> module_of_part(std::string_view name) {
  constexpr std::array<std::string_view, 12> kParts = {".weight_scale_inv",
                                                       ".weight_scale",
                                                       ".weight_scale_2",
                                                       ".weight_global_scale",
                                                       ".weight_zero_point",
                                                       ".weight_g_idx",
                                                       ".weight_packed",
                                                       ".qweight",
                                                       ".qzeros",
                                                       ".scales",
                                                       ".g_idx",
                                                       ".weight"};
  for (const std::string_view part : kParts) {
    if (name.ends_with(part)) return name.substr(0, name.size() - part.size());
  }
  return {};
}

// Of layers that predict further tokens: those that do not run.
bool is_mtp(const ModelConfig& config, std::string_view name) {
  const auto layer = number_after(name, "layers.");
  return layer && *layer >= config.num_all_layers() &&
         *layer < config.num_layers + config.num_mtp_layers;
}

// The embedding and the head, which published prediction layers hold once more.
bool is_copy(const ModelConfig& config, std::string_view name) {
  const auto layer = number_after(name, "layers.");
  return layer && *layer >= config.num_layers && *layer < config.num_all_layers() &&
         (name.ends_with(".embed_tokens.weight") || name.ends_with(".shared_head.head.weight"));
}

// Old checkpoints hold the rotary frequencies, which follow from config.json.
bool is_harmless(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

// The tensors that loading reads, by the names of the files.
struct ReadTensors {
  std::set<std::string, std::less<>> used;       // with the codes and scales of quantised matrices
  std::vector<std::string> missing;              // in the order of loading
  std::vector<std::string> missing_predictions;  // of these, those of prediction layers
};

ReadTensors read_tensors(const ModelConfig& config, const weights::NamedTensors& tensors) {
  ReadTensors read;
  for (const ListedTensor& tensor : all_tensors(config)) {
    const bool is_matrix = tensor.name.ends_with(".weight");
    std::vector<std::string> stored;
    if (is_matrix) {
      stored = weights::stored_names(tensors, tensor.name);
    } else if (tensors.has(tensor.name)) {
      stored = {tensors.published_name(tensor.name)};
    }
    if (stored.empty()) {
      read.missing.push_back(tensors.published_name(tensor.name));
      const auto layer = number_after(tensor.name, "layers.");
      if (layer && config.is_prediction(*layer)) {
        read.missing_predictions.push_back(read.missing.back());
      }
    }
    for (std::string& each : stored) read.used.insert(std::move(each));
  }
  return read;
}

class Matcher {
 public:
  Matcher(const weights::NamedTensors& tensors, const std::string& where, ModelConfig* config)
      : tensors_(tensors), where_(where), config_(*config) {}

  Status match(std::span<const std::string> names) {
    choose_head();
    const ReadTensors model = read_tensors(config_, tensors_);
    WIDEEP_TRY(check_prediction(model));
    WIDEEP_TRY(sort_unused(model, names));
    WIDEEP_TRY(check_layout(model, names.size()));
    if (num_mtp_ > 0) {
      const int unused_layers = config_.num_mtp_layers - config_.num_prediction_layers;
      note(fmt::format("{} tensors of {} layer{} that predict further tokens are not run", num_mtp_,
                       unused_layers, unused_layers == 1 ? "" : "s"));
    }
    if (!copies_.empty()) {
      note(fmt::format("the model's own embedding and head are used in the place of {}",
                       few_of(copies_)));
    }
    if (!left_out_.empty()) {
      note(fmt::format("{} tensors of other parts than the text model are not run ({})",
                       left_out_.size(), few_of(left_out_)));
    }
    if (!unused_.empty()) note(fmt::format("not used: {}", few_of(unused_)));
    return {};
  }

 private:
  void choose_head() {
    const bool has_head = !weights::stored_names(tensors_, kHead).empty();
    if (!config_.tie_word_embeddings || !has_head) return;
    if (weights::stored_names(tensors_, config_.embedding_tensor).empty()) {
      note(fmt::format("{} is used as {} too, which the files do not have (tie_word_embeddings)",
                       kHead, config_.embedding_tensor));
      config_.embedding_tensor = kHead;
    } else if (is_embedding_again()) {
      equal_head_ = true;
    } else {
      note(
          fmt::format("{} is used although config.json: tie_word_embeddings is true, because it "
                      "differs from {}",
                      kHead, config_.embedding_tensor));
      config_.tie_word_embeddings = false;
    }
  }

  bool is_embedding_again() const {
    const TensorEntry* head = tensors_.find(kHead);
    const TensorEntry* embedding = tensors_.find(config_.embedding_tensor);
    return head != nullptr && embedding != nullptr && head->dtype == embedding->dtype &&
           head->shape == embedding->shape &&
           std::equal(head->bytes.begin(), head->bytes.end(), embedding->bytes.begin(),
                      embedding->bytes.end());
  }

  Status sort_unused(const ReadTensors& model, std::span<const std::string> names) {
    for (const std::string& name : names) {
      if (model.used.contains(name) || is_harmless(name)) continue;
      if (equal_head_ && name == tensors_.published_name(kHead)) continue;
      if (is_mtp(config_, name)) {
        ++num_mtp_;
        continue;
      }
      if (is_copy(config_, name)) {
        copies_.push_back(name);
        continue;
      }
      if (is_left_out(name)) {
        left_out_.push_back(name);
        continue;
      }
      WIDEEP_TRY(check_excluded(name));
      WIDEEP_TRY(check_part(model, name));
      unused_.push_back(name);
    }
    return {};
  }

  // Many files leave out the layer that config.json promises.
  Status check_prediction(const ReadTensors& model) const {
    const size_t own = model.missing_predictions.size();
    if (own == 0) return {};
    return invalid_input(fmt::format(
        "{}: the files lack {} tensors of the layer that predicts further tokens, such as {}; take "
        "files that have them, or another speculative_config.decoding_type than MTP",
        where_, own, model.missing_predictions.front()));
  }

  bool is_left_out(std::string_view name) const {
    return std::any_of(config_.left_out.begin(), config_.left_out.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  }

  Status check_excluded(const std::string& name) const {
    // Its conversion to the original layout takes them for those of the vision part, and fails on
    // the way back (5.24).
    if (name.ends_with(".self_wqkv.weight")) {
      return invalid_input(
          fmt::format("{}: {}: queries whose rows transformers has rearranged; save the model with "
                      "save_original_format=False",
                      where_, base::printable(name)));
    }
    const std::string instead = objection(config_, name);
    if (instead.empty()) return {};
    return invalid_input(
        fmt::format("{}: {}: a tensor that config.json leaves out, which has {}; correct it, or "
                    "remove the tensor",
                    where_, base::printable(name), instead));
  }

  // A scale that nothing multiplies: the numbers of the matrix may be codes that were copied as
  // floats, or the scale may be a leftover. Only the author of the file knows.
  Status check_part(const ReadTensors& model, const std::string& name) const {
    const auto module = module_of_part(name);
    if (!module) return {};
    for (const char* stored : {".weight", ".weight_packed", ".qweight"}) {
      const std::string matrix = std::string(*module) + stored;
      if (matrix == name || !model.used.contains(matrix)) continue;
      return invalid_input(fmt::format(
          "{}: {}: beside {} of dtype {}, which has no such part: either is wrong; remove the "
          "tensor if the matrix is right as it is",
          where_, base::printable(name), base::printable(matrix),
          dtype_name(tensors_.find(matrix)->dtype)));
    }
    return {};
  }

  Status check_layout(const ReadTensors& model, size_t num_tensors) const {
    if (model.missing.size() < 2 || unused_.empty()) return {};
    return invalid_input(fmt::format(
        "{}: {} of {} tensors have names that wideep does not know ({}), and {} that it needs are "
        "missing, such as {}: another layout of the model; save it with transformers again",
        where_, unused_.size(), num_tensors, few_of(unused_), model.missing.size(),
        model.missing.front()));
  }

  static std::string few_of(const std::vector<std::string>& names) {
    constexpr size_t kFew = 3;
    std::vector<std::string> few;
    for (size_t i = 0; i < std::min(kFew, names.size()); ++i) {
      few.push_back(base::printable(names[i]));
    }
    const size_t more = names.size() - few.size();
    return fmt::format("{}{}", fmt::join(few, ", "),
                       more == 0 ? "" : fmt::format(" and {} more", more));
  }

  void note(const std::string& text) { config_.notes.push_back(where_ + ": " + text); }

  const weights::NamedTensors& tensors_;
  const std::string& where_;
  ModelConfig& config_;
  bool equal_head_ = false;  // the files hold the tied head as well
  int num_mtp_ = 0;
  std::vector<std::string> copies_;    // of the embedding and the head, in prediction layers
  std::vector<std::string> left_out_;  // of ModelConfig::left_out
  std::vector<std::string> unused_;
};

}  // namespace

Status match_tensors(const TensorSource& files, std::span<const std::string> names,
                     const std::string& where, ModelConfig* config) {
  const weights::NamedTensors tensors(files, names, config->tensor_names,
                                      config->routing.num_experts, config->declared);
  return Matcher(tensors, where, config).match(names);
}

}  // namespace wideep::model
