// SPDX-License-Identifier: Apache-2.0
//
// The order is that of costs and of dependence: options → kernels → config → placement → tokenizer
// → names and shapes of tensors → forms. Nothing here reads weights; that the files fit the config
// is known when it ends.
//
// Fingerprints are of contents, not of paths or times, as nodes may have the files elsewhere. Of
// weights a sample of each tensor is hashed: reading them all would take as long as loading.
#include "run/run_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/content_hash.h"
#include "base/try.h"
#include "formats/files.h"
#include "model/model_division.h"
#include "model/parts/perfect_router.h"
#include "model/tensor_list.h"
#include "parallel/initial_placement.h"
#include "run/layouts.h"
#include "run/without_experts.h"
#include "tensor_files/gguf.h"
#include "weights/random_tensors.h"

namespace wideep::run {
namespace {

// Checks what only concerns ranks that a launcher has started.
Status check_started(const RunOptions& options) {
  if (options.started == nullptr) return {};
  const int configured = options.parallel.mapping().world_size();
  if (configured != options.started->num_ranks()) {
    return invalid_input(
        fmt::format("{}: {} ranks are configured, but {} processes were started: start as many",
                    options.parallel.name, configured, options.started->num_ranks()));
  }
  if (options.profile && options.profile->writes_trace()) {
    return invalid_input(
        "--profile-range: ranks that mpirun or srun has started cannot be profiled yet; use "
        "--ranks on one machine");
  }
  return {};
}

Result<std::optional<tokenizer::Tokenizer>> read_tokenizer(const RunOptions& options,
                                                           const model::ModelConfig& config) {
  const std::string& directory = options.model_dir;
  if (!options.needs_tokenizer && !tokenizer::Tokenizer::is_in(directory)) {
    return std::optional<tokenizer::Tokenizer>();
  }
  WIDEEP_TRY_ASSIGN(tokenizer::Tokenizer tokenizer,
                    tokenizer::Tokenizer::read(directory, config.vocab_size));
  if (tokenizer.id_limit() <= config.vocab_size) return std::optional(std::move(tokenizer));
  return invalid_input(fmt::format(
      "{}: the tokenizer has token ids up to {}, but {} {}", directory, tokenizer.id_limit() - 1,
      tensor_files::is_gguf(directory) ? "the rows of token_embd.weight are"
                                       : "config.json: vocab_size is",
      config.vocab_size));
}

Result<model::ModelConfig> read_config(const RunOptions& options) {
  if (!options.random_weights || !options.model_dir.ends_with(".json")) {
    return model::read_model_config(options.model_dir);
  }
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(options.model_dir));
  return model::parse_model_config(text, options.model_dir);
}

// A model of OpenAI's harmony format ends its answers with <|return|>, and with <|call|> where it
// waits for a tool; Gemma 4 and Solar Open have such a second end, too. Their
// generation_config.json names both; a model without this file would go on after its calls.
void complete_end_tokens(const tokenizer::Tokenizer& tokenizer, std::vector<int>& ends) {
  const auto special = [&](std::string_view name) -> std::optional<int32_t> {
    const auto id = tokenizer.token_to_id(name);
    return id && tokenizer.is_special(*id) ? id : std::nullopt;
  };
  const auto has = [&](int32_t id) {
    return std::find(ends.begin(), ends.end(), id) != ends.end();
  };
  constexpr std::pair<const char*, const char*> kEnds[] = {{"<|return|>", "<|endoftext|>"},
                                                           {"<|return|>", "<|call|>"},
                                                           {"<turn|>", "<|tool_response>"},
                                                           {"<|flush|>", "<|calls|>"}};
  for (const auto& [known, other] : kEnds) {
    const auto last = special(known), id = special(other);
    if (last && has(*last) && id && !has(*id)) ends.push_back(*id);
  }
}

Status open_tensors(const RunOptions& options, RunInputs* inputs) {
  if (options.random_weights) {
    inputs->own_tensors = std::make_unique<weights::RandomTensors>(*options.random_weights);
    return {};
  }
  WIDEEP_TRY_ASSIGN(inputs->files,
                    model::ModelFiles::open(options.model_dir, &inputs->model.config));
  return {};
}

// A hash of the content, not of the path: ranks on different nodes may have the file at different
// places.
std::string hash_of_file(const std::string& path) {
  const Result<std::string> content = formats::read_file(path);
  return content.ok() ? base::content_hash_hex(*content) : "unreadable";
}

// Of the metadata and the list of tensors: a few megabytes before gigabytes of tensors.
std::string hash_of_gguf(const std::string& path) {
  const auto files = tensor_files::GgufFiles::open(path);
  if (!files.ok()) return "unreadable";
  std::string hashes;
  for (const tensor_files::GgufFile& file : files->files()) {
    const auto header = file.header();
    hashes +=
        base::content_hash_hex({reinterpret_cast<const char*>(header.data()), header.size()}) + " ";
  }
  return base::content_hash_hex(hashes);
}

std::string hash_of_config(const std::string& model_dir) {
  if (tensor_files::is_gguf(model_dir)) return hash_of_gguf(model_dir);
  if (model_dir.ends_with(".json")) return hash_of_file(model_dir);
  return hash_of_file(model_dir + "/config.json");
}

// Of the files that token ids follow from.
std::string hash_of_tokenizer(const std::string& model_dir) {
  if (tensor_files::is_gguf(model_dir)) return "in the model";
  std::string hashes;
  for (const std::string& file : tokenizer::Tokenizer::file_names()) {
    hashes += hash_of_file(model_dir + "/" + file) + " ";
  }
  return base::content_hash_hex(hashes);
}

}  // namespace

std::vector<std::string> RunInputs::notes() const {
  std::vector<std::string> notes = model.config.notes;
  if (tokenizer) notes.insert(notes.end(), tokenizer->notes().begin(), tokenizer->notes().end());
  return notes;
}

Status add_prediction(const parallel::ParallelConfig& settings, model::ModelConfig* config) {
  if (!settings.predicts()) return {};
  const auto& speculative = settings.speculative_config;
  // A file with one layer drafts with a chain of it, one with several with a layer for each draft:
  // TensorRT-LLM's choice.
  const bool each = speculative->use_mtp_vanilla || config->num_mtp_layers > 1;
  const auto layers = each ? static_cast<int>(speculative->max_draft_len) : 1;
  const Status added = model::add_prediction_layers(layers, config);
  if (!added.ok()) {
    return added.at("speculative_config: decoding_type MTP").at(settings.name);
  }
  if (layers > 1 && settings.enable_lm_head_tp_in_adp) {
    config->notes.push_back(
        fmt::format("{}: enable_lm_head_tp_in_adp has no effect with several prediction layers",
                    settings.name));
  }
  if (!speculative->relaxed) return {};
  for (const int64_t token : {speculative->relaxed->begin_token, speculative->relaxed->end_token}) {
    if (token < config->vocab_size) continue;
    return invalid_input(fmt::format(
        "{}: speculative_config.use_relaxed_acceptance_for_thinking: expected thinking tokens "
        "below "
        "vocab_size {}, found {}; set begin_thinking_phase_token and end_thinking_phase_token",
        settings.name, config->vocab_size, token));
  }
  return {};
}

Result<RunInputs> read_run_inputs(const RunOptions& options) {
  WIDEEP_TRY(check_started(options));
  RunInputs inputs;
  WIDEEP_TRY_ASSIGN(inputs.kernels, kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  WIDEEP_TRY_ASSIGN(inputs.model.config, read_config(options));
  WIDEEP_TRY(add_prediction(options.parallel, &inputs.model.config));
  WIDEEP_TRY_ASSIGN(const std::vector<std::string> notes,
                    settings_without_experts(options, inputs.model.config));
  inputs.model.config.notes.insert(inputs.model.config.notes.end(), notes.begin(), notes.end());
  if (options.perfect_router) {
    WIDEEP_TRY(
        model::PerfectRouter::check(inputs.model.config.routing, options.parallel.sizes.moe_ep));
  }
  WIDEEP_TRY_ASSIGN(
      inputs.model.placement,
      parallel::initial_placement(options.parallel, {model::moe_layers(inputs.model.config),
                                                     inputs.model.config.routing.num_experts}));
  WIDEEP_TRY_ASSIGN(inputs.tokenizer, read_tokenizer(options, inputs.model.config));
  if (inputs.tokenizer) {
    complete_end_tokens(*inputs.tokenizer, inputs.model.config.eos_token_ids);
  }
  WIDEEP_TRY(open_tensors(options, &inputs));
  inputs.model.forms = model::model_forms(inputs.model.config,
                                          weights::WeightLoader(inputs.tensors(), options.format));
  if (inputs.files && !options.format) {
    for (std::string& note : inputs.files->packing_notes(inputs.model.config, inputs.model.forms)) {
      inputs.model.config.notes.push_back(std::move(note));
    }
  }
  return inputs;
}

transport::Settings what_computes(const RunOptions& options, const RunInputs& inputs) {
  return {{"the version of wideep", WIDEEP_VERSION},
          {"the program (its content)", hash_of_file("/proc/self/exe")},
          {"the kernels (WIDEEP_ISA)", std::string(inputs.kernels->isa)},
          {"the model (config.json)", hash_of_config(options.model_dir)},
          {"the weights (a sample of each tensor)", inputs.tensors().fingerprint()}};
}

transport::Settings fingerprints(const RunOptions& options, const RunInputs& inputs) {
  transport::Settings all = what_computes(options, inputs);
  const transport::Settings settings = {
      {fmt::format("the tokenizer ({})", fmt::join(tokenizer::Tokenizer::file_names(), ", ")),
       hash_of_tokenizer(options.model_dir)},
      {"--random-weights", options.random_weights ? "true" : "false"},
      {"--logits-digest", options.logits_digest ? "true" : "false"},
      {"--expert-statistic-iter-range",
       options.statistics ? options.statistics->range.text() : "none"},
      {"--routing-log", options.routing_log ? "true" : "false"},
      {"--routing-log-iter-range", options.routing_log && options.routing_log->range
                                       ? options.routing_log->range->text()
                                       : "none"},
      {"--enable-return-routed-experts", options.routed_experts ? "true" : "false"},
      {"--timeout", fmt::format("{} ms", options.timeout.count())}};
  all.insert(all.end(), settings.begin(), settings.end());
  return all;
}

uint64_t bytes_to_load(const RunInputs& inputs, bool has_host_pool) {
  if (!inputs.files) return 0;
  const model::ModelConfig& config = inputs.model.config;
  const auto bytes_of = [&](const std::vector<model::ListedTensor>& tensors) {
    uint64_t bytes = 0;
    for (const model::ListedTensor& tensor : tensors) bytes += inputs.files->bytes_of(tensor);
    return bytes;
  };
  uint64_t bytes = bytes_of(model::outer_tensors(config));
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    bytes += bytes_of(model::layer_tensors(config, layer));
  }
  for (const auto& [layer, placement] : inputs.model.placement.layers) {
    std::vector<int32_t> experts = placement.slot_to_expert;
    if (has_host_pool) {
      std::sort(experts.begin(), experts.end());
      experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    }
    for (const int32_t expert : experts) {
      bytes += bytes_of(model::expert_tensors(config, layer, expert));
    }
  }
  return bytes;
}

}  // namespace wideep::run
