// SPDX-License-Identifier: Apache-2.0
//
// Options become places, in order and with their prices; what cannot work is refused in one line
// that names the option, the thing that was found and what to do. A failure is a server that starts
// without the prompts that its user keeps, or that does not start though it could.
#include "run/prompt_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "store/host_tier.h"

namespace wideep::run {
namespace {

using testing::AllOf;
using testing::HasSubstr;

PageGeometry small_pages() {
  return {.record_class = "class",
          .page_bytes = 1 << 16,
          .page = store::Part::whole(1 << 16),
          .state_bytes = 0,
          .state = {}};
}

class PromptPlaces : public testing::Test {
 protected:
  std::string refusal() const { return check_prompt_options(options_).message(); }
  std::string trouble() const { return check_prompt_places(options_, small_pages()).message(); }

  RunOptions options_;
  base::ScratchDirectory folder_;
};

TEST_F(PromptPlaces, NoneWithoutOptions) {
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(trouble(), "");
  EXPECT_EQ(prompt_places_text(options_), "");
  EXPECT_TRUE(open_prompt_places(options_, small_pages(), nullptr)->empty());
  // Where nothing is kept, nothing keeps it from being shared.
  options_.parallel.kv_cache_config.enable_block_reuse = false;
  EXPECT_EQ(refusal(), "");
}

TEST_F(PromptPlaces, TheNearestFirst) {
  options_.host_cache_bytes = 8 << 20;
  options_.prompt_cache_dir = folder_.file("prompts");
  options_.prompt_cache_bytes = 64 << 20;
  options_.prompt_cache_redis = "redis://user@cache:7000/2";
  options_.prompt_cache_redis_password = "secret";
  options_.prompt_cache_ttl = 60;
  ASSERT_EQ(refusal(), "");
  const auto memory = store::HostTier::create_memory(options_.host_cache_bytes);
  ASSERT_TRUE(memory.ok());
  const auto places = open_prompt_places(options_, small_pages(), &*memory);
  ASSERT_TRUE(places.ok()) << places.status().message();
  ASSERT_EQ(places->size(), 3u);
  EXPECT_EQ((*places)[0].place->label(), "host");
  EXPECT_EQ((*places)[0].expected.latency_seconds, store::kHostPrice.latency_seconds);
  EXPECT_TRUE((*places)[0].takes_hits);
  EXPECT_EQ((*places)[1].place->label(), "disk");
  EXPECT_EQ((*places)[1].place->size().max_bytes, options_.prompt_cache_bytes);
  EXPECT_FALSE((*places)[1].takes_hits);
  EXPECT_EQ((*places)[2].place->label(), "redis");
  EXPECT_EQ((*places)[2].expected.latency_seconds, store::kServerPrice.latency_seconds);
  EXPECT_EQ(prompt_places_text(options_),
            "host 8.0 MiB, disk " + folder_.file("prompts") + " 64.0 MiB, redis://cache:7000/2");

  const auto redis = redis_options(options_);
  EXPECT_EQ(redis->user, "user");
  EXPECT_EQ(redis->password, "secret");
  EXPECT_EQ(redis->ttl, std::chrono::seconds(60));
  options_.prompt_cache_redis = "redis://user:own@cache";
  EXPECT_EQ(redis_options(options_)->password, "own");
}

TEST_F(PromptPlaces, ASettingWithoutEffectIsNamedWithWhatTakesItsEffect) {
  options_.prompt_cache_dir = folder_.file("prompts");
  options_.routed_experts = true;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("--prompt-cache-dir has no effect with "
                                         "--enable-return-routed-experts"),
                               HasSubstr("leave one of them out")));
  options_.routed_experts = false;
  options_.routing_log.emplace();
  EXPECT_THAT(refusal(), HasSubstr("--prompt-cache-dir has no effect with --routing-log"));
  options_.routing_log.reset();
  options_.parallel.kv_cache_config.enable_block_reuse = false;
  EXPECT_THAT(refusal(), HasSubstr("with kv_cache_config.enable_block_reuse: false"));
  options_.host_cache_bytes = 1 << 20;
  EXPECT_THAT(refusal(), HasSubstr("--host-cache-size (kv_cache_config.host_cache_size) has no"));
}

TEST_F(PromptPlaces, TooFewBytes) {
  options_.host_cache_bytes = 100 << 10;
  EXPECT_EQ(trouble(),
            "--host-cache-size: expected at least 256.0 KiB, 4 pages of 64 tokens in all layers, "
            "found 100.0 KiB");
  options_.host_cache_bytes = 0;
  options_.prompt_cache_dir = folder_.file("prompts");
  options_.prompt_cache_bytes = 256 << 10;  // enough for the pages, too little for a segment
  EXPECT_THAT(trouble(), HasSubstr("expected at least 1.0 MiB for it, found 256.0 KiB"));
}

TEST_F(PromptPlaces, ADirectoryThatIsNone) {
  ASSERT_TRUE(formats::write_file(folder_.file("file"), "x").ok());
  options_.prompt_cache_bytes = 64 << 20;
  options_.prompt_cache_dir = folder_.file("file");
  EXPECT_THAT(trouble(), HasSubstr("file: the directory cannot be read: Not a directory"));
  options_.prompt_cache_dir = folder_.file("file/within");
  EXPECT_THAT(trouble(), HasSubstr("within: the directory cannot be made: Not a directory"));
  // Later the rank goes on without it.
  const auto places = open_prompt_places(options_, small_pages(), nullptr);
  ASSERT_TRUE(places.ok()) << places.status().message();
  EXPECT_TRUE(places->empty());
}

TEST_F(PromptPlaces, FilesOfOthersDoNotMatter) {
  ASSERT_TRUE(formats::write_file(folder_.file("notes.txt"), "x").ok());
  ASSERT_TRUE(formats::write_file(folder_.file("00000000000000aa.segment"), "no segment").ok());
  options_.prompt_cache_dir = folder_.path();
  options_.prompt_cache_bytes = 64 << 20;
  EXPECT_EQ(trouble(), "");
  EXPECT_EQ(open_prompt_places(options_, small_pages(), nullptr)->size(), 1u);
}

TEST_F(PromptPlaces, AnAddressThatIsNone) {
  options_.prompt_cache_redis = "cache:6379";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("--prompt-cache-redis: "), HasSubstr("redis[s]://")));
}

TEST_F(PromptPlaces, AServerThatIsNotThere) {
  options_.prompt_cache_redis = "redis://:secret@127.0.0.1:1";
  EXPECT_EQ(refusal(), "");
  EXPECT_THAT(trouble(), AllOf(HasSubstr("--prompt-cache-redis redis://127.0.0.1:"),
                               HasSubstr("start it, or leave the option out"),
                               testing::Not(HasSubstr("secret"))));
}

TEST_F(PromptPlaces, MemoryThatIsNone) {
  const auto memory = base::SharedBytes::create("test", 1 << 20);
  options_.host_cache_bytes = 1 << 20;
  EXPECT_THAT(open_prompt_places(options_, small_pages(), &*memory).status().message(),
              HasSubstr("host cache"));
}

}  // namespace
}  // namespace wideep::run
