// SPDX-License-Identifier: Apache-2.0
//
// At a speed that is asked for, a layout's throughput is that of its best point at least so fast:
// nothing is assumed between two points.
#include "measure/serving/sweep_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/pareto_front.h"
#include "base/try.h"
#include "formats/json.h"
#include "measure/serving/iteration_report.h"

namespace wideep::measure {
namespace {

using formats::JsonObject;

constexpr const char* kExpected =
    "expected a report of wideep bench throughput, serving or model, of advise --json, or an "
    "iteration log";

std::string drafts_text(int64_t drafts) {
  if (drafts == 0) return "";
  return fmt::format("{} draft{}", drafts, drafts == 1 ? "" : "s");
}

// ---- what a file's name says ----

struct NamedPoint {
  std::optional<int> ep;
  int drafts = 0;
  std::string lengths;
};

std::optional<int> number_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return {};
  return value;
}

// The parts between dots: "ep-8", "drafts-1", "1024-1024".
NamedPoint read_name(const std::string& path) {
  NamedPoint named;
  const std::string name = std::filesystem::path(path).filename().string();
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = std::string_view(name).substr(begin, end - begin);
    const size_t dash = std::min(part.find('-'), part.size());
    const std::string_view first = part.substr(0, dash),
                           second = part.substr(std::min(dash + 1, part.size()));
    const std::optional<int> number = number_of(second);
    if (number && first == "ep" && *number > 0) named.ep = number;
    if (number && first == "drafts") named.drafts = *number;
    if (number && number_of(first)) named.lengths = fmt::format("{}/{}", first, second);
    begin = end + 1;
  }
  return named;
}

Result<SweepPoint> point_of_name(const std::string& path) {
  const NamedPoint named = read_name(path);
  if (!named.ep) {
    return invalid_input(
        fmt::format("{}: the report of a server does not have its ranks, and its name does not say "
                    "them: name it ep-RANKS.drafts-N.INPUT-OUTPUT.….json, as serving_sweep.sbatch "
                    "does",
                    path));
  }
  SweepPoint point;
  point.ranks = point.ep = *named.ep;
  point.drafts = drafts_text(named.drafts);
  point.lengths = named.lengths;
  return point;
}

// ---- the reports ----

std::string rounded_lengths(double input, double output) {
  return fmt::format("{:.0f}/{:.0f}", input, output);
}

SweepPoint point_of_throughput(const JsonObject& root, const NamedPoint& named) {
  const JsonObject world = root.object("world_info"), request = root.object("request_info"),
                   performance = root.object("performance");
  SweepPoint point;
  point.ranks = static_cast<int>(world.integer("world_size", {.min = 1, .max = 1 << 20}));
  point.ep = static_cast<int>(world.integer("ep_size", {.min = 1, .max = 1 << 20}));
  point.layout = fmt::format("TP {}, PP {}", world.integer("tp_size"), world.integer("pp_size"));
  point.lengths = named.lengths.empty() ? rounded_lengths(request.number("avg_input_length"),
                                                          request.number("avg_output_length"))
                                        : named.lengths;
  if (root.has("decoding_stats")) {
    point.drafts =
        named.drafts > 0 ? drafts_text(named.drafts) : root.object("decoding_stats").string("mode");
  }
  point.tokens_per_rank = performance.number("output_throughput_per_gpu_tok_s");
  point.tokens_per_user = root.has("streaming_metrics")
                              ? root.object("streaming_metrics").number("token_output_speed_tok_s")
                              : performance.number("output_throughput_per_user_tok_s");
  return point;
}

void add_serving(const JsonObject& root, SweepPoint& point) {
  const double completed = root.number("completed", {.min = 1.0});
  if (point.lengths.empty()) {
    point.lengths = rounded_lengths(root.number("input_tokens") / completed,
                                    root.number("output_tokens") / completed);
  }
  point.tokens_per_rank = root.number("output_tokens_per_second") / point.ranks;
  const double tpot = root.object("tpot_seconds").number("mean");
  if (!(tpot > 0.0)) {
    root.complain("tpot_seconds", "no answer had a second token, so that no user has a speed");
    return;
  }
  point.tokens_per_user = 1.0 / tpot;
}

std::vector<SweepPoint> points_of_model(const JsonObject& root) {
  std::vector<SweepPoint> points;
  SweepPoint common;
  common.ranks = common.ep = static_cast<int>(root.integer("ranks", {.min = 1, .max = 1 << 20}));
  const nlohmann::json& tests = root.raw().at("tests");
  for (const nlohmann::json& test : tests) {
    constexpr std::string_view kDecode = "decode x";
    const nlohmann::json said = test.is_object() ? test.value("name", nlohmann::json()) : test;
    const std::string name = said.is_string() ? said.get<std::string>() : "";
    if (!name.starts_with(kDecode)) continue;
    const std::optional<int> sequences = number_of(std::string_view(name).substr(kDecode.size()));
    const auto speed = test.find("tokens_per_second");
    if (!sequences || *sequences == 0 || speed == test.end() || !speed->is_object() ||
        !speed->contains("median") || !speed->at("median").is_number()) {
      root.complain("tests", fmt::format("{}: expected tokens_per_second with a median", name));
      return points;
    }
    SweepPoint point = common;
    const double all = speed->at("median").get<double>();
    point.tokens_per_rank = all / point.ranks;
    point.tokens_per_user = all / *sequences;
    points.push_back(std::move(point));
  }
  if (points.empty()) root.complain("tests", "has no decode test");
  return points;
}

std::vector<SweepPoint> points_of_advice(const JsonObject& root, formats::Complaint* complaint) {
  std::vector<SweepPoint> points;
  const nlohmann::json& pareto = root.raw().at("pareto");
  for (size_t i = 0; i < pareto.size(); ++i) {
    const std::string place = fmt::format("pareto[{}]", i);
    if (!pareto[i].is_object()) {
      root.complain(place, "expected an object");
      return points;
    }
    const JsonObject each(&pareto[i], place, complaint);
    SweepPoint point{.predicted = true};
    point.ranks = static_cast<int>(each.integer("ranks", {.min = 1, .max = 1 << 20}));
    point.ep = static_cast<int>(each.integer("ep", {.min = 1, .max = 1 << 20}));
    point.drafts = drafts_text(each.integer_or("drafts", 0));
    const char* attention = each.boolean("attention_dp") ? "DP" : "TP";
    const std::string dtype = each.string("dtype");
    const int64_t slots = each.integer("num_slots");  // 0: a dense model
    point.layout = slots == 0 ? fmt::format("{}, {}", attention, dtype)
                              : fmt::format("attention {}, {} slots, {}", attention, slots, dtype);
    point.tokens_per_rank = each.number("tokens_per_second_per_rank");
    point.tokens_per_user = each.number("tokens_per_second_per_user");
    points.push_back(std::move(point));
  }
  if (points.empty()) root.complain("pareto", "has no layout");
  return points;
}

Result<std::vector<SweepPoint>> points_of_log(const std::string& path) {
  WIDEEP_TRY_ASSIGN(SweepPoint point, point_of_name(path));
  WIDEEP_TRY_ASSIGN(const IterationLogSummary log, summarize_iterations(path));
  if (log.active_requests <= 0.0) {
    return invalid_input(fmt::format("{}: no iteration had a request", path));
  }
  point.tokens_per_rank = log.tokens_per_second() / point.ranks;
  point.tokens_per_user = log.tokens_per_second() / log.active_requests;
  return std::vector<SweepPoint>{std::move(point)};
}

}  // namespace

Result<std::vector<SweepPoint>> read_sweep_points(const std::string& path) {
  if (path.ends_with(".jsonl")) return points_of_log(path);
  WIDEEP_TRY_ASSIGN(const formats::JsonDocument document, formats::JsonDocument::read(path));
  const JsonObject root = document.root();
  const auto is_list = [&](const char* key) {
    return root.has(key) && root.raw().at(key).is_array();
  };
  std::vector<SweepPoint> points;
  formats::Complaint complaint(path);
  if (root.has("world_info") && root.has("performance")) {
    points.push_back(point_of_throughput(root, read_name(path)));
  } else if (root.has("tpot_seconds")) {
    WIDEEP_TRY_ASSIGN(SweepPoint point, point_of_name(path));
    add_serving(root, point);
    points.push_back(std::move(point));
  } else if (is_list("tests") && root.has("ranks")) {
    points = points_of_model(root);
  } else if (is_list("pareto")) {
    points = points_of_advice(root, &complaint);
  } else {
    return invalid_input(fmt::format("{}: {}", path, kExpected));
  }
  WIDEEP_TRY(document.status());
  WIDEEP_TRY(complaint.status());
  return points;
}

std::vector<SweepPoint> front_of(std::vector<SweepPoint> points) {
  std::vector<SweepPoint> front =
      pareto_front(std::move(points), &SweepPoint::tokens_per_user, &SweepPoint::tokens_per_rank);
  std::ranges::reverse(front);
  return front;
}

FrontGain largest_gain(const std::vector<SweepPoint>& points, const std::vector<SweepPoint>& base) {
  const auto at = [](const std::vector<SweepPoint>& of, double speed) {
    double best = 0.0;
    for (const SweepPoint& point : of) {
      if (point.tokens_per_user >= speed) best = std::max(best, point.tokens_per_rank);
    }
    return best;
  };
  FrontGain gain;
  for (const auto* of : {&points, &base}) {
    for (const SweepPoint& point : *of) {
      const double speed = point.tokens_per_user, other = at(base, speed);
      if (other <= 0.0) continue;
      const double ratio = at(points, speed) / other;
      if (ratio > gain.ratio) gain = {.ratio = ratio, .tokens_per_user = speed};
    }
  }
  return gain;
}

}  // namespace wideep::measure
