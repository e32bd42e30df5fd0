// SPDX-License-Identifier: Apache-2.0
// What drafting costs, per step of so many requests:
//
//   draft/<drafter>/<text>/requests:N
//
// ngram: patterns of 3 tokens, 5 drafts, a public pool that begins with a million patterns; suffix:
// 8 drafts, with a million tokens of earlier answers; auto: the same, with lengths that pay.
// random: texts that never repeat (the usual case of prose), periodic: texts that always do.
#include <benchmark/benchmark.h>

#include <random>
#include <string>

#include "engine/speculation/speculation.h"

namespace wideep::engine {
namespace {

constexpr int kVocabulary = 150'000;

SpeculationOptions options_of(const std::string& drafter) {
  const bool is_ngram = drafter == "ngram";
  return {
      .method = is_ngram ? SpeculationOptions::Method::kNgram : SpeculationOptions::Method::kSuffix,
      .max_draft_len = is_ngram ? 5 : 8,
      .ngram = {.max_matching_ngram_size = 3},
      .max_pool_bytes = size_t{1} << 30,
      .is_adaptive = drafter == "auto"};
}

class Texts {
 public:
  Texts(bool periodic, int requests) : periodic_(periodic) {
    for (int i = 0; i < requests; ++i) {
      Sequence& sequence = sequences_.emplace_back();
      for (int t = 0; t < 200; ++t) sequence.tokens.push_back(next(i, t));
      sequence.request = {.index = i, .prompt = sequence.tokens, .max_tokens = 1 << 30};
    }
  }
  int32_t next(int request, int place) {
    return periodic_ ? (request * 31 + place % 40) % kVocabulary
                     : static_cast<int32_t>(rng_() % kVocabulary);
  }
  std::vector<Sequence>& all() { return sequences_; }

 private:
  bool periodic_;
  std::mt19937 rng_{1};
  std::vector<Sequence> sequences_;
};

// A million tokens that came before.
void fill(Speculation& speculation, std::mt19937& rng) {
  for (int text = 0; text < 500; ++text) {
    Sequence sequence;
    for (int t = 0; t < 2000; ++t) {
      sequence.tokens.push_back(static_cast<int32_t>(rng() % kVocabulary));
    }
    sequence.request = {.index = 1'000'000 + text, .prompt = sequence.tokens, .max_tokens = 2};
    const std::vector<int32_t> last = {1};
    const Speculation::Continuation one{.sequence = &sequence, .tokens = last};
    speculation.draft(std::span(&one, 1));
    speculation.end(sequence.request.index);
  }
}

void bench_draft(benchmark::State& state, const std::string& drafter, bool periodic) {
  const auto requests = static_cast<int>(state.range(0));
  std::mt19937 rng(2);
  Speculation speculation(options_of(drafter), requests, 128, 8);
  fill(speculation, rng);
  Texts texts(periodic, requests);
  std::vector<std::vector<int32_t>> tokens(static_cast<size_t>(requests));
  int place = 200;
  for (auto _ : state) {
    state.PauseTiming();
    std::vector<Speculation::Continuation> step;
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = {texts.next(static_cast<int>(i), place)};
      step.push_back({.sequence = &texts.all()[i], .tokens = tokens[i]});
    }
    speculation.observe(requests, 0.01);
    state.ResumeTiming();
    benchmark::DoNotOptimize(speculation.draft(step));
    state.PauseTiming();
    for (size_t i = 0; i < tokens.size(); ++i) {
      texts.all()[i].tokens.push_back(tokens[i][0]);
    }
    ++place;
    state.ResumeTiming();
  }
}

void add(const char* drafter) {
  for (const bool periodic : {false, true}) {
    benchmark::RegisterBenchmark(
        (std::string("draft/") + drafter + (periodic ? "/periodic" : "/random")).c_str(),
        [=](benchmark::State& state) { bench_draft(state, drafter, periodic); })
        ->ArgName("requests")
        ->Arg(1)
        ->Arg(8)
        ->Arg(32)
        ->Arg(256)
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(400);
  }
}

const bool kAdded = [] {
  for (const char* drafter : {"ngram", "suffix", "auto"}) add(drafter);
  return true;
}();

}  // namespace
}  // namespace wideep::engine
