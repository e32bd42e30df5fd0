// SPDX-License-Identifier: Apache-2.0
// wideep advise: statistics that judge, and the page.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "command_balance.h"
#include "command_machine.h"
#include "command_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandAdvise : public CommandBalance {
 protected:
  CommandEnd advise(const std::string& stats, const std::vector<std::string>& more = {}) {
    const std::string machine = file("machine.yaml");
    std::ofstream(machine) << kMachine;
    std::vector<std::string> arguments = {
        "advise", "--model", small_model(), "--hardware",  machine, "--stats", stats, "--isl",
        "16",     "--osl",   "16",          "--ranks-max", "8",     "--dtype", "bf16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command({.arguments = arguments});
  }
};

// The small model on two cores that have room for `share` of its experts.
class CommandAdviseBeyondMemory : public CommandAdvise {
 protected:
  CommandEnd advise_with_room(double share, const std::vector<std::string>& more = {}) {
    const CommandEnd end = run_command(
        {.arguments = {"doctor", "--model", small_model(), "--dtype", "bf16", "--json"}});
    const json model = json::parse(end.out, nullptr, false)["model"];
    const double bytes = model["dense_weights_bytes"].get<double>() +
                         share * model["slots_bytes_per_rank"].get<double>() +
                         model["kv_cache_bytes_per_1024_tokens"].get<double>() * 32 / 1024;
    std::string text = kMachine;
    text.replace(text.find("devices_per_node: 8"), 19, "divisible: true\ndevices_per_node: 2");
    const size_t memory = text.find("memory: {"), end_of_line = text.find('\n', memory);
    text.replace(memory, end_of_line - memory,
                 fmt::format("memory: {{bytes: {}, bandwidth: 1e10, node_bandwidth: 2e10}}\n"
                             "disk: {{bandwidth: 2e9}}",
                             bytes / 0.9 / 2));
    const size_t bandwidth = text.find("bandwidth: 360e9");
    text.replace(bandwidth, 16, "bandwidth: 1e9");
    std::ofstream(file("cores.yaml")) << text;
    std::vector<std::string> arguments = {
        "advise", "--model", small_model(), "--hardware", file("cores.yaml"), "--isl", "16",
        "--osl",  "16",      "--dtype",     "bf16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command({.arguments = arguments});
  }
  json found(double share, std::vector<std::string> more = {}) {
    more.emplace_back("--json");
    const CommandEnd end = advise_with_room(share, more);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return json::parse(end.out, nullptr, false);
  }
};

TEST_F(CommandAdviseBeyondMemory, ProposesABudgetWithItsSpeed) {
  const CommandEnd end = advise_with_room(0.5);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr(": 50 % of the experts stay in memory, the others are read"));
  EXPECT_THAT(end.out, HasSubstr("recorded routing of DeepSeek-V2-Lite stands for the model's"));
  EXPECT_THAT(end.out, HasSubstr("disk         2.0 GB/s\n"));
  EXPECT_THAT(end.out, HasSubstr("--dtype bf16 --packed-cache DIR --expert-memory "));
  const json half = found(0.5)["beyond_memory"][0], most = found(0.9)["beyond_memory"][0];
  EXPECT_NEAR(half["experts_in_memory"].get<double>(), 0.5, 0.01);
  EXPECT_NEAR(half["hit_rate"].get<double>(), 0.785, 0.01);
  EXPECT_LT(half["tokens_per_second_uniform"], half["tokens_per_second"]);
  EXPECT_LT(half["tokens_per_second"], most["tokens_per_second"]);
  EXPECT_TRUE(found(1.1).contains("recommended"));
}

TEST_F(CommandAdviseBeyondMemory, HitRatesOfTheModelsOwnStatistics) {
  const json counts = found(0.5, {"--stats", csv()});
  EXPECT_THAT(counts["hit_rates"].get<std::string>(),
              HasSubstr("the experts that were chosen most"));
  EXPECT_GT(counts["beyond_memory"][0]["hit_rate"], 0.5);
  std::vector<std::string> of_trace = {"--stats", trace(), "--concurrency", "2"};
  for (const std::string& word : trace_shape()) of_trace.push_back(word);
  const json trace = found(0.5, of_trace);
  EXPECT_THAT(trace["hit_rates"].get<std::string>(), HasSubstr("later requests, 2 at once"));
  EXPECT_EQ(trace["beyond_memory"][0]["requests"], 2);
  EXPECT_GT(trace["beyond_memory"][0]["hit_rate"], 0.5);
}

TEST_F(CommandAdviseBeyondMemory, RefusesWhatNeedsALayoutThatFits) {
  const CommandEnd simulated = advise_with_room(0.5, {"--simulate", "4"});
  EXPECT_EQ(simulated.exit_code, 2);
  EXPECT_THAT(simulated.err, HasSubstr("--simulate: has no effect on a model larger than memory"));
  const CommandEnd fast = advise_with_room(0.5, {"--tpot", "0.001"});
  EXPECT_EQ(fast.exit_code, 1);
  EXPECT_THAT(fast.err, HasSubstr("0.0 ms between tokens are not reached; nearest: "));
}

TEST_F(CommandAdvise, JudgesByLaterIterations) {
  EXPECT_THAT(advise(csv()).out, HasSubstr("placements planned on 4 iterations, judged by 4"));
  EXPECT_THAT(advise(csv(), {"--holdout", "0.25"}).out,
              HasSubstr("placements planned on 6 iterations, judged by 2"));
  EXPECT_THAT(advise(logical_count()).out, HasSubstr("statistics that they are planned on"));
  EXPECT_THAT(advise(csv(), {"--holdout", logical_count(5)}).out,
              HasSubstr("planned on 8 iterations, judged by 1 other"));
}

TEST_F(CommandAdvise, RefusesWhatHasNoEffect) {
  const CommandEnd end = run_command({.arguments = {"advise", "--model", small_model(),
                                                    "--hardware", "h100_sxm", "--holdout", "0.5"}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--holdout: has no effect without --stats"));
}

TEST_F(CommandAdvise, WeighsDraftsWhereTheyAreAccepted) {
  const auto recommended = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--json", "--concurrency", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const json found = json::parse(advise(csv(), arguments).out, nullptr, false);
    return found["recommended"];
  };
  EXPECT_EQ(recommended({})["drafts"], 0);
  EXPECT_GT(recommended({"--acceptance", "0.9"})["drafts"], 0);
  EXPECT_EQ(recommended({"--acceptance", "0.9", "--drafts-max", "1"})["drafts"], 1);
  EXPECT_THAT(advise(csv(), {"--drafts-max", "2"}).err,
              HasSubstr("--drafts-max: has no effect without --acceptance"));
  const CommandEnd refused =
      advise(csv(), {"--json", "--acceptance", "0.9", "--concurrency", "1", "--simulate", "4"});
  EXPECT_THAT(refused.err, HasSubstr("--simulate: simulated steps have no drafts"));
  EXPECT_EQ(refused.out, "");
}

TEST_F(CommandAdvise, SimulatedServingIsPartOfTheJson) {
  const CommandEnd end = advise(csv(), {"--json", "--simulate", "20"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json found = json::parse(end.out, nullptr, false);
  ASSERT_TRUE(found.is_object()) << end.out;
  const json simulated = found.value("simulated", json());
  ASSERT_TRUE(simulated.is_object()) << end.out;
  EXPECT_EQ(simulated["requests"], 20);
  EXPECT_GE(simulated["iterations"], 16);  // each gives a request one of its 16 tokens
  const double tokens = simulated["output_tokens_per_second_per_rank"].get<double>() *
                        found["recommended"]["ranks"].get<double>() *
                        simulated["seconds"].get<double>();
  EXPECT_NEAR(tokens, 20 * 16, 1e-3);
  for (const char* time : {"ttft_ms", "tpot_ms", "end_to_end_ms"}) {
    EXPECT_GT(simulated[time]["median"], 0.0) << time;
    EXPECT_LE(simulated[time]["median"], simulated[time]["p90"]) << time;
    EXPECT_LE(simulated[time]["p90"], simulated[time]["p99"]) << time;
    EXPECT_LE(simulated[time]["p99"].get<double>(),
              simulated["seconds"].get<double>() * 1e3 + 1e-6);
  }
  EXPECT_GT(simulated["end_to_end_ms"]["median"], simulated["ttft_ms"]["median"]);

  const CommandEnd text = advise(csv(), {"--simulate", "20"});
  EXPECT_THAT(text.out, HasSubstr(fmt::format("simulated    20 requests, {} iterations, ",
                                              simulated["iterations"].get<int>())));
  EXPECT_FALSE(json::parse(advise(csv(), {"--json"}).out, nullptr, false).contains("simulated"));
}

// `wideep parallel explain` plans the run as `serve` does.
TEST_F(CommandAdvise, WritesWhatServeTakes) {
  const CommandEnd end = advise(csv(), {"--json", "--output", file("advised")});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json found = json::parse(end.out, nullptr, false);
  const json& best = found["recommended"];
  const std::string text = read("advised/parallel_config.yaml");
  if (best["cp"] > 1) {
    EXPECT_THAT(text, HasSubstr(fmt::format("context_parallel_size: {}", best["cp"].get<int>())));
  }
  const int rate = best["layer_updates_per_iter"];
  EXPECT_THAT(read("advised/moe_load_balancer.yaml"),
              HasSubstr(fmt::format("layer_updates_per_iter: {}\n", rate)));
  EXPECT_THAT(found["reasons"].dump(), HasSubstr("updates "));
  const CommandEnd explained = run_command(
      {.arguments = {"parallel", "explain", "--config", file("advised/parallel_config.yaml"),
                     "--model", small_model(), "--json"}});
  EXPECT_EQ(explained.exit_code, 0) << explained.err;
}

// Both kinds of servers are planned as `serve` plans them from their part of the file.
TEST_F(CommandAdvise, WritesWhatServersOfTwoKindsTake) {
  const CommandEnd end = advise(csv(), {"--json", "--disaggregated", "--output", file("advised")});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json found = json::parse(end.out, nullptr, false)["disaggregated"];
  const json& best = found["recommended"];
  EXPECT_GT(best["tokens_per_second_per_rank"], 0.0);
  EXPECT_EQ(best["ranks"],
            best["num_context_servers"].get<int>() * best["context"]["ranks"].get<int>() +
                best["num_generation_servers"].get<int>() * best["generation"]["ranks"].get<int>());
  EXPECT_THAT(read("advised/disagg_config.yaml"), HasSubstr(best["name"].get<std::string>()));
  for (const char* part : {"context_servers", "generation_servers"}) {
    const CommandEnd explained =
        run_command({.arguments = {"parallel", "explain", "--config",
                                   file("advised/disagg_config.yaml") + ":" + part, "--model",
                                   small_model(), "--json"}});
    EXPECT_EQ(explained.exit_code, 0) << explained.err;
  }
  const CommandEnd proxy = run_command(
      {.arguments = {"disaggregated", "-c", file("advised/disagg_config.yaml"), "--check"}});
  EXPECT_EQ(proxy.exit_code, 0) << proxy.err;
  // Prompts of 16 tokens have no page that could travel.
  EXPECT_THAT(advise(csv(), {"--disaggregated"}).out, HasSubstr("aggregated is as good"));
}

TEST_F(CommandAdvise, OneIterationTellsNothingOfUpdates) {
  const CommandEnd end = advise(logical_count(), {"--json"});
  const json found = json::parse(end.out, nullptr, false);
  EXPECT_EQ(found["recommended"]["layer_updates_per_iter"], 0);
  EXPECT_TRUE(found["update_rates"].empty());
}

TEST_F(CommandAdvise, CannotTellBeyondTheCalibration) {
  const CommandEnd end =
      run_command({.arguments = {"advise", "--model", small_model(), "--hardware", "h100_sxm"}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("cannot tell: the model's rows have"));
}

TEST_F(CommandAdvise, MeasuresThisMachineOnly) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--measure"}, {"--calibration", file("none.yaml")}}) {
    const CommandEnd end = advise(csv(), more);
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_THAT(end.err, HasSubstr(more[0] + ": is about this machine, but --hardware is"));
    EXPECT_THAT(end.err, HasSubstr("give --hardware this"));
  }
}

// Without a measurement: a file that does not fit is found before.
TEST_F(CommandAdvise, RefusesACalibrationOfAnotherMachine) {
  const std::string path = file("calibration.yaml");
  std::ofstream(path) << "machine: another, 64 cores\nmodel: m\nversion: v\ndate: d\n"
                         "factors:\n  generating: {experts: 1, dense: 1, exchange: 1}\n"
                         "  prompts: {experts: 1, dense: 1, exchange: 1}\nmeasured: {}\n";
  for (const bool measure : {false, true}) {
    std::vector<std::string> arguments = {"advise", "--model",       small_model(), "--hardware",
                                          "this",   "--calibration", path};
    if (measure) arguments.emplace_back("--measure");
    const CommandEnd end = run_command({.arguments = arguments});
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_THAT(end.err, HasSubstr("calibration.yaml: is of another machine: expected '"));
    EXPECT_THAT(end.err, HasSubstr("found 'another, 64 cores'"));
  }
}

TEST_F(CommandAdvise, PageLoadsNothing) {
  const CommandEnd end = advise(csv(), {"--tpot", "5", "--html", file("page.html")});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("wrote " + file("page.html")));
  const std::string page = read("page.html");
  for (const char* mark :
       {"@FILE", "@PART", "@DATA@", "@SUMMARY@", "http://", "https://", "src=", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(mark)));
  }
  const std::string begin = "<script id=\"data\" type=\"application/json\">";
  const size_t from = page.find(begin) + begin.size();
  const json data =
      json::parse(page.substr(from, page.find("</script>", from) - from), nullptr, false);
  ASSERT_TRUE(data.is_object());
  EXPECT_EQ(data["limits"]["tpot"], 5.0);
  EXPECT_TRUE(data["limits"]["ttft"].is_null());
  EXPECT_GE(data["cloud"].size(), data["pareto"].size());
  EXPECT_FALSE(data["neighbours"].empty());
  // What the parts of the memory sum to is what the text says.
  double bytes = 0.0;
  for (const auto& [part, value] : data["best"]["memory"].items()) bytes += value.get<double>();
  EXPECT_THAT(end.out, HasSubstr(fmt::format("memory       {:.1f} GB", bytes / 1e9)));
}

// Pictures are not compared: the test checks that the script runs to its end and has drawn its
// parts.
TEST_F(CommandAdvise, PageDrawsItself) {
  if (std::system("command -v chromium >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "chromium is not installed: the page's script is not run";
  }
  ASSERT_EQ(advise(csv(), {"--tpot", "5", "--html", file("page.html")}).exit_code, 0);
  const std::string command = fmt::format(
      "chromium --headless --no-sandbox --disable-gpu --user-data-dir={} --dump-dom file://{} "
      ">{} 2>/dev/null",
      file("profile"), file("page.html"), file("drawn.html"));
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string drawn = read("drawn.html");
  for (const char* part :
       {"Recommended", "What is possible", "Where the time goes",
        "Imbalance by the number of ranks", "Memory of a rank", "The layouts of the line",
        "Drawn by wideep advise", "class=\"best\"", "class=\"line ours\""}) {
    EXPECT_THAT(drawn, HasSubstr(part));
  }
  EXPECT_THAT(drawn, Not(HasSubstr("NaN")));
}

TEST_F(CommandAdvise, PageOfNoLayoutSaysWhatIsNearest) {
  const CommandEnd end = advise(csv(), {"--tpot", "0.0001", "--html", file("page.html")});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("nearest"));
  EXPECT_THAT(read("page.html"), HasSubstr("no layout has 0.0 ms between tokens"));
}

}  // namespace
}  // namespace wideep::tests
