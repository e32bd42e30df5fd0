// SPDX-License-Identifier: Apache-2.0
//
// Computing is predicted as `wideep advise` does where a description of the machine is given. Else
// from bytes alone: what a token reads of memory, at a share of the bandwidth that was just
// measured.
#include "doctor_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "advise/advise.h"
#include "advise/range.h"
#include "advise/workload_steps.h"
#include "advise_beyond_memory.h"
#include "base/byte_size.h"
#include "base/try.h"
#include "cost/expert_load.h"
#include "measure/limits/limits.h"
#include "model/model_division.h"
#include "run/expert_memory.h"
#include "weights/direct_input.h"
#include "weights/read_bandwidth.h"

namespace wideep::tools {
namespace {

using advise::IterationInMemory;

// Of the memory's bandwidth what decoding reaches: 0.5 to 0.75 on machines that were published
// (docs/beyond_memory.md).
constexpr double kBandwidthShare = 0.6;
constexpr uint64_t kProbedBytes = uint64_t{512} << 20;

struct Computing {
  IterationInMemory iteration;
  std::string source;
};

double bytes_of_record(const run::ModelFacts& model) {
  return static_cast<double>(model::experts_shape(model.config, model.forms).record_bytes());
}

// What a token reads beside experts: of the embedding one row.
double dense_bytes_read(const run::ModelFit& fit) {
  const model::ModelConfig& config = fit.plan.model.config;
  const double embedding =
      config.tie_word_embeddings ? 0.0 : 2.0 * config.vocab_size * config.hidden_size;
  return std::max(0.0, static_cast<double>(fit.memory.dense_weights) - embedding);
}

Computing computing_by_bytes(const run::ModelFit& fit, const base::Machine& machine) {
  const model::ModelConfig& config = fit.plan.model.config;
  measure::limits::Probe probe(measure::limits::choose_processors(machine, machine.usable_cores()),
                               std::min(kProbedBytes, machine.usable_memory_bytes() / 8));
  const double gbps = probe.read_gbps();
  const double rate = gbps * 1e9 * kBandwidthShare;
  const int reads = config.routing.top_k;
  const double dense = dense_bytes_read(fit);
  return {.iteration = {.tokens = 1.0,
                        .reads = static_cast<double>(reads),
                        .experts = config.num_moe_layers() * reads *
                                   bytes_of_record(fit.plan.model) / rate,
                        .rest = dense / rate,
                        .dense_bytes = dense},
          .source = fmt::format("{:.0f} % of {:.1f} GB/s, which memory was just read with",
                                100.0 * kBandwidthShare, gbps)};
}

Result<Computing> computing_by_hardware(const cost::Hardware& hardware, const run::ModelFit& fit) {
  const run::ModelFacts& model = fit.plan.model;
  const model::ModelConfig& config = model.config;
  const kernels::WeightFormat format = model.forms.experts.format;
  if (!hardware.divisible || !hardware.supports(format)) {
    return invalid_input(
        fmt::format("--hardware: {}: expected a machine of cores with products of {} (doctor "
                    "--write-hardware)",
                    hardware.name, kernels::weight_format_name(format)));
  }
  const balance::ModelLoad load =
      cost::uniform_load(config.routing.num_experts, model::moe_layers(config));
  const advise::Question question{.hardware = hardware,
                                  .config = config,
                                  .planned = load,
                                  .judged = load,
                                  .workload = {},
                                  .choices = {}};
  WIDEEP_TRY_ASSIGN(const cost::StepCost cost,
                    advise::step_cost(question, {.ep = fit.plan.mapping.sizes().moe_ep,
                                                 .num_slots = model.placement.num_slots,
                                                 .format = format,
                                                 .cache = fit.plan.cache}));
  const std::array batch = {advise::generating(1, 0, question.workload)};
  const cost::StepTime step = cost.step(batch);
  const bool is_outside = !advise::check_range(hardware, config).ok();
  return Computing{.iteration = {.tokens = 1.0,
                                 .reads = static_cast<double>(config.routing.top_k),
                                 .experts = step.experts,
                                 .rest = step.seconds() - step.experts,
                                 .dense_bytes = dense_bytes_read(fit)},
                   .source = hardware.name +
                             (is_outside ? ", which is calibrated for rows of other widths" : "")};
}

// The largest file there: packed weights, if there are any.
std::string largest_file(const std::string& directory) {
  std::string largest;
  uintmax_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator each(directory, error), end;
       !error && each != end; each.increment(error)) {
    std::error_code unknown;
    if (!each->is_regular_file(unknown)) continue;
    const uintmax_t size = each->file_size(unknown);
    if (!unknown && size > bytes) bytes = size, largest = each->path().string();
  }
  return largest;
}

// A layer waits for its misses before the next one knows its own: a disk that has few reads at once
// gives less than it could.
int reads_at_once(const model::ModelConfig& config, double hit_rate, uint64_t record_bytes) {
  const weights::BandwidthProbe most;
  const double pieces =
      std::ceil(static_cast<double>(record_bytes) / static_cast<double>(most.piece_bytes));
  const double misses = (1.0 - hit_rate) * config.routing.top_k;
  return std::clamp(static_cast<int>(std::ceil(misses * pieces)), 1, most.depth);
}

Status find_disk(const ExpertReadingOptions& options, const cost::Hardware* hardware,
                 uint64_t record_bytes, int depth, ExpertReading* reading) {
  const std::string file = options.packed_cache.empty() ? "" : largest_file(options.packed_cache);
  std::error_code unknown;
  if (!file.empty() && std::filesystem::file_size(file, unknown) >= record_bytes) {
    WIDEEP_TRY_ASSIGN(
        reading->disk_bandwidth,
        weights::measure_read_bandwidth(
            file, {.record_bytes = record_bytes, .num_bytes = kProbedBytes, .depth = depth}));
    reading->disk = fmt::format("just measured, reading {}, {} at a time", file, depth);
  } else if (hardware != nullptr && hardware->disk_bandwidth > 0.0) {
    reading->disk_bandwidth = hardware->disk_bandwidth;
    reading->disk = "as " + hardware->name + " says";
  } else {
    reading->disk_bandwidth = advise::kAssumedDiskBandwidth;
    reading->disk = "assumed: --packed-cache measures the disk of packed weights";
  }
  return {};
}

// In all ranks.
Result<uint64_t> bytes_in_memory(const ExpertReadingOptions& options, const run::ModelFit& fit) {
  uint64_t of_rank = run::expert_memory_to_give(fit);
  if (!options.expert_memory.empty()) {
    WIDEEP_TRY_ASSIGN(const run::ExpertMemory given,
                      run::parse_expert_memory(options.expert_memory));
    of_rank = given.of(fit.memory.slots_per_rank);
  }
  return std::min(of_rank, fit.memory.slots_per_rank) * fit.memory.all_ranks();
}

std::string speed_text(double tokens_per_second) {
  return tokens_per_second < 10.0 ? fmt::format("{:.2g}", tokens_per_second)
                                  : fmt::format("{:.0f}", tokens_per_second);
}

std::string complain_of_expert_memory(const std::string& text) {
  const auto memory = run::parse_expert_memory(text);
  return memory.ok() ? "" : memory.status().message();
}

}  // namespace

void add_expert_reading_options(command_line::Command command, ExpertReadingOptions* options) {
  command
      .add_option(
          "--packed-cache", options->packed_cache,
          "Directory of packed weights: what lies there, and whether it can be used. With --model "
          "also measures its disk, from which a model larger than memory is read")
      .path();
  command
      .add_option("--expert-memory", options->expert_memory,
                  "With --model: memory of each rank for experts, as 12G, or a share as 50% "
                  "(default: what there is room for)")
      .check(complain_of_expert_memory);
  command
      .add_option(
          "--hardware", options->hardware,
          "With --model: a description of this machine (--write-hardware), for the speed of "
          "a model larger than memory")
      .path();
}

std::string ExpertReading::text() const {
  return fmt::format(
      "needs {}, has {}: {:.0f} % of experts in memory, expected hit rate {:.2f}, about {} "
      "tokens/s here",
      base::byte_size(bytes_needed), base::byte_size(bytes_usable), 100.0 * forecast.share,
      forecast.expected.hit_rate, speed_text(forecast.expected.tokens_per_second()));
}

std::string ExpertReading::sources() const {
  return fmt::format(
      "hit rate: {}, so {} to {} tokens/s; disk: {:.2g} GB/s, {}; computing: {}; one request at a "
      "time, without its prompt",
      rates_text(rates), speed_text(forecast.uniform.tokens_per_second()),
      speed_text(forecast.upper.tokens_per_second()), disk_bandwidth / 1e9, disk, computing);
}

nlohmann::ordered_json ExpertReading::json() const {
  nlohmann::ordered_json json = {{"expert_bytes", expert_bytes},
                                 {"resident_bytes", resident_bytes},
                                 {"fits", fits},
                                 {"hit_rates", rates.expected.source},
                                 {"disk_bytes_per_second", disk_bandwidth},
                                 {"disk", disk},
                                 {"computing", computing}};
  json.update(forecast_json(forecast));
  return json;
}

Result<std::optional<ExpertReading>> forecast_expert_reading(const ExpertReadingOptions& options,
                                                             const run::ModelFit& fit,
                                                             const base::Machine& machine) {
  const run::ModelFacts& model = fit.plan.model;
  if (!model.config.has_experts() || (fit.fits() && options.expert_memory.empty())) {
    return std::optional<ExpertReading>();
  }
  WIDEEP_TRY_ASSIGN(const uint64_t resident, bytes_in_memory(options, fit));
  const uint64_t all = fit.bytes_of_experts();
  if (resident == 0 || resident >= all) return std::optional<ExpertReading>();
  std::optional<cost::Hardware> hardware;
  if (!options.hardware.empty()) {
    WIDEEP_TRY_ASSIGN(hardware, cost::read_hardware(options.hardware));
  }
  Computing computing;
  if (hardware) {
    WIDEEP_TRY_ASSIGN(computing, computing_by_hardware(*hardware, fit));
  } else {
    computing = computing_by_bytes(fit, machine);
  }
  ExpertReading reading{.bytes_needed = fit.bytes_needed,
                        .bytes_usable = fit.bytes_usable,
                        .expert_bytes = all,
                        .resident_bytes = resident,
                        .fits = fit.bytes_needed - all + resident <= fit.bytes_usable,
                        .rates = advise::recorded_hit_rates(1.0),
                        .computing = computing.source};
  const double record = bytes_of_record(model);
  const uint64_t record_bytes = weights::DirectInput::in_blocks(static_cast<uint64_t>(record));
  const double share = static_cast<double>(resident) / static_cast<double>(all);
  const int depth = reads_at_once(model.config, reading.rates.expected.at(share), record_bytes);
  WIDEEP_TRY(find_disk(options, hardware ? &*hardware : nullptr, record_bytes, depth, &reading));
  reading.forecast = advise::forecast_reading(computing.iteration,
                                              {.num_layers = model.config.num_moe_layers(),
                                               .num_experts = model.config.routing.num_experts,
                                               .nodes = 1,
                                               .record_bytes = record,
                                               .disk_bandwidth = reading.disk_bandwidth},
                                              share, reading.rates);
  return std::optional(std::move(reading));
}

}  // namespace wideep::tools
