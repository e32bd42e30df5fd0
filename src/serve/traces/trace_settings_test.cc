// SPDX-License-Identifier: Apache-2.0
#include "traces/trace_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace wideep::traces {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using Values = std::map<std::string, std::string>;

Result<std::optional<TraceSettings>> read(const Values& values) {
  return read_trace_settings(
      [&](const char* name) -> const char* {
        const auto found = values.find(name);
        return found == values.end() ? nullptr : found->second.c_str();
      },
      "1.2");
}

std::string error_of(Values values) {
  values.try_emplace("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
  const auto settings = read(values);
  return settings.ok() ? "" : settings.status().message();
}

std::string attribute(const TraceSettings& settings, const std::string& key) {
  std::string found;
  for (const auto& [name, value] : settings.resource.attributes) {
    if (name == key) found += std::get<std::string>(value);
  }
  return found;
}

TEST(TraceSettings, NothingIsSentUnlessAnEndpointIsNamed) {
  EXPECT_FALSE(read({})->has_value());
  EXPECT_FALSE(read({{"OTEL_SERVICE_NAME", "x"}})->has_value());
  EXPECT_FALSE(read({{"OTEL_EXPORTER_OTLP_ENDPOINT", ""}})->has_value());
  const std::string url = "http://127.0.0.1:4318";
  EXPECT_TRUE(read({{"OTEL_EXPORTER_OTLP_ENDPOINT", url}})->has_value());
  EXPECT_TRUE(read({{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url}})->has_value());
  for (const char* yes : {"true", "TRUE", "True"}) {
    EXPECT_FALSE(
        read({{"OTEL_EXPORTER_OTLP_ENDPOINT", url}, {"OTEL_SDK_DISABLED", yes}})->has_value());
  }
  EXPECT_TRUE(
      read({{"OTEL_EXPORTER_OTLP_ENDPOINT", url}, {"OTEL_SDK_DISABLED", "1"}})->has_value());
  EXPECT_FALSE(
      read({{"OTEL_EXPORTER_OTLP_ENDPOINT", url}, {"OTEL_TRACES_EXPORTER", "none"}})->has_value());
}

TEST(TraceSettings, Endpoints) {
  const struct {
    const char* name;
    const char* url;
    const char* host;
    const char* path;
    int port;
  } kEndpoints[] = {
      {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318", "127.0.0.1:4318", "/v1/traces",
       4318},
      {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/", "127.0.0.1:4318", "/v1/traces",
       4318},
      {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1/in/", "127.0.0.1:80", "/in/v1/traces", 80},
      {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9/in", "127.0.0.1:9", "/in", 9},
      {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9", "127.0.0.1:9", "/", 9},
      {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1]:4318", "[::1]:4318", "/v1/traces", 4318},
  };
  for (const auto& each : kEndpoints) {
    SCOPED_TRACE(each.url);
    const auto settings = read({{each.name, each.url}});
    ASSERT_TRUE(settings.ok()) << settings.status().message();
    const Collector& collector = (*settings)->collector;
    EXPECT_EQ(collector.host, each.host);
    EXPECT_EQ(collector.path, each.path);
    EXPECT_EQ(collector.port, each.port);
  }
  const auto both = read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://never.read"},
                          {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:7/x"}});
  EXPECT_EQ((*both)->collector.path, "/x");
  for (const char* wrong :
       {"127.0.0.1:4318", "ftp://h:1", "http://", "http://:4318", "http://h:0", "http://h:x",
        "http://h:70000", "http://u@h:1", "http://127.0.0.1:1/?a", "http://127.0.0.1:1/a b"}) {
    EXPECT_THAT(error_of({{"OTEL_EXPORTER_OTLP_ENDPOINT", wrong}}),
                AllOf(StartsWith("OTEL_EXPORTER_OTLP_ENDPOINT: expected http://host:port"),
                      HasSubstr(wrong)));
  }
  EXPECT_THAT(error_of({{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318"}}),
              AllOf(StartsWith("OTEL_EXPORTER_OTLP_ENDPOINT: "), HasSubstr("https is not there")));
  EXPECT_THAT(error_of({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://nobody.invalid:4318"}}),
              HasSubstr("the host 'nobody.invalid' has no address"));
}

TEST(TraceSettings, WhatIsNotThereIsRefusedByName) {
  for (const char* name : {"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"}) {
    for (const char* value : {"grpc", "http/protobuf"}) {
      EXPECT_THAT(error_of({{name, value}}),
                  AllOf(StartsWith(std::string(name) + ": expected http/json"), HasSubstr(value)));
    }
    EXPECT_EQ(error_of({{name, "http/json"}}), "");
  }
  EXPECT_THAT(error_of({{"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"}}),
              StartsWith("OTEL_EXPORTER_OTLP_COMPRESSION: expected none"));
  EXPECT_THAT(error_of({{"OTEL_TRACES_EXPORTER", "zipkin"}}),
              StartsWith("OTEL_TRACES_EXPORTER: expected otlp or none"));
  for (const char* wrong : {"0", "-1", "x", "10s", "99999999"}) {
    EXPECT_THAT(error_of({{"OTEL_EXPORTER_OTLP_TIMEOUT", wrong}}),
                StartsWith("OTEL_EXPORTER_OTLP_TIMEOUT: expected milliseconds"));
  }
  EXPECT_THAT(error_of({{"OTEL_TRACES_SAMPLER", "jaeger_remote"}}),
              StartsWith("OTEL_TRACES_SAMPLER: expected always_on"));
  for (const char* wrong : {"1.1", "-0.1", "x", "nan"}) {
    EXPECT_THAT(
        error_of({{"OTEL_TRACES_SAMPLER", "traceidratio"}, {"OTEL_TRACES_SAMPLER_ARG", wrong}}),
        StartsWith("OTEL_TRACES_SAMPLER_ARG: expected a ratio"));
  }
}

TEST(TraceSettings, HeadersAndAttributes) {
  const auto settings =
      read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"},
            {"OTEL_EXPORTER_OTLP_HEADERS", "a=ignored"},
            {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "Authorization=Bearer%20x%3Dy, tenant = 7"},
            {"OTEL_EXPORTER_OTLP_TIMEOUT", "2500"},
            {"OTEL_RESOURCE_ATTRIBUTES", "service.name=lost,deployment.environment=a%2Cb"},
            {"OTEL_SERVICE_NAME", "chat"}});
  ASSERT_TRUE(settings.ok()) << settings.status().message();
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ((*settings)->collector.headers,
            (Pairs{{"Authorization", "Bearer x=y"}, {"tenant", "7"}}));
  EXPECT_EQ((*settings)->collector.timeout_ms, 2500);
  EXPECT_EQ(attribute(**settings, "service.name"), "chat");
  EXPECT_EQ(attribute(**settings, "service.version"), "1.2");
  EXPECT_EQ(attribute(**settings, "deployment.environment"), "a,b");
  const auto plain = read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"}});
  EXPECT_EQ(attribute(**plain, "service.name"), "wideep");
  // Headers have keys, which an error must not show.
  EXPECT_THAT(error_of({{"OTEL_EXPORTER_OTLP_HEADERS", "a=1,secret"}}),
              AllOf(StartsWith("OTEL_EXPORTER_OTLP_HEADERS: "), HasSubstr("item 2"),
                    Not(HasSubstr("secret"))));
  EXPECT_NE(error_of({{"OTEL_EXPORTER_OTLP_HEADERS", "a=%0d%0ab"}}), "");
  EXPECT_NE(error_of({{"OTEL_EXPORTER_OTLP_HEADERS", "a b=1"}}), "");
  EXPECT_NE(error_of({{"OTEL_EXPORTER_OTLP_HEADERS", "a=%x"}}), "");
}

// ---- samplers ----

constexpr const char* kParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0";

bool samples(const char* sampler, const char* argument, const std::string& parent) {
  return Sampler::parse(sampler, argument)->begin(parent, "").own.is_sampled;
}

TEST(Sampler, HeedsTheCallerIfItIsParentBased) {
  const std::string yes = std::string(kParent) + "1", no = std::string(kParent) + "0";
  const struct {
    const char* name;
    bool alone, yes, no;
  } kSamplers[] = {{"", true, true, false},
                   {"parentbased_always_on", true, true, false},
                   {"parentbased_always_off", false, true, false},
                   {"always_on", true, true, true},
                   {"always_off", false, false, false}};
  for (const auto& each : kSamplers) {
    EXPECT_EQ(samples(each.name, "", ""), each.alone) << each.name;
    EXPECT_EQ(samples(each.name, "", yes), each.yes) << each.name;
    EXPECT_EQ(samples(each.name, "", no), each.no) << each.name;
  }
  EXPECT_TRUE(samples("parentbased_traceidratio", "0", yes));
  EXPECT_FALSE(samples("parentbased_traceidratio", "0", ""));
}

TEST(Sampler, ARatioChoosesByTheTrace) {
  const Sampler half = Sampler::parse("traceidratio", "0.5").value();
  EXPECT_TRUE(half.samples("00000000000000000000000000000001", nullptr));
  EXPECT_TRUE(half.samples("ffffffffffffffff7fffffffffffffff", nullptr));
  EXPECT_FALSE(half.samples("00000000000000008000000000000001", nullptr));
  EXPECT_FALSE(half.samples("0000000000000000ffffffffffffffff", nullptr));
  int count = 0;
  const Sampler some = Sampler::parse("parentbased_traceidratio", "0.25").value();
  for (int i = 0; i < 4000; ++i) count += some.begin("", "").own.is_sampled ? 1 : 0;
  EXPECT_NEAR(count, 1000, 200);
}

TEST(Sampler, GoesOnWithTheCallersTrace) {
  const Sampler sampler;
  const RequestTrace trace = sampler.begin(std::string(kParent) + "1", "a=1,b=2");
  EXPECT_EQ(trace.own.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(trace.parent_id, "00f067aa0ba902b7");
  EXPECT_NE(trace.own.span_id, trace.parent_id);
  EXPECT_EQ(trace.state, "a=1,b=2");
  const RequestTrace fresh = sampler.begin("00-nothing", "a=1");
  EXPECT_NE(fresh.own.trace_id, trace.own.trace_id);
  EXPECT_EQ(fresh.parent_id, "");
  EXPECT_EQ(fresh.state, "") << "of an invalid traceparent";
}

}  // namespace
}  // namespace wideep::traces
