// SPDX-License-Identifier: Apache-2.0
//
// Spans of a lane nest, so a stack of those that have begun finds for each the one around it, whose
// own time it shortens. Times in the file are rounded to thousandths of a microsecond: neighbours
// may seem to overlap by that much.
#include "measure/model/trace_breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/trace.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"

namespace wideep::measure {
namespace {

constexpr double kRoundingUs = 0.002;

struct Span {
  std::string name;
  int64_t rank = 0, lane = 0;
  double start = 0.0, end = 0.0;  // µs
  double own = 0.0;               // without the spans inside
  size_t place = 0;               // in the file
};

std::string lane_text(int64_t lane) {
  const auto last = static_cast<int64_t>(base::Lane::kCount);
  if (lane < 0 || lane >= last) return fmt::format("lane {}", lane);
  const std::string name = base::lane_name(static_cast<base::Lane>(lane));
  return name.substr(0, name.find(" ("));  // "rows (even calls)"
}

bool is_forward(const Span& span) {
  return span.lane == static_cast<int64_t>(base::Lane::kForward);
}

Result<Span> span_of(const nlohmann::json& event, const std::string& where) {
  const auto number = [&](const char* key) {
    const auto found = event.find(key);
    return found != event.end() && found->is_number() ? &*found : nullptr;
  };
  const auto *rank = number("pid"), *lane = number("tid"), *start = number("ts"),
             *length = number("dur");
  const auto name = event.find("name");
  if (rank == nullptr || lane == nullptr || start == nullptr || length == nullptr ||
      name == event.end() || !name->is_string()) {
    return invalid_input(fmt::format(
        "{}: a span without name, pid, tid, ts and dur: give a trace that --profile-output wrote",
        where));
  }
  const double begin = start->get<double>(), duration = length->get<double>();
  return Span{.name = name->get<std::string>(),
              .rank = rank->get<int64_t>(),
              .lane = lane->get<int64_t>(),
              .start = begin,
              .end = begin + duration,
              .own = duration};
}

Result<std::vector<Span>> spans_of(const nlohmann::json& trace, const std::string& path) {
  const auto events = trace.is_object() ? trace.find("traceEvents") : trace.end();
  if (!trace.is_object() || events == trace.end() || !events->is_array()) {
    return invalid_input(
        fmt::format("{}: has no list traceEvents: give a trace that --profile-output wrote", path));
  }
  std::vector<Span> spans;
  for (size_t i = 0; i < events->size(); ++i) {
    const nlohmann::json& event = (*events)[i];
    if (!event.is_object() || event.value("ph", nlohmann::json()) != "X") continue;
    WIDEEP_TRY_ASSIGN(Span span, span_of(event, fmt::format("{}: traceEvents[{}]", path, i)));
    span.place = i;
    spans.push_back(std::move(span));
  }
  return spans;
}

// Takes from each span of the forward lanes the time of those directly inside it.
Status find_own_times(std::vector<Span>& spans, const std::string& path) {
  std::ranges::sort(spans, [](const Span& a, const Span& b) {
    return std::tuple(a.rank, a.lane, a.start, -a.end) <
           std::tuple(b.rank, b.lane, b.start, -b.end);
  });
  std::vector<size_t> around;  // those that have not ended, outermost first
  for (size_t i = 0; i < spans.size(); ++i) {
    if (!is_forward(spans[i])) continue;
    while (!around.empty() && (spans[around.back()].rank != spans[i].rank ||
                               spans[around.back()].end <= spans[i].start + kRoundingUs)) {
      around.pop_back();
    }
    if (!around.empty()) {
      Span& outer = spans[around.back()];
      if (spans[i].end > outer.end + kRoundingUs) {
        return invalid_input(
            fmt::format("{}: rank {}: \"{}\" at {:.3f} us begins inside \"{}\" "
                        "and ends after it: spans of a thread must nest",
                        path, spans[i].rank, spans[i].name, spans[i].start, outer.name));
      }
      outer.own -= spans[i].end - spans[i].start;
    }
    around.push_back(i);
  }
  return {};
}

struct Sum {
  std::map<int64_t, double> us;  // by rank
  int64_t count = 0;
  size_t place = SIZE_MAX;  // of the first span
};

SpanTime time_of(const std::pair<std::string, std::string>& key, const Sum& sum,
                 const std::map<int64_t, int64_t>& iterations) {
  SpanTime time{.name = key.second, .lane = key.first, .count = sum.count};
  bool first = true;
  for (const auto& [rank, count] : iterations) {
    const auto found = sum.us.find(rank);
    const double us = found == sum.us.end() ? 0.0 : found->second / static_cast<double>(count);
    time.us += us / static_cast<double>(iterations.size());
    time.us_low = first ? us : std::min(time.us_low, us);
    time.us_high = first ? us : std::max(time.us_high, us);
    first = false;
  }
  return time;
}

}  // namespace

double TraceBreakdown::us() const {
  double sum = 0.0;
  for (const SpanTime& part : parts) sum += part.us;
  return sum;
}

Result<TraceBreakdown> break_down_trace(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
  WIDEEP_TRY_ASSIGN(const nlohmann::json trace, formats::parse_json(text, path));
  WIDEEP_TRY_ASSIGN(std::vector<Span> spans, spans_of(trace, path));
  WIDEEP_TRY(find_own_times(spans, path));
  std::map<int64_t, int64_t> iterations;  // by rank
  for (const Span& span : spans) {
    if (is_forward(span) && span.name == base::span_name(base::Span::kIteration)) {
      ++iterations[span.rank];
    }
  }
  if (iterations.empty()) {
    return invalid_input(
        fmt::format("{}: has no span \"{}\": give a trace that --profile-output wrote", path,
                    base::span_name(base::Span::kIteration)));
  }
  std::map<std::pair<std::string, std::string>, Sum> sums;  // by lane and name
  for (const Span& span : spans) {
    if (!iterations.contains(span.rank)) {
      return invalid_input(
          fmt::format("{}: rank {} has spans, but no whole iteration", path, span.rank));
    }
    Sum& sum = sums[{lane_text(span.lane), span.name}];
    sum.us[span.rank] += span.own;
    sum.place = std::min(sum.place, span.place);
    ++sum.count;
  }
  std::vector<std::pair<size_t, SpanTime>> times;
  for (const auto& [key, sum] : sums) {
    times.emplace_back(sum.place, time_of(key, sum, iterations));
  }
  std::ranges::sort(times, {}, &std::pair<size_t, SpanTime>::first);
  TraceBreakdown result{.num_ranks = static_cast<int>(iterations.size())};
  for (const auto& [rank, count] : iterations) {
    result.num_iterations = std::max(result.num_iterations, count);
  }
  const std::string forward = lane_text(static_cast<int64_t>(base::Lane::kForward));
  for (auto& [place, time] : times) {
    (time.lane == forward ? result.parts : result.beside).push_back(std::move(time));
  }
  if (const auto other = trace.find("otherData"); other != trace.end() && other->is_object()) {
    result.num_dropped = other->value("droppedEvents", int64_t{0});
  }
  return result;
}

}  // namespace wideep::measure
