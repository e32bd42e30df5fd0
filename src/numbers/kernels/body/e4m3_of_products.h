// SPDX-License-Identifier: Apache-2.0
//
// Tables of the e4m3 code of a product of two bf16, indexed by their fractions. Rounds to the
// nearest, ties to even.
#pragma once

#include <array>
#include <cstdint>

namespace wideep::kernels {

// The table for the fraction of one factor.
struct alignas(64) E4m3OfProducts {
  // Indexed by the fraction of the other factor: the code's fraction (0 … 16, with carry) when the
  // code's exponent is the sum of both exponents.
  uint8_t codes[128] = {};
  // The least fraction of the other factor for which the product is at least 2; 128: none.
  uint8_t min = 128;
};

constexpr E4m3OfProducts e4m3_of_products(unsigned fraction) {
  E4m3OfProducts of;
  for (unsigned other = 128; other-- > 0;) {
    const unsigned product = (128 + fraction) * (128 + other);  // in 2^-14
    const bool two = product >= 1u << 15;
    const unsigned dropped = two ? 12 : 11;
    const unsigned last = product >> dropped & 1;
    const unsigned rounded = (product + (1u << (dropped - 1)) - 1 + last) >> dropped;
    of.codes[other] = static_cast<uint8_t>(rounded - 8 + (two ? 8 : 0));
    if (two) of.min = static_cast<uint8_t>(other);
  }
  return of;
}

inline constexpr std::array<E4m3OfProducts, 128> kE4m3OfProducts = [] {
  std::array<E4m3OfProducts, 128> all;
  for (unsigned fraction = 0; fraction < all.size(); ++fraction) {
    all[fraction] = e4m3_of_products(fraction);
  }
  return all;
}();

}  // namespace wideep::kernels
