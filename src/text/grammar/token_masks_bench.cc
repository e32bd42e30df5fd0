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

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <numeric>
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

OutputFormat schema_of(const char* text, const char* name) {
  return {.kind = OutputFormat::Kind::kJsonSchema,
          .schema = *formats::parse_exact_json(text, "schema"),
          .place = name};
}

OutputFormat regex_of(const char* pattern, const char* name) {
  return {.kind = OutputFormat::Kind::kRegex, .texts = {pattern}, .place = name};
}

// A small language, with white space, comments, strings and expressions.
constexpr const char* kLanguage = R"GBNF(
root ::= ws statement*
statement ::= "let " ws name ws "=" ws expr ";" ws | "if " ws expr block ("else " ws block)?
  | "while " ws expr block | "fn " ws name "(" ws (name ws ("," ws name ws)*)? ")" ws block
  | "return " ws expr ";" ws | expr ";" ws
block ::= "{" ws statement* "}" ws
expr ::= unary (op ws unary)*
op ::= "+" | "-" | "*" | "/" | "%" | "==" | "!=" | "<" "="? | ">" "="? | "&&" | "||"
unary ::= [-!]? primary (("(" ws (expr ("," ws expr)*)? ")" | "[" ws expr "]" | "." name) ws)*
primary ::= number ws | string ws | name ws | "(" ws expr ")" ws
name ::= [a-zA-Z_] [a-zA-Z0-9_]*
number ::= [0-9]+ ("." [0-9]+)?
string ::= "\"" ([^"\\\n] | "\\" [nrt"\\])* "\""
ws ::= ([ \t\n] | "//" [^\n]* "\n")*
)GBNF";

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
          "required": ["name", "age", "email", "note", "tags", "address"]})",
                       "schema: a person");
    case 2:
      return schema_of(R"({"$defs": {"node": {"type": "object", "properties": {"value": {"anyOf":
          [{"type": "number"}, {"type": "string"}]}, "children": {"type": "array", "items": {"$ref":
          "#/$defs/node"}}}, "required": ["value", "children"]}}, "$ref": "#/$defs/node"})",
                       "schema: a tree");
    case 3:
      return regex_of("[A-Z][a-z]+( [a-z]+){3,20}\\.", "regex: a sentence");
    case 4:
      return regex_of("[\\w.]+@[\\w.]+\\.[a-z]{2,6}|\\+\\d{1,3} \\(\\d{3}\\) \\d{3}-\\d{4}",
                      "regex: an address or a number");
    case 5:
      return regex_of("[^\\n]{10,200}\\n(- [^\\n]{5,80}\\n){2,9}", "regex: a list");
    case 6: {
      std::mt19937 rng(1);
      OutputFormat format{.kind = OutputFormat::Kind::kChoice, .place = "choice of 1,000"};
      while (format.texts.size() < 1000) {
        std::string text;
        for (size_t i = 5 + rng() % 40; i > 0; --i) text += " aeinorst"[rng() % 9];
        format.texts.push_back(std::move(text));
      }
      return format;
    }
    case 7:
      return {.kind = OutputFormat::Kind::kGrammar,
              .texts = {"root ::= expr\nexpr ::= term ([-+*/] term)*\n"
                        "term ::= [0-9]+ | \"(\" expr \")\" | [a-z]+ \"(\" expr \")\"\n"},
              .place = "grammar: sums"};
    default:
      return {.kind = OutputFormat::Kind::kGrammar,
              .texts = {kLanguage},
              .place = "grammar: a language"};
  }
}
constexpr int64_t kLastFormat = 8;

// Answers of at most 200 tokens, drawn of those that are allowed. Adds the microseconds of the
// grammar alone, token by token.
void generate(Constraint& constraint, unsigned seed, std::vector<double>* us) {
  std::mt19937 rng(seed);
  std::vector<int32_t> answer;
  Progress progress;
  TokenBits bits;
  for (int i = 0; i < 200 && !progress.has_ended; ++i) {
    const int64_t start = base::thread_cpu_ns();
    constraint.follow(answer, &progress);
    constraint.find_allowed(progress, vocabulary().size(), &bits);
    us->push_back(static_cast<double>(base::thread_cpu_ns() - start) * 1e-3);
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < vocabulary().size(); ++token) {
      if (is_allowed(bits, token)) allowed.push_back(token);
    }
    answer.push_back(allowed[rng() % allowed.size()]);
  }
}

void BM_CompileFormat(benchmark::State& state) {
  const OutputFormat format = format_of(state.range(0));
  size_t bytes = 0;
  for (auto _ : state) bytes = compile_output(format)->encode().size();
  state.SetLabel(format.place);
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(BM_CompileFormat)->DenseRange(0, kLastFormat)->Unit(benchmark::kMicrosecond);

// us: processor time of a token, on average; of the slowest of two, of a hundred, of all.
enum class Known { kNothing, kPrepared, kAnswers };
void generate_answers(benchmark::State& state, Known known) {
  const OutputFormat format = format_of(state.range(0));
  const Grammar grammar = *compile_output(format);
  std::vector<double> us;
  unsigned seed = 1;
  double prepare_ms = 0;
  for (auto _ : state) {
    PartMasks parts;
    Constraint constraint(grammar, vocabulary(), parts);
    if (known == Known::kPrepared) {
      const int64_t start = base::thread_cpu_ns();
      prepare_masks(grammar, vocabulary(), parts, [] { return true; });
      prepare_ms += static_cast<double>(base::thread_cpu_ns() - start) * 1e-6;
    }
    if (known != Known::kAnswers) {
      generate(constraint, seed++, &us);
      continue;
    }
    std::vector<double> before;
    for (; seed <= 16; ++seed) generate(constraint, seed, &before);
    for (; seed <= 32; ++seed) generate(constraint, seed, &us);
    state.counters["MB"] = static_cast<double>(constraint.bytes() + parts.bytes()) * 1e-6;
  }
  state.SetLabel(format.place);
  std::ranges::sort(us);
  const auto count = static_cast<double>(us.size());
  state.counters["us"] = std::accumulate(us.begin(), us.end(), 0.0) / count;
  state.counters["p50_us"] = us[us.size() / 2];
  state.counters["p99_us"] = us[us.size() * 99 / 100];
  state.counters["most_us"] = us.back();
  state.counters["tokens"] = count;
  if (known == Known::kPrepared) state.counters["prepare_ms"] = prepare_ms / 16;
}
void BM_FirstAnswer(benchmark::State& state) { generate_answers(state, Known::kNothing); }
void BM_FirstPrepared(benchmark::State& state) { generate_answers(state, Known::kPrepared); }
void BM_AnswersAgain(benchmark::State& state) { generate_answers(state, Known::kAnswers); }
BENCHMARK(BM_FirstAnswer)
    ->DenseRange(0, kLastFormat)
    ->Iterations(16)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_FirstPrepared)
    ->DenseRange(0, kLastFormat)
    ->Iterations(16)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_AnswersAgain)
    ->DenseRange(0, kLastFormat)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

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
