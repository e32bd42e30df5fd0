// SPDX-License-Identifier: Apache-2.0
//
// The cost of online balancing for the forward path: iteration times of the reference model with
// and without it, in runs that take turns, next to the spread of equal runs. And its gain: the
// critical path of the experts, next to that of a perfect router.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu_time.h"
#include "base/stopped_threads.h"
#include "command_line/command_line.h"
#include "run/generate.h"

namespace wideep {
namespace {

struct Options {
  std::string model = "models/reference";
  int ranks = 2;
  int slots = 40;
  int layer_updates = 2;
  int pairs = 5;
  int iterations = 2000;
  double stall_seconds = 10.0;
  int skewed_ranks = 4;
};

// Figures of one run, per iteration.
struct Times {
  double median_us = 0.0;
  double p99_us = 0.0;
  double tokens_per_second = 0.0;
  double experts_over_mean = 0.0;  // critical path of the experts over the mean rank's
  int64_t moves = 0;
};

// Several kinds of text, one after the other, which make different experts hot.
const std::vector<std::string> kPrompts = {
    "In the beginning the house stood alone upon the hill, and the old man who lived there",
    "def read_lines(path):\n    with open(path) as file:\n        return [",
    "Das Programm liest die Konfigurationsdatei beim Start ein. Wenn die Datei",
    "Question: Anna has 12 apples and gives 5 of them to Ben. How many apples does she have",
};

// The last one is a second run of the first kind, so its ratios show only noise.
enum class Kind { kStatic, kOnline, kOnlineTrt, kStaticAgain };
constexpr std::pair<Kind, const char*> kKinds[] = {{Kind::kStatic, "static"},
                                                   {Kind::kOnline, "online"},
                                                   {Kind::kOnlineTrt, "trt"},
                                                   {Kind::kStaticAgain, "static 2"}};

bool balances(Kind kind) { return kind == Kind::kOnline || kind == Kind::kOnlineTrt; }

run::GenerateOptions run_options(const Options& options, Kind kind, int iterations) {
  run::GenerateOptions run;
  run.model_dir = options.model;
  run.parallel = parallel::parallel_config_for_ranks(options.ranks).value();
  run.parallel.max_batch_size = 4;
  run.parallel.moe_config.load_balancer = {
      .num_slots = options.slots,
      .layer_updates_per_iter = balances(kind) ? options.layer_updates : 0};
  if (kind == Kind::kOnlineTrt) {
    run.adjust_online = [](run::OnlineParts& parts) {
      parts.plan.policy.policy = online::PolicyKind::kTrt;
    };
  }
  constexpr int kMaxTokens = 250;
  run.max_tokens = kMaxTokens;
  // Four requests per rank at the same time, each with kMaxTokens iterations.
  const int rounds = (iterations + kMaxTokens - 1) / kMaxTokens;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 4 * options.ranks; ++i) {
      run.prompts.push_back(kPrompts[round % kPrompts.size()] + std::string(1, char('a' + i)));
    }
  }
  return run;
}

double quantile(std::vector<double> values, double q) {
  const auto at = static_cast<size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

Result<Times> measure(const Options& options, Kind kind) {
  std::vector<double> wall_us;
  constexpr int kWarmUp = 50;
  const auto report =
      run::generate(run_options(options, kind, options.iterations), [&](const run::Event& event) {
        const auto* each = std::get_if<run::Iteration>(&event);
        if (each == nullptr) return;
        const engine::IterationRecord& record = each->ranks[0];
        if (record.prompt_tokens == 0 && record.iteration >= kWarmUp) {
          wall_us.push_back(static_cast<double>(record.wall_ns) * 1e-3);
        }
      });
  if (!report.ok()) return report.status();
  if (!report->ended.ok()) return report->ended;
  return Times{quantile(wall_us, 0.5), quantile(wall_us, 0.99), report->tokens_per_second(),
               report->load.critical_path_experts_ms / report->load.mean_experts_ms,
               report->online ? report->online->moves : 0};
}

double median_of(std::vector<double> values) { return quantile(std::move(values), 0.5); }

void print_run(const char* name, const Times& times) {
  fmt::print("{:<8}{:>11.1f}{:>11.1f}{:>12.0f}{:>18.3f}{:>8}\n", name, times.median_us,
             times.p99_us, times.tokens_per_second, times.experts_over_mean, times.moves);
}

void print_goal(const char* what, double found, double goal, bool at_most) {
  const bool met = at_most ? found <= goal : found >= goal;
  fmt::print("{:<34}{:>8.3f}   goal {} {:.2f}  {}\n", what, found, at_most ? "<=" : ">=", goal,
             met ? "met" : "missed");
}

// The median over pairs of runs, the range of their middle half, and the same for equal runs.
void print_ratio(const char* what, const std::vector<double>& found,
                 const std::vector<double>& equal, double goal, bool at_most) {
  const double median = median_of(found);
  const bool met = at_most ? median <= goal : median >= goal;
  fmt::print("  {:<28}{:>8.3f}  ({:.3f} to {:.3f})   equal runs {:.3f} ({:.3f} to {:.3f})", what,
             median, quantile(found, 0.25), quantile(found, 0.75), median_of(equal),
             quantile(equal, 0.25), quantile(equal, 0.75));
  fmt::print("   goal {} {:.2f}  {}\n", at_most ? "<=" : ">=", goal, met ? "met" : "missed");
}

// Runs of one kind, compared with the static runs next to them.
struct Ratios {
  std::vector<double> median, p99, speed;

  void add(const Times& with, const Times& without) {
    median.push_back(with.median_us / without.median_us);
    p99.push_back(with.p99_us / without.p99_us);
    speed.push_back(with.tokens_per_second / without.tokens_per_second);
  }
  void print(const char* name, const Ratios& equal) const {
    fmt::print("\n{} / static: median of {} pairs (middle half)\n", name, median.size());
    print_ratio("iteration time, median", median, equal.median, 1.02, true);
    print_ratio("iteration time, p99", p99, equal.p99, 1.10, true);
    print_ratio("tokens per second", speed, equal.speed, 0.98, false);
  }
};

// Iteration times before, during and after a stop of all threads of the balancer.
class Stall {
 public:
  explicit Stall(double seconds) : stall_ns_(static_cast<int64_t>(seconds * 1e9)) {}

  void iteration(const engine::IterationRecord& record) {
    const int64_t now = base::wall_ns();
    if (start_ns_ == 0) start_ns_ = now;
    const int64_t since = now - start_ns_;
    const int phase = since < kRunningNs ? 0 : since < kRunningNs + stall_ns_ ? 1 : 2;
    if (phase != phase_ && phase == 1) {
      permitted_ = threads_.stop(base::threads_of_children("wideep-"));
    }
    if (phase != phase_ && phase == 2) threads_.resume();
    phase_ = phase;
    if (record.prompt_tokens == 0)
      times_[phase].push_back(static_cast<double>(record.wall_ns) / 1e3);
  }
  void print() const {
    fmt::print("\nall threads of the balancer stopped for {:.0f} s{}\n",
               static_cast<double>(stall_ns_) * 1e-9,
               permitted_ ? "" : ": not permitted here, they ran on");
    fmt::print("             iterations  median us     p99 us\n");
    const char* names[] = {"before", "stopped", "after"};
    for (int phase = 0; phase < 3; ++phase) {
      if (times_[phase].empty()) continue;
      fmt::print("  {:<9}{:>12}{:>11.1f}{:>11.1f}\n", names[phase], times_[phase].size(),
                 quantile(times_[phase], 0.5), quantile(times_[phase], 0.99));
    }
  }

 private:
  static constexpr int64_t kRunningNs = 3'000'000'000;
  int64_t stall_ns_;
  int64_t start_ns_ = 0;
  int phase_ = 0;
  bool permitted_ = false;
  base::StoppedThreads threads_;
  std::vector<double> times_[3];
};

// Policy trt always moves experts, so the threads are stopped in the middle of a copy or a plan.
Status run_stall(const Options& options) {
  constexpr int kIterationsPerSecond = 1500;  // about as many as the reference model makes
  const auto iterations = static_cast<int>((options.stall_seconds + 6) * kIterationsPerSecond);
  Stall stall(options.stall_seconds);
  const auto report = run::generate(run_options(options, Kind::kOnlineTrt, iterations),
                                    [&](const run::Event& event) {
                                      if (const auto* each = std::get_if<run::Iteration>(&event))
                                        stall.iteration(each->ranks[0]);
                                    });
  if (!report.ok()) return report.status();
  stall.print();
  return report->ended;
}

// ---- gain ----

// Prompts of one kind only, mostly prefill: then tokens, not reading the experts' weights,
// determine the time of the ranks.
run::GenerateOptions skewed_options(const Options& options) {
  run::GenerateOptions run;
  run.model_dir = options.model;
  run.parallel = parallel::parallel_config_for_ranks(options.skewed_ranks).value();
  run.parallel.max_batch_size = 8;
  run.parallel.max_num_tokens = 1024;
  run.max_tokens = 2;
  std::string text;
  for (int line = 0; line < 12; ++line) text += kPrompts[1] + "\n\n";
  for (int i = 0; i < 256 * options.skewed_ranks; ++i) {
    run.prompts.push_back(text.substr(static_cast<size_t>(i) % 60));
  }
  return run;
}

struct Critical {
  const char* name;
  std::vector<double> experts_ms, experts_over_mean, imbalance;
};

Status measure_critical(const run::GenerateOptions& run, Critical* critical) {
  const auto report = run::generate(run);
  if (!report.ok()) return report.status();
  if (!report->ended.ok()) return report->ended;
  const run::LoadTotals& load = report->load;
  critical->experts_ms.push_back(load.critical_path_experts_ms);
  critical->experts_over_mean.push_back(load.critical_path_experts_ms / load.mean_experts_ms);
  critical->imbalance.push_back(load.imbalance_ratio());
  return {};
}

// Processor time on the critical path of the experts: the sum over layers of the slowest rank's.
Status run_skewed(const Options& options) {
  const run::GenerateOptions off = skewed_options(options);
  run::GenerateOptions online = off, perfect = off;
  online.parallel.moe_config.load_balancer = {.num_slots = options.slots,
                                              .layer_updates_per_iter = options.layer_updates};
  perfect.perfect_router = true;
  Critical results[] = {
      {"no balancer", {}, {}, {}}, {"online", {}, {}, {}}, {"perfect router", {}, {}, {}}};
  const run::GenerateOptions* runs[] = {&off, &online, &perfect};
  for (int pair = 0; pair < options.pairs; ++pair) {
    for (int i = 0; i < 3; ++i) {
      const Status status = measure_critical(*runs[i], &results[i]);
      if (!status.ok()) return status;
    }
  }
  fmt::print("\n{} ranks, prompts of one kind: critical path of the experts, medians of {}\n",
             options.skewed_ranks, options.pairs);
  const double min = median_of(results[2].experts_ms);
  for (const Critical& each : results) {
    fmt::print(
        "  {:<16}{:>9.1f} ms{:>9.3f} of the mean rank{:>9.3f} of the perfect router's   "
        "imbalance of tokens {:.3f}\n",
        each.name, median_of(each.experts_ms), median_of(each.experts_over_mean),
        median_of(each.experts_ms) / min, median_of(each.imbalance));
  }
  print_goal("  online / perfect router", median_of(results[1].experts_ms) / min, 1.05, true);
  return {};
}

Status measure_all(const Options& options) {
  fmt::print("{} ranks, {} slots, layer_updates_per_iter {}, {} iterations a run\n\n",
             options.ranks, options.slots, options.layer_updates, options.iterations);
  fmt::print("run       median us     p99 us    tokens/s   experts / mean   moves\n");
  Ratios online, trt, equal;
  std::vector<std::pair<Kind, const char*>> order(std::begin(kKinds), std::end(kKinds));
  std::mt19937 random(1);
  for (int pair = 0; pair < options.pairs; ++pair) {
    Times times[std::size(kKinds)];
    // A run leaves caches and memory in a state that affects the next run, so no kind of run always
    // follows the same other kind.
    std::shuffle(order.begin(), order.end(), random);
    for (const auto& [kind, name] : order) {
      auto measured = measure(options, kind);
      if (!measured.ok()) return measured.status();
      times[static_cast<int>(kind)] = *measured;
      print_run(name, *measured);
    }
    online.add(times[1], times[0]);
    trt.add(times[2], times[0]);
    equal.add(times[3], times[0]);
  }
  online.print("online (policy wideep)", equal);
  trt.print("online with policy trt, which moves experts all the time", equal);
  return {};
}

}  // namespace
}  // namespace wideep

int main(int argc, char** argv) {
  wideep::Options options;
  wideep::command_line::Program program("Iteration times with and without online balancing");
  program.add_option("--model", options.model, "Model directory").show_default();
  program.add_option("--ranks", options.ranks, "Rank processes").show_default();
  program.add_option("--num-slots", options.slots, "Slots per layer over all ranks").show_default();
  program
      .add_option("--layer-updates-per-iter", options.layer_updates,
                  "Layers that may be updated per iteration")
      .show_default();
  program.add_option("--pairs", options.pairs, "Runs of each kind").show_default();
  program.add_option("--iterations", options.iterations, "Iterations of each run").show_default();
  program
      .add_option("--stall-seconds", options.stall_seconds,
                  "Seconds for which the balancer's threads are stopped; 0: not at all")
      .show_default();
  program
      .add_option("--skewed-ranks", options.skewed_ranks,
                  "Ranks of the runs with skewed load; 0: no such runs")
      .show_default();
  if (const auto code = program.parse_main(argc, argv)) return *code;
  wideep::Status status = wideep::measure_all(options);
  if (status.ok() && options.stall_seconds > 0) status = wideep::run_stall(options);
  if (status.ok() && options.skewed_ranks > 0) status = wideep::run_skewed(options);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
