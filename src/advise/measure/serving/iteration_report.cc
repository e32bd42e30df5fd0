// SPDX-License-Identifier: Apache-2.0
//
// Lines have only the time of an iteration's end: the log begins at the first end less that
// iteration's latency. The mean imbalance is of iterations with requests, because the others have
// none and would flatter it. A missing key is an error with file and line, for read as 0 it would
// pass for a measurement.
#include "measure/serving/iteration_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"
#include "formats/lines.h"

namespace wideep::measure {
namespace {

using nlohmann::json;

Result<double> number_at(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_number()) return found->get<double>();
  return invalid_input(fmt::format("{}: expected a number, found {}", key,
                                   found == object.end() ? "nothing" : formats::describe(*found)));
}

// Adds a count to a sum that must stay one.
Status add_count(const json& object, const char* key, int64_t* sum) {
  constexpr double kMax = 0x1p53;  // what a double has exactly
  WIDEEP_TRY_ASSIGN(const double count, number_at(object, key));
  if (!(count >= 0.0 && count <= kMax)) {
    return invalid_input(fmt::format("{}: expected 0 to 2^53, found {}", key, count));
  }
  if (__builtin_add_overflow(*sum, static_cast<int64_t>(count), sum)) {
    return invalid_input(fmt::format("{}: the sum of all lines is over 2^63", key));
  }
  return {};
}

// Seconds since 1970 of "2026-01-31T12:00:00.000001Z".
Result<double> seconds_of(const json& line) {
  const auto found = line.find("timestamp");
  std::tm time{};
  double seconds = 0.0;
  if (found != line.end() && found->is_string() &&
      std::sscanf(found->get_ref<const std::string&>().c_str(), "%d-%d-%dT%d:%d:%lfZ",
                  &time.tm_year, &time.tm_mon, &time.tm_mday, &time.tm_hour, &time.tm_min,
                  &seconds) == 6 &&
      time.tm_year >= 1970 && time.tm_year <= 9999 && seconds >= 0.0 && seconds < 61.0) {
    time.tm_year -= 1900;
    time.tm_mon -= 1;
    return static_cast<double>(::timegm(&time)) + seconds;
  }
  return invalid_input("timestamp: expected a time such as 2026-01-31T12:00:00.000000Z");
}

// Sums up the lines of a log. The start of the first iteration is its end minus its latency: lines
// only have end times.
class Summarizer {
 public:
  Status add(const json& line) {
    WIDEEP_TRY_ASSIGN(const double latency, number_at(line, "iterLatencyMS"));
    WIDEEP_TRY_ASSIGN(const double end, seconds_of(line));
    if (latencies_.empty()) start_ = end - latency * 1e-3;
    end_ = end;
    latencies_.push_back(latency);
    WIDEEP_TRY(add_tokens(line));
    return add_means(line);
  }

  Result<IterationLogSummary> take() {
    if (latencies_.empty()) return invalid_input("the log has no iterations");
    const auto count = static_cast<double>(latencies_.size());
    sums_.iterations = static_cast<int64_t>(latencies_.size());
    sums_.seconds = end_ - start_;
    sums_.active_requests /= count;
    sums_.critical_path_ms /= count;
    if (with_tokens_ > 0) sums_.imbalance_ratio /= static_cast<double>(with_tokens_);
    sums_.longest_ms = *std::max_element(latencies_.begin(), latencies_.end());
    sums_.latency_ms = base::percentiles_of(std::move(latencies_));
    return sums_;
  }

 private:
  Status add_tokens(const json& line) {
    const auto batch = line.find("inflightBatchingStats");
    if (batch == line.end() || !batch->is_object()) {
      return invalid_input("inflightBatchingStats: expected an object");
    }
    WIDEEP_TRY(add_count(*batch, "numCtxTokens", &sums_.prompt_tokens));
    WIDEEP_TRY(add_count(*batch, "numGeneratedTokens", &sums_.generated_tokens));
    WIDEEP_TRY_ASSIGN(const double scheduled, number_at(*batch, "numScheduledRequests"));
    has_tokens_ = scheduled > 0.0;
    if (has_tokens_) ++with_tokens_;
    return {};
  }

  Status add_means(const json& line) {
    WIDEEP_TRY_ASSIGN(const double active, number_at(line, "numActiveRequests"));
    WIDEEP_TRY_ASSIGN(const double imbalance, number_at(line, "imbalanceRatio"));
    WIDEEP_TRY_ASSIGN(const double critical, number_at(line, "criticalPathMS"));
    WIDEEP_TRY(add_count(line, "expertMoves", &sums_.expert_moves));
    WIDEEP_TRY(add_count(line, "movedBytes", &sums_.moved_bytes));
    sums_.active_requests += active;
    if (has_tokens_) sums_.imbalance_ratio += imbalance;
    sums_.critical_path_ms += critical;
    return {};
  }

  IterationLogSummary sums_;
  std::vector<double> latencies_;
  int64_t with_tokens_ = 0;
  bool has_tokens_ = false;  // the line that is being added
  double start_ = 0.0, end_ = 0.0;
};

}  // namespace

Result<IterationLogSummary> summarize_iterations(const std::string& path) {
  WIDEEP_TRY_ASSIGN(std::string content, formats::read_file(path));
  Summarizer summarizer;
  formats::NonBlankLines lines(std::move(content));
  while (const auto line = lines.next()) {
    const std::string where = fmt::format("{}:{}", path, line->number);
    WIDEEP_TRY_ASSIGN(const json parsed, formats::parse_json(line->text, where));
    if (!parsed.is_object()) return invalid_input(where + ": expected an object");
    if (const Status added = summarizer.add(parsed); !added.ok()) return added.at(where);
  }
  Result<IterationLogSummary> summary = summarizer.take();
  if (!summary.ok()) return summary.status().at(path);
  summary->name = std::filesystem::path(path).stem().string();
  return summary;
}

}  // namespace wideep::measure
