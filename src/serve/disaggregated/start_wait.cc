// SPDX-License-Identifier: Apache-2.0
#include "disaggregated/start_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "client/event_stream.h"

namespace wideep::disaggregated {
namespace {

using server::RouterMember;

constexpr std::chrono::seconds kPatience{2};
constexpr std::chrono::milliseconds kStep{10};

struct Question {
  const RouterMember* member = nullptr;
  std::unique_ptr<client::EventStreams> streams;
  bool is_healthy = false;
};

using Does = bool (RouterMember::*)() const;

int count(const std::vector<RouterMember>& members, Does does) {
  return static_cast<int>(std::ranges::count_if(members, does));
}

// "" if enough are there.
std::string missing_of(const char* name, Does does, int needed,
                       const std::vector<RouterMember>& live,
                       const std::vector<RouterMember>& expected) {
  const int found = count(live, does);
  if (found >= needed) return "";
  std::string missing;
  for (const RouterMember& each : expected) {
    const bool is_live = std::ranges::find(live, each) != live.end();
    if ((each.*does)() && !is_live) missing += ", missing " + each.address.url();
  }
  return fmt::format("{}: {} of {}{}", name, found, needed, missing);
}

}  // namespace

Needed needed_of(const std::vector<RouterMember>& members) {
  return {.context = count(members, &RouterMember::prefills),
          .generation = count(members, &RouterMember::decodes)};
}

std::vector<RouterMember> healthy_of(const std::vector<RouterMember>& members) {
  std::vector<Question> questions;
  for (const RouterMember& each : members) {
    const auto address = client::parse_address(each.address.url());
    if (!address.ok()) continue;
    auto streams = client::EventStreams::open(*address, kPatience);
    if (!streams.ok()) continue;  // the name has no address yet
    questions.push_back({.member = &each, .streams = std::move(*streams)});
  }
  for (Question& each : questions) {
    each.streams->send({.path = "/health",
                        .body = {},
                        .on_event = [](std::string_view) {},
                        .on_end = [&each](const Status& status) { each.is_healthy = status.ok(); },
                        .whole = true,
                        .on_refusal = {}});
  }
  const auto until = std::chrono::steady_clock::now() + kPatience;
  const auto waits = [](const Question& each) { return each.streams->under_way() > 0; };
  while (std::ranges::any_of(questions, waits) && std::chrono::steady_clock::now() < until) {
    for (Question& each : questions) {
      if (waits(each)) each.streams->wait(kStep);
    }
  }
  std::vector<RouterMember> healthy;
  for (const Question& each : questions) {
    if (each.is_healthy) healthy.push_back(*each.member);
  }
  return healthy;
}

std::string missing_text(const std::vector<RouterMember>& live, const Needed& needed,
                         const std::vector<RouterMember>& expected) {
  const std::string context =
      missing_of("context_servers", &RouterMember::prefills, needed.context, live, expected);
  const std::string generation =
      missing_of("generation_servers", &RouterMember::decodes, needed.generation, live, expected);
  return context + (context.empty() || generation.empty() ? "" : "; ") + generation;
}

}  // namespace wideep::disaggregated
