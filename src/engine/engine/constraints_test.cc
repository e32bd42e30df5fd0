// SPDX-License-Identifier: Apache-2.0
#include "engine/constraints.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/verifier.h"
#include "grammar/output_format.h"

namespace wideep::engine {
namespace {

using grammar::OutputFormat;

std::string bytes_of(const std::string& pattern) {
  return grammar::compile_output(
             {.kind = OutputFormat::Kind::kRegex, .texts = {pattern}, .place = "regex"})
      ->encode();
}

// "a" … "j", and an end token.
grammar::Vocabulary letters() {
  std::vector<std::string> texts;
  for (char c = 'a'; c <= 'j'; ++c) texts.emplace_back(1, c);
  texts.emplace_back("<end>");
  return {std::move(texts), {10}};
}

TEST(Constraints, EqualGrammarsAreOne) {
  const grammar::Vocabulary vocabulary = letters();
  Constraints constraints(vocabulary);
  const auto first = constraints.find(bytes_of("a+"));
  EXPECT_EQ(constraints.find(bytes_of("a+")), first);
  EXPECT_NE(constraints.find(bytes_of("b+")), first);
}

TEST(Constraints, ThoseThatNoRequestFollowsAreForgotten) {
  const grammar::Vocabulary vocabulary = letters();
  Constraints constraints(vocabulary);
  const auto kept = constraints.find(bytes_of("a+"));
  const std::weak_ptr<grammar::Constraint> oldest = constraints.find(bytes_of("b+"));
  for (int i = 0; i < 100; ++i) {
    constraints.find(bytes_of("c{" + std::to_string(i) + "}"));
    constraints.begin_step();
  }
  EXPECT_TRUE(oldest.expired());
  EXPECT_EQ(constraints.find(bytes_of("a+")), kept);
}

// Drafts that the grammar does not allow are rejected where they come, and the tokens are those
// without drafts.
TEST(Constraints, DraftsFollowTheGrammarTokenByToken) {
  const grammar::Vocabulary vocabulary = letters();
  Constraints constraints(vocabulary);
  const std::vector<int> end_tokens = {10};
  const std::optional<RelaxedAcceptance> relaxed;
  const Verifier verifier(*kernels::select_kernels(nullptr).value(), end_tokens, relaxed, false,
                          &constraints);
  const std::vector<float> logits = {0, 9, 8, 7, 6, 5, 4, 3, 2, 1, 10};
  for (const float temperature : {0.0f, 1.0f}) {
    const auto next = [&](std::vector<int32_t> generated, std::vector<int32_t> drafts) {
      Sequence sequence{
          .request = {.prompt = std::vector<int32_t>{1, 2},
                      .max_tokens = 20,
                      .sampling = {.temperature = temperature, .seed = 5},
                      .grammar = std::make_shared<const std::string>(bytes_of("a(b|c)+d"))}};
      sequence.tokens = {1, 2};
      sequence.tokens.insert(sequence.tokens.end(), generated.begin(), generated.end());
      sequence.num_verifying = static_cast<int>(drafts.size());
      sequence.drafts = std::move(drafts);
      std::vector<int32_t> tokens;
      for (const Verdict& each :
           verifier.verify(sequence, [&](int) { return std::span<const float>(logits); })) {
        tokens.push_back(each.sampled.token);
      }
      return tokens;
    };
    std::vector<int32_t> alone;
    while (alone.size() < 12 && (alone.empty() || alone.back() != 10)) {
      alone.push_back(next(alone, {}).front());
    }
    EXPECT_EQ(alone[0], 0);
    for (size_t at = 0; at < alone.size(); ++at) {
      const std::vector<int32_t> before(alone.begin(), alone.begin() + static_cast<long>(at));
      // The right one, then one that the grammar never allows there.
      const std::vector<int32_t> got = next(before, {alone[at], 9, 9});
      ASSERT_FALSE(got.empty());
      for (size_t i = 0; i < got.size() && at + i < alone.size(); ++i) {
        EXPECT_EQ(got[i], alone[at + i]);
      }
      EXPECT_EQ(got.size(), alone[at] == 10 ? 1u : 2u);
    }
  }
}

}  // namespace
}  // namespace wideep::engine
