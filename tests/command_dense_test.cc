// SPDX-License-Identifier: Apache-2.0
//
// Models without experts, as a user runs them: the same answers in every layout, and no command
// speaks of experts that are not there.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "formats/files.h"
#include "http/http_client_testing.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CommandDense : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { write_random_model_like(model_.path(), GetParam()); }

  std::string yaml(const std::string& content) const {
    const std::string path = scratch_.file("parallel.yaml");
    EXPECT_TRUE(formats::write_file(path, content).ok());
    return path;
  }

  json results(const std::string& model, std::vector<std::string> more) const {
    more.insert(more.end(), {"--json", "--logits-digest"});
    const CommandEnd end = run_command(generate(model, more));
    EXPECT_EQ(end.exit_code, 0) << end.err;
    const json answer = json::parse(end.out, nullptr, false);
    return answer.is_object() ? answer.at("results") : json();
  }

  const base::ScratchDirectory model_, scratch_;
};

INSTANTIATE_TEST_SUITE_P(Model, CommandDense,
                         testing::Values("llama_tied", "mistral_window", "qwen2_plain",
                                         "qwen3_plain"),
                         [](const auto& test) { return test.param; });

// Words of a text about a model without experts.
auto speaks_of_no_experts() {
  return AllOf(Not(HasSubstr("expert")), Not(HasSubstr("MoE")), Not(HasSubstr("slots per")),
               Not(HasSubstr("imbalance")));
}

TEST_P(CommandDense, EveryLayoutAnswersAlike) {
  const json one = results(model_.path(), {"--ranks", "1"});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one, results(model_.path(), {"--ranks", "3"}));
  for (const char* layout :
       {"tensor_parallel_size: 2\n", "pipeline_parallel_size: 2\n", "context_parallel_size: 2\n",
        "tensor_parallel_size: 2\nenable_attention_dp: true\n",
        "tensor_parallel_size: 2\npipeline_parallel_size: 2\nmoe_expert_parallel_size: 2\n"}) {
    EXPECT_EQ(one, results(model_.path(), {"--config", yaml(layout)})) << layout;
  }
}

TEST_P(CommandDense, CommandsSpeakOfNoExperts) {
  const CommandEnd generated = run_command(generate(model_.path(), {"--ranks", "2"}));
  EXPECT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_THAT(generated.err, HasSubstr("layers, all dense; "));
  EXPECT_THAT(generated.err + generated.out, speaks_of_no_experts());
  const std::vector<std::string> model = {"--model", model_.path()};
  for (std::vector<std::string> command :
       {std::vector<std::string>{"doctor", "--ranks", "2"},
        {"bench", "model", "--threads", "1", "--prompt", "8", "--generate", "2", "--batch", "1",
         "--repeat", "1", "--depth", "4"}}) {
    command.insert(command.end(), model.begin(), model.end());
    const CommandEnd end = run_command({.arguments = command});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_THAT(end.out, HasSubstr("all dense"));
    EXPECT_THAT(end.out, speaks_of_no_experts());
  }
  const CommandEnd explained =
      run_command({.arguments = {"parallel", "explain", "--model", model_.path(), "--config",
                                 yaml("tensor_parallel_size: 2\n")}});
  EXPECT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("sends   nothing to experts: all layers are dense\n"));
}

// The sizes of Llama 2 7B; the models above are below any hardware's range.
TEST(CommandDenseAdvice, SpeaksOfNoExperts) {
  const base::ScratchDirectory scratch;
  const std::string config = scratch.file("config.json");
  ASSERT_TRUE(formats::write_file(config, R"({"architectures": ["LlamaForCausalLM"],
      "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "intermediate_size": 11008, "max_position_embeddings": 4096,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": false})")
                  .ok());
  const std::string output = scratch.file("out");
  const CommandEnd end =
      run_command({.arguments = {"advise", "--model", config, "--hardware", "h100_sxm", "--dtype",
                                 "fp8", "--isl", "512", "--osl", "512", "--output", output}});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out,
              AllOf(HasSubstr("TP 8, fp8"), HasSubstr("iteration "), Not(HasSubstr("expert")),
                    Not(HasSubstr("dispatch")), Not(HasSubstr("updates"))));
  EXPECT_THAT(*formats::read_file(output + "/parallel_config.yaml"),
              AllOf(HasSubstr("tensor_parallel_size: "), Not(HasSubstr("moe"))));
}

TEST_P(CommandDense, SettingsOfExpertsAreToldSo) {
  const std::string shared = "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n";
  const CommandEnd noted = run_command(generate(model_.path(), {"--config", yaml(shared)}));
  EXPECT_EQ(noted.exit_code, 0);
  EXPECT_THAT(noted.err, HasSubstr("moe_expert_parallel_size 2 has no effect"));
  for (const char* option : {"--routing-log", "--expert-statistic-path"}) {
    std::vector<std::string> more = {option, scratch_.file("out")};
    if (std::string(option) != "--routing-log") {
      more.insert(more.end(), {"--expert-statistic-iter-range", "0-4"});
    }
    expect_refused(run_command(generate(model_.path(), more)), {option, "has no experts"});
  }
  expect_refused(run_command(generate(model_.path(), {"--perfect-router"})),
                 {"--perfect-router", "has no experts"});
  for (const char* balancer : {"{num_slots: 8}", "{num_slots: 2, layer_updates_per_iter: 1}"}) {
    const std::string config =
        shared + fmt::format("moe_config: {{load_balancer: {}}}\n", balancer);
    expect_refused(run_command(generate(model_.path(), {"--config", yaml(config)})),
                   {"moe_config.load_balancer", "has no experts"});
  }
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--perfect-router"},
                                               {"--routing-log", scratch_.file("out")},
                                               {"--expert-statistic-path", scratch_.file("out"),
                                                "--expert-statistic-iter-range", "0-4"}}) {
    std::vector<std::string> bench = {"bench", "model", "--model", model_.path()};
    bench.insert(bench.end(), more.begin(), more.end());
    expect_refused(run_command({.arguments = bench}), {more[0], "has no experts"});
  }
  expect_refused(run_command({.arguments = {"serve", "--model", model_.path(), "--port", "0",
                                            "--expert-statistic-path", scratch_.file("recorded")}}),
                 {"--expert-statistic-path", "has no experts"});
}

TEST_P(CommandDense, CommandsAboutExpertsRefuseThem) {
  const auto with_model = [&](std::vector<std::string> command) {
    command.insert(command.end(), {"--model", model_.path(), "--hardware", "h100_sxm"});
    return run_command({.arguments = command});
  };
  const std::string output = scratch_.file("figures");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"simulate", "moves"},
        {"simulate", "tpot"},
        {"figures", "pareto", "--output", output},
        {"figures", "movable-experts", "--output", output},
        {"figures", "expert-time", "--output", output, "--no-measure"}}) {
    expect_refused(with_model(command), {"--model: expected a model with experts"});
  }
  expect_refused(with_model({"advise", "--stats", "any.csv"}), {"--stats", "has no experts"});
}

TEST_P(CommandDense, AreServed) {
  const Server one(model_.path(), {"--ranks", "2"});
  ASSERT_GT(one.port(), 0);
  const Server two(model_.path(), {"--config", yaml("tensor_parallel_size: 2\n")});
  ASSERT_GT(two.port(), 0);
  const json wanted = {{"prompt", "The captain looked"}};
  const auto text = [&](const Server& server) {
    return server.complete(wanted).body_json().at("choices").at(0).at("text");
  };
  EXPECT_EQ(text(one), text(two));
  const json data = server::ask(one.port(), "GET", "/dashboard/data").body_json();
  EXPECT_EQ(data["has_experts"], false);
}

class CommandDenseFormats : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Format, CommandDenseFormats,
                         testing::Values("fp8", "int8", "int4", "mxfp4", "nvfp4"),
                         [](const auto& test) { return test.param; });

// All of its matrices are dense ones.
TEST_P(CommandDenseFormats, AreQuantisedAndRun) {
  const base::ScratchDirectory model, scratch;
  write_random_model_like(model.path(), "llama_bias");
  const std::string out = scratch.file("out"), tp = scratch.file("tp.yaml");
  ASSERT_TRUE(formats::write_file(tp, "tensor_parallel_size: 2\n").ok());
  const CommandEnd end = run_command({.arguments = {"quantize", "--model", model.path(), "--to",
                                                    GetParam(), "--output", out, "--json"}});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out, nullptr, false);
  EXPECT_LT(report.at("bytes_after"), report.at("bytes_before"));
  const auto answer = [&](const std::vector<std::string>& more) {
    CommandOptions options = generate(out, more);
    options.arguments.insert(options.arguments.end(), {"--json", "--logits-digest"});
    const CommandEnd run = run_command(options);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return json::parse(run.out, nullptr, false).at("results");
  };
  EXPECT_EQ(answer({"--ranks", "1"}), answer({"--config", tp}));
}

}  // namespace
}  // namespace wideep::tests
