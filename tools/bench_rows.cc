// SPDX-License-Identifier: Apache-2.0
//
// wideep bench rows: the accuracy that a model loses when rows are dispatched and combined in low
// precision, and the bytes that this saves.
//
// The loss is shown where it arises, as noise of the rows of each layer, and where it matters, in
// the next tokens and the perplexity of a text.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/try.h"
#include "commands.h"
#include "formats/json_text.h"
#include "held_out_text.h"
#include "measure/model/compare_rows.h"
#include "prompts_file.h"
#include "run/thread_plan.h"

namespace wideep::tools {
namespace {

struct Options {
  measure::RowsOptions rows;
  std::string dispatch = "fp8";
  std::string combine = "nvfp4";
  std::string prompts_file;
  bool json = false;
};

std::string decibels(double snr) { return std::isinf(snr) ? "exact" : fmt::format("{:.1f}", snr); }

void print_report(const Options& options, const measure::RowsComparison& found) {
  const auto share = [&](size_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(found.plain_bytes);
  };
  fmt::print("dispatch    {}: {} bytes a row, {:.2f} of {}\n", options.dispatch,
             found.dispatch_bytes, share(found.dispatch_bytes), found.plain_bytes);
  fmt::print("combine     {}: {} bytes a row, {:.2f} of {}\n", options.combine, found.combine_bytes,
             share(found.combine_bytes), found.plain_bytes);
  fmt::print("  layer    saved, KiB   of plain   SNR dispatched, dB   returned, dB\n");
  for (const auto& [index, layer] : found.layers) {
    const int64_t plain = found.bytes_plain(layer), coded = found.bytes_coded(layer);
    fmt::print("  {:5} {:13.1f} {:10.2f} {:>20} {:>14}\n", index,
               static_cast<double>(plain - coded) / 1024.0,
               static_cast<double>(plain - coded) / static_cast<double>(plain),
               decibels(layer.dispatched.snr()), decibels(layer.returned.snr()));
  }
  fmt::print(
      "top-1       {:.1f} % of the most likely tokens are the same as with plain rows, {} places\n",
      100.0 * measure::top1_agreement(found.plain, found.coded), found.plain.best.size());
  fmt::print("KL          {:.5f} nats per place from plain rows\n", found.mean_kl);
  fmt::print("perplexity  {:.3f}, with plain rows {:.3f}\n", found.coded.perplexity(),
             found.plain.perplexity());
}

nlohmann::ordered_json snr_json(double snr) {
  return std::isinf(snr) ? nlohmann::ordered_json() : nlohmann::ordered_json(snr);
}

void print_json(const Options& options, const measure::RowsComparison& found) {
  nlohmann::ordered_json json = {
      {"dispatch_dtype", options.dispatch},
      {"combine_dtype", options.combine},
      {"plain_row_bytes", found.plain_bytes},
      {"dispatch_row_bytes", found.dispatch_bytes},
      {"combine_row_bytes", found.combine_bytes},
      {"places", found.plain.best.size()},
      {"top1_agreement", measure::top1_agreement(found.plain, found.coded)},
      {"mean_kl_nats", found.mean_kl},
      {"perplexity", found.coded.perplexity()},
      {"perplexity_plain", found.plain.perplexity()},
      {"layers", nlohmann::ordered_json::array()}};
  for (const auto& [index, layer] : found.layers) {
    json["layers"].push_back({{"layer", index},
                              {"bytes_plain", found.bytes_plain(layer)},
                              {"bytes", found.bytes_coded(layer)},
                              {"snr_dispatched_db", snr_json(layer.dispatched.snr())},
                              {"snr_returned_db", snr_json(layer.returned.snr())}});
  }
  fmt::print("{}\n", formats::json_text(json, 2));
}

Status run(const Options& given) {
  Options options = given;
  options.rows.dispatch = *kernels::row_format_from_name(options.dispatch);
  options.rows.combine = *kernels::row_format_from_name(options.combine);
  std::vector<std::string> texts = {kHeldOutText};
  if (!options.prompts_file.empty()) {
    WIDEEP_TRY_ASSIGN(texts, read_prompts(options.prompts_file));
  }
  const run::ThreadPlan threads = run::plan_threads(base::read_machine(), 1, 0);
  base::ThreadPool pool(threads.of_rank(0));
  WIDEEP_TRY_ASSIGN(const auto found, measure::compare_rows(options.rows, texts, pool));
  options.json ? print_json(options, found) : print_report(options, found);
  return {};
}

}  // namespace

void add_bench_rows_command(command_line::Command bench, Status* status) {
  const command_line::Command command = bench.add_command(
      "rows",
      "Measure the accuracy that low-precision dispatch and combine cost, and the bytes they save");
  auto options = std::make_shared<Options>();
  const std::vector<std::string> dtypes = {"bf16", "fp8", "nvfp4"};
  command.add_option("--model", options->rows.model_dir, "Model directory").model().required();
  command
      .add_option("--prompts", options->prompts_file,
                  "File with the texts to compare on: JSON lines with \"prompt\" (default: a "
                  "built-in page)")
      .path();
  command
      .add_option("--dispatch-dtype", options->dispatch, "Format of dispatched rows (default: fp8)")
      .one_of(dtypes);
  command
      .add_option("--combine-dtype", options->combine, "Format of returned rows (default: nvfp4)")
      .one_of(dtypes);
  command.add_flag("--json", options->json, "Only JSON on stdout");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
