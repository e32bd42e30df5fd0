// SPDX-License-Identifier: Apache-2.0
//
// The output of `wideep generate`: progress, texts as they are generated, the final table, JSON.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/work_progress.h"
#include "run/generate.h"
#include "run/run_view.h"

namespace wideep::tools {

// Of weights, read and packed.
class LoadingLine {
 public:
  void show(uint64_t done, uint64_t all) { progress_.show(done, all); }
  void end() { progress_.clear(); }  // may be called again

 private:
  base::WorkProgress progress_{"loading weights", ""};
};

// The log of a run on stderr: the plan, the progress of loading, then one line per event.
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
