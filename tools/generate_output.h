// SPDX-License-Identifier: Apache-2.0
//
// What `wideep generate` shows: progress, texts as they come, the closing table, JSON.
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

// A run on a terminal: what runs as it starts, the loading line, then one line for what happens.
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

// Prints the continuations in the order of their prompts, each as it comes: the first that has not
// ended goes out at once, the others wait for their turn.
class TextStream {
 public:
  // out: null prints nothing. note: stands beside every prompt's number.
  TextStream(const std::vector<std::string>& prompts, const std::string& note, std::FILE* out);
  void add(int prompt, const std::string& text, bool last);
  // Prints what is still waiting, of runs that ended early, and marks what was cut short.
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
