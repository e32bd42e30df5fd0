// SPDX-License-Identifier: Apache-2.0
//
// The progress of a long run, as one line of the terminal that is overwritten, and erased at the
// end:
//
//   planning: 12 of 58 layers
//
// Writes nothing in the first second, nor where stderr is no terminal (a file, a pipe).
//
//   Progress progress("planning", num_layers, "layers");
//   for (...) { ...; progress.step(); }
//
// Thread safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace wideep::base {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kQuiet = std::chrono::seconds(1);            // before the first line
  static constexpr auto kInterval = std::chrono::milliseconds(100);  // between two lines

  // fd: the line is written there if it is a terminal.
  Progress(std::string what, int64_t total, std::string unit, int fd = 2);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // erases the line

  void step(Clock::time_point now = Clock::now());  // one more unit of `total` is done

 private:
  void write(const std::string& text) const;

  std::string what_, unit_;
  int64_t total_, done_ = 0;
  int fd_;  // −1: no terminal
  bool shown_ = false;
  Clock::time_point next_;
};

}  // namespace wideep::base
