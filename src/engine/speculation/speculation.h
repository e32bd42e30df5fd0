// SPDX-License-Identifier: Apache-2.0
//
// Speculation of one rank: after a step it drafts what may follow the tokens of each request, and
// decides how much of it the next step verifies.
//
// Ranks that compute the same requests must draft alike: everything here depends on the order of
// the calls alone.
//
// Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/request.h"
#include "engine/speculation/drafter.h"

namespace wideep::engine {

struct SpeculationOptions {
  enum class Method { kNone, kNgram, kSuffix };

  Method method = Method::kNone;
  int max_draft_len = 0;  // tokens of a request in a step
  NgramOptions ngram = {};
  bool is_public_pool = true;
  size_t max_pool_bytes = size_t{64} << 20;
  // Above so many requests in a step nothing is drafted.
  std::optional<int> max_concurrency = {};
  // Batch size → draft length, at most max_draft_len: the entry with the largest size that the
  // step's requests reach. Empty: max_draft_len.
  std::map<int, int> draft_len_schedule = {};
  // Nothing is drafted any more once the mean acceptance length of the last acceptance_window
  // completed requests is below the threshold (TensorRT-LLM).
  std::optional<int> acceptance_window = {};
  double acceptance_length_threshold = 0.0;
  // For tests: another drafter than the method's.
  std::function<std::unique_ptr<Drafter>()> make_drafter = {};

  bool is_on() const { return method != Method::kNone; }
};

class Speculation {
 public:
  // most_running: requests at the same time. REQUIRES: options.is_on().
  Speculation(const SpeculationOptions& options, int most_running);

  // A step begins to draft for `batch_size` requests.
  void begin_step(int batch_size);
  // What may follow the sequence's tokens and those behind them, `more`, that the step has yielded.
  std::vector<int32_t> draft(const Sequence& sequence, std::span<const int32_t> more);
  // A step has yielded `tokens` for a request, at least one.
  void note(int request, int tokens);
  // The request has ended. No effect if it is not known.
  void end(int request);

  size_t bytes() const { return drafter_->bytes(); }
  // Too few drafts were right: nothing is drafted any more.
  bool has_given_up() const { return gave_up_; }

 private:
  struct Known {
    size_t seen = 0;    // tokens that the drafter has
    int64_t steps = 0;  // that have yielded tokens
    int64_t tokens = 0;
  };
  int most_drafts(const Sequence& sequence, std::span<const int32_t> more) const;

  SpeculationOptions options_;
  std::unique_ptr<Drafter> drafter_;
  int length_ = 0;  // of this step's drafts, at most
  std::unordered_map<int, Known> requests_;
  std::deque<double> acceptance_lengths_;  // of the last completed requests
  bool gave_up_ = false;
};

}  // namespace wideep::engine
