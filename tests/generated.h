// SPDX-License-Identifier: Apache-2.0
//
// For tests: run::generate with options that must be valid.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "run/generate.h"

namespace wideep::tests {

inline run::GenerateReport run(const run::GenerateOptions& options) {
  auto report = run::generate(options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  if (!report.ok()) return {};
  EXPECT_TRUE(report->ended.ok()) << report->ended.message();
  return std::move(*report);
}

// The SHA-256 of the logits of every prompt's answer. REQUIRES: GenerateOptions::logits_digest.
inline std::vector<std::string> digests(const run::GenerateReport& report) {
  std::vector<std::string> all;
  for (const auto& result : report.results) {
    EXPECT_EQ(result.digest.size(), 64u);
    all.push_back(result.digest);
  }
  return all;
}

}  // namespace wideep::tests
