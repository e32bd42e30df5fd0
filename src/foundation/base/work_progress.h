// SPDX-License-Identifier: Apache-2.0
//
// The progress of work whose amount is known: how much is done, how fast, and how long the rest
// will take.
//
//   terminal: loading weights  [############............]  52 %  3.8 GiB of 7.4 GiB  410.0 MiB/s
//             9 s left                                   (one line, overwritten, erased at the end)
//   else:     loading weights: 52 %, 3.8 GiB of 7.4 GiB in 9 s, 410.0 MiB/s, about 9 s left
//
// Elsewhere a line comes every few seconds, the first after two, and a last one when all is done,
// if there were others. Nothing is written of work that is shorter.
//
// Thread safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace wideep::base {

class WorkProgress {
 public:
  using Clock = std::chrono::steady_clock;
  using Line = std::function<void(const std::string&)>;
  static constexpr auto kInterval = std::chrono::milliseconds(100);  // of a terminal
  static constexpr auto kFirstLine = std::chrono::seconds(2);        // of all else
  static constexpr auto kLines = std::chrono::seconds(5);

  // what: "loading weights". unit: of the amounts, as "tensors"; "": bytes.
  WorkProgress(std::string what, std::string unit);
  // fd: written to if it is a terminal; else `line` gets whole lines.
  WorkProgress(std::string what, std::string unit, int fd, Line line);
  WorkProgress(const WorkProgress&) = delete;
  WorkProgress& operator=(const WorkProgress&) = delete;
  ~WorkProgress() { clear(); }

  // `done` of `all` is done; the time is counted from the first call on. After the call in which
  // all is done, nothing is shown any more.
  void show(uint64_t done, uint64_t all, Clock::time_point now = Clock::now());
  // Erases the line of a terminal, so that others can be written.
  void clear();

 private:
  struct Figures {
    uint64_t done = 0, all = 0;
    double seconds = 0.0, rate = 0.0;  // 0: not known yet
  };
  Figures figures(uint64_t done, uint64_t all, Clock::time_point now) const;
  std::string amount(uint64_t value) const;
  std::string bar(const Figures& now) const;
  std::string text(const Figures& now) const;
  void write(const std::string& text) const;

  const std::string what_, unit_;
  const int fd_;  // −1: no terminal
  const Line line_;
  bool has_begun_ = false, is_shown_ = false, has_lines_ = false, is_over_ = false;
  uint64_t first_done_ = 0;
  Clock::time_point start_, next_;
};

}  // namespace wideep::base
