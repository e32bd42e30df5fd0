// SPDX-License-Identifier: Apache-2.0
//
// The answers of the `wideep simulate ...` commands: a table, JSON, and a page with a picture.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "command_line/command_line.h"
#include "wideep/status.h"

namespace wideep::tools {

struct WhatIfOutput {
  bool json = false;
  std::string html;  // empty: no page
};

// Adds --json and --html. `output` must outlive the parsing.
void add_what_if_output(command_line::Command command, WhatIfOutput* output);

struct WhatIf {
  struct Column {
    std::string key;    // in JSON
    std::string title;  // in the table
    int decimals = 0;   // of numbers
    bool is_text = false;
  };
  // Lines over the values of a column.
  struct Chart {
    std::string x;                   // key of the column whose values are side by side
    std::vector<std::string> lines;  // keys of columns
    std::string y_title;
    bool is_logarithmic = false;
    std::optional<double> limit = {};  // a line across
    std::string limit_text = {};
  };

  std::string command;             // "wideep simulate moves"
  std::string title;               // of the page
  std::vector<std::string> facts;  // sentences above the table, without a full stop
  std::vector<Column> columns;
  std::vector<std::vector<nlohmann::ordered_json>> rows;  // numbers, texts, or null: there is none
  std::vector<Chart> charts;
};

// Prints the answer, and writes its page. Errors: the page cannot be written.
Status show(const WhatIf& answer, const WhatIfOutput& output);

}  // namespace wideep::tools
