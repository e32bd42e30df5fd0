// SPDX-License-Identifier: Apache-2.0
//
// wideep quantize: writes a checkpoint in another precision and measures how much quality it loses.
//
// Two sources: a directory is rewritten tensor by tensor, with its other files; a GGUF file becomes
// a directory, for which config.json, tokenizer.json and the names of its family are made.
// Afterwards both models score the same text, because the noise of single matrices does not tell
// what becomes of answers.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "base/machine.h"
#include "base/try.h"
#include "base/work_progress.h"
#include "commands.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "held_out_text.h"
#include "measure/model/score.h"
#include "model/config/config.h"
#include "model/gguf/gguf_config.h"
#include "model/gguf/gguf_tensors.h"
#include "model/tensor_list.h"
#include "run/thread_plan.h"
#include "tensor_files/gguf.h"
#include "tokenizer/gguf_tokenizer.h"
#include "weights/quantize_checkpoint.h"
#include "weights/quantize_source.h"

namespace wideep::tools {
namespace {

struct Options {
  weights::QuantizeOptions quantize;
  std::string format;
  std::string text_file;
  bool no_evaluation = false;
  bool json = false;
};

// Both models on the same text.
struct Quality {
  int num_tokens = 0;
  double perplexity_before = 0.0;
  double perplexity_after = 0.0;
  double top1_agreement = 0.0;
};

Result<Quality> measure_quality(const Options& options, base::ThreadPool& pool) {
  std::string text = kHeldOutText;
  if (!options.text_file.empty()) {
    WIDEEP_TRY_ASSIGN(text, formats::read_file(options.text_file));
  }
  WIDEEP_TRY_ASSIGN(const measure::TextScores before,
                    measure::score_text({.model_dir = options.quantize.model_dir,
                                         .format = kernels::WeightFormat::kBf16},
                                        text, pool));
  WIDEEP_TRY_ASSIGN(
      const measure::TextScores after,
      measure::score_text({.model_dir = options.quantize.output_dir, .format = {}}, text, pool));
  return Quality{.num_tokens = static_cast<int>(before.best.size()),
                 .perplexity_before = before.perplexity(),
                 .perplexity_after = after.perplexity(),
                 .top1_agreement = measure::top1_agreement(before, after)};
}

// Worst first.
std::vector<weights::QuantizedTensor> by_loss(const weights::QuantizeReport& report) {
  auto tensors = report.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.signal_to_noise_db, a.name) < std::tie(b.signal_to_noise_db, b.name);
  });
  return tensors;
}

void print_report(const Options& options, const weights::QuantizeReport& report,
                  const std::optional<Quality>& quality) {
  constexpr size_t kWorst = 5;
  const auto mebibytes = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  fmt::print("size        {:.1f} MiB, was {:.1f} MiB ({:.1f} %)\n", mebibytes(report.bytes_after),
             mebibytes(report.bytes_before),
             100.0 * static_cast<double>(report.bytes_after) /
                 static_cast<double>(std::max<uint64_t>(report.bytes_before, 1)));
  fmt::print("matrices    {} in {}, groups of {}", report.tensors.size(), options.format,
             report.group);
  if (!report.unfit.empty()) {
    fmt::print("; {} kept as stored (columns not a multiple of the group)", report.unfit.size());
  }
  fmt::print("\n");
  const auto tensors = by_loss(report);
  if (!tensors.empty()) {
    fmt::print("SNR         median {:.1f} dB, least {:.1f} dB\n",
               tensors[tensors.size() / 2].signal_to_noise_db, tensors[0].signal_to_noise_db);
    for (size_t i = 0; i < std::min(kWorst, tensors.size()); ++i) {
      fmt::print("            {:5.1f} dB  {}\n", tensors[i].signal_to_noise_db, tensors[i].name);
    }
  }
  if (!quality) return;
  fmt::print("perplexity  {:.3f}, in bf16 {:.3f}, over {} tokens\n", quality->perplexity_after,
             quality->perplexity_before, quality->num_tokens);
  fmt::print("top-1       {:.1f} % of the most likely tokens are the same as in bf16\n",
             100.0 * quality->top1_agreement);
}

void print_json(const Options& options, const weights::QuantizeReport& report,
                const std::optional<Quality>& quality) {
  nlohmann::ordered_json json = {{"format", options.format},
                                 {"group", report.group},
                                 {"bytes_before", report.bytes_before},
                                 {"bytes_after", report.bytes_after},
                                 {"unfit", report.unfit}};
  for (const weights::QuantizedTensor& tensor : report.tensors) {
    json["snr_db"][tensor.name] = tensor.signal_to_noise_db;
  }
  if (quality) {
    json["quality"] = {{"tokens", quality->num_tokens},
                       {"perplexity_bf16", quality->perplexity_before},
                       {"perplexity", quality->perplexity_after},
                       {"top1_agreement", quality->top1_agreement}};
  }
  fmt::print("{}\n", formats::json_text(json, 2));
}

std::vector<weights::ListedMatrix> matrices_of(const model::ModelConfig& config) {
  std::vector<weights::ListedMatrix> matrices;
  for (const model::ListedTensor& tensor : model::all_tensors(config)) {
    if (!model::is_quantizable(tensor.use)) continue;
    matrices.push_back(
        {tensor.name, static_cast<int>(tensor.shape[0]), static_cast<int>(tensor.shape[1])});
  }
  return matrices;
}

// What a GGUF file's chat settings are in a directory.
std::string tokenizer_config(const tensor_files::GgufFile& file) {
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  const auto text_of = [&](const char* key) -> std::optional<std::string_view> {
    const tensor_files::GgufValue* found = file.find(key);
    return found == nullptr || found->is_list() ? std::nullopt : found->text();
  };
  if (const auto text = text_of("tokenizer.chat_template")) config["chat_template"] = *text;
  const tensor_files::GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  for (const char* name : {"bos_token", "eos_token"}) {
    const tensor_files::GgufValue* id = file.find(fmt::format("tokenizer.ggml.{}_id", name));
    if (id == nullptr || tokens == nullptr || id->is_list()) continue;
    const int64_t index = id->integer().value_or(-1);
    if (index < 0 || index >= static_cast<int64_t>(tokens->size())) continue;
    if (const auto text = tokens->text(static_cast<size_t>(index))) config[name] = *text;
  }
  return formats::json_text(config, 2) + "\n";
}

// rope_freqs.weight in the words of config.json: of all layers, or of those of full attention where
// kinds of layers have rotations of their own.
Status add_divisors(const std::vector<float>& divisors, const std::string& path,
                    nlohmann::ordered_json* config) {
  if (divisors.empty()) return {};
  const bool has_kinds = config->contains("rope_parameters");
  nlohmann::ordered_json& scaling =
      has_kinds ? (*config)["rope_parameters"]["full_attention"] : (*config)["rope_scaling"];
  if (!scaling.is_null() && scaling.value("rope_type", "default") != "default") {
    return invalid_input(
        fmt::format("{}: tensor 'rope_freqs.weight' beside rope.scaling.type: config.json cannot "
                    "say both; run the GGUF file as it is",
                    path));
  }
  scaling["rope_type"] = "longrope";
  scaling["short_factor"] = scaling["long_factor"] = divisors;
  scaling["attention_factor"] = 1.0;
  scaling["original_max_position_embeddings"] = (*config)["max_position_embeddings"];
  return {};
}

// The model of a GGUF file as a checkpoint, under the names that its family publishes.
Result<weights::QuantizeReport> quantize_gguf(const Options& options, model::ModelConfig config,
                                              base::ThreadPool& pool,
                                              const std::function<void(int64_t, int64_t)>& step) {
  if (std::ranges::any_of(config.layers, &model::LayerConfig::by_token)) {
    return invalid_input(fmt::format(
        "{}: its first layers choose experts by a table of tokens, which is not written "
        "from a GGUF file; run the file as it is, or quantize the published checkpoint",
        options.quantize.model_dir));
  }
  // Those that predict further tokens are written, too, where wideep knows their tensors.
  if (config.num_mtp_layers > 0 && config.names_mtp_layers) {
    WIDEEP_TRY(model::add_prediction_layers(config.num_mtp_layers, &config));
  }
  WIDEEP_TRY_ASSIGN(const auto tensors,
                    model::GgufTensors::open(options.quantize.model_dir, &config));
  WIDEEP_TRY_ASSIGN(const model::GgufConfig found, model::gguf_config(tensors->files()));
  const tensor_files::GgufFile& file = tensors->files().first();
  weights::QuantizeSourceOptions to{.output_dir = options.quantize.output_dir,
                                    .format = options.quantize.format,
                                    .config = nlohmann::ordered_json::parse(found.json)};
  WIDEEP_TRY(add_divisors(config.rope.divisors, file.path(), &to.config));
  for (const tensor_files::GgufFile& each : tensors->files().files()) {
    for (const auto& [name, tensor] : each.tensors()) to.bytes_before += tensor.bytes.size();
  }
  if (tokenizer::has_gguf_tokenizer(file)) {
    WIDEEP_TRY_ASSIGN(std::string json, tokenizer::gguf_tokenizer_json(file));
    to.files.emplace_back("tokenizer.json", std::move(json));
    to.files.emplace_back("tokenizer_config.json", tokenizer_config(file));
  }
  std::vector<weights::SourceTensor> list;
  for (const model::ListedTensor& tensor : model::all_tensors(config)) {
    // The first name that is a tensor of its own.
    std::string own = tensor.name;
    for (const weights::PublishedTensor& each : config.tensor_names.published(tensor.name)) {
      if (!each.is_whole()) continue;
      own = each.name;
      break;
    }
    const bool is_float =
        tensor.use == model::TensorUse::kVector || tensor.use == model::TensorUse::kFloat;
    list.push_back({.asked = tensor.name,
                    .own = own,
                    .shape = tensor.shape,
                    .quantizes = model::is_quantizable(tensor.use),
                    .dtype = is_float ? Dtype::kF32 : Dtype::kBf16});
  }
  return weights::quantize_source(*tensors, list, to, pool, step);
}

Status run(const Options& given) {
  Options options = given;
  options.quantize.format = *kernels::weight_format_from_name(options.format);
  WIDEEP_TRY_ASSIGN(const model::ModelConfig config,
                    model::read_model_config(options.quantize.model_dir));
  options.quantize.names = config.tensor_names;
  options.quantize.num_experts = config.routing.num_experts;
  options.quantize.matrices = matrices_of(config);
  const run::ThreadPlan threads = run::plan_threads(base::read_machine(), 1, 0);
  base::ThreadPool pool(threads.of_rank(0));
  base::WorkProgress progress("quantising", "tensors");
  const auto step = [&](int64_t done, int64_t all) {
    progress.show(static_cast<uint64_t>(done), static_cast<uint64_t>(all));
  };
  const auto report = tensor_files::is_gguf(options.quantize.model_dir)
                          ? quantize_gguf(options, config, pool, step)
                          : weights::quantize_checkpoint(options.quantize, pool, step);
  progress.clear();
  if (!report.ok()) return report.status();
  std::optional<Quality> quality;
  if (!options.no_evaluation) {
    WIDEEP_TRY_ASSIGN(quality, measure_quality(options, pool));
  }
  options.json ? print_json(options, *report, quality) : print_report(options, *report, quality);
  return {};
}

}  // namespace

void add_quantize_command(command_line::Command app, Status* status) {
  const command_line::Command command = app.add_command(
      "quantize", "Write a checkpoint in another precision and measure the loss of quality");
  auto options = std::make_shared<Options>();
  command
      .add_option("--model", options->quantize.model_dir,
                  "Directory of a checkpoint with float weights, or a GGUF file of any types")
      .model()
      .required();
  command.add_option("--to", options->format, "Precision of the matrices")
      .required()
      .one_of({"int8", "int4", "fp8", "mxfp4", "nvfp4"});
  command.add_option("--output", options->quantize.output_dir, "Directory to create")
      .path()
      .required();
  command
      .add_option("--text", options->text_file,
                  "File with the text that both models are compared on (default: a built-in page)")
      .path();
  command.add_flag("--no-evaluation", options->no_evaluation,
                   "Write the checkpoint, but do not compare the models");
  command.add_flag("--json", options->json, "Print the report as JSON");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
