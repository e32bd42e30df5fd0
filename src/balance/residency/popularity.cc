// SPDX-License-Identifier: Apache-2.0
#include "residency/popularity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"

namespace wideep::residency {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr const char* kEnding = ".load";

std::optional<int> number_of(const std::string& text) {
  int number = -1;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0 ? std::optional(number) : std::nullopt;
}

Status add_layer(const json& experts, const std::string& where, std::map<int, double>* shares) {
  const auto wrong = [&](const json& found) {
    return invalid_input(fmt::format("{}: expected shares from 0 to 1 by expert, found {}", where,
                                     formats::describe(found)));
  };
  if (!experts.is_object()) return wrong(experts);
  for (const auto& [name, value] : experts.items()) {
    const auto expert = number_of(name);
    if (!expert || !value.is_number()) return wrong(experts);
    const double share = value.get<double>();
    if (!(share >= 0.0 && share <= 1.0)) return wrong(value);
    (*shares)[*expert] = share;
  }
  return {};
}

Result<Popularity> read_one(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
  WIDEEP_TRY_ASSIGN(const json file, formats::parse_json(text, path));
  if (!file.is_object() || file.value("wideep_popularity", json()) != kVersion ||
      !file.contains("layers") || !file["layers"].is_object()) {
    return invalid_input(fmt::format(
        "{}: expected {{\"wideep_popularity\": {}, \"layers\": {{...}}}}; remove the file, and the "
        "run begins without it",
        path, kVersion));
  }
  Popularity popularity;
  for (const auto& [name, experts] : file["layers"].items()) {
    const std::string where = fmt::format("{}: layer '{}'", path, name);
    const auto layer = number_of(name);
    if (!layer) return invalid_input(where + ": expected a number");
    WIDEEP_TRY(add_layer(experts, where, &popularity.shares[*layer]));
  }
  return popularity;
}

}  // namespace

std::vector<double> Popularity::of(std::span<const int> layers, int num_experts) const {
  std::vector<double> all(layers.size() * static_cast<size_t>(num_experts), 0.0);
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto layer = shares.find(layers[i]);
    if (layer == shares.end()) continue;
    for (const auto& [expert, share] : layer->second) {
      if (expert >= num_experts) continue;
      all[i * static_cast<size_t>(num_experts) + static_cast<size_t>(expert)] = share;
    }
  }
  return all;
}

std::string popularity_path(const std::string& directory, int rank) {
  return fmt::format("{}/rank{}{}", directory, rank, kEnding);
}

Status write_popularity(const std::string& path, const Popularity& popularity) {
  json layers = json::object();
  for (const auto& [layer, experts] : popularity.shares) {
    json& shares = layers[std::to_string(layer)] = json::object();
    for (const auto& [expert, share] : experts) shares[std::to_string(expert)] = share;
  }
  const json file = {{"wideep_popularity", kVersion}, {"layers", std::move(layers)}};
  return formats::write_file(path, file.dump() + "\n");
}

Popularity read_popularity(const std::string& directory, std::vector<std::string>* wrong) {
  namespace fs = std::filesystem;
  std::error_code absent;
  std::vector<std::pair<fs::file_time_type, std::string>> paths;  // oldest first
  for (const auto& entry : fs::directory_iterator(directory, absent)) {
    if (entry.path().extension() != kEnding) continue;
    paths.emplace_back(entry.last_write_time(absent), entry.path().string());
  }
  std::ranges::sort(paths);
  Popularity popularity;
  for (const auto& [time, path] : paths) {
    const Result<Popularity> one = read_one(path);
    if (!one.ok()) {
      wrong->push_back(one.status().message());
      continue;
    }
    for (const auto& [layer, experts] : one->shares) {
      for (const auto& [expert, share] : experts) popularity.shares[layer][expert] = share;
    }
  }
  return popularity;
}

}  // namespace wideep::residency
