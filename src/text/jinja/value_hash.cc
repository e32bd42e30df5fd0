// SPDX-License-Identifier: Apache-2.0
//
// What dicts find their entries by.
#include <fmt/format.h>

#include "jinja/python_numbers.h"
#include "jinja/value.h"

namespace wideep::jinja {
namespace {

// The text of a number that other numbers may equal: 1, 1.0 and true.
std::string number_hash_text(const Value& value, Budget& budget) {
  if (!value.is_float())
    return value.is_bool() ? fmt::format("{}", value.integer()) : to_repr(value, budget);
  const auto whole = integer_of(value.number());
  const bool is_whole = whole && whole->number() == value.number();
  return to_repr(is_whole ? *whole : value, budget);
}

}  // namespace

std::optional<std::string> Value::hash_text(Budget& budget) const {
  if (!budget.spend(1)) return {};
  if (is_string()) return budget.spend_bytes(string().size()) ? string() : "";
  const char kind = static_cast<char>('A' + static_cast<char>(data_.index()));
  const std::string head{kNoText, kind};
  if (is_number()) return std::string{kNoText} + number_hash_text(*this, budget);
  if (is_undefined() || is_none()) return head;
  if (is_object()) return head + fmt::format("{}", static_cast<const void*>(&object()));
  if (is_function()) return head + fmt::format("{}", static_cast<const void*>(&function()));
  if (is_list() && list_kind_ == ListKind::kValues) {
    return head + fmt::format("{}", static_cast<const void*>(&list()));
  }
  if (!is_tuple() && !is_range()) return {};
  std::string text = head + fmt::format("({}", list().size());
  for (const Value& each : list()) {
    const std::optional<std::string> part = each.hash_text(budget);
    if (!part || !budget.spend_bytes(part->size())) return {};
    text += fmt::format(",{}:", part->size()) + *part;
  }
  return text;
}

}  // namespace wideep::jinja
