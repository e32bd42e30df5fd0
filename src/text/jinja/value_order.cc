// SPDX-License-Identifier: Apache-2.0
//
// Which values are equal, and their order. Lists and dicts may share their parts, so that a small
// value can take exponential time to compare: each element is charged to the budget.
#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <optional>
#include <string>

#include "jinja/python_numbers.h"
#include "jinja/value.h"

namespace wideep::jinja {
namespace {

bool equal_lists(const List& a, const List& b, Budget& budget) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Value& x, const Value& y) { return equal(x, y, budget); });
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  return a.entries().size() == b.entries().size() &&
         std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
           const std::optional<std::string> key = entry.first.hash_text(budget);
           const Value* other = key ? b.find(*key) : nullptr;
           return other != nullptr && equal(entry.second, *other, budget);
         });
}

// A large integer lies beyond every other of its sign.
std::strong_ordering compare_whole(const Value& a, const Value& b) {
  const auto of_sign = [&](std::strong_ordering order) {
    return a.integer() < 0 ? 0 <=> order : order;
  };
  if (a.integer() != b.integer()) return a.integer() <=> b.integer();
  if (!a.is_large() || !b.is_large()) return of_sign(a.is_large() <=> b.is_large());
  const std::string &left = a.digits(), &right = b.digits();
  return of_sign(left.size() != right.size() ? left.size() <=> right.size() : left <=> right);
}

// Exactly, as in Python: of an integer beyond 2⁵³ a double may lack the last digits.
std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return compare_whole(a, b);
  // Rounding keeps an order, but makes some equal that are not.
  const std::partial_ordering rounded = a.number() <=> b.number();
  if (rounded != 0 || (a.is_float() && b.is_float())) return rounded;
  if (b.is_float()) return 0 <=> compare_numbers(b, a);
  const std::optional<Value> whole = integer_of(a.number());
  if (!whole) return a.number() <=> 0.0;  // infinite
  return compare_whole(*whole, b);
}

}  // namespace

// A result after the budget is spent is wrong; the renderer never uses it.
bool equal(const Value& a, const Value& b, Budget& budget) {
  if (!budget.spend(1)) return false;
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.is_string() && b.is_string()) {
    return a.string().size() == b.string().size() && budget.spend_bytes(a.string().size()) &&
           a.string() == b.string();
  }
  if (a.is_list() && b.is_list() && a.list_kind() != b.list_kind()) return false;
  if (a.is_list() && b.is_list()) return equal_lists(a.list(), b.list(), budget);
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.dict(), b.dict(), budget);
  if (a.is_function() && b.is_function()) return &a.function() == &b.function();
  if (a.is_object() && b.is_object()) return &a.object() == &b.object();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

Result<std::partial_ordering> compare(const Value& a, const Value& b, Budget& budget) {
  if (!budget.spend(1)) return budget.status();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    const std::string &left = a.string(), &right = b.string();
    if (!budget.spend_bytes(std::min(left.size(), right.size()))) return budget.status();
    return std::partial_ordering(left <=> right);  // UTF-8 has the order of code points
  }
  if (a.is_list_or_tuple() && b.is_list_or_tuple() && a.list_kind() == b.list_kind()) {
    const List &left = a.list(), &right = b.list();
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i], budget)) return compare(left[i], right[i], budget);
    }
    return std::partial_ordering(left.size() <=> right.size());
  }
  return invalid_input(
      fmt::format("values of types {} and {} have no order", a.type_name(), b.type_name()));
}

}  // namespace wideep::jinja
