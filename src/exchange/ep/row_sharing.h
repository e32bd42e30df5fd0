// SPDX-License-Identifier: Apache-2.0
//
// Exact load on a node: ranks that would have little to compute take over rows of ranks that would
// have much, in one call. For that they borrow an expert: they read its weights where they are, in
// memory that all ranks of the node see, instead of moving it. So no replica is needed, and nothing
// is copied.
//
// All ranks compute the same loans from the same counts, before anything is sent: rows go straight
// to the rank that computes them, and return from there.
//
// To borrow costs the rank that does it a pass over the expert's weights. So fewer rows than
// kMinRows are not worth a loan, and iterations in which ranks have few rows have none.
//
// Thread safety: one thread. Allocates nothing after the first calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ep/buffer_layout.h"

namespace wideep::ep {

// Rows of an expert that `to` computes in one of its borrowed slots instead of `from`.
struct Loan {
  int32_t expert = 0;
  int32_t from = 0, to = 0;  // ranks
  int64_t rows = 0;
};

// The rows of an expert that a rank computes, in a slot of its own.
struct RankRows {
  int32_t expert = 0;
  int32_t rank = 0;
  int64_t rows = 0;
};

class RowSharing {
 public:
  static constexpr int64_t kMinRows = 8;
  // Ranks are loaded at most this much beyond the mean of their node, if loans can achieve it.
  static constexpr int64_t kSlackPart = 64;  // of the mean

  // Whether a call with so many rows of all ranks has loans. REQUIRES: num_slices 1.
  static bool pays(const DispatchShape& shape, int64_t num_rows) {
    return shape.borrowed_slots > 0 && num_rows >= min_rows(shape);
  }
  // The rows of such a call; 0: no call has loans.
  static int64_t min_rows(const DispatchShape& shape) {
    return shape.borrowed_slots > 0 ? shape.ep_size * 8 * kMinRows : 0;
  }

  explicit RowSharing(const DispatchShape& shape);

  // The loans of a call, in the order in which they were found. rows: of all ranks, at most one
  // element for an expert and rank. A rank borrows an expert only if it has no rows of it
  // otherwise. Valid until the next call.
  std::span<const Loan> share(std::span<const RankRows> rows);
  // Rows of each rank with these loans, [ep_size].
  std::span<const int64_t> loads() const { return loads_; }

 private:
  struct Part {
    int32_t expert;
    int64_t rows;
  };
  void share_node(int first, int end);
  bool lend(int from, int to, int64_t limit, int64_t mean);
  bool has(int rank, int32_t expert) const;

  DispatchShape shape_;
  std::vector<int64_t> loads_;
  std::vector<std::vector<Part>> parts_;  // [ep_size] rows that the rank has, borrowed ones too
  std::vector<int> num_borrowed_;         // [ep_size]
  std::vector<char> is_settled_;          // [ep_size] nothing can be done about its load any more
  std::vector<Loan> loans_;
};

}  // namespace wideep::ep
