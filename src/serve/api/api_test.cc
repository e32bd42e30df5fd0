// SPDX-License-Identifier: Apache-2.0
#include "api/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace wideep::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr Api kAll[] = {Api::kCompletion, Api::kChat, Api::kResponses, Api::kMessages};

TEST(ApiTest, EachReadsTheRequestsOfItsPath) {
  const std::string prompt = R"({"model":"m","max_tokens":4,"prompt":"a"})";
  const std::string chat =
      R"({"model":"m","max_tokens":4,"messages":[{"role":"user","content":"a"}]})";
  const std::string response = R"({"model":"m","max_output_tokens":4,"input":"a"})";
  const run::SamplingDefaults sampling;
  ResponseStore store({});
  for (const Api api : kAll) {
    const ApiSpec& spec = spec_of(api);
    EXPECT_EQ(spec.api, api);
    const std::string& body = api == Api::kCompletion  ? prompt
                              : api == Api::kResponses ? response
                                                       : chat;
    const auto parsed = spec.parse(body, {.sampling = sampling, .responses = &store});
    const auto* request = std::get_if<TextRequest>(&parsed);
    ASSERT_NE(request, nullptr) << spec.path << ": " << std::get<HttpError>(parsed).message;
    EXPECT_EQ(std::holds_alternative<CompletionRequest>(*request), api == Api::kCompletion);
    const GenerationOptions& options = std::visit(
        [](const auto& each) -> const GenerationOptions& { return each.options; }, *request);
    EXPECT_EQ(options.max_tokens, 4) << spec.path;
    EXPECT_NE(spec.make_writer({.api = api, .id = std::string(spec.id_start) + "1"}, options),
              nullptr);
  }
}

// OpenAI's, of completions; chats go on to the end of the context.
TEST(ApiTest, ACompletionHasSixteenTokensUnlessItSaysMore) {
  const run::SamplingDefaults sampling;
  const auto parsed =
      spec_of(Api::kCompletion).parse(R"({"model":"m","prompt":"a"})", {.sampling = sampling});
  const auto& request = std::get<CompletionRequest>(std::get<TextRequest>(parsed));
  EXPECT_EQ(request.options.max_tokens, 16);
}

TEST(ApiTest, AnErrorHasTheFormOfThePathOrTheHeader) {
  const HttpError error{.status = 400, .message = "why"};
  const auto form = [&](const std::string& target, bool has_version) {
    RequestHead head{.method = "POST", .target = target};
    if (has_version) head.fields = {{"anthropic-version", "2023-06-01"}};
    return error_form(head, error);
  };
  for (const Api api : kAll) {
    const ApiSpec& spec = spec_of(api);
    EXPECT_EQ(form(spec.path, false), spec.errors.body(error, "")) << spec.path;
  }
  EXPECT_THAT(form("/v1/models", false), StartsWith("{\"error\":"));
  EXPECT_THAT(form("/v1/models?limit=1", true), StartsWith("{\"type\":\"error\""));
  EXPECT_THAT(form("/v1/messages/count_tokens", false), HasSubstr("why"));
  EXPECT_THAT(form("/v1/messages_of_others", false), StartsWith("{\"error\":"));
}

}  // namespace
}  // namespace wideep::server
