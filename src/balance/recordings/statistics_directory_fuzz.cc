// SPDX-License-Identifier: Apache-2.0
// Any bytes as the files of a directory of statistics: statistics that have what they claim, or one
// line of complaint. The input is meta_info.json and up to 4 rank files, each after the first
// preceded by the line kBetween.
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/scratch_directory.h"
#include "recordings/report.h"
#include "recordings/statistics_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::recordings;
  constexpr std::string_view kBetween = "\n#next#\n";
  constexpr int kMaxFiles = 5;
  static const wideep::base::ScratchDirectory directory;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::filesystem::remove_all(directory.path());
  std::filesystem::create_directories(directory.path());
  for (int file = 0; file < kMaxFiles; ++file) {
    const std::string name =
        file == 0 ? "meta_info.json" : "rank" + std::to_string(file - 1) + ".safetensors";
    const size_t end = rest.find(kBetween);
    std::ofstream(directory.file(name), std::ios::binary) << rest.substr(0, end);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + kBetween.size());
  }
  const auto statistics = read_statistics_directory(directory.path());
  if (!statistics.ok()) {
    WIDEEP_CHECK(statistics.status().message().find('\n') == std::string::npos);
    return 0;
  }
  WIDEEP_CHECK(check_statistics(*statistics).ok());
  WIDEEP_CHECK(read_statistics(directory.path()).ok() == !statistics->slots.has_value());
  if (statistics->slots) {
    for (const LoadBy by : {LoadBy::kRank, LoadBy::kSlot}) {
      const auto report = report_slots(*statistics, by);
      WIDEEP_CHECK(report.ok());
      WIDEEP_CHECK(report->average.imbalance_ratio >= 0);
    }
  }
  int64_t by_layers = 0, by_counts = 0;
  for (int layer = 0; layer < statistics->num_layers(); ++layer) {
    for (const int64_t tokens : statistics->layer_load(layer)) by_layers += tokens;
  }
  for (const int64_t tokens : statistics->counts) by_counts += tokens;
  WIDEEP_CHECK_EQ(by_layers, by_counts);
  return 0;
}
