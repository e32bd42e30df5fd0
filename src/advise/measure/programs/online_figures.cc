// SPDX-License-Identifier: Apache-2.0
//
// How fast the online balancer adapts to new text, what it remembers, and how long it plans.
//
//   online_figures [NAME:K=LOG ...]
//
// LOG is a routing log of `wideep generate --routing-log`: its counts do not depend on a placement,
// so they are replayed with K layers a turn, starting with the experts in order, for the log's
// slots. scripts/bench_online.sh makes such logs of the demo's last step, and calls this program.
//
// Traces (WIDEEP_DATA_DIR): DeepSeek-V2-Lite, each kind of text once, and 10 times in turn. A
// synthetic model of 58 layers x 256 experts, top 8: counts drawn from the 8 recordings of
// DeepSeek-V3 (or lognormal loads), one after the other. "tuned": what options were chosen on;
// "judged": other orders of requests or other texts, only measured.
//
// Imbalance: max / mean - 1, mean over iterations and layers, and by tokens (sum of max / sum of
// mean - 1). A plan from iteration i's counts is in service two iterations later; with "iterations
// of 20 ms" as many later as planning and copying take. Times are processor time.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "measure/programs/loads.h"
#include "online/replay.h"
#include "recordings/routing_log.h"

namespace wideep::measure {
namespace {

using online::Iteration;
using online::NextIteration;
using online::ReplayOptions;
using online::ReplayResult;
using online::RequestTrace;

void print_header() {
  fmt::print("{:<52}{:>8}{:>8}{:>8}{:>9}{:>9}{:>9}{:>9}  goal\n", "", "static", "online", "tokens",
             "moves", "longest", "plan ms", "most ms");
}

// moves: per layer and iteration, mean over the run and over its busiest iteration's window.
void print_line(const std::string& name, const ReplayResult& result, int num_layers,
                const std::string& goal) {
  const auto iterations = static_cast<double>(result.num_iterations);
  int64_t max_moves = 0;
  for (const online::ReplayWindow& window : result.windows) {
    max_moves = std::max(max_moves, window.moves);
  }
  fmt::print("{:<52}{:>8.3f}{:>8.3f}{:>8.3f}{:>9.3f}{:>9.2f}{:>9.2f}{:>9.2f}  {}\n", name,
             result.mean.planned, result.mean.online, result.online_by_tokens,
             static_cast<double>(result.moves) / num_layers / iterations,
             static_cast<double>(max_moves) / num_layers, 1e3 * result.plan_seconds / iterations,
             1e3 * result.longest_plan_seconds, goal);
  std::fflush(stdout);
}

// ---- routing logs ----

NextIteration iterations_of(const recordings::RoutingLog& log) {
  return [&log, next = size_t{0}](Iteration* iteration) mutable {
    if (next == log.iterations.size()) return false;
    const recordings::RoutingLog::Iteration& from = log.iterations[next++];
    iteration->num_experts = log.num_experts;
    iteration->num_tokens = from.prompt_tokens + from.generated_tokens;
    iteration->counts.clear();
    for (const auto& ranks : from.counts) {
      const size_t begin = iteration->counts.size();
      iteration->counts.resize(begin + static_cast<size_t>(log.num_experts));
      for (const auto& experts : ranks) {
        for (size_t e = 0; e < experts.size(); ++e) iteration->counts[begin + e] += experts[e];
      }
    }
    return true;
  };
}

// "NAME:K=LOG"
bool replay_log(std::string_view argument) {
  const size_t equal = argument.find('='), colon = argument.rfind(':', equal);
  if (equal == argument.npos || colon == argument.npos) {
    fmt::print(stderr, "error: expected NAME:K=LOG, found {}\n", argument);
    return false;
  }
  const auto log = recordings::read_routing_log(std::string(argument.substr(equal + 1)));
  if (!log.ok()) {
    fmt::print(stderr, "error: {}\n", log.status().message());
    return false;
  }
  const int layers = static_cast<int>(log->layers.size());
  ReplayOptions options{.shape = {.num_experts = log->num_experts,
                                  .ep_size = log->ep_size,
                                  .num_slots = log->num_slots},
                        .policy = {},
                        .stream = {.iteration_tokens = 512},
                        .window_tokens = 512,
                        .start_in_order = true};
  options.policy.layer_updates_per_iter =
      std::atoi(std::string(argument.substr(colon + 1, equal - colon - 1)).c_str());
  const auto result = online::replay(iterations_of(*log), layers, log->top_k, options);
  if (!result.ok()) {
    fmt::print(stderr, "error: {}\n", result.status().message());
    return false;
  }
  print_line(std::string(argument.substr(0, colon)), *result, layers, "");
  return true;
}

// ---- DeepSeek-V2-Lite ----

struct TraceCase {
  const char* name;
  int ep_size;
  int num_slots;
  online::StreamOptions stream;
  const char* goal;
};

// Domains of the trace's index: 0 translation, 1 law, 2 summary (checked below).
const TraceCase kTraceCases[] = {
    {"law, summary, translation R16 S80 (judged)",
     16,
     80,
     {.domains = {1, 2, 0}},
     "<= 0.12, <= 1 move"},
    {"  other orders of requests (judged)", 16, 80, {.domains = {2, 1, 0}, .seed = 3}, ""},
    {"  translation, law, summary, seed 1 (tuned)", 16, 80, {.domains = {0, 1, 2}, .seed = 1}, ""},
    {"  R8 S72 (judged)", 8, 72, {.domains = {1, 2, 0}}, ""},
    {"10 times in turn R8 S72 (judged)", 8, 72, {.domains = {1, 2, 0}, .cycles = 10}, "<= before"},
    {"10 times in turn R16 S80 (judged)",
     16,
     80,
     {.domains = {1, 2, 0}, .cycles = 10},
     "<= before"},
    {"10 times in turn R16 S80, seed 1 (tuned)",
     16,
     80,
     {.domains = {0, 1, 2}, .cycles = 10, .seed = 1},
     ""},
};

void replay_traces(const std::string& directory) {
  const auto trace = online::read_request_trace(
      directory + "/routing_trace_deepseek_v2lite",
      {.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1});
  if (!trace.ok()) {
    std::puts("DeepSeek-V2-Lite: WIDEEP_DATA_DIR has no such trace");
    return;
  }
  for (const TraceCase& each : kTraceCases) {
    ReplayOptions options{
        .shape = {.num_experts = 64, .ep_size = each.ep_size, .num_slots = each.num_slots},
        .policy = {},
        .stream = each.stream,
        .window_tokens = 512};
    options.stream.in_flight = 1;
    options.stream.iteration_tokens = 512;
    options.policy.layer_updates_per_iter = 26;
    options.policy.horizon_tokens = online::default_horizon_tokens(each.ep_size);
    print_line(each.name, online::replay(*trace, options).value(), 26, each.goal);
  }
}

// ---- 58 x 256 ----

// Iterations of `tokens` tokens: the rows of each layer are drawn independently from the text's
// load.
class DrawnLoad {
 public:
  DrawnLoad(std::vector<Window> texts, int iterations_of_text, int64_t tokens, unsigned seed)
      : texts_(std::move(texts)), of_text_(iterations_of_text), tokens_(tokens), random_(seed) {}

  bool next(Iteration* iteration) {
    const size_t text = done_ / static_cast<size_t>(of_text_);
    if (text == texts_.size()) return false;
    ++done_;
    iteration->num_experts = 256;
    iteration->num_tokens = tokens_;
    iteration->domain = static_cast<int>(text);
    iteration->counts.clear();
    for (const Load& load : texts_[text].layers) {
      double sum = 0.0;
      for (const double each : load) sum += each;
      // Expert by expert, of the rows that are left: a multinomial draw.
      int64_t rows = 8 * tokens_;
      for (const double each : load) {
        std::binomial_distribution<int64_t> count(rows, std::min(1.0, each / sum));
        const int64_t drawn = rows > 0 && each > 0.0 ? count(random_) : 0;
        iteration->counts.push_back(drawn);
        rows -= drawn;
        sum = std::max(sum - each, 1e-9);
      }
    }
    return true;
  }

 private:
  std::vector<Window> texts_;
  int of_text_;
  int64_t tokens_;
  size_t done_ = 0;
  std::mt19937_64 random_;
};

void replay_large(const std::vector<Window>& windows, int ep_size, int num_slots, bool delays,
                  const char* goal) {
  // Prefill and decode in turn, each text twice.
  std::vector<Window> texts;
  for (int cycle = 0; cycle < 2; ++cycle) {
    for (size_t i = 0; i < windows.size(); ++i) texts.push_back(windows[i * 3 % windows.size()]);
  }
  DrawnLoad drawn(texts, 12, 2048, 7);
  ReplayOptions options{.shape = {.num_experts = 256, .ep_size = ep_size, .num_slots = num_slots},
                        .policy = {},
                        .stream = {.iteration_tokens = 2048},
                        .window_tokens = 2048 * 4};
  options.policy.layer_updates_per_iter = 58;
  options.policy.horizon_tokens = online::default_horizon_tokens(ep_size);
  if (delays) {
    // An expert of DeepSeek-V3 in FP8, copied at 10 GB/s.
    options.policy.bytes_per_expert = int64_t{3} * 7168 * 2048;
    options.iteration_ms = 20;
  }
  const NextIteration next = [&drawn](Iteration* iteration) { return drawn.next(iteration); };
  print_line(fmt::format("58 x 256, top 8, R{} S{}{}", ep_size, num_slots,
                         delays ? ", iterations of 20 ms" : ""),
             online::replay(next, 58, 8, options).value(), 58, goal);
}

int run(int argc, char** argv) {
  print_header();
  for (int i = 1; i < argc; ++i) {
    if (!replay_log(argv[i])) return 2;
  }
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  replay_traces(data == nullptr ? "" : data);
  std::vector<Window> windows = deepseek_windows();
  if (windows.empty()) windows = lognormal_windows();
  for (const bool delays : {false, true}) {
    replay_large(windows, 32, 288, delays, "<= 5 ms, at most 20");
    replay_large(windows, 64, 320, delays, "<= 10 ms, at most 40");
  }
  const std::vector<Window> drawn = lognormal_windows();
  replay_large(drawn, 32, 288, false, "(tuned: lognormal loads)");
  return 0;
}

}  // namespace
}  // namespace wideep::measure

int main(int argc, char** argv) { return wideep::measure::run(argc, argv); }
