// SPDX-License-Identifier: Apache-2.0
#include "jinja/whole_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace wideep::jinja {
namespace {

constexpr uint32_t kBase = 1'000'000'000;
constexpr size_t kDigits = 9;  // of a limb

}  // namespace

WholeNumber::WholeNumber(bool negative, Limbs limbs) : limbs_(std::move(limbs)) {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  negative_ = negative && !limbs_.empty();
}

WholeNumber::WholeNumber(std::string_view digits) {
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  Limbs limbs;
  while (!digits.empty()) {
    const std::string_view part = digits.substr(digits.size() - std::min(digits.size(), kDigits));
    std::from_chars(part.data(), part.data() + part.size(), limbs.emplace_back());
    digits.remove_suffix(part.size());
  }
  *this = WholeNumber(negative, std::move(limbs));
}

std::string WholeNumber::digits() const {
  if (is_zero()) return "0";
  std::string text = (negative_ ? "-" : "") + fmt::format("{}", limbs_.back());
  for (size_t i = limbs_.size() - 1; i-- > 0;) text += fmt::format("{:09}", limbs_[i]);
  return text;
}

int WholeNumber::compare(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

WholeNumber::Limbs WholeNumber::sum(const Limbs& a, const Limbs& b) {
  Limbs all;
  uint32_t carry = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()) || carry > 0; ++i) {
    const uint32_t limb = (i < a.size() ? a[i] : 0) + (i < b.size() ? b[i] : 0) + carry;
    all.push_back(limb % kBase);
    carry = limb / kBase;
  }
  return all;
}

WholeNumber::Limbs WholeNumber::difference(const Limbs& larger, const Limbs& smaller) {
  Limbs all;
  uint32_t borrow = 0;
  for (size_t i = 0; i < larger.size(); ++i) {
    const uint32_t taken = (i < smaller.size() ? smaller[i] : 0) + borrow;
    borrow = larger[i] < taken ? 1 : 0;
    all.push_back(larger[i] + borrow * kBase - taken);
  }
  while (!all.empty() && all.back() == 0) all.pop_back();
  return all;
}

WholeNumber::Limbs WholeNumber::scaled(const Limbs& a, uint32_t factor) {
  Limbs all;
  uint64_t carry = 0;
  for (const uint32_t limb : a) {
    carry += uint64_t{limb} * factor;
    all.push_back(static_cast<uint32_t>(carry % kBase));
    carry /= kBase;
  }
  if (carry > 0) all.push_back(static_cast<uint32_t>(carry));
  while (!all.empty() && all.back() == 0) all.pop_back();
  return all;
}

WholeNumber WholeNumber::operator-() const { return {!negative_, limbs_}; }

WholeNumber WholeNumber::operator+(const WholeNumber& other) const {
  if (negative_ == other.negative_) return {negative_, sum(limbs_, other.limbs_)};
  if (compare(limbs_, other.limbs_) >= 0) return {negative_, difference(limbs_, other.limbs_)};
  return {other.negative_, difference(other.limbs_, limbs_)};
}

WholeNumber WholeNumber::operator*(const WholeNumber& other) const {
  Limbs all;
  for (size_t i = other.limbs_.size(); i-- > 0;) {
    if (!all.empty()) all.insert(all.begin(), 0);  // times kBase
    all = sum(all, scaled(limbs_, other.limbs_[i]));
  }
  return {negative_ != other.negative_, std::move(all)};
}

// Long division. Each limb of the quotient is found by bisection: the largest whose product fits.
WholeNumber::Division WholeNumber::divided_by(const WholeNumber& divisor) const {
  Limbs quotient(limbs_.size()), rest;
  for (size_t i = limbs_.size(); i-- > 0;) {
    if (!rest.empty() || limbs_[i] > 0) rest.insert(rest.begin(), limbs_[i]);
    uint32_t low = 0, high = kBase - 1;
    while (low < high) {
      const uint32_t middle = low + (high - low + 1) / 2;
      if (compare(scaled(divisor.limbs_, middle), rest) <= 0) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    quotient[i] = low;
    rest = difference(rest, scaled(divisor.limbs_, low));
  }
  Division exact{{negative_ != divisor.negative_, std::move(quotient)},
                 {negative_, std::move(rest)}};
  if (!exact.remainder.is_zero() && negative_ != divisor.negative_) {
    exact.quotient = exact.quotient - WholeNumber("1");
    exact.remainder = exact.remainder + divisor;
  }
  return exact;
}

}  // namespace wideep::jinja
