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

// vLLM's clients may keep their prompts' pages apart in every API.
TEST(ApiTest, EachTakesTheSaltOfTheCache) {
  const run::SamplingDefaults sampling;
  ResponseStore store({});
  for (const Api api : kAll) {
    const ApiSpec& spec = spec_of(api);
    const auto parse = [&](const nlohmann::json& salt) {
      nlohmann::json body = {{"model", "m"}, {"cache_salt", salt}};
      if (api != Api::kResponses) body["max_tokens"] = 4;
      const nlohmann::json message = {{"role", "user"}, {"content", "a"}};
      if (api == Api::kCompletion) body["prompt"] = "a";
      if (api == Api::kResponses) body["input"] = "a";
      if (api == Api::kChat || api == Api::kMessages)
        body["messages"] = nlohmann::json::array({message});
      return spec.parse(body.dump(), {.sampling = sampling, .responses = &store});
    };
    const auto salt_of = [&](const nlohmann::json& salt) {
      const auto parsed = parse(salt);
      return std::visit([](const auto& each) { return each.options.engine_request.salt; },
                        std::get<TextRequest>(parsed));
    };
    EXPECT_EQ(salt_of("tenant 1"), "tenant 1") << spec.path;
    EXPECT_EQ(salt_of(std::string(256, 's')).size(), 256u);
    EXPECT_EQ(salt_of(nullptr), "");
    const std::pair<nlohmann::json, const char*> kMistakes[] = {
        {"", "cache_salt: expected a text of 1 to 256 bytes, found 0 bytes"},
        {std::string(257, 's'), "cache_salt: expected a text of 1 to 256 bytes, found 257 bytes"},
        {7, "cache_salt: expected a string, found 7"},
        {{"s"}, "cache_salt: expected a string, found [\"s\"]"}};
    for (const auto& [salt, message] : kMistakes) {
      const auto parsed = parse(salt);
      const auto* error = std::get_if<HttpError>(&parsed);
      ASSERT_NE(error, nullptr) << spec.path << message;
      EXPECT_EQ(error->status, 400);
      EXPECT_EQ(error->param, "cache_salt");
      EXPECT_THAT(error->message, StartsWith(message));
    }
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
