// SPDX-License-Identifier: Apache-2.0
//
// cpu_samples <config.json> <format> <ranks> <threads>
//
// Prints what iterations of several shapes did on each rank and layer, and how long they took.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "formats/files.h"
#include "measure/bench_ranks.h"
#include "weights/random_tensors.h"

using namespace wideep;  // NOLINT(google-build-using-namespace): a program

template <typename T>
T or_exit(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "error: {}\n", result.status().message());
  std::exit(2);
}

std::vector<engine::Request> requests(int count, int prompt, int tokens, int vocab, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<engine::Request> all(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    std::vector<int32_t> ids(static_cast<size_t>(prompt));
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
    all[static_cast<size_t>(i)].index = i;
    all[static_cast<size_t>(i)].prompt = std::move(ids);
    all[static_cast<size_t>(i)].max_tokens = tokens;
  }
  return all;
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string text = or_exit(formats::read_file(argv[1]));
  measure::BenchRanksOptions options;
  options.config = or_exit(model::parse_model_config(text, argv[1]));
  options.precision = kernels::weight_format_from_name(argv[2]).value();
  const int ranks = std::atoi(argv[3]);
  options.threads_per_rank = std::atoi(argv[4]);
  options.parallel = or_exit(parallel::parallel_config_for_ranks(ranks));
  options.limits = {.max_batch_size = 64, .max_num_tokens = 512, .max_pages = 64 * 20};
  run::RunView view;
  const auto group = or_exit(
      measure::BenchRanks::start(options, std::make_unique<weights::RandomTensors>(1), view));
  const int vocab = options.config.vocab_size;
  // prompt, tokens, requests of each rank
  const int shapes[][3] = {{16, 12, 1}, {16, 12, 2},  {16, 12, 4},  {16, 12, 8}, {8, 12, 16},
                           {8, 12, 32}, {1000, 8, 1}, {1000, 8, 4}, {32, 1, 1},  {128, 1, 1},
                           {256, 1, 1}, {512, 1, 1},  {1024, 1, 1}, {64, 1, 8}};
  for (int warm = 0; warm < 2; ++warm) {
    int number = 0;
    for (const auto& [prompt, tokens, each] : shapes) {
      ++number;
      const auto iterations =
          or_exit(group->run(requests(each * ranks, prompt, tokens, vocab, number + 100 * warm)));
      if (warm == 0) continue;
      int64_t before = 0;
      int computed = 0;  // tokens of a sequence
      for (size_t i = 0; i < iterations.size(); ++i) {
        int64_t end = 0, begin = INT64_MAX;
        for (const auto& rank : iterations[i].ranks) {
          end = std::max(end, rank.end_ns);
          begin = std::min(begin, rank.begin_ns);
        }
        const auto& first = iterations[i].ranks[0];
        fmt::print("I {} {} {} {} {} {} {} {} {} {}\n", number, prompt, each, i,
                   first.prompt_tokens, first.generated_tokens, computed,
                   end - (i == 0 ? begin : before), first.tail_cpu_ns, first.schedule_ns);
        before = end;
        computed +=
            static_cast<int>(first.prompt_tokens / each + (first.prompt_tokens == 0 ? 1 : 0));
        const size_t layers = first.layers.size();
        for (size_t l = 0; l < layers; ++l) {
          const size_t experts = first.layers[l].counts.size();
          for (size_t r = 0; r < iterations[i].ranks.size(); ++r) {
            int64_t rows = 0, hit = 0;
            std::string counts;
            for (size_t e = r * experts / static_cast<size_t>(ranks);
                 e < (r + 1) * experts / static_cast<size_t>(ranks); ++e) {
              int64_t count = 0;
              for (const auto& rank : iterations[i].ranks) count += rank.layers[l].counts[e];
              rows += count;
              hit += count > 0;
              if (count > 0) counts += fmt::format("{},", count);
            }
            const auto& layer = iterations[i].ranks[r].layers[l];
            fmt::print("L {} {} {} {} {} {} {} {}\n", l, r, layer.other_cpu_ns,
                       layer.experts_cpu_ns, rows, hit, iterations[i].ranks[r].tail_cpu_ns, counts);
          }
        }
      }
    }
  }
  const Status status = group->finish();
  return status.ok() ? 0 : 1;
}
