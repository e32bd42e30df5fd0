// SPDX-License-Identifier: Apache-2.0
//
// Answers with a grammar: every one follows it, and they are the same in every layout, with drafts
// and without, greedy and drawn.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "formats/json_parse.h"
#include "grammar/output_format.h"
#include "model/model_division.h"
#include "random_layouts.h"

namespace wideep::tests {
namespace {

using grammar::OutputFormat;
using nlohmann::ordered_json;
using run::GenerateOptions;
using run::GenerateReport;

engine::SharedGrammar compiled(const OutputFormat& format) {
  const auto grammar = grammar::compile_output(format);
  EXPECT_TRUE(grammar.ok()) << grammar.status().message();
  return std::make_shared<const std::string>(grammar->encode());
}

engine::SharedGrammar person() {
  return compiled({.kind = OutputFormat::Kind::kJsonSchema,
                   .schema = {{"type", "object"},
                              {"properties",
                               {{"name", {{"type", "string"}, {"maxLength", 12}}},
                                {"age", {{"type", "integer"}, {"minimum", 0}, {"maximum", 150}}},
                                {"tags",
                                 {{"type", "array"},
                                  {"items", {{"enum", {"red", "green"}}}},
                                  {"minItems", 1},
                                  {"maxItems", 3}}}}},
                              {"required", {"name", "age", "tags"}}},
                   .place = "schema"});
}

// Drafts bytes of JSON, of which few are right.
class JsonDrafter : public engine::Drafter {
 public:
  engine::Draft draft(int, std::span<const int32_t> more, int max) override {
    constexpr std::string_view kText = "{\"name\": \"a\", \"age\": 1, \"tags\": [\"red\"]}";
    for (const int32_t token : more) {
      const size_t found = kText.find(static_cast<char>(token), at_);
      at_ = found == std::string_view::npos ? 0 : found + 1;
    }
    engine::Draft draft;
    for (size_t i = at_; i < kText.size() && static_cast<int>(draft.tokens.size()) < max; ++i) {
      draft.tokens.push_back(static_cast<uint8_t>(kText[i]));
    }
    return draft;
  }
  void end(int) override { at_ = 0; }
  size_t bytes() const override { return 0; }

 private:
  size_t at_ = 0;
};

class Constrained : public RandomLayouts {
 protected:
  GenerateOptions options(const Layout& layout, float temperature) const {
    GenerateOptions options = options_for(layout, 70);
    options.max_tokens = 300;
    options.takes_grammars = true;
    options.grammar = person();
    options.sampling = {.temperature = temperature, .seed = 7};
    return options;
  }
};

void expect_people(const GenerateReport& report) {
  for (const run::PromptResult& each : report.results) {
    EXPECT_EQ(each.finish_reason, engine::FinishReason::kStop) << each.text;
    const auto json = formats::parse_exact_json(each.text, "answer");
    ASSERT_TRUE(json.ok()) << json.status().message() << ": " << each.text;
    EXPECT_TRUE((*json)["name"].is_string());
    EXPECT_LE((*json)["age"].get<int>(), 150);
    EXPECT_GE((*json)["tags"].size(), 1u);
    for (const auto& tag : (*json)["tags"]) EXPECT_TRUE(tag == "red" || tag == "green");
  }
}

TEST_F(Constrained, AnswersFollowTheSchemaInEveryLayout) {
  const std::vector<Layout> layouts = {
      {"ep 2, online", sizes_of(2, 1, 1), true, true, 19},
      {"tp 2, etp 2", sizes_of(2, 1, 1, 2)},
      {"pp 2, ep 2, chunks of 33", sizes_of(2, 2, 1), true, false, 33},
      {"cp 2", sizes_of(1, 1, 2)}};
  for (const float temperature : {0.0f, 1.0f}) {
    const GenerateReport alone = run(options({"alone", sizes_of(1, 1, 1)}, temperature));
    expect_people(alone);
    for (const Layout& layout : layouts) {
      const GenerateOptions here = options(layout, temperature);
      if (!model::check_parts(here.parallel, config_).ok()) continue;
      SCOPED_TRACE(fmt::format("{}, temperature {}", layout.name, temperature));
      if (std::string_view(layout.name).starts_with("tp")) {  // sums are split there
        expect_people(run(here));
      } else {
        EXPECT_EQ(tokens_of(run(here)), tokens_of(alone));
      }
    }
  }
}

TEST_F(Constrained, DraftsChangeNothing) {
  for (const float temperature : {0.0f, 1.0f}) {
    for (const Layout& layout :
         {Layout{"alone", sizes_of(1, 1, 1)}, Layout{"pp 2", sizes_of(1, 2, 1)},
          Layout{"cp 2", sizes_of(1, 1, 2)}}) {
      SCOPED_TRACE(fmt::format("{}, temperature {}", layout.name, temperature));
      GenerateOptions plain = options(layout, temperature);
      const GenerateReport without = run(plain);
      plain.parallel.speculative_config = {.type = parallel::SpeculativeConfig::Type::kSuffix,
                                           .max_draft_len = 6};
      plain.adjust_speculation = [](engine::SpeculationOptions& speculation) {
        speculation.make_drafter = [] { return std::make_unique<JsonDrafter>(); };
      };
      const GenerateReport with = run(plain);
      EXPECT_EQ(tokens_of(with), tokens_of(without));
      EXPECT_GT(with.load.speculation.accepted, 0);
      EXPECT_GT(with.load.speculation.drafted, with.load.speculation.accepted);
    }
  }
}

// Ranks that share the attention of each request, and sample alike: sums are split, so that the
// tokens are those of the same layout, whatever else is on.
TEST_F(Constrained, RanksThatComputeTogetherAgreeWithDraftsAndMoves) {
  const Layout joint{"tp 2, etp 2", sizes_of(2, 1, 1, 2)};
  const Layout moving{"tp 2, ep 2, online", sizes_of(2, 1, 1), false, true};
  for (const float temperature : {0.0f, 1.0f}) {
    for (const Layout& layout : {joint, moving}) {
      SCOPED_TRACE(fmt::format("{}, temperature {}", layout.name, temperature));
      Layout still = layout;
      still.online = false;
      const GenerateReport plain = run(options(still, temperature));
      expect_people(plain);
      GenerateOptions more = options(layout, temperature);
      more.parallel.speculative_config = {.type = parallel::SpeculativeConfig::Type::kSuffix,
                                          .max_draft_len = 6};
      more.adjust_speculation = [](engine::SpeculationOptions& speculation) {
        speculation.make_drafter = [] { return std::make_unique<JsonDrafter>(); };
      };
      const GenerateReport with = run(more);
      EXPECT_EQ(tokens_of(with), tokens_of(plain));
      EXPECT_GT(with.load.speculation.accepted, 0);
    }
  }
}

// Answers of one prompt that are drawn each on its own (n > 1) are the same in every layout.
TEST_F(Constrained, SeveralAnswersOfOnePrompt) {
  const auto several = [&](const Layout& layout) {
    GenerateOptions all = options(layout, 1.0f);
    all.prompts = {"The captain", "The captain", "The captain", "The captain"};
    return all;
  };
  const GenerateReport alone = run(several({"alone", sizes_of(1, 1, 1)}));
  expect_people(alone);
  const Layout online{"ep 2, online", sizes_of(2, 1, 1), true, true};
  EXPECT_EQ(tokens_of(run(several(online))), tokens_of(alone));
}

TEST_F(Constrained, ChoicesAndPatterns) {
  GenerateOptions here = options({"alone", sizes_of(1, 1, 1)}, 1.0f);
  here.grammar = compiled({.kind = OutputFormat::Kind::kChoice, .texts = {"yes", "no", "perhaps"}});
  for (const run::PromptResult& each : run(here).results) {
    EXPECT_TRUE(each.text == "yes" || each.text == "no" || each.text == "perhaps") << each.text;
  }
  here.grammar = compiled({.kind = OutputFormat::Kind::kRegex, .texts = {"[0-9]{3}-[a-f]{2}"}});
  for (const run::PromptResult& each : run(here).results) {
    EXPECT_EQ(each.text.size(), 6u) << each.text;
    EXPECT_EQ(each.tokens.size(), 7u);
  }
}

}  // namespace
}  // namespace wideep::tests
