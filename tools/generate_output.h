// SPDX-License-Identifier: Apache-2.0
//
// The output of `wideep generate`: progress, texts as they are generated, the final table, JSON.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "run/generate.h"
#include "run/run_view.h"

namespace wideep::tools {

// "loading weights 42 %" on stderr, rewritten in place; silent where stderr is no terminal.
class LoadingLine {
 public:
  LoadingLine();
  void show(uint64_t done, uint64_t all);
  void end();  // clears the line; may be called again

 private:
  bool terminal_;
  int last_percent_ = -1;
};

// The log of a run on stderr: the plan, the loading line, then one line per event.
class RunLines : public run::RunView {
 public:
  void plan(const std::string& lines) override;
  void loading(uint64_t done, uint64_t all) override { loading_.show(done, all); }
  void line(const std::string& text) override;
  void rebalanced(const online::Rebalance& rebalance) override;
  void end_loading() { loading_.end(); }

 private:
  LoadingLine loading_;
};

// Prints the generated texts in the order of their prompts. The text of the first unfinished prompt
// is printed as it is generated; later texts are kept until their turn.
class TextStream {
 public:
  // out: null prints nothing. note: printed after every prompt's number.
  TextStream(const std::vector<std::string>& prompts, const std::string& note, std::FILE* out);
  void add(int prompt, const std::string& text, bool last);
  // Prints the texts that still wait because the run ended early, and marks those that are
  // incomplete.
  void end();

 private:
  void print(const std::string& text) const;
  void begin_line();
  void advance();

  struct Waiting {
    std::string text;
    bool ended = false;
  };
  const std::vector<std::string>& prompts_;
  std::string note_;
  std::FILE* out_;
  std::vector<Waiting> waiting_;
  size_t current_ = 0;
  bool line_open_ = false;
};

std::string report_text(const run::GenerateOptions& options, const run::GenerateReport& report);
nlohmann::ordered_json report_json(const run::GenerateOptions& options,
                                   const run::GenerateReport& report);

}  // namespace wideep::tools
