// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "formats/json_parse.h"
#include "grammar/automaton.h"
#include "grammar/output_format.h"

namespace {

using wideep::grammar::Automaton;
using wideep::grammar::OutputFormat;

// Low, so that thousands of inputs can be tried in a second.
constexpr wideep::grammar::BuildLimits kLimits = {.states = 1 << 11, .steps = 1 << 14};

// Follows bytes that may come, as the input says, for a while.
void follow(wideep::grammar::Grammar grammar, std::string_view choices) {
  Automaton automaton(std::move(grammar));
  Automaton::State state = automaton.start();
  for (const char choice : choices) {
    constexpr size_t kManyItems = 64;
    if (automaton.items(state).size() > kManyItems) return;
    auto byte = static_cast<uint8_t>(choice);
    Automaton::State next = Automaton::kDead;
    for (int i = 0; i < 256 && next == Automaton::kDead; ++i, ++byte) {
      next = automaton.next(state, byte);
    }
    // Every beginning can go on to a whole text.
    if (next == Automaton::kDead) {
      WIDEEP_CHECK(automaton.accepts(state));
      return;
    }
    state = next;
  }
}

}  // namespace

// The first byte says what the text is. It becomes a grammar, or is refused with a message.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  OutputFormat format{.texts = {std::string(text)}, .place = "field"};
  switch (data[0] % 3) {
    case 0: {
      format.kind = OutputFormat::Kind::kJsonSchema;
      auto schema = wideep::formats::parse_exact_json(text, "schema", 512);
      if (!schema.ok()) return 0;
      format.schema = std::move(*schema);
      break;
    }
    case 1:
      format.kind = OutputFormat::Kind::kRegex;
      break;
    default:
      format.kind = OutputFormat::Kind::kGrammar;
  }
  auto grammar = wideep::grammar::compile_output(format, kLimits);
  if (grammar.ok()) follow(std::move(*grammar), text.substr(0, 16));
  return 0;
}
