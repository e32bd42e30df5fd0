// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "formats/files.h"

namespace wideep::tests {

// wideep figures `arguments` --output DIR/figures --json: what it prints, which both files must
// have as well.
inline nlohmann::json drawn_figure(std::vector<std::string> arguments,
                                   const base::ScratchDirectory& directory) {
  const std::string stem = directory.file("figures") + "/" + arguments[0];
  arguments.insert(arguments.begin(), "figures");
  arguments.insert(arguments.end(), {"--output", directory.file("figures"), "--json"});
  const CommandEnd end = run_command({.arguments = arguments});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const nlohmann::json printed = nlohmann::json::parse(end.out, nullptr, false);
  const auto file = formats::read_file(stem + ".json"), page = formats::read_file(stem + ".html");
  EXPECT_TRUE(file.ok() && page.ok());
  if (!file.ok() || !page.ok()) return printed;
  EXPECT_EQ(nlohmann::json::parse(*file, nullptr, false), printed);
  EXPECT_EQ(page->find("@DATA@"), std::string::npos);
  return printed;
}

}  // namespace wideep::tests
