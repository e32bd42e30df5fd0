// SPDX-License-Identifier: Apache-2.0
//
// The order of fits matters, since each uses the constants before it: limits of the machine;
// products of experts; dense products and attention; and from what is then left of an iteration,
// what ranks do for each other and lose by turns. The first layer's time has the embedding in it
// and the last one computes few rows: only those between are samples. Others on the machine only
// prolong waiting: its lower quartile is taken.
#include "measure/calibrate/calibrate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/machine.h"
#include "base/try.h"
#include "cost/exchange_cost.h"
#include "cost/expert_cost.h"
#include "cost/fit.h"
#include "cost/rank_hardware.h"
#include "cost/step_cost.h"
#include "measure/calibrate/iteration_parts.h"
#include "measure/calibrate/other_work.h"
#include "measure/limits/limits.h"
#include "model/kv_layout.h"

namespace wideep::measure {
namespace {

using kernels::WeightFormat;
using measure::limits::Operation;
using model::ModelConfig;

// ---- samples of what a rank computes ----

struct ExpertTimes {
  cost::ExpertShape shape;
  double bytes = 0.0;  // of all weights, among which those of the experts are read
  cost::ExpertWork work;
  double seconds = 0.0;
};

// A layer beside its experts; or, without attention, the LM head.
struct DenseTimes {
  cost::LayerDense work;
  double cached_bytes = 0.0, multiply_adds = 0.0;
  bool attends = false;
  double bytes = 0.0;  // that the iteration reads
  double seconds = 0.0;
};

struct Samples {
  std::vector<ExpertTimes> experts;
  std::vector<DenseTimes> dense;
};

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// What the iterations of a model read and compute. The probes' models have no windows.
class ModelWork {
 public:
  ModelWork(const ModelConfig& config, WeightFormat format) : config_(config) {
    const model::KvLayout kv(config, kernels::row_dtype(format));
    kv_bytes_ = static_cast<double>(kv.page_bytes()) / kernels::kPageTokens / kv.num_cached;
    expert_ = {.hidden = config.hidden_size,
               .intermediate = config.moe_intermediate_size,
               .format = format};
    head_ = static_cast<double>(config.vocab_size) * config.hidden_size;
    const double weight = cost::bytes_per_weight(format);
    for (int layer = 0; layer < config.num_layers; ++layer) {
      layers_.push_back(cost::dense_of_layer(config, layer, 1));
      dense_bytes_ += weight * (layers_.back().mixer.weights + layers_.back().mlp.weights);
      attended_.push_back(static_cast<double>(model::elements_of_layer(config, layer).attended));
    }
    expert_bytes_ = expert_.bytes() * config.num_moe_layers() * config.routing.num_experts;
  }

  void add(const ProbeIteration& iteration, Samples* samples) const {
    const double read = bytes_read(iteration);
    const engine::IterationRecord& first = iteration.ranks[0];
    // The first layer's time has the embedding in it, the last one computes few rows.
    for (size_t layer = 1; layer + 1 < first.layers.size(); ++layer) {
      const std::vector<double> rows = rows_of_experts(iteration, layer);
      const size_t own = rows.size() / iteration.ranks.size();
      for (size_t rank = 0; rank < iteration.ranks.size(); ++rank) {
        const engine::LayerRecord& record = iteration.ranks[rank].layers[layer];
        const cost::ExpertWork work =
            cost::expert_work(std::span(rows).subspan(rank * own, own), 1);
        // Processor time of several threads is put together from differences; a busy machine can
        // make it senseless.
        if (work.rows > 0.0 && record.experts_cpu_ns > 0) {
          samples->experts.push_back({.shape = expert_,
                                      .bytes = dense_bytes_ + expert_bytes_,
                                      .work = work,
                                      .seconds = seconds_of(record.experts_cpu_ns)});
        }
        if (record.other_cpu_ns <= 0) continue;
        samples->dense.push_back(layer_times(iteration, layer, read));
        samples->dense.back().seconds = seconds_of(record.other_cpu_ns);
      }
    }
    if (first.generated_tokens == 0 || first.tail_cpu_ns <= 0) return;
    DenseTimes& head = samples->dense.emplace_back();
    const auto hidden = static_cast<double>(config_.hidden_size);
    head.work.mixer = {
        .weights = head_, .rows = static_cast<double>(iteration.shape.requests), .hidden = hidden};
    head.bytes = read;
    head.seconds = seconds_of(first.tail_cpu_ns);
  }

  // A layer of the iteration, without its seconds.
  DenseTimes layer_times(const ProbeIteration& iteration, size_t layer, double read) const {
    const double requests = iteration.shape.requests;
    const double each = iteration.tokens / requests;  // prompts of equal length advance together
    DenseTimes times{.work = layers_[layer],
                     .cached_bytes = iteration.cached * kv_bytes_,
                     .multiply_adds = iteration.tokens *
                                      (iteration.cached / requests + (each + 1.0) / 2.0) *
                                      attended_[layer],
                     .attends = true,
                     .bytes = read};
    times.work.mixer.rows = times.work.mlp.rows = iteration.tokens;
    return times;
  }

  // By all ranks; weights that all have, once.
  double bytes_read(const ProbeIteration& iteration) const {
    double bytes = dense_bytes_ + head_ * cost::bytes_per_weight(expert_.format) +
                   iteration.cached * kv_bytes_ * config_.num_layers *
                       static_cast<double>(iteration.ranks.size());
    for (size_t layer = 0; layer < iteration.ranks[0].layers.size(); ++layer) {
      bytes += expert_.bytes() *
               static_cast<double>(std::ranges::count_if(rows_of_experts(iteration, layer),
                                                         [](double rows) { return rows > 0.0; }));
    }
    return bytes;
  }

  // [experts] of all ranks. Experts lie on the ranks in their order.
  static std::vector<double> rows_of_experts(const ProbeIteration& iteration, size_t layer) {
    std::vector<double> rows(iteration.ranks[0].layers[layer].counts.size(), 0.0);
    for (const engine::IterationRecord& rank : iteration.ranks) {
      const std::vector<int32_t>& counts = rank.layers[layer].counts;
      for (size_t e = 0; e < rows.size(); ++e) rows[e] += counts[e];
    }
    return rows;
  }

 private:
  const ModelConfig& config_;
  cost::ExpertShape expert_;
  std::vector<cost::LayerDense> layers_;
  std::vector<double> attended_;
  double kv_bytes_ = 0.0, head_ = 0.0, dense_bytes_ = 0.0, expert_bytes_ = 0.0;
};

// ---- constants ----

template <typename Sample>
std::vector<double> measured_of(const std::vector<Sample>& samples) {
  std::vector<double> seconds(samples.size());
  std::ranges::transform(samples, seconds.begin(), &Sample::seconds);
  return seconds;
}

double median_error(std::span<const double> predicted, std::span<const double> measured) {
  const std::vector<double> errors = cost::relative_errors(predicted, measured);
  return errors[errors.size() / 2];
}

cost::ProductKernel product_kernel(std::span<const double> constants) {
  return {.overhead = constants[0],
          .memory = constants[1],
          .compute = constants[2],
          .row_traffic = constants[3],
          .activation = constants[4],
          .matrix = constants[5]};
}

// machine: of the rank, for the bytes of a sample.
using MachineOf = std::function<cost::Hardware(double bytes)>;

struct ExpertFit {
  cost::ProductKernel experts;
  double error = 0.0;  // median, as a share of the measured time
};

ExpertFit fit_experts(const MachineOf& machine, const std::vector<ExpertTimes>& samples) {
  const std::vector<double> seconds = measured_of(samples);
  std::map<double, cost::Hardware> machines;
  for (const ExpertTimes& sample : samples) {
    if (!machines.contains(sample.bytes)) machines[sample.bytes] = machine(sample.bytes);
  }
  const auto predict = [&](std::span<const double> constants) {
    std::vector<double> predicted(samples.size());
    cost::ProductKernel kernel = product_kernel(constants);
    kernel.matrix = 0.0;
    for (size_t i = 0; i < samples.size(); ++i) {
      const ExpertTimes& each = samples[i];
      predicted[i] =
          cost::expert_time(machines.at(each.bytes), kernel, each.shape, each.work).seconds();
    }
    return predicted;
  };
  const std::vector<double> fitted = cost::fit_constants(
      {5e-6, 1.0, 0.5, 1.0, 1.0, 1.0},
      [&](std::span<const double> each) { return cost::mean_log_error(predict(each), seconds); });
  ExpertFit fit{.experts = product_kernel(fitted), .error = median_error(predict(fitted), seconds)};
  fit.experts.matrix = 0.0;
  return fit;
}

struct DenseFit {
  cost::ProductKernel dense;
  cost::AttentionKernel attention;
  double error = 0.0;  // as that of ExpertFit
};

double dense_time(const cost::Hardware& machine, const cost::ProductKernel& kernel,
                  WeightFormat format, const DenseTimes& each) {
  double seconds = cost::product_seconds(machine, kernel, format, each.work.mixer);
  if (each.work.mlp.weights > 0.0) {
    cost::ProductKernel own = kernel;
    own.overhead = 0.0;
    seconds += cost::product_seconds(machine, own, format, each.work.mlp);
  }
  return seconds + (each.attends
                        ? cost::attention_seconds(machine, each.cached_bytes, each.multiply_adds)
                        : 0.0);
}

// attention: if it is known; its operands have one type, whatever the weights' format.
// activation: that of experts, which do the same.
DenseFit fit_dense(const MachineOf& machine, WeightFormat format, double activation,
                   const std::vector<DenseTimes>& samples,
                   const std::optional<cost::AttentionKernel>& attention) {
  const std::vector<double> seconds = measured_of(samples);
  std::vector<cost::Hardware> machines;
  for (const DenseTimes& sample : samples) machines.push_back(machine(sample.bytes));
  const auto kernels = [&](std::span<const double> constants) {
    DenseFit fit{.dense = product_kernel(constants)};
    fit.dense.activation = activation;
    fit.attention =
        attention ? *attention
                  : cost::AttentionKernel{
                        .overhead = constants[6], .memory = constants[7], .compute = constants[8]};
    return fit;
  };
  const auto predict = [&](std::span<const double> constants) {
    const DenseFit fit = kernels(constants);
    std::vector<double> predicted(samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      machines[i].attention = fit.attention;
      predicted[i] = dense_time(machines[i], fit.dense, format, samples[i]);
    }
    return predicted;
  };
  std::vector<double> start = {5e-6, 1.0, 0.5, 10.0, 1.0, 2e-6};
  if (!attention) start.insert(start.end(), {2e-6, 1.0, 0.5});
  const std::vector<double> fitted = cost::fit_constants(
      std::move(start),
      [&](std::span<const double> each) { return cost::mean_log_error(predict(each), seconds); });
  DenseFit fit = kernels(fitted);
  fit.error = median_error(predict(fitted), seconds);
  return fit;
}

Operation operation_of(WeightFormat format) {
  return kernels::takes_quantized_rows(format) ? Operation::kInt8
         : format == WeightFormat::kF32        ? Operation::kF32
                                               : Operation::kBf16;
}

cost::Hardware limits_of_machine(const CalibrationOptions& options) {
  const base::Machine machine = base::read_machine();
  const int cores = machine.usable_cores();
  measure::limits::Probe one(measure::limits::choose_processors(machine, 1));
  measure::limits::Probe all(measure::limits::choose_processors(machine, cores));
  const measure::limits::Limits limits = one.measure();
  cost::Hardware hardware{
      .name = options.name,
      .device = machine.processor,
      .devices_per_node = cores,
      .divisible = true,
      .processors = 1,
      .memory_bytes = static_cast<double>(machine.usable_memory_bytes()) / cores,
      .memory_bandwidth = limits.read_gbps * 1e9,
      .node_bandwidth = all.read_gbps() * 1e9};
  for (double bytes = 2 << 20; bytes <= 512 << 20; bytes *= 2) {
    measure::limits::Probe own(measure::limits::choose_processors(machine, 1),
                               static_cast<uint64_t>(bytes));
    hardware.cached_bandwidth[static_cast<double>(own.bytes())] = own.read_gbps() * 1e9;
    measure::limits::Probe shared(measure::limits::choose_processors(machine, cores),
                                  static_cast<uint64_t>(bytes));
    hardware.cached_node_bandwidth[static_cast<double>(shared.bytes())] = shared.read_gbps() * 1e9;
  }
  for (const WeightFormat format : options.formats) {
    const double gops = limits.gops(operation_of(format));
    hardware.peak[format] = (gops > 0.0 ? gops : limits.f32_gops) * 1e9;
  }
  hardware.node_link = {.latency = all.flag_one_way_ns() * 1e-9,
                        .bandwidth = limits.copy_gbps * 1e9 / 2};
  hardware.node_link_ranks = 1 << 16;
  return hardware;
}

// ---- what ranks do for each other ----

// Of runs on several ranks, beside what the fitted constants predict that they compute.
struct ExchangeTimes {
  double calls = 0.0;  // dispatches and combines of an iteration
  double bytes = 0.0;  // that a rank sends in one, to others
  bool is_prompt = false;
  double waiting = 0.0, computing = 0.0;  // seconds of one
  double dense_ratio = 1.0;               // what ranks compute beside experts: predicted / measured
  double loss = 0.0;                      // of the whole, against what ranks compute
};

std::vector<ExchangeTimes> exchange_times(const cost::Hardware& hardware, const ProbeRun& run) {
  std::vector<ExchangeTimes> all;
  const ModelWork work(*run.config, run.format);
  const int cores = hardware.devices_per_node;
  for (const ProbeIteration& each : run.iterations) {
    const auto num_ranks = static_cast<int>(each.ranks.size());
    const IterationParts parts = parts_of(each.ranks, each.seconds, cores);
    const cost::Hardware machine =
        cost::dense_hardware(hardware, run.format, num_ranks, work.bytes_read(each));
    const size_t layers = each.ranks[0].layers.size();
    double predicted = 0.0, measured = 0.0;
    for (size_t layer = 1; layer + 1 < layers; ++layer) {
      predicted += dense_time(machine, machine.dense_in(run.format), run.format,
                              work.layer_times(each, layer, 0.0));
      double sum = 0.0;
      for (const engine::IterationRecord& rank : each.ranks) {
        sum += seconds_of(rank.layers[layer].other_cpu_ns);
      }
      measured += sum / num_ranks;
    }
    const double hidden = run.config->hidden_size;
    const int top_k = run.config->routing.top_k;
    const double ranks = num_ranks * (1.0 - std::pow(1.0 - 1.0 / num_ranks, top_k));
    const double calls = 2.0 * static_cast<double>(layers);
    all.push_back({.calls = calls,
                   .bytes = each.tokens * ranks * (num_ranks - 1) / num_ranks * 1.5 * hidden,
                   .is_prompt = each.is_prompt,
                   .waiting = parts.exchange / calls,
                   .computing = (measured - predicted) / (2.0 * static_cast<double>(layers - 2)),
                   .dense_ratio = std::max(predicted, 1e-9) / std::max(measured, 1e-9),
                   .loss = parts.exchange / (parts.experts + parts.dense)});
  }
  return all;
}

double quantile_of(const std::vector<ExchangeTimes>& times, bool is_prompt, double share,
                   const std::function<double(const ExchangeTimes&)>& value) {
  std::vector<double> values;
  for (const ExchangeTimes& each : times) {
    if (each.is_prompt == is_prompt) values.push_back(value(each));
  }
  return values.empty() ? 0.0 : std::max(0.0, quantile(std::move(values), share));
}

// The part of dense weights that ranks in turns find in caches, with which predictions are best.
double fit_shared_reads(cost::Hardware hardware, const std::vector<ProbeRun>& turns) {
  double best = 0.0, min = std::numeric_limits<double>::infinity();
  for (int tenth = 0; tenth <= 10; ++tenth) {
    hardware.shared_reads = 0.1 * tenth;
    double error = 0.0;
    for (const ProbeRun& run : turns) {
      for (const ExchangeTimes& each : exchange_times(hardware, run)) {
        if (!each.is_prompt) error += std::abs(std::log(each.dense_ratio));
      }
    }
    if (error >= min) continue;
    min = error;
    best = hardware.shared_reads;
  }
  return best;
}

// Others on the machine only ever prolong waiting, so that the lower quartile is taken of it.
constexpr double kUndisturbed = 0.25;

// What ranks wait for each other shows where each has a core; what more of them cost, where they
// take turns.
void fit_exchange(const std::vector<ExchangeTimes>& groups, const std::vector<ExchangeTimes>& times,
                  cost::Hardware* hardware) {
  const double wait = quantile_of(groups, false, kUndisturbed,
                                  [](const ExchangeTimes& each) { return each.waiting; });
  const double work =
      quantile_of(times, false, 0.5, [](const ExchangeTimes& each) { return each.computing; });
  const double per_byte = quantile_of(times, true, 0.5, [&](const ExchangeTimes& each) {
    return (each.computing - work) / each.bytes;
  });
  const double share = per_byte > 0.0
                           ? std::clamp(1.0 / (per_byte * hardware->node_link.bandwidth), 1e-3, 1e3)
                           : 1e3;
  for (cost::ExchangeKernel* kernel : {&hardware->dispatch, &hardware->combine,
                                       &hardware->bulk_dispatch, &hardware->bulk_combine}) {
    *kernel = {.overhead = wait + work, .latency = 0.0, .link = share, .serial = 0.0};
  }
}

// Seconds between iterations of one rank, beside what it computes.
double between_of(const std::vector<ProbeRun>& runs) {
  std::vector<double> between;
  for (const ProbeRun& run : runs) {
    if (run.iterations.front().ranks.size() > 1) continue;
    for (const ProbeIteration& each : run.iterations) {
      if (each.is_prompt) continue;
      between.push_back(parts_of(each.ranks, each.seconds, 1).exchange);
    }
  }
  return std::max(1e-7, quantile(std::move(between), kUndisturbed));
}

// What constants are trusted beyond the sizes that were measured: a factor.
constexpr double kTrusted = 2.0;

}  // namespace

Calibrator::Calibrator(CalibrationOptions options)
    : options_(std::move(options)), cores_(base::read_machine().usable_cores()) {
  // Ranks have all cores together, whatever their number: one with all, or one on each. What a core
  // does while the others are idle tells little.
  const auto models = probe_models();
  for (const WeightFormat format : options_.formats) {
    for (const auto& config : models) {
      plan_.push_back({.config = config, .format = format, .ranks = cores_});
      if (cores_ > 1) plan_.push_back({.config = config, .format = format, .threads = cores_});
    }
    if (format != options_.formats.front()) continue;
    for (size_t i = 1; i < models.size(); ++i) {
      plan_.push_back({.config = models[i], .format = format, .ranks = kTurns * cores_});
    }
  }
}

Status Calibrator::measure_step(int step) {
  const Planned& each = plan_[static_cast<size_t>(step)];
  run::RunView silent;
  const OtherWork others;
  WIDEEP_TRY_ASSIGN(ProbeRun run,
                    run_probe(each.config, each.format, each.ranks, each.threads, silent));
  run.step = step;
  run.others = others.share();
  std::vector<ProbeRun>& runs = each.ranks > cores_ ? turns_ : runs_;
  // A disturbed run is better than none.
  const auto is_same = [&](const ProbeRun& other) { return other.step == step; };
  const auto is_calm = [](const ProbeRun& other) { return other.others <= kMaxOthers; };
  const bool has_calm = std::ranges::any_of(
      runs, [&](const ProbeRun& other) { return is_same(other) && is_calm(other); });
  if (has_calm && !is_calm(run)) return {};
  if (is_calm(run) && !has_calm) std::erase_if(runs, is_same);
  runs.push_back(std::move(run));
  return {};
}

Calibration Calibrator::result() const {
  Calibration calibration;
  cost::Hardware& hardware = calibration.hardware;
  hardware = limits_of_machine(options_);
  std::optional<cost::AttentionKernel> attention;
  for (const WeightFormat format : options_.formats) {
    for (const int threads : {1, cores_}) {
      Samples samples;
      for (const ProbeRun& run : runs_) {
        if (run.format != format || run.threads != threads) continue;
        const ModelWork work(*run.config, format);
        for (const ProbeIteration& each : run.iterations) work.add(each, &samples);
      }
      const int num_ranks = cores_ / threads;
      const auto machine = [&](double bytes) {
        return cost::rank_hardware(hardware, format, num_ranks, bytes);
      };
      const ExpertFit experts = fit_experts(machine, samples.experts);
      const DenseFit dense =
          fit_dense(machine, format, experts.experts.activation, samples.dense, attention);
      attention = hardware.attention = dense.attention;
      (threads == 1 ? hardware.of_formats : hardware.of_all_cores)[format] = {
          .experts = experts.experts, .dense = dense.dense};
      calibration.errors.experts = std::max(calibration.errors.experts, experts.error);
      calibration.errors.dense = std::max(calibration.errors.dense, dense.error);
      if (cores_ == 1) break;
    }
  }
  hardware.experts = hardware.experts_in(options_.formats.front());
  hardware.dense = hardware.dense_in(options_.formats.front());
  hardware.iteration = between_of(runs_);
  hardware.calibrated_dense = true;
  hardware.shared_reads = fit_shared_reads(hardware, turns_);
  std::vector<ExchangeTimes> groups, turns;
  for (const ProbeRun& run : runs_) {
    if (run.threads > 1 || cores_ == 1) continue;
    for (const ExchangeTimes& each : exchange_times(hardware, run)) groups.push_back(each);
  }
  for (const ProbeRun& run : turns_) {
    for (const ExchangeTimes& each : exchange_times(hardware, run)) turns.push_back(each);
  }
  fit_exchange(groups, turns, &hardware);
  hardware.turns_loss =
      quantile_of(turns, true, kUndisturbed, [](const ExchangeTimes& each) { return each.loss; });
  hardware.range = {.min_hidden = kMinProbed / kTrusted,
                    .max_hidden = kMaxProbed * kTrusted,
                    .max_tokens = kMaxProbedTokens * kTrusted,
                    .max_ranks = cores_ * kTurns,
                    .formats = options_.formats};
  return calibration;
}

Result<Calibration> calibrate(const CalibrationOptions& options, CalibrationView& view) {
  Calibrator calibrator(options);
  for (int step = 0; step < calibrator.num_steps(); ++step) {
    WIDEEP_TRY(calibrator.measure_step(step));
    view.model_measured(step + 1, calibrator.num_steps());
  }
  return calibrator.result();
}

}  // namespace wideep::measure
