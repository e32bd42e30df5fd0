// SPDX-License-Identifier: Apache-2.0
//
// Biases and penalties: answers are those of a client that computes them itself, token by token,
// and the same in every layout, with drafts and without, greedy and drawn, for each of n answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "command_server.h"
#include "model/model_division.h"
#include "random_layouts.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using run::GenerateOptions;
using run::GenerateReport;

constexpr const char* kReference = WIDEEP_SOURCE_DIR "/models/reference";

// Drafts the answers that it knows; every third draft ends with a wrong token.
class KnowingDrafter : public engine::Drafter {
 public:
  explicit KnowingDrafter(const GenerateReport& report) {
    for (const run::PromptResult& each : report.results) {
      prompt_lengths_.push_back(each.num_prompt_tokens);
      answers_.push_back(each.tokens);
    }
  }

  engine::Draft draft(int request, std::span<const int32_t> more, int max) override {
    const auto index = static_cast<size_t>(request);
    int& seen = seen_[request];
    seen += static_cast<int>(more.size());
    engine::Draft draft;
    const int generated = seen - prompt_lengths_[index];
    for (int i = generated; i < generated + max; ++i) {
      draft.tokens.push_back(answers_[index].at(static_cast<size_t>(i)));
    }
    if (max > 0 && generated % 3 == 0) draft.tokens.back() = (draft.tokens.back() + 1) % 256;
    return draft;
  }
  void end(int request) override { seen_.erase(request); }
  size_t bytes() const override { return 0; }

 private:
  std::vector<int> prompt_lengths_;
  std::vector<std::vector<int32_t>> answers_;
  std::map<int, int> seen_;  // tokens of a request
};

class Penalties : public RandomLayouts {
 protected:
  GenerateOptions options(const Layout& layout, float temperature) const {
    // The second answer ends one page and begins another.
    GenerateOptions options = options_for(layout, 40);
    options.max_tokens = 40;
    options.sampling = {.temperature = temperature,
                        .presence_penalty = 0.3f,
                        .frequency_penalty = 0.4f,
                        .repetition_penalty = 1.3f,
                        .seed = 7};
    return options;
  }
};

TEST_F(Penalties, AreTheSameInEveryLayoutAndWithDrafts) {
  const std::vector<Layout> layouts = {
      {"alone", sizes_of(1, 1, 1)},
      {"ep 2, online", sizes_of(2, 1, 1), true, true, 19},
      {"tp 2", sizes_of(2, 1, 1)},
      {"pp 2, ep 2, chunks of 33", sizes_of(2, 2, 1), true, false, 33},
      {"cp 2", sizes_of(1, 1, 2)}};
  for (const float temperature : {0.0f, 1.0f}) {
    GenerateOptions without = options(layouts[0], temperature);
    const GenerateReport alone = run(without);
    without.sampling = {.temperature = temperature, .seed = 7};
    const auto unchanged = tokens_of(run(without));
    EXPECT_NE(tokens_of(alone), unchanged);
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(fmt::format("{}, temperature {}", layout.name, temperature));
      GenerateOptions here = options(layout, temperature);
      if (!model::check_parts(here.parallel, config_).ok()) continue;
      const GenerateReport plain = run(here);
      // Sums are split there.
      if (!std::string_view(layout.name).starts_with("tp")) {
        EXPECT_EQ(tokens_of(plain), tokens_of(alone));
      }
      here.parallel.speculative_config = {.type = parallel::SpeculativeConfig::Type::kSuffix,
                                          .max_draft_len = 6};
      here.adjust_speculation = [&](engine::SpeculationOptions& speculation) {
        speculation.make_drafter = [&] { return std::make_unique<KnowingDrafter>(plain); };
      };
      const GenerateReport with = run(here);
      EXPECT_EQ(tokens_of(with), tokens_of(plain));
      EXPECT_GT(with.load.speculation.accepted, 0);
      EXPECT_GT(with.load.speculation.drafted, with.load.speculation.accepted);
    }
  }
}

json ids_of(const Server& server, const std::string& text, bool begins = false) {
  const json body = {{"model", "m"}, {"prompt", text}, {"add_special_tokens", begins}};
  return server::ask(server.port(), "POST", "/tokenize", body.dump()).body_json()["tokens"];
}

std::string text_of(const Server& server, const json& ids) {
  const json body = {{"model", "m"}, {"tokens", ids}};
  return server::ask(server.port(), "POST", "/detokenize", body.dump()).body_json()["prompt"];
}

json choices(const Server& server, const json& more) {
  const server::Reply reply = server.complete(more);
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.body_json()["choices"];
}

// A client may compute the penalties of tokens of the answer itself, and ask for one token at a
// time.
TEST(PenaltiesOfTheServer, AreBiasesThatFollowTheAnswer) {
  const Server server(kReference, {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  const std::string prompt = "one two one two one two one";
  const json whole = choices(server, {{"prompt", prompt},
                                      {"frequency_penalty", 0.75},
                                      {"presence_penalty", 1.5},
                                      {"max_tokens", 16}});
  json ids = ids_of(server, prompt, true);
  const size_t length = ids.size();
  while (ids.size() < length + 16) {
    json biases = json::object();
    for (size_t i = length; i < ids.size(); ++i) {
      const std::string token = ids[i].dump();
      biases[token] = biases.value(token, -1.5) - 0.75;
    }
    const json next = choices(
        server, {{"prompt", ids}, {"logit_bias", biases}, {"max_tokens", 1}, {"logprobs", 0}});
    const json token = ids_of(server, next[0]["text"]);
    if (token.size() != 1) break;  // a part of a character, or an end token
    ids.push_back(token[0]);
  }
  ASSERT_GT(ids.size(), length + 4);
  const std::string expected = text_of(server, json(ids.begin() + length, ids.end()));
  EXPECT_TRUE(whole[0]["text"].get<std::string>().starts_with(expected))
      << whole << " does not begin with " << expected;
  const json plain = choices(server, {{"prompt", prompt}, {"max_tokens", 16}});
  EXPECT_NE(plain[0]["text"], whole[0]["text"]);
}

TEST(PenaltiesOfTheServer, BiasesForceAndForbidInEachAnswer) {
  std::set<std::string> all;
  for (const char* ranks : {"1", "2"}) {
    const Server server(kReference, {"--ranks", ranks});
    ASSERT_GT(server.port(), 0);
    const json space = ids_of(server, " the");
    ASSERT_EQ(space.size(), 1u);
    const json forced = choices(
        server, {{"prompt", "x"}, {"logit_bias", {{space[0].dump(), 100}}}, {"max_tokens", 3}});
    EXPECT_EQ(forced[0]["text"], " the the the");
    const json request = {{"prompt", "Once upon a time"},
                          {"n", 4},
                          {"seed", 5},
                          {"temperature", 1},
                          {"frequency_penalty", 0.5},
                          {"repetition_penalty", 1.2},
                          {"min_p", 0.02},
                          {"logit_bias", {{space[0].dump(), -100}}}};
    const json answers = choices(server, request);
    ASSERT_EQ(answers.size(), 4u);
    std::set<std::string> texts;
    for (const json& each : answers) {
      texts.insert(each["text"]);
      EXPECT_EQ(std::ranges::count(ids_of(server, each["text"]), space[0]), 0) << each;
    }
    EXPECT_GT(texts.size(), 1u);
    all.insert(answers.dump());
  }
  EXPECT_EQ(all.size(), 1u) << "other layouts, other answers";
}

}  // namespace
}  // namespace wideep::tests
