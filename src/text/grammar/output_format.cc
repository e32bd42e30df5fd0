// SPDX-License-Identifier: Apache-2.0
#include "grammar/output_format.h"

#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "grammar/ebnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "tokenizer/utf8.h"

namespace wideep::grammar {
namespace {

Result<JsonStyle> style_of(const OutputFormat& format) {
  if (!format.whitespace) return JsonStyle{};
  if (format.whitespace->empty()) return compact_json();
  auto space = parse_regex(*format.whitespace);
  if (!space.ok()) return space.status().at("whitespace_pattern");
  return JsonStyle{.space = std::move(*space)};
}

Result<Expression> add_choice(const std::vector<std::string>& texts) {
  if (texts.empty()) return invalid_input("expected one text or more");
  std::vector<Expression> all;
  for (const std::string& each : texts) {
    if (!tokenizer::is_valid_utf8(each)) return invalid_input("expected UTF-8");
    all.push_back(text(each));
  }
  return choice(std::move(all));
}

Result<Expression> add(const OutputFormat& format, Rules* rules) {
  using Kind = OutputFormat::Kind;
  switch (format.kind) {
    case Kind::kJsonObject: {
      WIDEEP_TRY_ASSIGN(JsonStyle style, style_of(format));
      return JsonText(rules, std::move(style)).any_object();
    }
    case Kind::kJsonSchema: {
      SchemaOptions options{.allows_more_members = format.allows_more_members};
      WIDEEP_TRY_ASSIGN(options.style, style_of(format));
      return add_json_schema(format.schema, options, rules);
    }
    case Kind::kRegex:
      return parse_regex(format.texts.front());
    case Kind::kChoice:
      return add_choice(format.texts);
    case Kind::kGrammar: {
      WIDEEP_TRY_ASSIGN(const int root, parse_ebnf(format.texts.front(), rules));
      return call(root);
    }
  }
  return nothing();
}

}  // namespace

Result<Expression> add_output(const OutputFormat& format, Rules* rules) {
  auto all = add(format, rules);
  if (!all.ok()) return all.status().at(format.place);
  return all;
}

Result<Grammar> compile_output(const OutputFormat& format, const BuildLimits& limits) {
  Rules rules;
  WIDEEP_TRY_ASSIGN(Expression all, add_output(format, &rules));
  auto grammar = build_grammar(rules, rules.add("answer", std::move(all)), limits);
  if (!grammar.ok()) return grammar.status().at(format.place);
  return grammar;
}

}  // namespace wideep::grammar
