// SPDX-License-Identifier: Apache-2.0
//
// Prompts that outlive the service: kept in a directory, found after all processes were killed; in
// the memory of the node, found after the rank's own cache has given them up; for a tenant's salt
// alone; as files, from one server to another. What is damaged or cannot be written is computed, and
// the service goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "command_server.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kReference = WIDEEP_SOURCE_DIR "/models/reference";

// Some hundred tokens, different for each number from the first on.
std::string prompt(int number) {
  std::string text = std::to_string(number);
  for (int i = 0; i < 90; ++i) text += " word" + std::to_string(number * 131 + i * 17);
  return text;
}

struct Answer {
  std::string text;
  int prompt = 0, cached = 0;  // tokens
};

// prompt: a text, or token ids.
Answer ask(const Server& server, const json& prompt, const std::string& salt = "") {
  json body = {{"prompt", prompt}, {"max_tokens", 8}};
  if (!salt.empty()) body["cache_salt"] = salt;
  const server::Reply reply = server.complete(body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  const json object = json::parse(reply.body);
  const json& usage = object["usage"];
  return {.text = object["choices"][0]["text"],
          .prompt = usage["prompt_tokens"],
          .cached = usage["prompt_tokens_details"]["cached_tokens"]};
}

// Full pages of a prompt, but for the page of its last token.
int kept_tokens(const Answer& answer) { return (answer.prompt - 1) / 64 * 64; }

server::Reply post(const Server& server, const std::string& path, const json& body) {
  return server::ask(server.port(), "POST", path, body.dump());
}

// Each file of the directory, in several places.
void damage_files(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    for (std::uintmax_t at = 10'000; at + 64 < entry.file_size(); at += 50'000) {
      file.seekp(static_cast<std::streamoff>(at));
      file.write(std::string(64, 'x').data(), 64);
    }
  }
}

class CommandPromptCache : public ::testing::Test {
 protected:
  std::vector<std::string> with_directory(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--prompt-cache-dir", files_.file("prompts"), "--prompt-cache-bytes",
                             "64MiB", "--threads-per-rank", "1"});
    return more;
  }
  static double taken_by_disk(const Server& server) {
    return server.metric("wideep_prompt_cache_taken_total{tier=\"disk\"}");
  }
  // Until so many records are in the directory.
  static bool has_written(const Server& server, double records) {
    return wait_until([&] { return taken_by_disk(server) >= records; }, 20s * kSlowdown);
  }

  const base::ScratchDirectory files_;
};

void kill_everything(Server& server) {
  ::kill(-server.command().pid(), SIGKILL);
  EXPECT_TRUE(wait_until([&] { return server.command().ranks().empty(); }, 10s));
}

TEST_F(CommandPromptCache, PromptsSurviveTheDeathOfAllProcesses) {
  Answer before;
  {
    Server server(kReference, with_directory({"--ranks", "2"}));
    ASSERT_GT(server.port(), 0) << server.command().err();
    before = ask(server, prompt(1));
    EXPECT_EQ(before.cached, 0);
    ASSERT_GT(kept_tokens(before), 128);
    ASSERT_TRUE(has_written(server, kept_tokens(before) / 64)) << server.command().err();
    kill_everything(server);
  }
  Server server(kReference, with_directory());  // another layout, too
  ASSERT_GT(server.port(), 0) << server.command().err();
  const Answer after = ask(server, prompt(1));
  EXPECT_EQ(after.text, before.text);
  EXPECT_EQ(after.cached, kept_tokens(before));
  EXPECT_EQ(ask(server, prompt(2)).cached, 0);
}

TEST_F(CommandPromptCache, GenerateReadsWhatItHasWritten) {
  const auto generate = [&] {
    CommandOptions options{.arguments = {"generate", "--model", kReference, "--prompt", prompt(3),
                                         "--max-tokens", "4", "--json"}};
    const std::vector<std::string> more = with_directory();
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    return run_command(options);
  };
  const CommandEnd first = generate();
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_FALSE(std::filesystem::is_empty(files_.file("prompts")));
  const CommandEnd second = generate();
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const json a = json::parse(first.out), b = json::parse(second.out);
  EXPECT_EQ(a["results"][0]["text"], b["results"][0]["text"]);
}

// The cache of the rank has room for one prompt, the memory of the node for all.
TEST_F(CommandPromptCache, TheNodesMemoryHasWhatTheRankHasGivenUp) {
  std::ofstream(files_.file("config.yaml")) << "kv_cache_config: {max_tokens: 640}\n";
  Server server(kReference, {"--config", files_.file("config.yaml"), "--host-cache-size", "64MiB",
                             "--context", "640"});
  ASSERT_GT(server.port(), 0) << server.command().err();
  const Answer first = ask(server, prompt(1));
  ASSERT_TRUE(wait_until(
      [&] {
        return server.metric("wideep_prompt_cache_taken_total{tier=\"host\"}") >=
               kept_tokens(first) / 64;
      },
      20s * kSlowdown));
  for (int other = 2; other < 5; ++other) ask(server, prompt(other));
  const Answer again = ask(server, prompt(1));
  EXPECT_EQ(again.text, first.text);
  EXPECT_EQ(again.cached, kept_tokens(first));
}

TEST_F(CommandPromptCache, TenantsAreKeptApart) {
  Server server(kReference, with_directory());
  ASSERT_GT(server.port(), 0) << server.command().err();
  const Answer own = ask(server, prompt(1), "a tenant");
  EXPECT_EQ(own.cached, 0);
  EXPECT_EQ(ask(server, prompt(1), "a tenant").cached, kept_tokens(own));
  EXPECT_EQ(ask(server, prompt(1), "another").cached, 0);
  EXPECT_EQ(ask(server, prompt(1)).cached, 0);
}

// Every segment is damaged somewhere: what is read is computed instead.
TEST_F(CommandPromptCache, DamagedRecordsAreComputed) {
  Answer before;
  {
    Server server(kReference, with_directory());
    ASSERT_GT(server.port(), 0) << server.command().err();
    before = ask(server, prompt(1));
    ASSERT_TRUE(has_written(server, kept_tokens(before) / 64));
    kill_everything(server);
  }
  damage_files(files_.file("prompts"));
  Server server(kReference, with_directory());
  ASSERT_GT(server.port(), 0) << server.command().err();
  const Answer after = ask(server, prompt(1));
  EXPECT_EQ(after.text, before.text);
  EXPECT_LT(after.cached, kept_tokens(before));
}

TEST_F(CommandPromptCache, WhatCannotBeIsSaidBeforeWeightsAreLoaded) {
  const auto serve = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"serve", "--port", "0", "--model", kReference});
    return run_command({.arguments = more});
  };
  std::ofstream(files_.file("file")) << "no directory\n";
  expect_refused(serve({"--prompt-cache-dir", files_.file("file")}), {files_.file("file")});
  expect_refused(serve({"--prompt-cache-bytes", "64MiB"}), {"--prompt-cache-dir"});
  std::ofstream(files_.file("off.yaml")) << "kv_cache_config: {enable_block_reuse: false}\n";
  expect_refused(
      serve({"--prompt-cache-dir", files_.file("prompts"), "--config", files_.file("off.yaml")}),
      {"enable_block_reuse"});
}

// ---- as files ----

class CommandPromptFiles : public CommandPromptCache {
 protected:
  // Which keeps prompts in a directory of its own, and shares that of the archives.
  Server serve(const std::string& model, const std::string& place, const std::string& layout = "") {
    std::vector<std::string> more = {
        "--prompt-cache-dir",        files_.file(place),      "--prompt-cache-bytes", "64MiB",
        "--prompt-cache-export-dir", files_.file("archives"), "--threads-per-rank",   "1"};
    if (!layout.empty()) {
      const std::string config = files_.file(place + ".yaml");
      std::ofstream(config) << layout;
      more.insert(more.end(), {"--config", config});
    }
    return Server(model, more);
  }
  // A model of two heads of keys and values, so that two ranks have one of them each.
  std::string divided_model(uint32_t seed) const {
    const std::string path = files_.file("model-" + std::to_string(seed));
    std::filesystem::create_directory(path);
    write_random_model(path, {.family = "qwen3_moe", .seed = seed});
    return path;
  }
  static json export_it(const Server& server, const json& body) {
    const server::Reply reply = post(server, "/v1/cache/export", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.status == 200 ? reply.body_json() : json();
  }
  static json import_it(const Server& server, const std::string& name) {
    const server::Reply reply = post(server, "/v1/cache/import", {{"name", name}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.status == 200 ? reply.body_json() : json();
  }
  // Lines that tell of records that an import has left out.
  static int skipped_lines(Server& server) {
    const std::string err = server.command().err();
    int lines = 0;
    for (size_t at = err.find("records are skipped"); at != err.npos;
         at = err.find("records are skipped", at + 1))
      ++lines;
    return lines;
  }
};

constexpr const char* kTwoRanks = "tensor_parallel_size: 2\nenable_attention_dp: false\n";
constexpr const char* kOneRank = "tensor_parallel_size: 1\n";

// What two ranks with half of the heads each have computed, a rank with all of them reads, and the
// other way round.
TEST_F(CommandPromptFiles, AnArchiveGoesToAServerOfAnotherLayout) {
  const std::string model = divided_model(1);
  std::vector<int> tokens(300);
  for (int i = 0; i < 300; ++i) tokens[static_cast<size_t>(i)] = (i * i + 7 * i) % 200;
  const std::pair<const char*, const char*> layouts[] = {{kTwoRanks, kOneRank},
                                                         {kOneRank, kTwoRanks}};
  for (const auto& [from, to] : layouts) {
    const std::string name = from == kTwoRanks ? "of-two" : "of-one";
    SCOPED_TRACE(name);
    Answer before;
    json exported;
    {
      const Server server = serve(model, "from-" + name, from);
      ASSERT_GT(server.port(), 0);
      before = ask(server, tokens, "a tenant");
      const int parts = from == kTwoRanks ? 2 : 1;  // of a page
      ASSERT_TRUE(has_written(server, parts * kept_tokens(before) / 64));
      exported =
          export_it(server, {{"prompt", tokens}, {"cache_salt", "a tenant"}, {"name", name}});
    }
    EXPECT_EQ(exported["tokens"], 300);
    EXPECT_EQ(exported["pages"], kept_tokens(before) / 64);
    EXPECT_EQ(exported["missing_pages"], 0);
    const Server server = serve(model, "to-" + name, to);
    ASSERT_GT(server.port(), 0);
    const json imported = import_it(server, name);
    EXPECT_EQ(imported["pages"], exported["pages"]);
    EXPECT_EQ(imported["bytes"], exported["bytes"]);
    for (const auto& [why, count] : imported["skipped"].items()) EXPECT_EQ(count, 0) << why;
    const Answer after = ask(server, tokens, "a tenant");
    EXPECT_EQ(after.text, before.text);
    EXPECT_EQ(after.cached, kept_tokens(before));
    EXPECT_EQ(ask(server, tokens).cached, 0);
  }
}

// Both ranks have all latents of each page. One writes the first row of pages, the other the rest.
TEST_F(CommandPromptFiles, RanksWithTheSamePagesWriteThemOnce) {
  const Server server = serve(kReference, "from", kTwoRanks);
  ASSERT_GT(server.port(), 0);
  std::vector<int> tokens(40 * 64 + 1);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int>(3 + (i * i + 7 * i) % 8000);
  ask(server, tokens);
  EXPECT_TRUE(has_written(server, 40));
  const json exported = export_it(server, {{"prompt", tokens}});
  EXPECT_EQ(exported["pages"], 40);
  EXPECT_EQ(exported["missing_pages"], 0);
  EXPECT_FALSE(wait_until([&] { return taken_by_disk(server) > 40; }, 1500ms));
}

// Exported by its id, with the answer: the other server goes on from it. The answers are texts of
// which the tokens follow again.
TEST_F(CommandPromptFiles, AStoredResponseGoesToAnotherServer) {
  const std::string model = divided_model(1);
  std::ofstream(model + "/chat_template.jinja")
      << "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
         "{% if add_generation_prompt %}[assistant]{% endif %}";
  const auto respond = [](const Server& server, const json& more) {
    json body = {{"model", "m"}, {"temperature", 0}, {"max_output_tokens", 200}};
    body["text"]["format"] = {{"type", "json_schema"},
                              {"name", "words"},
                              {"schema", {{"type", "string"}, {"pattern", "^[a-z ]{120}$"}}}};
    body.update(more);
    const server::Reply reply = post(server, "/v1/responses", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.status == 200 ? reply.body_json() : json();
  };
  json items = {{{"role", "user"}, {"content", prompt(1)}}};
  const json next = {{{"role", "user"}, {"content", "Go on"}}};
  json exported, there;
  {
    const Server server = serve(model, "from", kTwoRanks);
    ASSERT_GT(server.port(), 0);
    const json first = respond(server, {{"input", items}, {"store", true}});
    ASSERT_TRUE(has_written(server, 2 * ((first["usage"]["total_tokens"].get<int>() - 1) / 64)));
    exported = export_it(server, {{"response_id", first["id"]}});
    EXPECT_GT(exported["pages"], first["usage"]["input_tokens"].get<int>() / 64);
    there = respond(server, {{"input", next}, {"previous_response_id", first["id"]}});
    for (const json& item : first["output"]) items.push_back(item);
    items.push_back(next[0]);
  }
  const Server server = serve(model, "to", kOneRank);
  ASSERT_GT(server.port(), 0);
  EXPECT_EQ(import_it(server, exported["name"])["pages"], exported["pages"]);
  const json here = respond(server, {{"input", items}});
  EXPECT_EQ(here["output"].back()["content"], there["output"].back()["content"]);
  EXPECT_EQ(here["usage"]["input_tokens_details"]["cached_tokens"],
            exported["pages"].get<int>() * 64);
  EXPECT_EQ(post(server, "/v1/cache/export", {{"response_id", "resp_1"}}).status, 404);
}

// The service answers meanwhile, and after; what was left out is computed.
TEST_F(CommandPromptFiles, WhatAnArchiveCannotGiveIsToldInALine) {
  const std::string model = divided_model(1);
  Answer before;
  {
    const Server server = serve(model, "from", kTwoRanks);
    ASSERT_GT(server.port(), 0);
    before = ask(server, prompt(1));
    ASSERT_TRUE(has_written(server, 2 * kept_tokens(before) / 64));
    export_it(server, {{"prompt", prompt(1)}, {"name", "whole"}});
  }
  const int pages = kept_tokens(before) / 64;
  std::filesystem::copy(files_.file("archives/whole"), files_.file("archives/damaged"));
  damage_files(files_.file("archives/damaged"));
  Server server = serve(model, "to");
  ASSERT_GT(server.port(), 0);
  const json damaged = import_it(server, "damaged");
  EXPECT_LT(damaged["pages"], pages);
  EXPECT_GT(damaged["skipped"]["damaged"], 0);
  EXPECT_EQ(skipped_lines(server), 1) << server.command().err();
  EXPECT_THAT(server.command().err(), HasSubstr(files_.file("archives/damaged") + ": "));
  const Answer computed = ask(server, prompt(1));
  EXPECT_EQ(computed.text, before.text);
  EXPECT_LT(computed.cached, kept_tokens(before));

  Server other = serve(divided_model(2), "other");
  ASSERT_GT(other.port(), 0);
  const Answer of_other = ask(other, prompt(1));
  const json foreign = import_it(other, "whole");
  EXPECT_EQ(foreign["pages"], 0);
  EXPECT_EQ(foreign["skipped"]["other_class"], pages);
  EXPECT_EQ(skipped_lines(other), 1) << other.command().err();
  EXPECT_THAT(other.command().err(), HasSubstr(std::to_string(pages) + " of another model"));
  EXPECT_EQ(ask(other, prompt(1)).text, of_other.text);
  const server::Reply missing = post(other, "/v1/cache/import", {{"name", "none"}});
  EXPECT_EQ(missing.status, 404);
  EXPECT_THAT(missing.body, HasSubstr("expected a directory with an archive"));
}

}  // namespace
}  // namespace wideep::tests
