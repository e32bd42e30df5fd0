// SPDX-License-Identifier: Apache-2.0
//
// The endpoints without sockets, over a directory as the only place.
#include "server/cache_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "server/service.h"
#include "store/directory.h"
#include "store/records_testing.h"

namespace wideep::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::MatchesRegex;

class CacheTestWire : public ReplyWire {
 public:
  void write(std::string_view bytes) override { text += bytes; }
  void write_at_once(std::string_view bytes) override { text += bytes; }
  void flush_later(std::shared_ptr<Exchange>) override {}
  void end_reply(bool) override {}
  void disconnect() override {}

  int status() const { return text.size() < 12 ? 0 : std::stoi(text.substr(9, 3)); }
  json body() const { return json::parse(text.substr(text.find("\r\n\r\n") + 4)); }

  std::string text;
};

// Nothing is generated here.
class CacheTestBackend : public Backend {
 public:
  int64_t submit(engine::Request, OnToken, OnExperts, OnProgress) override { return 0; }
  void cancel(int64_t) override {}
  void cut(int64_t) override {}
  std::optional<double> computes_since() const override { return {}; }
};

class CacheServiceTest : public testing::Test {
 protected:
  static constexpr uint64_t kPageBytes = 1 << 10;

  CacheServiceTest() { start({}); }

  // options: without what all tests have.
  void start(ServiceOptions options) {
    options.model = "m";
    options.max_sequence = 1024;
    if (options.export_dir.empty()) options.export_dir = export_dir_;
    ChatFiles chat{.templates = {}, .special_tokens = {}};
    EXPECT_TRUE(chat.templates
                    .add("default",
                         "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
                         "default")
                    .ok());
    EXPECT_TRUE(chat.templates.find_styles(tokenizer_, {}).ok());
    service_.emplace(options, tokenizer_, std::move(chat), backend_);
  }
  void connect_places(const std::string& path) {
    service_->cache().connect_places([path]() -> Result<CacheService::Opened> {
      std::vector<store::ListedPlace> places;
      places.push_back({store::Directory::open(
                            {.path = path, .max_bytes = uint64_t{16} << 20, .record_class = "test"})
                            .value(),
                        store::kDiskPrice});
      return CacheService::Opened{.form = form_of(), .places = std::move(places)};
    });
  }
  static run::RecordForm form_of() { return {.record_class = "test", .page_bytes = kPageBytes}; }
  void keep(const std::string& path, const std::vector<store::Head>& heads) {
    const auto directory =
        store::Directory::open(
            {.path = path, .max_bytes = uint64_t{16} << 20, .record_class = "test"})
            .value();
    for (const store::Head& head : heads) {
      EXPECT_EQ(directory->offer(head, payload_of(head), 0.5, store::kIntact),
                store::OfferResult::kTaken);
    }
  }

  std::shared_ptr<Exchange> exchange(CacheTestWire& wire, const std::string& path,
                                     const std::string& body, const std::string& key = "") {
    RequestHead head{.method = "POST", .target = path};
    if (!key.empty()) head.fields.emplace_back("authorization", "Bearer " + key);
    return std::make_shared<Exchange>(wire, head, body);
  }
  CacheTestWire post(const std::string& path, const std::string& body,
                     const std::string& key = "") {
    CacheTestWire wire;
    service_->handle(exchange(wire, path, body, key));
    return wire;
  }
  CacheTestWire export_it(const json& body) { return post("/v1/cache/export", body.dump()); }
  CacheTestWire import_it(const json& body) { return post("/v1/cache/import", body.dump()); }
  static std::string message(const CacheTestWire& wire) { return wire.body()["error"]["message"]; }

  tokenizer::Tokenizer tokenizer_ =
      tokenizer::Tokenizer::read(WIDEEP_SOURCE_DIR "/models/reference").value();
  CacheTestBackend backend_;
  base::ScratchDirectory scratch_;
  std::string export_dir_ = scratch_.path() + "/archives";
  std::string from_ = scratch_.path() + "/from", to_ = scratch_.path() + "/to";
  std::optional<Service> service_;
  const std::vector<int32_t> tokens_ = std::vector<int32_t>(150, 7);
};

TEST_F(CacheServiceTest, AnArchiveGoesFromOneServiceToAnother) {
  ASSERT_TRUE(prepare_export_dir(export_dir_).ok());
  keep(from_, run::pages_of(form_of(), tokens_, "tenant"));
  connect_places(from_);
  const CacheTestWire exported =
      export_it({{"prompt", tokens_}, {"cache_salt", "tenant"}, {"name", "agent-1.v2"}});
  ASSERT_EQ(exported.status(), 200) << exported.text;
  EXPECT_EQ(exported.body(), json({{"object", "cache.export"},
                                   {"name", "agent-1.v2"},
                                   {"tokens", 150},
                                   {"pages", 2},
                                   {"missing_pages", 0},
                                   {"states", 0},
                                   {"bytes", 2 * kPageBytes}}));
  EXPECT_EQ(
      export_it({{"prompt", tokens_}, {"cache_salt", "tenant"}, {"name", "agent-1.v2"}}).status(),
      409);
  start({});
  connect_places(to_);
  const CacheTestWire imported = import_it({{"name", "agent-1.v2"}});
  ASSERT_EQ(imported.status(), 200) << imported.text;
  EXPECT_EQ(
      imported.body(),
      json({{"object", "cache.import"},
            {"name", "agent-1.v2"},
            {"tokens", 128},
            {"pages", 2},
            {"states", 0},
            {"bytes", 2 * kPageBytes},
            {"skipped",
             {{"other_class", 0}, {"wrong", 0}, {"damaged", 0}, {"foreign", 0}, {"refused", 0}}}}));
  EXPECT_EQ(import_it({{"name", "agent-2"}}).status(), 404);
  const CacheTestWire again = export_it({{"prompt", tokens_}, {"cache_salt", "tenant"}});
  EXPECT_THAT(again.body()["name"].get<std::string>(), MatchesRegex("prompt-[0-9a-f]{16}"));
}

// A rank has looked into the directory just before.
TEST_F(CacheServiceTest, WhatIsImportedIsFoundAtOnce) {
  ASSERT_TRUE(prepare_export_dir(export_dir_).ok());
  keep(from_, run::pages_of(form_of(), tokens_, ""));
  connect_places(from_);
  ASSERT_EQ(export_it({{"prompt", tokens_}, {"name", "a"}}).status(), 200);
  start({});
  connect_places(to_);
  const auto of_rank =
      store::Directory::open({.path = to_, .max_bytes = uint64_t{16} << 20, .record_class = "test"})
          .value();
  ASSERT_EQ(import_it({{"name", "a"}}).status(), 200);
  EXPECT_THAT(of_rank->find(run::pages_of(form_of(), tokens_, "")), testing::Each(true));
}

TEST_F(CacheServiceTest, ChatsAreNamedByTheirMessages) {
  ASSERT_TRUE(prepare_export_dir(export_dir_).ok());
  std::string text;
  for (int i = 0; i < 100; ++i) text += "word ";
  const std::vector<int32_t> tokens = tokenizer_.encode("[user]" + text, false);
  ASSERT_GE(tokens.size(), 64u);
  keep(from_, run::pages_of(form_of(), tokens, ""));
  connect_places(from_);
  const json messages = {{{"role", "user"}, {"content", text}}};
  const CacheTestWire exported = export_it({{"messages", messages}});
  ASSERT_EQ(exported.status(), 200) << exported.text;
  EXPECT_EQ(exported.body()["tokens"], tokens.size());
  EXPECT_EQ(exported.body()["missing_pages"], 0);
}

TEST_F(CacheServiceTest, NothingIsFoundWhereNothingIsKept) {
  ASSERT_TRUE(prepare_export_dir(export_dir_).ok());
  connect_places(from_);
  const CacheTestWire nothing = export_it({{"prompt", std::vector<int>(30, 1)}});
  EXPECT_EQ(nothing.status(), 404);
  EXPECT_THAT(message(nothing), HasSubstr("none of the 0 full pages of these 30 tokens is kept"));
  EXPECT_TRUE(std::filesystem::is_empty(export_dir_));
}

TEST_F(CacheServiceTest, WhatCannotBeIsRefused) {
  connect_places(from_);
  const std::pair<json, const char*> exports[] = {
      {json::array(), "expected an object"},
      {json::object(), "expected one of prompt, messages and response_id, found none"},
      {{{"prompt", "a"}, {"response_id", "b"}}, "found several of them"},
      {{{"prompt", "a"}, {"cache_salt", ""}}, "cache_salt: expected a text of 1 to 256 bytes"},
      {{{"prompt", "a"}, {"cache_salt", std::string(257, 's')}}, "found 257 bytes"},
      {{{"prompt", "a"}, {"cache_salt", 3}}, "cache_salt: expected a string"},
      {{{"prompt", "a"}, {"what", 3}}, "what: "},
      {{{"prompt", {"a", "b"}}}, "prompt: expected one, found 2"},
      {{{"prompt", {-1}}}, "prompt"},
      {{{"messages", "a"}}, "messages: "},
      {{{"prompt", std::vector<int>(1024, 1)}}, "maximum context length"},
      {{{"prompt", "a"}, {"name", "../a"}}, "name: expected 1 to 128 of the letters"},
  };
  for (const auto& [body, expected] : exports) {
    const CacheTestWire wire = export_it(body);
    EXPECT_EQ(wire.status(), 400) << body;
    EXPECT_THAT(message(wire), HasSubstr(expected));
  }
  EXPECT_EQ(export_it({{"response_id", "resp_1"}}).status(), 404);
  EXPECT_EQ(export_it({{"prompt", "a"}, {"model", "other"}}).status(), 404);
  EXPECT_EQ(post("/v1/cache/export", "{").status(), 400);
  const json imports[] = {json::object(),    {{"name", ""}}, {{"name", "."}},
                          {{"name", "a/b"}}, {{"name", 1}},  {{"name", "a"}, {"prompt", "b"}}};
  for (const json& body : imports) EXPECT_EQ(import_it(body).status(), 400) << body;
}

TEST_F(CacheServiceTest, Names) {
  for (const char* name : {"a", "A-b_c.9", "-", "_", "9.wideep"}) {
    EXPECT_TRUE(is_archive_name(name)) << name;
  }
  EXPECT_TRUE(is_archive_name(std::string(128, 'a')));
  for (const char* name : {"", ".", "..", ".a", "a/b", "/", "a b", "a\n", "ä", "a\\b"}) {
    EXPECT_FALSE(is_archive_name(name)) << name;
  }
  EXPECT_FALSE(is_archive_name(std::string(129, 'a')));
  EXPECT_FALSE(is_archive_name(std::string_view("a\0b", 3)));
}

TEST_F(CacheServiceTest, WithoutADirectoryOrPlacesItSaysSo) {
  const CacheTestWire no_places = export_it({{"prompt", tokens_}});
  EXPECT_EQ(no_places.status(), 400);
  EXPECT_THAT(message(no_places), HasSubstr("--prompt-cache-dir"));
  export_dir_.clear();
  start({});
  connect_places(from_);
  for (const char* path : {"/v1/cache/export", "/v1/cache/import"}) {
    const CacheTestWire no_directory = post(path, "{}");
    EXPECT_EQ(no_directory.status(), 400);
    EXPECT_THAT(message(no_directory), HasSubstr("start it with --prompt-cache-export-dir"));
  }
  const std::string file = scratch_.path() + "/file";
  ASSERT_TRUE(formats::write_file(file, "").ok());
  EXPECT_THAT(prepare_export_dir(file).message(), HasSubstr("expected a directory"));
  EXPECT_FALSE(prepare_export_dir(file + "/below").ok());
}

TEST_F(CacheServiceTest, AdminsAlone) {
  start({.api_key = "secret", .admin_key = "root"});
  for (const char* path : {"/v1/cache/export", "/v1/cache/import"}) {
    EXPECT_EQ(post(path, "{}").status(), 401);
    EXPECT_EQ(post(path, "{}", "secret").status(), 401);
    EXPECT_EQ(post(path, "{}", "root").status(), 400);
  }
}

TEST_F(CacheServiceTest, PlacesThatCannotBeOpenedAreAnErrorAndTriedAgain) {
  ASSERT_TRUE(prepare_export_dir(export_dir_).ok());
  int calls = 0;
  service_->cache().connect_places([&]() -> Result<CacheService::Opened> {
    ++calls;
    return failed("no memory");
  });
  for (int i = 1; i <= 2; ++i) {
    const CacheTestWire wire = export_it({{"prompt", tokens_}});
    EXPECT_EQ(wire.status(), 500);
    EXPECT_EQ(message(wire), "no memory");
    EXPECT_EQ(calls, i);
  }
}

// One runs, and few wait; what a dead process had begun is not begun again.
TEST_F(CacheServiceTest, FewWait) {
  ASSERT_TRUE(prepare_export_dir(export_dir_).ok());
  std::promise<void> began, goes_on;
  service_->cache().connect_places([&]() -> Result<CacheService::Opened> {
    began.set_value();
    goes_on.get_future().wait();
    return failed("that is all");
  });
  std::mutex mutex;
  std::vector<std::function<void()>> posted;
  service_->connect([&](std::function<void()> call) {
    const std::lock_guard lock(mutex);
    posted.push_back(std::move(call));
  });
  std::vector<CacheTestWire> wires(CacheService::kMaxWaiting);
  std::vector<std::shared_ptr<Exchange>> exchanges;
  const std::string body = json({{"prompt", tokens_}}).dump();
  for (CacheTestWire& wire : wires) {
    exchanges.push_back(exchange(wire, "/v1/cache/export", body));
    service_->handle(exchanges.back());
    EXPECT_EQ(wire.text, "");
  }
  EXPECT_FALSE(service_->has_answered());
  EXPECT_EQ(export_it({{"prompt", tokens_}}).status(), 429);
  CacheTestWire wire;
  const auto inherited = exchange(wire, "/v1/cache/import", R"({"name": "a"})");
  inherited->set_inherited();
  service_->handle(inherited);
  EXPECT_EQ(wire.status(), 503);
  for (size_t i = 1; i < exchanges.size(); ++i) exchanges[i]->detach();  // their clients leave
  began.get_future().wait();
  goes_on.set_value();
  service_->join();
  ASSERT_EQ(posted.size(), 1u);
  posted[0]();
  EXPECT_EQ(wires[0].status(), 500);
  EXPECT_TRUE(service_->has_answered());
}

TEST_F(CacheServiceTest, AStoredResponseIsAPromptWithItsAnswer) {
  ResponseStore responses({});
  responses.add(
      "resp_1",
      {.response =
           R"({"output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": )"
           R"("completed", "content": [{"type": "output_text", "text": "Two.", "annotations": )"
           R"([]}]}], "instructions": "Be short.", "tools": []})",
       .conversation = R"([{"type": "message", "role": "user", "content": "One?"}])"});
  ChatFiles chat{.templates = {}, .special_tokens = {}};
  ASSERT_TRUE(chat.templates
                  .add("default",
                       "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
                       "default")
                  .ok());
  ASSERT_TRUE(chat.templates.find_styles(tokenizer_, {}).ok());
  const Preparation preparation({.model = "m", .max_sequence = 1024, .responses = &responses},
                                tokenizer_, std::move(chat));
  const auto read =
      read_cache_prompt({{"response_id", "resp_1"}},
                        {.preparation = preparation, .responses = responses, .model = "m"});
  ASSERT_TRUE(std::holds_alternative<CachePrompt>(read)) << std::get<HttpError>(read).message;
  EXPECT_EQ(tokenizer_.decode(std::get<CachePrompt>(read).tokens.ids(), false),
            "[system]Be short.[user]One?[assistant]Two.");
}

}  // namespace
}  // namespace wideep::server
