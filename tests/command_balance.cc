// SPDX-License-Identifier: Apache-2.0
//
// Loads follow a formula, and every format but the trace states the same ones, so that plans from
// different formats can be compared. They are skewed, since equal loads leave a planner nothing to
// do, the layers differ, so that a layer taken for another is seen, and they drift with the
// iteration. Layer 0 is dense.
#include "command_balance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <random>

#include "formats/files.h"
#include "recordings/statistics_writer.h"

namespace wideep::tests {

std::string CommandBalance::write(const std::string& name, const std::string& content) const {
  EXPECT_TRUE(formats::write_file(file(name), content).ok());
  return file(name);
}

std::string CommandBalance::read(const std::string& name) const {
  const Result<std::string> content = formats::read_file(file(name));
  EXPECT_TRUE(content.ok()) << content.status().message();
  return content.ok() ? *content : "";
}

// Tokens fall with the expert's index, shuffled differently per layer, and drift slowly.
std::vector<int64_t> CommandBalance::load(int layer, int iteration) {
  std::vector<int64_t> tokens;
  for (int expert = 0; expert < kExperts; ++expert) {
    const int place = (expert * 7 + layer * 5) % kExperts;
    tokens.push_back(20 + 2000 / (1 + place) + 3 * ((expert + iteration) % 5));
  }
  return tokens;
}

std::string CommandBalance::logical_count(int iteration) const {
  const std::vector<int64_t> dense(kExperts, 0);
  return write(
      fmt::format("count{}.json", iteration),
      fmt::format("{{\"logical_count\": [[{}], [{}], [{}]]}}", fmt::join(dense, ", "),
                  fmt::join(load(1, iteration), ", "), fmt::join(load(2, iteration), ", ")));
}

std::string CommandBalance::csv(int num_iterations) const {
  std::string text = "iteration,layer";
  for (int expert = 0; expert < kExperts; ++expert) text += fmt::format(",e{}", expert);
  for (int iteration = 0; iteration < num_iterations; ++iteration) {
    for (const int layer : {1, 2}) {
      text += fmt::format("\n{},{},{}", iteration, layer, fmt::join(load(layer, iteration), ","));
    }
  }
  return write("stats.csv", text + "\n");
}

std::string CommandBalance::recorded(int num_iterations) const {
  for (int rank = 0; rank < 2; ++rank) {
    recordings::StatisticsWriter writer(file("stats"), rank, {.num_experts = kExperts, .top_k = 2});
    if (rank == 0) {
      EXPECT_TRUE(recordings::prepare_statistics_directory(file("stats")).ok());
    }
    for (int iteration = 0; iteration < num_iterations; ++iteration) {
      for (const int layer : {1, 2}) writer.add(iteration, layer, load(layer, iteration));
    }
    EXPECT_TRUE(writer.write().ok());
  }
  return file("stats");
}

std::string CommandBalance::trace() const {
  std::mt19937 random(7);
  std::string bytes;
  for (int row = 0; row < 4000 * 2; ++row) {  // small ids are chosen more often
    const auto first = static_cast<char>(random() % (1 + random() % kExperts));
    const auto other = static_cast<char>((first + 1 + random() % (kExperts - 1)) % kExperts);
    bytes += {first, other};
  }
  return write("trace.u8", bytes);
}

std::vector<std::string> CommandBalance::trace_shape() {
  return {"--trace-layers", "2",  "--trace-top-k",       "2",
          "--num-experts",  "16", "--trace-first-layer", "1"};
}

std::string CommandBalance::requests(unsigned one_in, unsigned num_hot) const {
  std::string index = "domain,token_offset,n_tokens\n";
  for (const char* domain : {"prose", "code"}) {
    const unsigned hottest = domain[0] == 'c' ? 8 : 0;
    std::mt19937 random(hottest);
    std::string ids;
    for (int row = 0; row < 2000 * 2; ++row) {
      const bool hot = random() % one_in == 0;
      const auto first =
          static_cast<char>(hot ? hottest + random() % num_hot : random() % kExperts);
      ids += {first, static_cast<char>((first + 1 + random() % (kExperts - 1)) % kExperts)};
    }
    write(std::string(domain) + ".ids.u8", ids);
    for (int r = 0; r < 20; ++r) {
      index += std::string(domain) + "," + std::to_string(100 * r) + ",100\n";
    }
  }
  write("trace_index.csv", index);
  return file("");
}

CommandEnd CommandBalance::balance(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"balance"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_command({.arguments = all});
}

nlohmann::json CommandBalance::balance_json(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const CommandEnd end = balance(arguments);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.err, "");
  nlohmann::json json = nlohmann::json::parse(end.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << end.out;
  return json;
}

std::vector<std::string> CommandBalance::plan(const std::string& stats, int slots,
                                              const std::vector<std::string>& more) const {
  std::vector<std::string> arguments = {"plan",
                                        "--stats",
                                        stats,
                                        "--ep-size",
                                        "4",
                                        "--num-slots",
                                        fmt::format("{}", slots),
                                        "--output",
                                        file("plan.yaml")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace wideep::tests
