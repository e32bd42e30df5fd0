// SPDX-License-Identifier: Apache-2.0
#include "grammar/constraint.h"

#include <utility>

namespace wideep::grammar {

Constraint::Constraint(Grammar grammar, const Vocabulary& vocabulary, PartMasks& parts)
    : grammar_(std::move(grammar)),
      vocabulary_(vocabulary),
      automaton_(grammar_),
      masks_(vocabulary, parts) {}

void Constraint::follow(std::span<const int32_t> generated, Progress* progress) {
  const std::lock_guard lock(mutex_);
  if (progress->generation != generation_ || progress->tokens > generated.size()) {
    *progress = {.generation = generation_, .state = automaton_.start()};
  }
  while (progress->tokens < generated.size()) take(generated[progress->tokens], progress);
}

Progress Constraint::after(const Progress& progress, int32_t token) {
  const std::lock_guard lock(mutex_);
  Progress next = progress;
  take(token, &next);
  return next;
}

void Constraint::take(int32_t token, Progress* progress) {
  ++progress->tokens;
  if (progress->has_ended || vocabulary_.is_end(token)) {
    progress->has_ended = true;
    return;
  }
  const std::string_view text = vocabulary_.text(token);
  if (text.empty()) progress->state = Automaton::kDead;
  for (const char byte : text) {
    progress->state = automaton_.next(progress->state, static_cast<uint8_t>(byte));
  }
}

bool Constraint::may_end(const Progress& progress) {
  return progress.has_ended || automaton_.accepts(progress.state) ||
         !masks_.any_after(automaton_, progress.state);
}

bool Constraint::allows(const Progress& progress, int32_t token) {
  const std::lock_guard lock(mutex_);
  if (vocabulary_.is_end(token)) return may_end(progress);
  Progress next = progress;
  take(token, &next);
  return !progress.has_ended && next.state != Automaton::kDead;
}

void Constraint::find_allowed(const Progress& progress, int vocab_size, TokenBits* bits) {
  bits->assign((static_cast<size_t>(vocab_size) + 63) / 64, 0);
  const std::lock_guard lock(mutex_);
  if (!progress.has_ended) masks_.allow_after(automaton_, progress.state, bits);
  if (!may_end(progress)) return;
  for (const int32_t token : vocabulary_.end_tokens()) allow(token, bits);
}

void Constraint::begin_step() {
  if (bytes() < kMaxBytes) return;
  automaton_ = Automaton(grammar_);
  masks_.forget();
  ++generation_;
}

}  // namespace wideep::grammar
