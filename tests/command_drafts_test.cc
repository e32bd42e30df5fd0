// SPDX-License-Identifier: Apache-2.0
// Speculation as a user sees it: what generate, doctor and serve say of drafts, and what is
// refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "formats/files.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using server::ask;
using server::Reply;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kReference = WIDEEP_SOURCE_DIR "/models/reference";
const std::string kPrompt = "And the king said to his servants,";

class CommandDrafts : public ::testing::Test {
 protected:
  std::string config(const std::string& text) {
    const std::string path = directory_.file("parallel.yaml");
    EXPECT_TRUE(formats::write_file(path, text).ok());
    return path;
  }
  CommandEnd generate(const std::string& model, const std::string& text,
                      std::vector<std::string> more = {}) {
    more.insert(more.begin(),
                {"generate", "--model", model, "--prompt", kPrompt, "--config", config(text)});
    return run_command({.arguments = more});
  }

  const base::ScratchDirectory directory_;
};

TEST_F(CommandDrafts, ThePredictionLayerDraftsAndIsBalanced) {
  const std::string text =
      "tensor_parallel_size: 2\n"
      "moe_expert_parallel_size: 2\n"
      "enable_attention_dp: true\n"
      "enable_lm_head_tp_in_adp: true\n"
      "moe_config: {load_balancer: {num_slots: 36, layer_updates_per_iter: 1}}\n"
      "speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 2}\n";
  const std::string statistics = directory_.file("statistics");
  const CommandEnd end = generate(kReference, text,
                                  {"--max-tokens", "60", "--expert-statistic-path", statistics,
                                   "--expert-statistic-iter-range", "2-12"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, AllOf(HasSubstr("7 layers and one that predicts, 7 of them MoE"),
                             HasSubstr("up to 2 tokens of a request in a step, from the model's "
                                       "own prediction; the same bits as without")));
  EXPECT_THAT(end.out, HasSubstr("draft tokens accepted"));
  // Its experts are recorded as those of layer 7, as in the files.
  const CommandEnd report =
      run_command({.arguments = {"balance", "report", "--stats", statistics, "--json"}});
  const json layers = json::parse(report.out)["layers"];
  ASSERT_EQ(layers.size(), 7u) << report.out.substr(0, 500);
  EXPECT_EQ(layers.back()["layer"], 7);
}

TEST_F(CommandDrafts, DoctorKnowsThePredictionLayer) {
  const auto doctor = [&](const std::string& text) {
    const CommandEnd end = run_command(
        {.arguments = {"doctor", "--model", kReference, "--config", config(text), "--json"}});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return json::parse(end.out)["model"];
  };
  const json without = doctor("max_batch_size: 4\n");
  const json with = doctor("speculative_config: {decoding_type: MTP}\n");
  EXPECT_GT(with["bytes_needed"].get<int64_t>(), without["bytes_needed"].get<int64_t>());
}

TEST_F(CommandDrafts, SaysWhyAModelPredictsNothing) {
  const std::string mtp = "speculative_config: {decoding_type: MTP}\n";
  expect_refused(generate(small_model(), mtp), {"parallel.yaml", "decoding_type MTP",
                                                "have no layers that predict further tokens"});
  const CommandEnd plain = generate(kReference, "max_batch_size: 2\n", {"--max-tokens", "2"});
  EXPECT_THAT(plain.err, HasSubstr("tensors of 1 layer that predict further tokens are not run"));
  expect_refused(generate(kReference,
                          "speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 2, "
                          "use_mtp_vanilla: true}\n"),
                 {"expected at most 1 drafts, a layer of config.json for each", "found 2"});
  expect_refused(generate(kReference, "context_parallel_size: 2\n" + mtp),
                 {"context_parallel_size: expected 1 for speculative_config.decoding_type MTP"});
  const CommandEnd thinking =
      generate(kReference,
               "speculative_config: {decoding_type: MTP, use_relaxed_acceptance_for_thinking: "
               "true, relaxed_topk: 3}\n");
  EXPECT_EQ(thinking.exit_code, 2);
  EXPECT_THAT(thinking.err, AllOf(HasSubstr("begin_thinking_phase_token"),
                                  HasSubstr("below vocab_size 8192, found 128798")));
}

TEST_F(CommandDrafts, AFileWithoutTheLayersTensors) {
  const base::ScratchDirectory model;
  write_random_model(model.path(), {.family = "deepseek_v3"});
  const std::string path = model.path() + "/config.json";
  json config = json::parse(formats::read_file(path).value());
  config["num_nextn_predict_layers"] = 1;
  ASSERT_TRUE(formats::write_file(path, config.dump()).ok());
  expect_refused(generate(model.path(), "speculative_config: {decoding_type: MTP}\n"),
                 {"the files lack",
                  "of the layer that predicts further tokens, such as "
                  "model.layers.3.enorm.weight",
                  "than MTP"});
}

TEST_F(CommandDrafts, RelaxedAcceptanceSaysThatItChangesAnswers) {
  const CommandEnd end =
      generate(kReference,
               "speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 3, "
               "use_relaxed_acceptance_for_thinking: true, relaxed_topk: 8192, relaxed_delta: 1.0, "
               "begin_thinking_phase_token: 0, end_thinking_phase_token: 2}\n",
               {"--max-tokens", "61", "--json"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err,
              AllOf(HasSubstr("changes answers"), Not(HasSubstr("the same bits as without"))));
  // Every draft is kept: after the first token, of the prompt, each step yields four.
  EXPECT_EQ(json::parse(end.out)["speculation"]["acceptance_length"], 4.0) << end.out;
}

// ---- serve ----

TEST_F(CommandDrafts, RepliesAndMetricsCountDrafts) {
  Server server(kReference,
                {"--config",
                 config("speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 2}\n"),
                 "--per-request-spec-decode-metrics", "detailed"});
  ASSERT_GT(server.port(), 0);
  const json body = {{"prompt", kPrompt}, {"max_tokens", 40}};
  const json drafted = server.complete(body).body_json();
  const json of = drafted["metrics"]["speculative_decoding"];
  EXPECT_THAT(of["num_accepted_draft_tokens"].get<int>(), Gt(10)) << drafted.dump();
  EXPECT_EQ(of["num_spec_tokens"], 2);
  int accepted = 0, steps = 0;
  for (const json& each : of["per_step_accepted"]) accepted += each.get<int>(), ++steps;
  EXPECT_EQ(of["num_accepted_draft_tokens"], accepted);
  EXPECT_EQ(of["num_spec_steps"], steps);
  EXPECT_EQ(server.metric("vllm:spec_decode_num_accepted_tokens_total"), accepted);

  // Without: the same answer, and no more drafts.
  const double before = server.metric("vllm:spec_decode_num_draft_tokens_total");
  json off = body;
  off["speculative"] = "off";
  const json plain = server.complete(off).body_json();
  EXPECT_EQ(plain["choices"], drafted["choices"]);
  EXPECT_EQ(plain["metrics"]["speculative_decoding"]["num_draft_tokens"], 0) << plain.dump();
  EXPECT_EQ(server.metric("vllm:spec_decode_num_draft_tokens_total"), before);
  off["speculative"] = 3;
  EXPECT_THAT(server.complete(off).body, HasSubstr("speculative: expected"));

  // A stop string ends the answer in the middle of a step; two answers are counted together.
  json stopped = body;
  stopped["stop"] = "servants,";
  const json early = server.complete(stopped).body_json();
  const json cut = early["metrics"]["speculative_decoding"];
  EXPECT_LT(cut["num_accepted_draft_tokens"].get<int>(), accepted);
  EXPECT_LE(cut["num_accepted_draft_tokens"].get<int>() + cut["num_spec_steps"].get<int>(),
            early["usage"]["completion_tokens"].get<int>() + 2)
      << early.dump();
  json two = body;
  two["n"] = 2;
  const json both = server.complete(two).body_json()["metrics"]["speculative_decoding"];
  EXPECT_EQ(both["num_accepted_draft_tokens"], 2 * accepted) << both.dump();

  // In a stream, on the chunk with the usage.
  json streamed = body;
  streamed.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  const std::vector<json> events = server.complete(streamed).events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back()["metrics"]["speculative_decoding"], of) << events.back().dump();
  EXPECT_FALSE(events.front().contains("metrics"));
}

}  // namespace
}  // namespace wideep::tests
