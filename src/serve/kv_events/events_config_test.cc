// SPDX-License-Identifier: Apache-2.0
#include "kv_events/events_config.h"

#include <gmock/gmock.h>

namespace wideep::kv_events {
namespace {

using testing::HasSubstr;

std::string refusal_of(const std::string& json) {
  const auto read = read_events_config(json, "--kv-events-config");
  return read.ok() ? "" : read.status().message();
}

TEST(EventsConfig, HasTheDefaultsOfVllm) {
  const auto read = read_events_config(R"({"enable_kv_cache_events": true})", "option");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_TRUE(read->has_value());
  const EventsConfig& config = **read;
  EXPECT_TRUE(config.has_publisher);
  EXPECT_EQ(config.endpoint, "tcp://*:5557");
  EXPECT_EQ(config.replay_endpoint, "");
  EXPECT_EQ(config.buffer_steps, 10'000u);
  EXPECT_EQ(config.hwm, 100'000);
  EXPECT_EQ(config.max_queue_size, 100'000u);
  EXPECT_EQ(config.topic, "");
  EXPECT_EQ(config.form, EventForm::kMap);
}

TEST(EventsConfig, ReadsAllKeys) {
  const auto read = read_events_config(
      R"({"enable_kv_cache_events": true, "publisher": "null", "endpoint": "tcp://epp:5558",
          "replay_endpoint": "ipc:///run/replay", "buffer_steps": 7, "hwm": 8,
          "max_queue_size": 9, "topic": "kv@pod@model", "event_form": "array"})",
      "option");
  ASSERT_TRUE(read.ok()) << read.status().message();
  const EventsConfig& config = **read;
  EXPECT_FALSE(config.has_publisher);
  EXPECT_EQ(config.endpoint, "tcp://epp:5558");
  EXPECT_TRUE(config.connects());
  EXPECT_EQ(config.replay_endpoint, "ipc:///run/replay");
  EXPECT_EQ(config.buffer_steps, 7u);
  EXPECT_EQ(config.hwm, 8);
  EXPECT_EQ(config.max_queue_size, 9u);
  EXPECT_EQ(config.topic, "kv@pod@model");
  EXPECT_EQ(config.form, EventForm::kArray);
}

TEST(EventsConfig, BindsWhereVllmDoes) {
  for (const char* each : {"tcp://*:5557", "tcp://[::]:5557", "ipc:///tmp/events"}) {
    EXPECT_FALSE(EventsConfig{.endpoint = each}.connects()) << each;
  }
  EXPECT_TRUE(EventsConfig{.endpoint = "tcp://10.0.0.1:5557"}.connects());
}

TEST(EventsConfig, IsOffUnlessItSaysOtherwise) {
  for (const char* each : {"{}", R"({"enable_kv_cache_events": false, "topic": "a"})"}) {
    const auto read = read_events_config(each, "option");
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_FALSE(read->has_value());
  }
}

TEST(EventsConfig, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(refusal_of(R"({"enable": true})"),
              testing::AllOf(HasSubstr("--kv-events-config"), HasSubstr("enable"),
                             HasSubstr("enable_kv_cache_events, publisher")));
  EXPECT_THAT(refusal_of(R"({"publisher": "kafka"})"), HasSubstr("found 'kafka'"));
  EXPECT_THAT(refusal_of(R"({"endpoint": "5557"})"), HasSubstr("expected tcp://HOST:PORT"));
  EXPECT_THAT(refusal_of(R"({"endpoint": "tcp://*:0"})"), HasSubstr("found 'tcp://*:0'"));
  EXPECT_THAT(refusal_of(R"({"endpoint": "tcp://:5557"})"), HasSubstr("expected tcp"));
  EXPECT_THAT(refusal_of(R"({"replay_endpoint": "tcp://*:5557"})"), HasSubstr("of its own"));
  EXPECT_THAT(refusal_of(R"({"hwm": 0})"), HasSubstr("hwm"));
  EXPECT_THAT(refusal_of(R"({"buffer_steps": "many"})"), HasSubstr("buffer_steps"));
  EXPECT_THAT(refusal_of(R"({"topic": ")" + std::string(513, 'x') + "\"}"), HasSubstr("513"));
  EXPECT_THAT(refusal_of(R"({"event_form": "json"})"), HasSubstr("found 'json'"));
  EXPECT_THAT(refusal_of("true"), HasSubstr("--kv-events-config"));
}

}  // namespace
}  // namespace wideep::kv_events
