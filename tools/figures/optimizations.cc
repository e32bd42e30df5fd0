// SPDX-License-Identifier: Apache-2.0
//
// wideep figures optimizations: each optimisation of part 3 that wideep has, without and with it.
//
//   fp4-output      wo in NVFP4                      a model with it beside one without
//   fp4-combine     results come back in NVFP4       a setting
//   fp8-cache       keys and values cached in FP8    a setting
//   together        these three at once
//   separate-qkv    no joint query-key-value tensor  two forms of the same work, one thread
//   fused-add       shared expert added in the sum   two forms of the same work, one thread
//
// Pairs are run in turn; what counts is the ratio of each pair. The models have random weights and
// only the first layers of their shapes, since all layers of a kind take the same time.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/try.h"
#include "commands.h"
#include "figures/figure.h"
#include "formats/files.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"
#include "kernels/row_format.h"
#include "measure/model/ablation.h"
#include "measure/model/fp4_output.h"
#include "measure/model/kernel_ablation.h"
#include "model/kv_layout.h"
#include "model/model_files.h"
#include "weights/random_tensors.h"

namespace wideep::tools {
namespace {

using measure::AblatedModel;
using measure::AblatedTest;
using nlohmann::ordered_json;

constexpr uint64_t kSeed = 1;
constexpr double kKernelSeconds = 0.02;  // of a round of a kernel

struct Options {
  std::string config, latent_config;
  std::vector<std::string> only = {"fp4-output", "fp4-combine",  "fp8-cache",
                                   "together",   "separate-qkv", "fused-add"};
  int layers = 3;
  int ranks = 2;
  int prompt = 256;
  int context = 512;
  int batch = 8;
  int steps = 8;
  int tokens = 64;
  int rounds = 5;
  FigureOutput output;
};

struct Shape {
  std::string name;  // of the file
  model::ModelConfig config;
};

struct Shapes {
  Shape plain;
  std::optional<Shape> latent;

  // The one with these, or null.
  const Shape* with_latents() const {
    return find([](const auto& c) { return c.is_mla(); });
  }
  const Shape* with_shared_expert() const {
    return find([](const auto& c) { return c.shared_intermediate_size > 0; });
  }

 private:
  template <typename Has>
  const Shape* find(const Has& has) const {
    if (has(plain.config)) return &plain;
    return latent && has(latent->config) ? &*latent : nullptr;
  }
};

// What an optimisation has brought in its tests, and the bytes that it saves.
struct Part {
  std::string name;  // of --only
  std::string what;
  std::string shape;
  std::vector<AblatedTest> tests;
  std::string bytes_of;  // "a returned row"; empty: it saves none
  double bytes_before = 0.0, bytes_after = 0.0;
};

// ---- shapes ----

Result<Shape> read_shape(const std::string& path, int layers) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
  WIDEEP_TRY_ASSIGN(nlohmann::json json, formats::parse_json(text, path));
  if (!json.is_object() || !json.contains("num_hidden_layers")) {
    return invalid_input(fmt::format("{}: expected a config.json with num_hidden_layers", path));
  }
  // Lists with an entry for each layer are cut too.
  const nlohmann::json all = json["num_hidden_layers"];
  if (all.is_number_integer() && all.get<int64_t>() > layers) {
    for (auto& [key, value] : json.items()) {
      if (!value.is_array() || value.size() != all.get<size_t>()) continue;
      value.erase(value.begin() + layers, value.end());
    }
    json["num_hidden_layers"] = layers;
  }
  // What predicts is no part of what is measured here.
  if (json.contains("num_nextn_predict_layers")) json["num_nextn_predict_layers"] = 0;
  WIDEEP_TRY_ASSIGN(model::ModelConfig config,
                    model::parse_model_config(formats::json_text(json, 1), path));
  if (config.num_moe_layers() == 0) {
    return invalid_input(
        fmt::format("{}: the first {} layers have no experts: raise --layers", path, layers));
  }
  return Shape{.name = path, .config = std::move(config)};
}

Result<Shapes> read_shapes(const Options& options) {
  Shapes shapes;
  WIDEEP_TRY_ASSIGN(shapes.plain, read_shape(options.config, options.layers));
  if (options.latent_config.empty()) return shapes;
  WIDEEP_TRY_ASSIGN(shapes.latent, read_shape(options.latent_config, options.layers));
  if (shapes.with_latents() == nullptr && shapes.with_shared_expert() == nullptr) {
    return invalid_input(fmt::format(
        "--latent-config {}: has neither multi-head latent attention nor a shared expert",
        options.latent_config));
  }
  return shapes;
}

// ---- what is measured ----

AblatedModel model_of(const Shape& shape, int ranks) {
  AblatedModel model{.ranks = {.config = shape.config},
                     .tensors = [] { return std::make_unique<weights::RandomTensors>(kSeed); }};
  model.ranks.precision.cache = Dtype::kBf16;
  model.ranks.parallel = parallel::parallel_config_for_ranks(ranks).value();
  return model;
}

// Of a prompt, and of a batch behind `depth` tokens.
measure::BenchOptions tests_of(const Options& options, int prompt, int depth) {
  return {.prompt = prompt,
          .generate = options.steps,
          .depth = depth,
          .batches = {options.batch},
          .repeats = options.rounds,
          .seed = kSeed};
}

// wo in NVFP4, as a checkpoint stores it. shape: must outlive the model.
Status use_fp4_output(const Shape& shape, AblatedModel* model) {
  // A first source says which forms the matrices have, and whether they can have them.
  WIDEEP_TRY_ASSIGN(const auto forms, measure::Fp4OutputTensors::make(shape.config, kSeed));
  model->ranks.as_stored = true;
  model->ranks.precision.forms = std::make_shared<const model::ModelForms>(
      model::model_forms(shape.config, weights::WeightLoader(*forms, {})));
  model->tensors = [&shape] {
    return std::move(measure::Fp4OutputTensors::make(shape.config, kSeed)).value();
  };
  return {};
}

Result<Part> output_in_fp4(const Options& options, const Shape& shape) {
  Part part{.name = "fp4-output", .what = "wo in NVFP4, all else in bf16", .shape = shape.name};
  const AblatedModel before = model_of(shape, options.ranks);
  AblatedModel after = before;
  WIDEEP_TRY(use_fp4_output(shape, &after));
  run::RunView view;
  WIDEEP_TRY_ASSIGN(part.tests,
                    measure::ablate(before, after, tests_of(options, options.prompt, 16), view));
  const model::ModelConfig& config = shape.config;
  const int k = config.num_heads * config.value_dim();
  const auto bytes = [&](kernels::WeightFormat format) {
    return static_cast<double>(weights::default_form(format).shape(config.hidden_size, k).bytes());
  };
  part.bytes_of = "wo of a layer";
  part.bytes_before = bytes(kernels::WeightFormat::kBf16);
  part.bytes_after = bytes(kernels::WeightFormat::kNvfp4);
  return part;
}

Result<Part> combine_in_fp4(const Options& options, const Shape& shape) {
  Part part{
      .name = "fp4-combine", .what = "combine_dtype: NVFP4, before BF16", .shape = shape.name};
  const AblatedModel before = model_of(shape, options.ranks);
  AblatedModel after = before;
  after.ranks.parallel.moe_config.combine_dtype = "NVFP4";
  run::RunView view;
  WIDEEP_TRY_ASSIGN(part.tests,
                    measure::ablate(before, after, tests_of(options, options.prompt, 16), view));
  part.bytes_of = "a returned row";
  const auto bytes = [&](kernels::RowFormat format) {
    return static_cast<double>(kernels::row_bytes(format, shape.config.hidden_size));
  };
  part.bytes_before = bytes(kernels::RowFormat::kBf16);
  part.bytes_after = bytes(kernels::RowFormat::kNvfp4);
  return part;
}

Result<Part> cache_in_fp8(const Options& options, const Shape& shape) {
  Part part{.name = "fp8-cache",
            .what = "keys and values cached in FP8, before bf16",
            .shape = shape.name};
  const AblatedModel before = model_of(shape, options.ranks);
  AblatedModel after = before;
  after.ranks.precision.cache = Dtype::kF8E4M3;
  run::RunView view;
  WIDEEP_TRY_ASSIGN(
      part.tests,
      measure::ablate(before, after, tests_of(options, options.context, options.context), view));
  const auto bytes = [&](Dtype dtype) {
    return static_cast<double>(model::KvLayout(shape.config, dtype).page_bytes()) /
           kernels::kPageTokens / shape.config.num_layers;
  };
  part.bytes_of = "cache of a token and layer";
  part.bytes_before = bytes(Dtype::kBf16);
  part.bytes_after = bytes(Dtype::kF8E4M3);
  return part;
}

// The three above at once: what the text's last figure compares, with the optimisations that a
// setting or a checkpoint brings.
Result<Part> all_settings(const Options& options, const Shape& shape) {
  Part part{.name = "together", .what = "the three above at once", .shape = shape.name};
  const AblatedModel before = model_of(shape, options.ranks);
  AblatedModel after = before;
  WIDEEP_TRY(use_fp4_output(shape, &after));
  after.ranks.parallel.moe_config.combine_dtype = "NVFP4";
  after.ranks.precision.cache = Dtype::kF8E4M3;
  run::RunView view;
  WIDEEP_TRY_ASSIGN(
      part.tests,
      measure::ablate(before, after, tests_of(options, options.prompt, options.context), view));
  return part;
}

Part separate_qkv(const Options& options, const Shape& shape, const kernels::Kernels& kernels) {
  measure::SeparateQkv attention(kernels, shape.config, options.context);
  const double heads = shape.config.num_heads;
  const double key = shape.config.qk_nope_head_dim + shape.config.qk_rope_head_dim;
  return {
      .name = "separate-qkv",
      .what = "queries, keys and values read where they are, before joined in one tensor",
      .shape = shape.name,
      .tests = {measure::run_in_turn(
          fmt::format("attention of a prompt of {}, one layer", options.context), options.rounds,
          kKernelSeconds, {[&] { attention.joint(); }, [&] { attention.separate(); }})},
      .bytes_of = "joint tensors of a token and layer",
      .bytes_before = heads * (2.0 * key * 2.0 + 2.0 * shape.config.v_head_dim + 2.0 * key)};
}

Part fused_add(const Options& options, const Shape& shape, const kernels::Kernels& kernels) {
  const model::ModelConfig& config = shape.config;
  measure::SharedSum sum(kernels, config.hidden_size, config.routing.top_k, options.tokens);
  return {.name = "fused-add",
          .what =
              "shared expert added in the sum over a token's experts, before in a pass of its "
              "own",
          .shape = shape.name,
          .tests = {measure::run_in_turn(fmt::format("sum of {} tokens", options.tokens),
                                         options.rounds, kKernelSeconds,
                                         {[&] { sum.apart(); }, [&] { sum.fused(); }})},
          .bytes_of = "results read and written again, of a token",
          .bytes_before = 8.0 * config.hidden_size};
}

bool is_wanted(const Options& options, const char* name) {
  return std::ranges::find(options.only, name) != options.only.end();
}

struct Measured {
  std::vector<Part> parts;
  std::vector<std::string> notes;
};

Result<Measured> measure_all(const Options& options, const Shapes& shapes) {
  Measured measured;
  base::Progress progress("measuring", static_cast<int64_t>(options.only.size()), "optimisations");
  const auto take = [&](Result<Part> part) -> Status {
    WIDEEP_TRY(part.status());
    measured.parts.push_back(std::move(*part));
    progress.step();
    return {};
  };
  using Measure = Result<Part> (*)(const Options&, const Shape&);
  const std::pair<const char*, Measure> of_models[] = {{"fp4-output", output_in_fp4},
                                                       {"fp4-combine", combine_in_fp4},
                                                       {"fp8-cache", cache_in_fp8},
                                                       {"together", all_settings}};
  for (const auto& [name, measure] : of_models) {
    if (!is_wanted(options, name)) continue;
    WIDEEP_TRY(take(measure(options, shapes.plain)));
  }
  WIDEEP_TRY_ASSIGN(const kernels::Kernels* kernels,
                    kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  using MeasureKernel = Part (*)(const Options&, const Shape&, const kernels::Kernels&);
  const std::tuple<const char*, const Shape*, const char*, MeasureKernel> of_kernels[] = {
      {"separate-qkv", shapes.with_latents(), "multi-head latent attention", separate_qkv},
      {"fused-add", shapes.with_shared_expert(), "a shared expert", fused_add}};
  for (const auto& [name, shape, needs, measure] : of_kernels) {
    if (!is_wanted(options, name)) continue;
    if (shape == nullptr) {
      measured.notes.push_back(fmt::format(
          "{} is not measured: neither --config nor --latent-config has {}", name, needs));
      continue;
    }
    WIDEEP_TRY(take(measure(options, *shape, *kernels)));
  }
  return measured;
}

// ---- the figure ----

Figure figure_of(const Options& options, const Measured& measured) {
  Figure figure{.name = "optimizations",
                .title = "Each optimisation, without and with it",
                .source = "blog 3, figure 8 and its parts"};
  Chart chart{.kind = Chart::kBars,
              .title = "Time without it over time with it",
              .hint = "Above 1 it pays. Median of the pairs; lowest and highest beside it.",
              .y_label = "times as fast"};
  Series median{.name = "median"}, low{.name = "lowest pair"}, high{.name = "highest pair"};
  Table times{.title = "Medians, ms of a prompt, a step or a call, and the ratio of each pair",
              .columns = {"optimisation", "test", "before", "after", "times as fast", "lowest",
                          "highest", "what", "shape"}};
  Table bytes{.title = "Bytes", .columns = {"optimisation", "of", "before", "after"}};
  for (const Part& part : measured.parts) {
    for (const AblatedTest& test : part.tests) {
      const measure::Figure ratio = test.ratio();
      chart.categories.push_back(part.name + ", " + test.test);
      median.y.push_back(ratio.median);
      low.y.push_back(ratio.low);
      high.y.push_back(ratio.high);
      times.rows.push_back({part.name, test.test, measure::figure_of(test.before).median * 1e3,
                            measure::figure_of(test.after).median * 1e3, ratio.median, ratio.low,
                            ratio.high, part.what, part.shape});
    }
    if (part.bytes_of.empty()) continue;
    bytes.rows.push_back({part.name, part.bytes_of, part.bytes_before, part.bytes_after});
  }
  chart.series = {std::move(median), std::move(low), std::move(high)};
  figure.charts.push_back(std::move(chart));
  figure.tables = {std::move(times), std::move(bytes)};
  figure.notes = measured.notes;
  figure.notes.push_back(fmt::format(
      "{} rounds of pairs, in turn; random weights, {} layers; models on {} ranks, EP {} with "
      "attention DP",
      options.rounds, options.layers, options.ranks, options.ranks));
  figure.notes.push_back(
      "All ranks are on this machine: rows are copied between its processes and no network is "
      "spared by NVFP4, while coding takes time. Between machines the bytes count.");
  figure.notes.push_back(
      "wideep multiplies cached FP8 as bf16: what is spared is memory and its reading, not "
      "products "
      "(the text's FP8 attention of prompts has faster products too).");
  figure.notes.push_back(
      "The text has no numbers for these parts and its figure 8. It gives one for copying k_nope "
      "(8k tokens, batch 1): 306 us, with torch.compile 107, at the limit of its memory 80; wideep "
      "has no such copy.");
  return figure;
}

Status run(const Options& options) {
  WIDEEP_TRY_ASSIGN(const Shapes shapes, read_shapes(options));
  WIDEEP_TRY_ASSIGN(auto directories, prepare_figure(options.output));
  WIDEEP_TRY_ASSIGN(const Measured measured, measure_all(options, shapes));
  if (measured.parts.empty()) return invalid_input(measured.notes.front());
  return show_figure(figure_of(options, measured), options.output);
}

}  // namespace

void add_figure_optimizations_command(command_line::Command figures, Status* status) {
  const command_line::Command command = figures.add_command(
      "optimizations", "What each optimisation brings: the same work without and with it, in turn");
  auto options = std::make_shared<Options>();
  command.add_option("--config", options->config, "A config.json: the shape that is measured")
      .path()
      .required();
  command
      .add_option("--latent-config", options->latent_config,
                  "A config.json with multi-head latent attention and a shared expert, for what "
                  "needs them")
      .path();
  command.add_option("--only", options->only, "Which: A,B,C")
      .separate_values_by(',')
      .one_of(options->only)
      .show_default();
  command.add_option("--layers", options->layers, "Most layers of the shapes, from the first")
      .range(1, 1 << 12)
      .show_default();
  command.add_option("--ranks", options->ranks, "Ranks that share the experts")
      .range(1, 4096)
      .show_default();
  command.add_option("--prompt", options->prompt, "Tokens of a prompt")
      .range(1, 1 << 20)
      .show_default();
  command
      .add_option("--context", options->context,
                  "Tokens of prompts, and before generated ones, where attention is measured")
      .range(1, 1 << 20)
      .show_default();
  command.add_option("--batch", options->batch, "Requests that generate at the same time")
      .range(1, 1 << 16)
      .show_default();
  command.add_option("--steps", options->steps, "Measured steps of generation")
      .range(1, 1 << 20)
      .show_default();
  command.add_option("--tokens", options->tokens, "Tokens whose results are summed")
      .range(1, 1 << 16)
      .show_default();
  command.add_option("--rounds", options->rounds, "Pairs of runs of each")
      .range(1, 1000)
      .show_default();
  add_figure_output(command, &options->output);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
