// SPDX-License-Identifier: Apache-2.0
//
// Logits that are no numbers end the request that has them, with an error; others go on, with the
// same answers. The model has one token, Z, whose embedding overflows.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "command.h"
#include "command_server.h"
#include "random_layouts.h"
#include "tensor_files/safetensors.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using run::GenerateOptions;
using run::GenerateReport;
using testing::ContainsRegex;
using testing::HasSubstr;

// The embedding of Z times the multiplier is infinite; that of other tokens is not.
void write_model(const std::string& directory) {
  write_random_model_like(directory, "granitemoe_minimal");
  const std::string path = directory + "/config.json";
  json config = json::parse(std::ifstream(path));
  config["embedding_multiplier"] = 3.0;
  std::ofstream(path) << config;

  const std::string weights = directory + "/model.safetensors";
  size_t at = 0;
  {
    const auto file = tensor_files::SafetensorsFile::open(weights);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const tensor_files::TensorEntry* embedding = file->find("model.embed_tokens.weight");
    ASSERT_NE(embedding, nullptr);
    ASSERT_EQ(embedding->dtype, Dtype::kBf16);
    const size_t row_bytes = embedding->bytes.size() / static_cast<size_t>(embedding->shape[0]);
    uint64_t header = 0;
    std::ifstream(weights, std::ios::binary).read(reinterpret_cast<char*>(&header), 8);
    const json entries = [&] {
      std::ifstream stream(weights, std::ios::binary);
      stream.seekg(8);
      std::string text(header, ' ');
      stream.read(text.data(), static_cast<std::streamsize>(header));
      return json::parse(text);
    }();
    at = 8 + header + entries["model.embed_tokens.weight"]["data_offsets"][0].get<size_t>() +
         'Z' * row_bytes;
  }
  std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  const uint16_t large = 0x7f61;  // 3e38
  file.write(reinterpret_cast<const char*>(&large), sizeof(large));
}

class NotNumbers : public testing::Test {
 protected:
  void SetUp() override { write_model(directory_.path()); }

  GenerateOptions options(const Layout& layout, std::vector<std::string> prompts) const {
    GenerateOptions options;
    options.model_dir = directory_.path();
    options.prompts = std::move(prompts);
    options.max_tokens = 12;
    options.parallel = parallel::parallel_config_for_ranks(1).value();
    set_layout(layout, &options);
    return options;
  }

  const base::ScratchDirectory directory_;
};

TEST_F(NotNumbers, EndTheirRequestAloneInEveryLayout) {
  const std::vector<Layout> layouts = {{"alone", sizes_of(1, 1, 1)},
                                       {"ep 2", sizes_of(2, 1, 1), true},
                                       {"tp 2", sizes_of(2, 1, 1)},
                                       {"pp 2, chunks of 9", sizes_of(1, 2, 1), true, false, 9},
                                       {"cp 2", sizes_of(1, 1, 2)}};
  for (const Layout& layout : layouts) {
    for (const bool drafts : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", layout.name, drafts ? ", drafts" : ""));
      const auto with = [&](std::vector<std::string> prompts) {
        GenerateOptions here = options(layout, std::move(prompts));
        if (drafts) {
          here.parallel.speculative_config = {.type = parallel::SpeculativeConfig::Type::kSuffix,
                                              .max_draft_len = 4};
        }
        return run::generate(here);
      };
      const auto without = with({"one two one two one", "some more"});
      const auto all = with({"one two one two one", "of Z and so on", "some more"});
      ASSERT_TRUE(without.ok() && all.ok()) << without.status().message();
      EXPECT_TRUE(without->ended.ok()) << without->ended.message();
      EXPECT_EQ(all->ended.exit_code(), 1);
      EXPECT_THAT(all->ended.message(),
                  HasSubstr("prompt 1: token 0: the model has computed logits that are no numbers "
                            "(NaN or infinite)"));
      EXPECT_EQ(all->results[1].finish_reason, engine::FinishReason::kNotNumbers);
      EXPECT_TRUE(all->results[1].tokens.empty());
      for (const auto& [here, there] : {std::pair(0, 0), std::pair(2, 1)}) {
        EXPECT_EQ(all->results[here].tokens, without->results[there].tokens);
        EXPECT_EQ(all->results[here].tokens.size(), 12u);
      }
    }
  }
}

std::string error_in(const server::Reply& reply) {
  return reply.body_json()["error"]["message"].get<std::string>();
}

TEST_F(NotNumbers, AreAnErrorOfTheServerWhichGoesOn) {
  const Server server(directory_.path(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  const json good = {{"prompt", "one two"}, {"max_tokens", 8}};
  const std::string before = server.complete(good).body_json()["choices"][0]["text"];
  for (const json& more : {json{{"prompt", "Z"}}, json{{"prompt", "xZ"}, {"n", 3}},
                           json{{"prompt", "xZ"}, {"logprobs", 2}, {"temperature", 1}}}) {
    const server::Reply reply = server.complete(more);
    EXPECT_EQ(reply.status, 500) << reply.body;
    EXPECT_THAT(error_in(reply), ContainsRegex("token 0 of answer [0-2]: the model has computed "));
    EXPECT_EQ(reply.body_json()["error"]["code"], "logits_not_numbers");
  }
  // In the middle of an answer: Z is forced to be its first token.
  const json forced = {{"prompt", "one"}, {"logit_bias", {{"90", 100}}}, {"max_tokens", 5}};
  const server::Reply reply = server.complete(forced);
  EXPECT_EQ(reply.status, 500) << reply.body;
  EXPECT_THAT(error_in(reply), HasSubstr("token 1 of answer 0: "));
  json stream = forced;
  stream["stream"] = true;
  const server::Reply events = server.complete(stream);
  EXPECT_EQ(events.status, 200);
  EXPECT_THAT(events.body, HasSubstr("\"text\":\"Z\""));
  EXPECT_THAT(events.body, HasSubstr("token 1 of answer 0: the model has computed logits"));
  EXPECT_THAT(events.body, testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_EQ(server.complete(good).body_json()["choices"][0]["text"], before);
  EXPECT_EQ(server.metric("wideep_num_requests_running"), 0.0);
}

// The warm-up has lines of the dataset, too.
TEST_F(NotNumbers, EndABenchmarkWithTheLineOfTheDataset) {
  const std::string bad = R"({"prompt": "Z", "output_tokens": 2})",
                    good = R"({"prompt": "one two", "output_tokens": 2})";
  const std::string dataset = directory_.file("data.jsonl");
  const auto error_of = [&](const std::vector<std::string>& lines, const char* warmup) {
    std::ofstream(dataset) << fmt::format("{}\n", fmt::join(lines, "\n"));
    const CommandEnd end =
        run_command({.arguments = {"bench", "throughput", "--model", directory_.path(), "--dataset",
                                   dataset, "--concurrency", "1", "--warmup", warmup}});
    EXPECT_EQ(end.exit_code, 1) << end.out;
    return end.err;
  };
  EXPECT_THAT(error_of({good, good, bad}, "2"), HasSubstr("request 2: the model has computed "));
  EXPECT_THAT(error_of({good, bad}, "0"), HasSubstr("request 1: the model has computed "));
  EXPECT_THAT(error_of({good, bad}, "4"), HasSubstr("request 1: the model has computed "));
}

}  // namespace
}  // namespace wideep::tests
