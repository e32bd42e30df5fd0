// SPDX-License-Identifier: Apache-2.0
//
// The syntax tree of a template: statements and expressions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/value.h"
#include "wideep/status.h"

namespace wideep::jinja {

// ---- expressions ----

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct ArgumentList {
  std::vector<Expression> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Literal {
  Value value;
};
struct Variable {
  std::string name;
};
struct ListLiteral {
  std::vector<Expression> items;
  ListKind kind = ListKind::kList;  // or a tuple
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
struct Attribute {  // object.name
  ExpressionPtr object;
  std::string name;
};
struct Item {  // object[index]
  ExpressionPtr object;
  ExpressionPtr index;
};
struct Slice {  // object[start:stop:step], each may be null
  ExpressionPtr object;
  ExpressionPtr start;
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct Call {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct Filter {  // input | name(arguments)
  ExpressionPtr input;
  std::string name;
  ArgumentList arguments;
};
struct Test {  // input is [not] name(arguments)
  ExpressionPtr input;
  std::string name;
  ArgumentList arguments;
  bool negated = false;
};
struct Unary {  // "-", "+", "not"
  std::string operation;
  ExpressionPtr operand;
};
struct Binary {  // + - * / // % ~ and or
  std::string operation;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Comparison {  // first op1 e1 op2 e2 …: == != < <= > >= in, "not in"
  ExpressionPtr first;
  std::vector<std::pair<std::string, ExpressionPtr>> rest;
};
struct Choice {  // then if condition else otherwise; otherwise may be null
  ExpressionPtr condition;
  ExpressionPtr then;
  ExpressionPtr otherwise;
};

struct Expression {
  using Node = std::variant<Literal, Variable, ListLiteral, DictLiteral, Attribute, Item, Slice,
                            Call, Filter, Test, Unary, Binary, Comparison, Choice>;

  Expression() = default;
  Expression(int at_line, Node its_node);
  Expression(Expression&& other) noexcept;
  Expression& operator=(Expression&& other) noexcept;
  ~Expression();

  int line = 0;
  int height = 1;  // of the tree; 1 for an expression without parts
  Node node;
};

// ---- statements ----

// The name of the variable that holds the text of a {% set %} block; no template can write it.
inline constexpr const char* kBodyText = "{body}";

struct Statement;
using Block = std::vector<Statement>;

struct Text {
  std::string text;
};
struct Print {
  Expression value;
};
struct If {
  std::vector<std::pair<Expression, Block>> branches;
  Block otherwise;
};
// What is assigned to: a name, or several targets, to which the elements of the value go.
struct Target {
  std::string name;           // empty: `parts` are the targets
  std::vector<Target> parts;  // may hold several themselves: for a, (b, c) in …
};

struct For {
  Target target;
  Expression iterable;
  std::optional<Expression> condition;  // for x in … if …
  Block body;
  Block otherwise;  // executed if there are no elements
};
struct Set {  // target = value, or name.attribute = value
  Target target;
  std::string attribute;  // of the target that is set; empty: none
  Expression value;
};
struct SetBlock {  // {% set name | filters %}…{% endset %}
  std::string target;
  Expression value;  // of the variable kBodyText, which holds the body's text
  Block body;
};
struct FilterBlock {  // {% filter name(…) %}…{% endfilter %}
  std::string name;
  ArgumentList arguments;
  Block body;
};
struct Parameter {
  std::string name;
  std::optional<Expression> fallback;
};
struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
};
struct Break {};
struct Continue {};
struct Group {  // {% generation %}: marks the assistant's text for training; prints its body
  Block body;
};

struct Statement {
  int line = 0;
  std::variant<Text, Print, If, For, Set, SetBlock, FilterBlock, Macro, Break, Continue, Group>
      node;
};

// Parses a template. Errors (invalid input): "line N: …", also for what chat templates do not use
// of Jinja, by name. Thread safe.
Result<Block> parse_template(std::string_view source);

}  // namespace wideep::jinja
