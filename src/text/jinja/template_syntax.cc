// SPDX-License-Identifier: Apache-2.0
#include "jinja/template_syntax.h"

#include <algorithm>

namespace wideep::jinja {
namespace {

int height_of(const Expression& part) { return part.height; }
int height_of(const ExpressionPtr& part) { return part == nullptr ? 0 : part->height; }
int height_of(const std::pair<std::string, ExpressionPtr>& part) { return height_of(part.second); }
int height_of(const std::pair<ExpressionPtr, ExpressionPtr>& part) {
  return std::max(height_of(part.first), height_of(part.second));
}
template <typename Part>
int height_of(const std::vector<Part>& parts) {
  int highest = 0;
  for (const Part& part : parts) highest = std::max(highest, height_of(part));
  return highest;
}
int height_of(const ArgumentList& list) {
  return std::max(height_of(list.positional), height_of(list.named));
}

template <typename... Parts>
int highest(const Parts&... parts) {
  return std::max({0, height_of(parts)...});
}

// The height of the highest part of a node.
int height_below(const Literal&) { return 0; }
int height_below(const Variable&) { return 0; }
int height_below(const ListLiteral& node) { return highest(node.items); }
int height_below(const DictLiteral& node) { return highest(node.items); }
int height_below(const Attribute& node) { return highest(node.object); }
int height_below(const Item& node) { return highest(node.object, node.index); }
int height_below(const Slice& node) {
  return highest(node.object, node.start, node.stop, node.step);
}
int height_below(const Call& node) { return highest(node.callee, node.arguments); }
int height_below(const Filter& node) { return highest(node.input, node.arguments); }
int height_below(const Test& node) { return highest(node.input, node.arguments); }
int height_below(const Unary& node) { return highest(node.operand); }
int height_below(const Binary& node) { return highest(node.left, node.right); }
int height_below(const Comparison& node) { return highest(node.first, node.rest); }
int height_below(const Choice& node) { return highest(node.condition, node.then, node.otherwise); }

}  // namespace

// The height is kept in each node, because the parser limits it: destruction, parsing and rendering
// are recursive and must not overflow the stack.
Expression::Expression(int at_line, Node its_node)
    : line(at_line),
      height(1 + std::visit([](const auto& each) { return height_below(each); }, its_node)),
      node(std::move(its_node)) {}

// Defined here, so that not every file that includes the header compiles them.
Expression::Expression(Expression&& other) noexcept = default;
Expression& Expression::operator=(Expression&& other) noexcept = default;
Expression::~Expression() = default;

}  // namespace wideep::jinja
