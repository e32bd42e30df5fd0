// SPDX-License-Identifier: Apache-2.0
#include "jinja/slices.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::jinja {
namespace {

// The bounds of a slice by Python's rules: negative ones count from the end, and all are clamped.
struct Bounds {
  int64_t start;
  int64_t stop;
};
Bounds slice_bounds(const Value& start, const Value& stop, int64_t step, int64_t size) {
  // `stop` is exclusive: a slice down to the first element stops at −1.
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
  const auto bound = [&](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    const int64_t at = value.integer() < 0 ? value.integer() + size : value.integer();
    return std::clamp(at, lowest, std::max(lowest, highest));
  };
  return {bound(start, step > 0 ? lowest : highest), bound(stop, step > 0 ? highest : lowest)};
}

ValueResult slice_of_list(const Value& value, const Value& start, const Value& stop, int64_t by,
                          Budget& budget) {
  const List& all = value.list();
  const ListKind kind = value.list_kind();
  const int64_t size = static_cast<int64_t>(all.size());
  List kept;
  const auto [first, last] = slice_bounds(start, stop, by, size);
  for (int64_t i = first; by > 0 ? i < last : i > last; i += by) {
    if (!budget.spend(1)) return budget.status();
    kept.push_back(all[static_cast<size_t>(i)]);
    if (by < -size || by > size) break;  // the next index would be outside, or overflow
  }
  if (value.is_range()) {
    const RangeBounds of = value.range();
    RangeBounds sliced{};
    const auto at = [&of](int64_t index, int64_t* result) {
      int64_t distance = 0;
      return !__builtin_mul_overflow(index, of.step, &distance) &&
             !__builtin_add_overflow(of.start, distance, result);
    };
    if (!at(first, &sliced.start) || !at(last, &sliced.stop) ||
        __builtin_mul_overflow(of.step, by, &sliced.step)) {
      return invalid_input("a slice of this range has bounds beyond 64 bits");
    }
    return Value(sliced, std::move(kept));
  }
  return Value(std::move(kept), kind);
}

ValueResult slice_of_text(const Value& value, const Value& start, const Value& stop, int64_t by,
                          Budget& budget) {
  const std::string& text = value.string();
  if (!budget.spend_bytes(text.size())) return budget.status();
  const Characters all(text);
  const int64_t size = all.count();
  const auto [first, last] = slice_bounds(start, stop, by, size);
  std::string kept;
  // Code points have different sizes, so the text is walked from the front. Only a backward slice
  // needs an index of all code points, which is charged per element.
  if (by > 0) {
    auto at = all.begin();
    for (int64_t i = 0; i < last; ++i, ++at) {
      if (i >= first && (i - first) % by == 0) kept += *at;
    }
  } else {
    if (!budget.spend(static_cast<size_t>(size))) return budget.status();
    const std::vector<std::string_view> each(all.begin(), all.end());
    // The clamped step ends the loop like a smaller one would, and cannot overflow.
    for (int64_t i = first; i > last; i += std::max(by, -size))
      kept += each[static_cast<size_t>(i)];
  }
  return value.with_text(std::move(kept));
}

}  // namespace

ValueResult slice_of(const Value& value, const Value& start, const Value& stop, const Value& step,
                     Budget& budget) {
  if (value.is_undefined()) return invalid_input(value.undefined().what);
  if (!value.is_string() && (!value.is_list() || value.is_view())) {
    return invalid_input(fmt::format("a value of type {} cannot be sliced", value.type_name()));
  }
  for (const Value* bound : {&start, &stop, &step}) {
    if (bound->is_none() || bound->is_whole()) continue;
    return invalid_input(fmt::format("slice: expected integers, found {}", bound->type_name()));
  }
  const int64_t by = step.is_none() ? 1 : step.integer();
  if (by == 0) return invalid_input("slice: the step must not be 0");
  return value.is_string() ? slice_of_text(value, start, stop, by, budget)
                           : slice_of_list(value, start, stop, by, budget);
}

}  // namespace wideep::jinja
