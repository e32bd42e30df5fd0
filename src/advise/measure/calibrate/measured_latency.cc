// SPDX-License-Identifier: Apache-2.0
//
// The published tables name a load by its law alone, so the load is made again: drawn between two
// ends, scaled to whole tokens by largest remainder. Packed rows get replicas where a replica has
// most tokens, and each slot goes to the rank with the fewest rows that has room. Draws have fixed
// seeds, since a fit must give the same constants each time.
#include "measure/calibrate/measured_latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <span>

#include "base/check.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/lines.h"

namespace wideep::measure {
namespace {

constexpr int kDraws = 6;

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> fields;
  while (true) {
    const size_t comma = line.find(',');
    fields.emplace_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

// Draws from a density that falls as x^−exponent between two ends.
double draw(double exponent, double min, double max, double uniform) {
  if (std::abs(exponent - 1.0) < 1e-9) return min * std::pow(max / min, uniform);
  const double power = 1.0 - exponent;
  const double low = std::pow(min, power);
  return std::pow(low + (std::pow(max, power) - low) * uniform, 1.0 / power);
}

// [num_experts] whole numbers of tokens that add up to tokens × top_k. Few pairs are drawn from a
// narrower law, else one expert would get them all.
std::vector<double> tokens_of_experts(const LayerRouting& routing, double exponent, int seed) {
  const auto experts = static_cast<size_t>(routing.num_experts);
  const double pairs = static_cast<double>(routing.num_tokens) * routing.top_k;
  const bool many = pairs > routing.num_experts;
  const double min = many ? 1.0 : 0.01;
  const double max = many ? std::max(1.0001, 0.8 * routing.num_tokens) : 2.0;
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::uniform_real_distribution<double> uniform;
  std::vector<double> wanted(experts);
  for (double& each : wanted)
    each = exponent == 0.0 ? 1.0 : draw(exponent, min, max, uniform(random));
  const double scale = pairs / std::reduce(wanted.begin(), wanted.end());
  std::vector<double> counts(experts);
  std::vector<size_t> by_remainder(experts);
  for (size_t e = 0; e < experts; ++e) counts[e] = std::floor(wanted[e] * scale);
  std::iota(by_remainder.begin(), by_remainder.end(), size_t{0});
  std::ranges::sort(by_remainder, std::greater<>(),
                    [&](size_t e) { return std::pair(wanted[e] * scale - counts[e], e); });
  const auto left = static_cast<size_t>(pairs - std::reduce(counts.begin(), counts.end()));
  for (size_t i = 0; i < left && i < experts; ++i) counts[by_remainder[i]] += 1.0;
  for (double& each : counts) each = std::min<double>(each, routing.num_tokens);
  return counts;
}

// The slots of the rank with the most rows, where experts lie in their order.
std::vector<double> busiest_in_order(const LayerRouting& routing, std::vector<double> counts) {
  const size_t each = counts.size() / static_cast<size_t>(routing.num_ranks);
  std::vector<double> busiest;
  double max = -1.0;
  for (size_t first = 0; first + each <= counts.size(); first += each) {
    const std::span slots(counts.data() + first, each);
    const double rows = std::reduce(slots.begin(), slots.end());
    if (rows <= max) continue;
    max = rows;
    busiest.assign(slots.begin(), slots.end());
  }
  return busiest;
}

// The same with replicas of the busiest experts, each packed where there is least.
std::vector<double> busiest_packed(const LayerRouting& routing, const std::vector<double>& counts) {
  std::vector<int> replicas(counts.size(), 1);
  for (int slot = routing.num_experts; slot < routing.num_slots; ++slot) {
    size_t max = 0;
    for (size_t e = 1; e < counts.size(); ++e) {
      if (counts[e] / replicas[e] > counts[max] / replicas[max]) max = e;
    }
    ++replicas[max];
  }
  std::vector<double> slots;
  for (size_t e = 0; e < counts.size(); ++e) {
    slots.insert(slots.end(), static_cast<size_t>(replicas[e]), counts[e] / replicas[e]);
  }
  std::ranges::sort(slots, std::greater<>());
  const size_t capacity = slots.size() / static_cast<size_t>(routing.num_ranks);
  std::vector<std::vector<double>> ranks(static_cast<size_t>(routing.num_ranks));
  std::vector<double> rows(ranks.size(), 0.0);
  for (const double slot : slots) {
    size_t best = ranks.size();
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r].size() < capacity && (best == ranks.size() || rows[r] < rows[best])) best = r;
    }
    ranks[best].push_back(slot);
    rows[best] += slot;
  }
  return ranks[static_cast<size_t>(std::ranges::max_element(rows) - rows.begin())];
}

}  // namespace

Result<LatencyTable> LatencyTable::read(const std::string& path) {
  WIDEEP_TRY_ASSIGN(std::string content, formats::read_file(path));
  formats::NonBlankLines lines(std::move(content));
  LatencyTable table;
  table.path_ = path;
  while (const auto line = lines.next()) {
    std::string_view text = line->text;
    if (text.ends_with('\r')) text.remove_suffix(1);
    std::vector<std::string> fields = split(text);
    if (table.columns_.empty()) {
      for (size_t i = 0; i < fields.size(); ++i) table.columns_.emplace(fields[i], i);
      continue;
    }
    if (fields.size() != table.columns_.size()) {
      return invalid_input(fmt::format("{}:{}: expected {} columns, found {}", path, line->number,
                                       table.columns_.size(), fields.size()));
    }
    table.rows_.push_back(std::move(fields));
    table.lines_.push_back(line->number);
  }
  return table;
}

const std::string& LatencyTable::text(int row, std::string_view column) const {
  const auto found = columns_.find(column);
  WIDEEP_CHECK(found != columns_.end());
  return rows_[static_cast<size_t>(row)][found->second];
}

double LatencyTable::number(int row, std::string_view column) const {
  return std::strtod(text(row, column).c_str(), nullptr);
}

std::string LatencyTable::place(int row) const {
  return fmt::format("{}:{}", path_, lines_[static_cast<size_t>(row)]);
}

PowerLaw parse_power_law(std::string_view distribution) {
  constexpr std::string_view kBegin = "power_law_", kEnd = "_eplb";
  PowerLaw law{.exponent = 0.0, .packed = distribution.ends_with(kEnd)};
  if (law.packed) distribution.remove_suffix(kEnd.size());
  if (!distribution.starts_with(kBegin)) return law;
  distribution.remove_prefix(kBegin.size());
  law.exponent = std::strtod(std::string(distribution).c_str(), nullptr);
  return law;
}

cost::ExpertWork busiest_rank(const LayerRouting& routing, const PowerLaw& law, int tile) {
  cost::ExpertWork mean;
  const int draws = law.exponent == 0.0 ? 1 : kDraws;
  for (int seed = 0; seed < draws; ++seed) {
    std::vector<double> counts = tokens_of_experts(routing, law.exponent, seed);
    const cost::ExpertWork work = cost::expert_work(
        law.packed ? busiest_packed(routing, counts) : busiest_in_order(routing, std::move(counts)),
        tile);
    mean.experts += work.experts / draws;
    mean.rows += work.rows / draws;
    mean.tiled_rows += work.tiled_rows / draws;
  }
  return mean;
}

}  // namespace wideep::measure
