// SPDX-License-Identifier: Apache-2.0
//
// What a token of an answer with a grammar costs: following it, and finding all tokens that may
// come next. Over a vocabulary of 200,000 tokens that are made up, or that of a tiktoken file:
//
//   WIDEEP_VOCABULARY=o200k_base.tiktoken grammar_bench
//
// The first time: nothing is known of the grammar, or of any other. Again: other answers have been
// there before.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_time.h"
#include "formats/json_parse.h"
#include "grammar/constraint.h"
#include "grammar/output_format.h"

namespace wideep::grammar {
namespace {

std::string from_base64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

// Words with and without a space before them, numbers, marks, and characters of several bytes, as
// vocabularies have them.
std::vector<std::string> made_up_tokens(size_t size) {
  std::mt19937 rng(1);
  const auto below = [&](size_t limit) { return rng() % limit; };
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const std::string marks = "\"',.:;{}[]()<>/\\|-_=+*&^%$#@!?`~\n\t ";
  while (tokens.size() < size) {
    std::string token;
    const size_t kind = below(100);
    if (kind < 55 || kind >= 97) {
      if (below(2) == 0) token = " ";
      for (size_t i = 1 + below(9); i > 0; --i) token += static_cast<char>('a' + below(26));
      if (kind >= 97) token += marks[below(marks.size())];
    } else if (kind < 60) {
      for (size_t i = 1 + below(3); i > 0; --i) token += static_cast<char>('0' + below(10));
    } else if (kind < 66) {
      for (size_t i = 1 + below(4); i > 0; --i) token += marks[below(marks.size())];
    } else {
      for (size_t i = 1 + below(3); i > 0; --i) {
        token += static_cast<char>(0xe3 + below(6));
        token += static_cast<char>(0x80 + below(64));
        token += static_cast<char>(0x80 + below(64));
      }
    }
    tokens.push_back(token);
  }
  return tokens;
}

const Vocabulary& vocabulary() {
  static const Vocabulary kVocabulary = [] {
    std::vector<std::string> tokens;
    if (const char* path = std::getenv("WIDEEP_VOCABULARY")) {
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        tokens.push_back(from_base64(line.substr(0, line.find(' '))));
      }
    } else {
      tokens = made_up_tokens(200'000);
    }
    tokens.emplace_back();
    const auto end = static_cast<int32_t>(tokens.size()) - 1;
    return Vocabulary(std::move(tokens), {end});
  }();
  return kVocabulary;
}

OutputFormat schema_of(const char* text) {
  return {.kind = OutputFormat::Kind::kJsonSchema,
          .schema = *formats::parse_exact_json(text, "schema"),
          .place = "schema"};
}

OutputFormat format_of(int64_t number) {
  switch (number) {
    case 0:
      return {.kind = OutputFormat::Kind::kJsonObject, .place = "json_object"};
    case 1:
      return schema_of(R"({"type": "object", "properties": {
          "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
          "email": {"type": "string", "format": "email"}, "note": {"type": "string", "maxLength": 80},
          "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 5},
          "address": {"type": "object", "properties": {"street": {"type": "string"}, "zip":
          {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["street", "zip"]}},
          "required": ["name", "age", "email", "note", "tags", "address"]})");
    case 2:
      return schema_of(R"({"$defs": {"node": {"type": "object", "properties": {"value": {"anyOf":
          [{"type": "number"}, {"type": "string"}]}, "children": {"type": "array", "items": {"$ref":
          "#/$defs/node"}}}, "required": ["value", "children"]}}, "$ref": "#/$defs/node"})");
    case 3:
      return {.kind = OutputFormat::Kind::kRegex,
              .texts = {"[A-Z][a-z]+( [a-z]+){3,20}\\."},
              .place = "regex"};
    default:
      return {.kind = OutputFormat::Kind::kGrammar,
              .texts = {"root ::= expr\nexpr ::= term ([-+*/] term)*\n"
                        "term ::= [0-9]+ | \"(\" expr \")\" | [a-z]+ \"(\" expr \")\"\n"},
              .place = "grammar"};
  }
}

struct Cost {
  double us = 0, most_us = 0;
  int tokens = 0;
};

// Answers of at most 200 tokens, drawn of those that are allowed; the time of the grammar alone.
Cost generate(Constraint& constraint, unsigned seed, Cost cost) {
  std::mt19937 rng(seed);
  std::vector<int32_t> answer;
  Progress progress;
  TokenBits bits;
  for (int i = 0; i < 200 && !progress.has_ended; ++i) {
    const int64_t start = base::thread_cpu_ns();
    constraint.follow(answer, &progress);
    constraint.find_allowed(progress, vocabulary().size(), &bits);
    const double us = static_cast<double>(base::thread_cpu_ns() - start) * 1e-3;
    cost.us += us;
    cost.most_us = std::max(cost.most_us, us);
    ++cost.tokens;
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < vocabulary().size(); ++token) {
      if (is_allowed(bits, token)) allowed.push_back(token);
    }
    answer.push_back(allowed[rng() % allowed.size()]);
  }
  return cost;
}

void BM_CompileFormat(benchmark::State& state) {
  const OutputFormat format = format_of(state.range(0));
  size_t bytes = 0;
  for (auto _ : state) bytes = compile_output(format)->encode().size();
  state.SetLabel(format.place);
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(BM_CompileFormat)->DenseRange(0, 4)->Unit(benchmark::kMicrosecond);

// us: processor time of a token, on average; most_us: of the slowest one.
void generate_answers(benchmark::State& state, bool again) {
  const OutputFormat format = format_of(state.range(0));
  const Grammar grammar = *compile_output(format);
  Cost cost;
  for (auto _ : state) {
    PartMasks parts;
    Constraint constraint(grammar, vocabulary(), parts);
    if (!again) {
      cost = generate(constraint, 1, cost);
      continue;
    }
    for (unsigned seed = 1; seed <= 16; ++seed) generate(constraint, seed, {});
    for (unsigned seed = 17; seed <= 32; ++seed) cost = generate(constraint, seed, cost);
    state.counters["MB"] = static_cast<double>(constraint.bytes() + parts.bytes()) * 1e-6;
  }
  state.SetLabel(format.place);
  state.counters["us"] = cost.us / cost.tokens;
  state.counters["most_us"] = cost.most_us;
}
void BM_FirstAnswer(benchmark::State& state) { generate_answers(state, false); }
void BM_AnswersAgain(benchmark::State& state) { generate_answers(state, true); }
BENCHMARK(BM_FirstAnswer)->DenseRange(0, 4)->Iterations(5)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_AnswersAgain)->DenseRange(0, 4)->Iterations(1)->Unit(benchmark::kMillisecond);

void BM_BuildVocabulary(benchmark::State& state) {
  std::vector<std::string> tokens;
  for (int i = 0; i < vocabulary().size(); ++i) tokens.emplace_back(vocabulary().text(i));
  for (auto _ : state) benchmark::DoNotOptimize(Vocabulary(tokens, {0}));
  state.counters["tokens"] = vocabulary().size();
  state.counters["MB"] = static_cast<double>(vocabulary().trie().bytes()) * 1e-6;
}
BENCHMARK(BM_BuildVocabulary)->Iterations(3)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace wideep::grammar
