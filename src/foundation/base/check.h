// SPDX-License-Identifier: Apache-2.0
//
// Checks for bugs. A failed check prints the expression, both values, file and line, and aborts the
// process. User input must not reach a check (return a Status for it), nor may a hot loop contain
// one.
//
//   WIDEEP_CHECK(is_sorted(ids));
//   WIDEEP_CHECK_EQ(rows.size(), num_tokens);
#pragma once

#include <fmt/format.h>

#include <string>

namespace wideep::base {

[[noreturn]] void check_failed(const char* file, int line, const std::string& what);

template <typename A, typename B>
[[noreturn]] void compare_failed(const char* file, int line, const char* expression, const A& a,
                                 const B& b) {
  check_failed(file, line, fmt::format("{} (left {}, right {})", expression, a, b));
}

}  // namespace wideep::base

#define WIDEEP_CHECK(condition)                                     \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::wideep::base::check_failed(__FILE__, __LINE__, #condition); \
  } while (false)

#define WIDEEP_CHECK_OP_(op, a, b)                                                             \
  do {                                                                                         \
    const auto& check_a = (a);                                                                 \
    const auto& check_b = (b);                                                                 \
    if (!(check_a op check_b)) [[unlikely]]                                                    \
      ::wideep::base::compare_failed(__FILE__, __LINE__, #a " " #op " " #b, check_a, check_b); \
  } while (false)

#define WIDEEP_CHECK_EQ(a, b) WIDEEP_CHECK_OP_(==, a, b)
#define WIDEEP_CHECK_NE(a, b) WIDEEP_CHECK_OP_(!=, a, b)
#define WIDEEP_CHECK_LT(a, b) WIDEEP_CHECK_OP_(<, a, b)
#define WIDEEP_CHECK_LE(a, b) WIDEEP_CHECK_OP_(<=, a, b)
#define WIDEEP_CHECK_GT(a, b) WIDEEP_CHECK_OP_(>, a, b)
#define WIDEEP_CHECK_GE(a, b) WIDEEP_CHECK_OP_(>=, a, b)
