// SPDX-License-Identifier: Apache-2.0
//
// Integers of any size, as Python has them, for the few operations of a template whose numbers
// leave int64. Simple and slow: products and quotients take the product of both sizes.
//
// Thread safety: a value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::jinja {

class WholeNumber {
 public:
  WholeNumber() = default;
  // REQUIRES: "-" or nothing, then decimal digits.
  explicit WholeNumber(std::string_view digits);

  std::string digits() const;
  bool is_zero() const { return limbs_.empty(); }
  bool is_negative() const { return negative_; }
  size_t size() const { return limbs_.size(); }  // about 9 digits each

  WholeNumber operator-() const;
  WholeNumber operator+(const WholeNumber& other) const;
  WholeNumber operator-(const WholeNumber& other) const { return *this + -other; }
  WholeNumber operator*(const WholeNumber& other) const;

  struct Division;
  // Rounds towards −∞, so that the remainder has the sign of the divisor, as in Python. REQUIRES:
  // the divisor is not 0.
  Division divided_by(const WholeNumber& divisor) const;

 private:
  using Limbs = std::vector<uint32_t>;  // of 9 decimal digits, the lowest first; the last is not 0

  WholeNumber(bool negative, Limbs limbs);
  static int compare(const Limbs& a, const Limbs& b);
  static Limbs sum(const Limbs& a, const Limbs& b);
  static Limbs difference(const Limbs& larger, const Limbs& smaller);
  static Limbs scaled(const Limbs& a, uint32_t factor);

  bool negative_ = false;
  Limbs limbs_;
};

struct WholeNumber::Division {
  WholeNumber quotient;
  WholeNumber remainder;
};

}  // namespace wideep::jinja
