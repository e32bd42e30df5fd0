// SPDX-License-Identifier: Apache-2.0
#include "simulate/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/machine.h"
#include "base/try.h"
#include "measure/bench_ranks.h"
#include "measure/limits/limits.h"
#include "model/kv_layout.h"
#include "simulate/expert_cost.h"
#include "simulate/fit.h"
#include "simulate/layer_cost.h"
#include "weights/random_tensors.h"

namespace wideep::simulate {
namespace {

using kernels::WeightFormat;
using measure::limits::Operation;
using model::ModelConfig;

// ---- what runs ----

// The sizes of a model of mixtures: large enough that weights come from memory, and small enough
// that they stay in caches.
struct Sizes {
  int hidden, layers, heads, kv_heads, head_dim, experts, intermediate, top_k, vocabulary;
};
constexpr Sizes kModels[] = {
    {.hidden = 1024,
     .layers = 6,
     .heads = 16,
     .kv_heads = 4,
     .head_dim = 64,
     .experts = 64,
     .intermediate = 512,
     .top_k = 8,
     .vocabulary = 32768},
    {.hidden = 512,
     .layers = 6,
     .heads = 8,
     .kv_heads = 2,
     .head_dim = 64,
     .experts = 32,
     .intermediate = 256,
     .top_k = 4,
     .vocabulary = 8192},
};

Result<ModelConfig> config_of(const Sizes& sizes) {
  return model::parse_model_config(
      fmt::format(
          R"({{"model_type": "qwen3_moe", "vocab_size": {}, "hidden_size": {},
              "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {},
              "head_dim": {}, "intermediate_size": {}, "moe_intermediate_size": {},
              "num_experts": {}, "num_experts_per_tok": {}, "norm_topk_prob": true,
              "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
              "tie_word_embeddings": false, "decoder_sparse_step": 1, "mlp_only_layers": []}})",
          sizes.vocabulary, sizes.hidden, sizes.layers, sizes.heads, sizes.kv_heads, sizes.head_dim,
          2 * sizes.hidden, sizes.intermediate, sizes.experts, sizes.top_k),
      "calibration");
}

// Requests that come together: each rank computes their prompts, then a token of each at a time.
struct Shape {
  int prompt, tokens, requests;
};
constexpr Shape kShapes[] = {{16, 10, 1}, {16, 10, 2}, {16, 10, 4},  {16, 10, 8},
                             {8, 10, 16}, {8, 10, 32}, {1000, 8, 1}, {1000, 8, 4},
                             {32, 1, 1},  {128, 1, 1}, {256, 1, 1},  {512, 1, 1}};
constexpr int kMostTokens = 512;

std::vector<engine::Request> requests_of(const Shape& shape, int vocabulary, uint32_t seed) {
  return measure::random_requests(shape.requests, shape.prompt, shape.tokens, vocabulary, seed);
}

// ---- what is measured ----

struct ExpertTimes {
  ExpertShape shape;
  double working_set = 0.0;  // bytes that the iteration reads
  std::vector<double> rows;  // of each expert
  double seconds = 0.0;
};

// A layer beside its experts; or, without attention, the LM head.
struct DenseTimes {
  double weights = 0.0, rows = 0.0, hidden = 0.0;
  double cached_bytes = 0.0, multiply_adds = 0.0;
  bool attends = false;
  double working_set = 0.0;
  double seconds = 0.0;
};

struct Samples {
  std::vector<ExpertTimes> experts;
  std::vector<DenseTimes> dense;
  std::vector<double> between;  // seconds of iterations beside their layers
};

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Iterations of the requests of one shape, on one rank.
class Reader {
 public:
  Reader(const ModelConfig& config, WeightFormat format, Samples* samples)
      : config_(config), samples_(*samples) {
    const model::KvLayout kv(config, kernels::row_dtype(format));
    kv_bytes_ = static_cast<double>(kv.page_bytes()) / kernels::kPageTokens / kv.num_cached;
    shape_ = {.hidden = config.hidden_size,
              .intermediate = config.moe_intermediate_size,
              .format = format};
  }

  void read(const Shape& shape, const std::vector<run::Iteration>& iterations) {
    double cached = 0.0;  // tokens of each sequence
    for (const run::Iteration& iteration : iterations) {
      const engine::IterationRecord& rank = iteration.ranks[0];
      const double tokens = static_cast<double>(rank.prompt_tokens + rank.generated_tokens);
      const double each = tokens / shape.requests;  // prompts of equal length advance together
      working_set_ = bytes_read(rank, shape.requests * cached);
      read_layers(rank, tokens, shape.requests * each * (cached + (each + 1.0) / 2.0),
                  shape.requests * cached);
      read_rest(rank, shape.requests);
      cached += each;
    }
  }

 private:
  double bytes_read(const engine::IterationRecord& rank, double cached) const {
    const double weight = bytes_per_weight(shape_.format);
    double bytes = static_cast<double>(config_.vocab_size) * config_.hidden_size * weight;
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      const auto& counts = rank.layers[static_cast<size_t>(layer)].counts;
      const auto hit = std::ranges::count_if(counts, [](int32_t count) { return count > 0; });
      bytes += static_cast<double>(measure::elements_of_layer(config_, layer).mixer) * weight +
               cached * kv_bytes_ + static_cast<double>(hit) * shape_.bytes();
    }
    return bytes;
  }

  // The first layer's time has the embedding in it, the last one computes few rows.
  void read_layers(const engine::IterationRecord& rank, double tokens, double attended,
                   double cached) {
    for (size_t layer = 1; layer + 1 < rank.layers.size(); ++layer) {
      const engine::LayerRecord& record = rank.layers[layer];
      const measure::LayerElements elements =
          measure::elements_of_layer(config_, static_cast<int>(layer));
      samples_.experts.push_back({.shape = shape_,
                                  .working_set = working_set_,
                                  .rows = {record.counts.begin(), record.counts.end()},
                                  .seconds = seconds_of(record.experts_cpu_ns)});
      samples_.dense.push_back({.weights = static_cast<double>(elements.mixer + elements.router),
                                .rows = tokens,
                                .hidden = static_cast<double>(config_.hidden_size),
                                .cached_bytes = cached * kv_bytes_,
                                .multiply_adds = attended * static_cast<double>(elements.attended),
                                .attends = true,
                                .working_set = working_set_,
                                .seconds = seconds_of(record.other_cpu_ns)});
    }
  }

  void read_rest(const engine::IterationRecord& rank, double sampled) {
    double layers = seconds_of(rank.tail_cpu_ns);
    for (const engine::LayerRecord& layer : rank.layers) {
      layers += seconds_of(layer.other_cpu_ns + layer.experts_cpu_ns);
    }
    samples_.between.push_back(std::max(1e-7, seconds_of(rank.end_ns - rank.begin_ns) - layers));
    if (rank.generated_tokens == 0) return;
    samples_.dense.push_back(
        {.weights = static_cast<double>(config_.vocab_size) * config_.hidden_size,
         .rows = sampled,
         .hidden = static_cast<double>(config_.hidden_size),
         .working_set = working_set_,
         .seconds = seconds_of(rank.tail_cpu_ns)});
  }

  const ModelConfig& config_;
  Samples& samples_;
  ExpertShape shape_;
  double kv_bytes_ = 0.0;
  double working_set_ = 0.0;  // of the present iteration
};

// Beside the critical path, for each dispatch and combine.
double wait_of(const run::Iteration& iteration) {
  const size_t layers = iteration.ranks[0].layers.size();
  int64_t begin = iteration.ranks[0].begin_ns, end = 0, path = 0, tail = 0;
  for (size_t layer = 0; layer < layers; ++layer) {
    int64_t other = 0, experts = 0;
    for (const engine::IterationRecord& rank : iteration.ranks) {
      other = std::max(other, rank.layers[layer].other_cpu_ns);
      experts = std::max(experts, rank.layers[layer].experts_cpu_ns);
    }
    path += other + experts;
  }
  for (const engine::IterationRecord& rank : iteration.ranks) {
    begin = std::max(begin, rank.begin_ns);
    end = std::max(end, rank.end_ns);
    tail = std::max(tail, rank.tail_cpu_ns);
  }
  return seconds_of(end - begin - path - tail) / (2.0 * static_cast<double>(layers));
}

Status measure_model(const ModelConfig& config, WeightFormat format, CalibrationView& view,
                     Samples* samples) {
  measure::BenchRanksOptions options{
      .config = config,
      .precision = format,
      .limits = {.max_batch_size = 64, .max_num_tokens = kMostTokens, .max_pages = 512},
      .threads_per_rank = 1};
  WIDEEP_TRY_ASSIGN(options.parallel, parallel::parallel_config_for_ranks(1));
  WIDEEP_TRY_ASSIGN(
      const auto ranks,
      measure::BenchRanks::start(options, std::make_unique<weights::RandomTensors>(1), view));
  Reader reader(config, format, samples);
  for (const bool is_warm_up : {true, false}) {
    uint32_t seed = is_warm_up ? 1 : 100;
    for (const Shape& shape : kShapes) {
      WIDEEP_TRY_ASSIGN(const auto iterations,
                        ranks->run(requests_of(shape, config.vocab_size, ++seed)));
      if (!is_warm_up) reader.read(shape, iterations);
    }
  }
  return ranks->finish();
}

// What ranks that have a core each wait for each other in one exchange, beside computing: the
// median over iterations.
Result<double> measure_exchange(const ModelConfig& config, WeightFormat format, int num_ranks,
                                CalibrationView& view) {
  if (num_ranks < 2) return 0.0;
  measure::BenchRanksOptions options{
      .config = config,
      .precision = format,
      .limits = {.max_batch_size = 64, .max_num_tokens = kMostTokens, .max_pages = 512},
      .threads_per_rank = 1};
  WIDEEP_TRY_ASSIGN(options.parallel, parallel::parallel_config_for_ranks(num_ranks));
  WIDEEP_TRY_ASSIGN(
      const auto ranks,
      measure::BenchRanks::start(options, std::make_unique<weights::RandomTensors>(1), view));
  std::vector<double> waits;
  constexpr Shape kShort = {.prompt = 8, .tokens = 40, .requests = 1};
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    Shape shape = kShort;
    shape.requests *= num_ranks;
    WIDEEP_TRY_ASSIGN(const auto iterations,
                      ranks->run(requests_of(shape, config.vocab_size, seed)));
    for (const run::Iteration& iteration : iterations) {
      if (iteration.ranks[0].prompt_tokens > 0) continue;
      waits.push_back(wait_of(iteration));
    }
  }
  WIDEEP_TRY(ranks->finish());
  std::ranges::nth_element(waits, waits.begin() + static_cast<ptrdiff_t>(waits.size() / 2));
  return std::max(0.0, waits[waits.size() / 2]);
}

// ---- constants ----

// Of `fitted`, the constants that are left at their start are not varied by the measurements.
ProductKernel product_kernel(std::span<const double> constants, int tile) {
  return {.overhead = constants[0],
          .memory = constants[1],
          .compute = constants[2],
          .row_traffic = constants[3],
          .tile = tile};
}

template <typename Sample>
std::vector<double> measured_of(const std::vector<Sample>& samples) {
  std::vector<double> seconds(samples.size());
  std::ranges::transform(samples, seconds.begin(), &Sample::seconds);
  return seconds;
}

double median_error(std::span<const double> predicted, std::span<const double> measured) {
  const std::vector<double> errors = relative_errors(predicted, measured);
  return errors[errors.size() / 2];
}

ProductKernel fit_experts(const Hardware& hardware, const std::vector<ExpertTimes>& samples,
                          double* error) {
  const std::vector<double> seconds = measured_of(samples);
  std::vector<ExpertWork> work;
  for (const ExpertTimes& sample : samples) {
    work.push_back(expert_work(sample.rows, 1));
    // As if it were read from memory, which takes longer.
    work.back().experts *= hardware.memory_bandwidth / hardware.bandwidth_of(sample.working_set);
  }
  const auto predict = [&](std::span<const double> constants) {
    std::vector<double> predicted(samples.size());
    const ProductKernel kernel = product_kernel(constants, 1);
    for (size_t i = 0; i < samples.size(); ++i) {
      predicted[i] = expert_time(hardware, kernel, samples[i].shape, work[i]).seconds();
    }
    return predicted;
  };
  const std::vector<double> fitted = fit_constants(
      {5e-6, 1.0, 0.5, 1.0},
      [&](std::span<const double> each) { return mean_log_error(predict(each), seconds); });
  *error = median_error(predict(fitted), seconds);
  return product_kernel(fitted, 1);
}

struct DenseFit {
  ProductKernel dense;
  AttentionKernel attention;
};

// attention: if it is known; its operands have one type, whatever the weights' format.
DenseFit fit_dense(const Hardware& hardware, WeightFormat format,
                   const std::vector<DenseTimes>& samples,
                   const std::optional<AttentionKernel>& attention, double* error) {
  const std::vector<double> seconds = measured_of(samples);
  std::vector<Hardware> machines(samples.size(), hardware);  // for the bytes that each reads
  for (size_t i = 0; i < samples.size(); ++i) {
    machines[i].memory_bandwidth = hardware.bandwidth_of(samples[i].working_set);
  }
  const auto kernels = [&](std::span<const double> constants) {
    DenseFit fit{.dense = product_kernel(constants, 1)};
    fit.attention =
        attention ? *attention
                  : AttentionKernel{
                        .overhead = constants[4], .memory = constants[5], .compute = constants[6]};
    return fit;
  };
  const auto predict = [&](std::span<const double> constants) {
    const DenseFit fit = kernels(constants);
    std::vector<double> predicted(samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      const DenseTimes& each = samples[i];
      machines[i].attention = fit.attention;
      predicted[i] =
          product_seconds(machines[i], fit.dense, format, each.weights, each.rows, each.hidden) +
          (each.attends ? attention_seconds(machines[i], each.cached_bytes, each.multiply_adds)
                        : 0.0);
    }
    return predicted;
  };
  std::vector<double> start = {5e-6, 1.0, 0.5, 10.0};
  if (!attention) start.insert(start.end(), {2e-6, 1.0, 0.5});
  const std::vector<double> fitted = fit_constants(
      std::move(start),
      [&](std::span<const double> each) { return mean_log_error(predict(each), seconds); });
  *error = median_error(predict(fitted), seconds);
  return kernels(fitted);
}

Operation operation_of(WeightFormat format) {
  return kernels::takes_quantized_rows(format) ? Operation::kInt8
         : format == WeightFormat::kF32        ? Operation::kF32
                                               : Operation::kBf16;
}

Hardware limits_of_machine(const CalibrationOptions& options) {
  const base::Machine machine = base::read_machine();
  const int cores = machine.usable_cores();
  measure::limits::Probe one(measure::limits::choose_processors(machine, 1));
  measure::limits::Probe all(measure::limits::choose_processors(machine, cores));
  const measure::limits::Limits limits = one.measure();
  Hardware hardware{.name = options.name,
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

}  // namespace

Result<Calibration> calibrate(const CalibrationOptions& options, CalibrationView& view) {
  Calibration calibration;
  std::vector<std::pair<WeightFormat, Samples>> all;
  const int num_models = static_cast<int>(options.formats.size() * std::size(kModels));
  int done = 0;
  // Ranks first: they are forked, which wants a process without threads.
  for (const WeightFormat format : options.formats) {
    Samples samples;
    for (const Sizes& sizes : kModels) {
      WIDEEP_TRY_ASSIGN(const ModelConfig config, config_of(sizes));
      WIDEEP_TRY(measure_model(config, format, view, &samples));
      view.model_measured(++done, num_models);
    }
    all.emplace_back(format, std::move(samples));
  }
  WIDEEP_TRY_ASSIGN(const ModelConfig smallest, config_of(kModels[std::size(kModels) - 1]));
  const int cores = base::read_machine().usable_cores();
  WIDEEP_TRY_ASSIGN(const double wait,
                    measure_exchange(smallest, options.formats.front(), cores, view));
  Hardware& hardware = calibration.hardware;
  hardware = limits_of_machine(options);
  std::vector<double> between;
  std::optional<AttentionKernel> attention;
  for (auto& [format, samples] : all) {
    FormatKernels& kernels = hardware.of_formats[format];
    double experts = 0.0, dense = 0.0;
    kernels.experts = fit_experts(hardware, samples.experts, &experts);
    const DenseFit fit = fit_dense(hardware, format, samples.dense, attention, &dense);
    kernels.dense = fit.dense;
    attention = hardware.attention = fit.attention;
    hardware.experts = kernels.experts;
    hardware.dense = kernels.dense;
    calibration.errors.experts = std::max(calibration.errors.experts, experts);
    calibration.errors.dense = std::max(calibration.errors.dense, dense);
    between.insert(between.end(), samples.between.begin(), samples.between.end());
  }
  std::ranges::nth_element(between, between.begin() + static_cast<ptrdiff_t>(between.size() / 2));
  hardware.iteration = between[between.size() / 2];
  hardware.calibrated_dense = true;
  // Copies of rows are in the ranks' own times; what is left is waiting.
  for (ExchangeKernel* kernel :
       {&hardware.dispatch, &hardware.combine, &hardware.bulk_dispatch, &hardware.bulk_combine}) {
    *kernel = {.overhead = wait, .latency = 0.0, .link = 1e3, .serial = 0.0};
  }
  return calibration;
}

}  // namespace wideep::simulate
