// SPDX-License-Identifier: Apache-2.0
//
// What tensor parallelism pays where others reduce: every rank writes its columns of a [tokens,
// hidden] matrix where all see it, meets the others, and reads the whole. Beside the memory's own
// limit: the same bytes copied by the same ranks at the same time, who wait for nobody.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/cpu_time.h"
#include "base/try.h"
#include "model/tensor_group.h"
#include "transport/rank_processes.h"

namespace wideep {
namespace {

struct Options {
  int ranks = 2;
  int hidden = 7168;
  std::vector<int> tokens = {1, 16, 64, 256, 1024};
  int runs = 15;
  int bytes_of_run = 64 << 20;  // read by a rank in one measurement, at least one exchange
};

enum class Kind : int { kExchange, kCopies };

// Of one rank in one run.
struct Times {
  int32_t tokens = 0;
  int32_t run = 0;
  double exchange_us = 0.0;
  double copies_us = 0.0;
};

class Exchanger {
 public:
  Exchanger(const Options& options, model::TensorGroup& group, int tokens)
      : group_(group),
        row_(static_cast<size_t>(options.hidden)),
        tokens_(static_cast<size_t>(tokens)),
        mine_(tokens_ * part(), 1.0F),
        whole_(tokens_ * row_) {}

  // Buffers take turns, as in a layer: who has met the others for one may write the other, since
  // all have read what was there.
  Status once(Kind kind) {
    buffer_ = buffer_ == model::JointBuffer::kInput ? model::JointBuffer::kOutput
                                                    : model::JointBuffer::kInput;
    auto* joint = group_.joint<float>(buffer_, whole_.size());
    float* columns = joint + static_cast<size_t>(group_.rank()) * part();
    for (size_t token = 0; token < tokens_; ++token) {
      std::memcpy(columns + token * row_, mine_.data() + token * part(), part() * sizeof(float));
    }
    const transport::Written written{.first = columns,
                                     .width = part() * sizeof(float),
                                     .stride = row_ * sizeof(float),
                                     .rows = tokens_};
    if (kind == Kind::kExchange) WIDEEP_TRY(group_.meet(written, {.what = "columns"}));
    std::memcpy(whole_.data(), joint, whole_.size() * sizeof(float));
    return {};
  }

  Result<double> microseconds(Kind kind, int times) {
    WIDEEP_TRY(group_.meet({.what = "the start"}));
    const int64_t start_ns = base::wall_ns();
    for (int i = 0; i < times; ++i) WIDEEP_TRY(once(kind));
    const double us = static_cast<double>(base::wall_ns() - start_ns) * 1e-3 / times;
    WIDEEP_TRY(group_.meet({.what = "the end"}));
    return us;
  }

 private:
  size_t part() const { return row_ / static_cast<size_t>(group_.size()); }

  model::TensorGroup& group_;
  model::JointBuffer buffer_ = model::JointBuffer::kInput;
  size_t row_, tokens_;
  std::vector<float> mine_, whole_;
};

model::JointLayout layout_of(const Options& options) {
  model::ModelConfig config;
  config.hidden_size = options.hidden;
  return {config, *std::max_element(options.tokens.begin(), options.tokens.end()), 0};
}

Status run_rank(const Options& options, transport::Endpoint& endpoint,
                const transport::MessagePipe& pipe) {
  model::TensorGroup group(endpoint, 0, layout_of(options));
  for (int run = 0; run <= options.runs; ++run) {  // the first to warm up
    for (const int tokens : options.tokens) {
      Exchanger exchanger(options, group, tokens);
      const int bytes = tokens * options.hidden * static_cast<int>(sizeof(float));
      const int times = std::max(1, options.bytes_of_run / bytes);
      Times result{.tokens = tokens, .run = run};
      WIDEEP_TRY_ASSIGN(result.exchange_us, exchanger.microseconds(Kind::kExchange, times));
      WIDEEP_TRY_ASSIGN(result.copies_us, exchanger.microseconds(Kind::kCopies, times));
      if (run == 0) continue;
      WIDEEP_TRY(pipe.send({reinterpret_cast<const char*>(&result), sizeof(result)}));
    }
  }
  return {};
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print(const Options& options, const std::vector<Times>& all) {
  fmt::print("{} ranks, rows of {} float32; the slower rank, median of {} runs\n\n", options.ranks,
             options.hidden, options.runs);
  fmt::print("tokens   exchange us   copies us   exchange / copies (goal <= 1.30)\n");
  for (const int tokens : options.tokens) {
    std::map<int, Times> slowest;  // of a run
    for (const Times& each : all) {
      if (each.tokens != tokens) continue;
      Times& most = slowest[each.run];
      most.exchange_us = std::max(most.exchange_us, each.exchange_us);
      most.copies_us = std::max(most.copies_us, each.copies_us);
    }
    std::vector<double> exchange, copies, ratio;
    for (const auto& [run, each] : slowest) {
      exchange.push_back(each.exchange_us);
      copies.push_back(each.copies_us);
      ratio.push_back(each.exchange_us / each.copies_us);
    }
    fmt::print("{:>6}{:>14.1f}{:>12.1f}{:>20.2f}\n", tokens, median_of(exchange), median_of(copies),
               median_of(ratio));
  }
}

Status run(const Options& options) {
  if (options.hidden % options.ranks != 0) {
    return invalid_input(fmt::format("--hidden: expected a multiple of the {} ranks, found {}",
                                     options.ranks, options.hidden));
  }
  std::vector<Times> all;
  WIDEEP_TRY(transport::run_rank_processes(
      {.num_ranks = options.ranks, .segment_bytes = layout_of(options).bytes()},
      [&](transport::Endpoint& endpoint, const transport::MessagePipe& pipe) {
        return run_rank(options, endpoint, pipe);
      },
      [&](int, std::string_view message) {
        std::memcpy(&all.emplace_back(), message.data(), sizeof(Times));
      }));
  print(options, all);
  return {};
}

}  // namespace
}  // namespace wideep

int main(int argc, char** argv) {
  wideep::Options options;
  CLI::App app("What ranks of a tensor group pay to see each other's columns, beside plain copies");
  app.add_option("--ranks", options.ranks, "Of the group")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  app.add_option("--hidden", options.hidden, "Columns")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--tokens", options.tokens, "Rows, several numbers")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  app.add_option("--runs", options.runs, "Of each number")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const wideep::Status status = wideep::run(options);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
  return status.exit_code();
}
