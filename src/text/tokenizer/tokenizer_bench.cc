// SPDX-License-Identifier: Apache-2.0
//
// Encoding and decoding speed in bytes of text per second, on text of one kind at a time. The
// tokenizers are the golden ones; WIDEEP_BENCH_TOKENIZER names another tokenizer.json instead.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tokenizer/tokenizer.h"

namespace wideep::tokenizer {
namespace {

std::string path_of(const std::string& name) {
  if (const char* path = std::getenv("WIDEEP_BENCH_TOKENIZER")) return path;
  const auto source = std::filesystem::path(__FILE__).parent_path();
  return source / "../../tests/golden/tokenizers" / name;
}

std::string text_of(const std::string& kind) {
  std::string unit = "The router sends each token to 8 of 256 experts, and it's balanced.\n";
  if (kind == "chinese") unit = "专家并行把每一层的专家分布到许多节点上，令牌在节点之间往返。";
  if (kind == "code")
    unit = "    for (int i = 0; i < n; ++i) {\n\t\tsum += values[i] * 2.5;\n    }\n";
  if (kind == "spaces") unit = "                                                  ";
  if (kind == "one_word") unit = "abcdefghijklmnopqrstuvwxyz";
  std::string text;
  while (text.size() < (1u << 20)) text += unit;
  return text;
}

void encode(benchmark::State& state, const std::string& name, const std::string& kind) {
  const Result<Tokenizer> tokenizer = Tokenizer::read(path_of(name));
  if (!tokenizer.ok()) return state.SkipWithError(tokenizer.status().message().c_str());
  const std::string text = text_of(kind);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->encode(text));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void decode(benchmark::State& state, const std::string& name, const std::string& kind) {
  const Result<Tokenizer> tokenizer = Tokenizer::read(path_of(name));
  if (!tokenizer.ok()) return state.SkipWithError(tokenizer.status().message().c_str());
  const std::string text = text_of(kind);
  const std::vector<int32_t> ids = tokenizer->encode(text);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->decode(ids));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

BENCHMARK_CAPTURE(encode, qwen3_english, "qwen3", "english");
BENCHMARK_CAPTURE(encode, qwen3_chinese, "qwen3", "chinese");
BENCHMARK_CAPTURE(encode, qwen3_code, "qwen3", "code");
BENCHMARK_CAPTURE(encode, qwen3_spaces, "qwen3", "spaces");
BENCHMARK_CAPTURE(encode, qwen3_one_word, "qwen3", "one_word");
BENCHMARK_CAPTURE(encode, deepseek_english, "deepseek_v3", "english");
BENCHMARK_CAPTURE(encode, deepseek_chinese, "deepseek_v3", "chinese");
BENCHMARK_CAPTURE(encode, deepseek_code, "deepseek_v3", "code");
BENCHMARK_CAPTURE(decode, qwen3_english, "qwen3", "english");
BENCHMARK_CAPTURE(decode, qwen3_chinese, "qwen3", "chinese");

}  // namespace
}  // namespace wideep::tokenizer
