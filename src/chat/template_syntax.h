// SPDX-License-Identifier: Apache-2.0
//
// What a template says: its statements and expressions as trees.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "chat/value.h"
#include "wideep/status.h"

namespace wideep::chat {

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
struct NameOf {
  std::string name;
};
struct ListOf {
  std::vector<Expression> items;
};
struct DictOf {
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
struct Binary {  // + - * / // % ** ~ and or
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
  using Node = std::variant<Literal, NameOf, ListOf, DictOf, Attribute, Item, Slice, Call, Filter,
                            Test, Unary, Binary, Comparison, Choice>;

  Expression() = default;
  Expression(int where, Node what);
  Expression(Expression&& other) noexcept;
  Expression& operator=(Expression&& other) noexcept;
  ~Expression();

  int line = 0;
  int height = 1;  // of the tree: 1 for what has no parts
  Node node;
};

// ---- statements ----

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
struct For {
  std::vector<std::string> targets;
  Expression iterable;
  std::optional<Expression> condition;  // for x in … if …
  Block body;
  Block otherwise;  // where there was no element
};
struct Set {  // targets = value, or object.attribute = value
  std::vector<std::string> targets;
  std::string attribute;  // of targets[0], or empty
  Expression value;
};
struct SetBlock {  // {% set name %}…{% endset %}
  std::string target;
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
struct Group {  // {% generation %}: marks what the assistant said; prints its body
  Block body;
};

struct Statement {
  int line = 0;
  std::variant<Text, Print, If, For, Set, SetBlock, FilterBlock, Macro, Break, Continue, Group>
      node;
};

// Errors (invalid input): "line N: …", also for statements that Jinja has and chat templates do not
// need (include, import, extends, block, call, with, autoescape): each is named.
Result<Block> parse_template(std::string_view source);

}  // namespace wideep::chat
