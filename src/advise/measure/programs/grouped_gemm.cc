// SPDX-License-Identifier: Apache-2.0
//
// Times the experts' matrix products of a decode step with the engine's code: gate and up of a
// layer's experts, then down, a few rows each, all weights read from memory. The limits are
// measured before and after every turn. The least time is the larger of two: reading the weights at
// the memory's bandwidth, and the multiply-adds at the processor's peak. The share is least time /
// time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/cpu_time.h"
#include "base/machine.h"
#include "base/percentiles.h"
#include "base/thread_pool.h"
#include "command_line/command_line.h"
#include "kernels/pack_matrix.h"
#include "measure/limits/limits.h"
#include "measure/model/bench_report.h"
#include "model/parts/mlp.h"
#include "weights/expert_record.h"

namespace wideep {
namespace {

using base::percentiles_of;
using kernels::WeightFormat;

struct Options {
  std::vector<std::string> dtypes = {"bf16", "int8", "int4", "fp8", "mxfp4", "nvfp4"};
  std::vector<int> rows = {1, 2, 4, 6, 8, 10, 12, 14, 16};
  int hidden = 1024;
  int intermediate = 512;
  int experts = 64;  // of a layer, computed in one go
  int threads = 2;
  int repeat = 9;
};

std::vector<float> random_floats(size_t count, float deviation) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

// Layers of experts, at least `bytes` together, so that no layer is still in a cache when its turn
// comes. All have the same weights, each at addresses of its own.
class Layers {
 public:
  Layers(const Options& options, WeightFormat format, uint64_t bytes, base::ThreadPool& pool)
      : shape_{format, options.hidden, options.intermediate},
        experts_(static_cast<size_t>(options.experts)),
        count_((bytes - 1) / (experts_ * shape_.record_bytes()) + 1),
        bytes_(count_ * experts_ * shape_.record_bytes()) {
    const size_t record = shape_.record_bytes();
    float scales[3];
    int matrix = 0;
    for (const auto& [shape, offset] : {std::pair{shape_.gate(), size_t{0}},
                                        {shape_.gate(), shape_.up_offset()},
                                        {shape_.down(), shape_.down_offset()}}) {
      const auto rows = random_floats(static_cast<size_t>(shape.n) * static_cast<size_t>(shape.k),
                                      1.0F / std::sqrt(static_cast<float>(shape.k)));
      scales[matrix++] = kernels::pack_matrix(shape, rows.data(), bytes_.data() + offset).scale;
    }
    if (record > shape_.scales_offset()) {
      std::memcpy(bytes_.data() + shape_.scales_offset(), scales, sizeof(scales));
    }
    const auto others = static_cast<int64_t>(count_ * experts_) - 1;
    pool.parallel_for(others, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(bytes_.data() + static_cast<size_t>(i + 1) * record, bytes_.data(), record);
      }
    });
  }

  size_t count() const { return count_; }
  size_t experts() const { return experts_; }
  double bytes() const { return static_cast<double>(bytes_.size()); }
  // Operations of all layers for one row of each expert.
  double operations() const {
    return 6.0 * static_cast<double>(count_ * experts_) * shape_.hidden * shape_.intermediate;
  }
  weights::GatedMlp expert(size_t layer, size_t expert) const {
    const size_t index = layer * experts_ + expert;
    return weights::view_expert(shape_, bytes_.data() + index * shape_.record_bytes());
  }

 private:
  weights::ExpertShape shape_;
  size_t experts_, count_;
  base::AlignedBytes bytes_;
};

// Runs all layers once.
class Runner {
 public:
  Runner(const Options& options, const model::Compute& compute, const Layers& layers, int rows)
      : compute_(compute),
        layers_(layers),
        rows_(rows),
        hidden_(static_cast<size_t>(options.hidden)),
        x_(random_floats(layers.experts() * static_cast<size_t>(rows) * hidden_, 1.0F)),
        y_(x_.size()) {
    const auto& gate = layers.expert(0, 0).gate;
    cast_ = compute.cast(gate.shape,
                         model::float_rows(x_.data(), hidden_,
                                           static_cast<int>(x_.size() / hidden_), options.hidden),
                         operands_);
    work_.resize(layers.experts());
    for (size_t i = 0; i < work_.size(); ++i) {
      work_[i].x = cast_;
      work_[i].x.num_rows = rows;
      work_[i].x.input.first = cast_.input[static_cast<int>(i) * rows];
      work_[i].result = {y_.data() + i * static_cast<size_t>(rows) * hidden_,
                         hidden_ * sizeof(float)};
    }
  }

  double seconds() {
    const int64_t start_ns = base::wall_ns();
    for (size_t layer = 0; layer < layers_.count(); ++layer) {
      for (size_t i = 0; i < work_.size(); ++i) work_[i].mlp = layers_.expert(layer, i);
      runner_.run(compute_, work_);
    }
    return static_cast<double>(base::wall_ns() - start_ns) * 1e-9;
  }
  double operations() const { return layers_.operations() * rows_; }

 private:
  const model::Compute& compute_;
  const Layers& layers_;
  int rows_;
  size_t hidden_;
  std::vector<float> x_, y_;
  model::Scratch operands_;
  model::Rows cast_;
  std::vector<model::ExpertWork> work_;
  model::MlpRunner runner_;
};

// One run of all layers, and the limits measured around it.
struct Turn {
  double seconds = 0.0;
  double read_gbps = 0.0;
  double peak_gops = 0.0;
};

void print(const Layers& layers, const Runner& runner, const std::string& dtype, int rows,
           const std::vector<Turn>& turns) {
  const double gigabytes = layers.bytes() * 1e-9, giga_operations = runner.operations() * 1e-9;
  std::vector<double> seconds, share, read, compute;
  for (const Turn& turn : turns) {
    const double bound = std::max(gigabytes / turn.read_gbps, giga_operations / turn.peak_gops);
    seconds.push_back(turn.seconds);
    read.push_back(turn.read_gbps);
    compute.push_back(turn.peak_gops);
    share.push_back(100.0 * bound / turn.seconds);
  }
  const double median = base::percentiles_of(seconds).median;
  const auto experts = static_cast<double>(layers.count() * layers.experts());
  const double limit_read = base::percentiles_of(read).median,
               peak = base::percentiles_of(compute).median;
  const bool reads = gigabytes / limit_read > giga_operations / peak;
  const base::Percentiles shares = base::percentiles_of(share);
  fmt::print(
      "{:<7}{:>5}{:>10.1f}{:>9.0f}{:>8.0f}{:>8.1f}{:>8.1f}   {:<7}{:>6.1f} %{:>8.1f}{:>8.1f}\n",
      dtype, rows, median / experts * 1e6, giga_operations / median, peak, gigabytes / median,
      limit_read, reads ? "read" : "peak", shares.median, shares.minimum, shares.maximum);
}

Status measure_all(const Options& options) {
  std::vector<WeightFormat> formats;
  for (const std::string& dtype : options.dtypes) {
    const auto format = kernels::weight_format_from_name(dtype);
    if (!format) {
      return invalid_input(fmt::format(
          "--dtype: expected f32, bf16, fp8, int8, int4, mxfp4 or nvfp4, found \"{}\"", dtype));
    }
    const int granule = std::max(kernels::default_group(*format), 1);
    for (const int k : {options.hidden, options.intermediate}) {
      if (k % granule == 0) continue;
      return invalid_input(
          fmt::format("--hidden, --intermediate: expected multiples of {} for {}, found {}",
                      granule, dtype, k));
    }
    formats.push_back(*format);
  }
  const auto kernels = kernels::select_kernels(std::getenv("WIDEEP_ISA"));
  if (!kernels.ok()) return kernels.status();
  const std::vector<int> processors =
      measure::limits::choose_processors(base::read_machine(), options.threads);
  measure::limits::Probe probe(processors);
  const measure::limits::Limits all = probe.measure();
  base::ThreadPool pool({.num_threads = options.threads, .spin = true, .processors = processors});
  const model::Compute compute(*kernels.value(), pool);
  fmt::print(
      "experts of {} × {}, {} a layer; {} threads, kernels {}; medians of {} turns, each between "
      "two probes of its limits\n\n",
      options.intermediate, options.hidden, options.experts, options.threads, kernels.value()->isa,
      options.repeat);
  fmt::print(
      "dtype   rows  µs/expert  GOP/s    peak    GB/s    read   bound    share      low    high\n");
  for (size_t f = 0; f < formats.size(); ++f) {
    const Layers layers(options, formats[f], probe.bytes(), pool);
    const measure::limits::Operation operation = measure::operation_of(formats[f], all);
    for (const int rows : options.rows) {
      Runner runner(options, compute, layers, rows);
      runner.seconds();
      std::vector<Turn> turns(static_cast<size_t>(options.repeat));
      double read = probe.read_gbps(), peak = probe.gops(operation);
      for (Turn& turn : turns) {
        turn.seconds = runner.seconds();
        const double read_before = read, peak_before = peak;
        read = probe.read_gbps();
        peak = probe.gops(operation);
        turn.read_gbps = (read_before + read) / 2;
        turn.peak_gops = (peak_before + peak) / 2;
      }
      print(layers, runner, options.dtypes[f], rows, turns);
    }
  }
  return {};
}

}  // namespace
}  // namespace wideep

int main(int argc, char** argv) {
  wideep::Options options;
  wideep::command_line::Program program(
      "Times experts' matrix products of few rows, as shares of the limits of memory and "
      "processor");
  program.add_option("--dtype", options.dtypes, "Formats of the weights")
      .separate_values_by(',')
      .show_default();
  program.add_option("--rows", options.rows, "Rows per expert, one or more numbers")
      .separate_values_by(',')
      .range(1, 512)
      .show_default();
  program.add_option("--hidden", options.hidden, "Elements of a row").positive().show_default();
  program.add_option("--intermediate", options.intermediate, "Intermediate size of an expert")
      .positive()
      .show_default();
  program.add_option("--experts", options.experts, "Experts per layer")
      .range(1, 4096)
      .show_default();
  program.add_option("--threads", options.threads, "Threads, each pinned to its own processor")
      .range(1, 1024)
      .show_default();
  program.add_option("--repeat", options.repeat, "Number of turns").positive().show_default();
  if (const auto code = program.parse_main(argc, argv)) return *code;
  const wideep::Status status = wideep::measure_all(options);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
  return status.exit_code();
}
