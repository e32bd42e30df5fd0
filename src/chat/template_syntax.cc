// SPDX-License-Identifier: Apache-2.0
#include "chat/template_syntax.h"

#include <algorithm>

namespace wideep::chat {
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

int below(const Literal&) { return 0; }
int below(const NameOf&) { return 0; }
int below(const ListOf& node) { return highest(node.items); }
int below(const DictOf& node) { return highest(node.items); }
int below(const Attribute& node) { return highest(node.object); }
int below(const Item& node) { return highest(node.object, node.index); }
int below(const Slice& node) { return highest(node.object, node.start, node.stop, node.step); }
int below(const Call& node) { return highest(node.callee, node.arguments); }
int below(const Filter& node) { return highest(node.input, node.arguments); }
int below(const Test& node) { return highest(node.input, node.arguments); }
int below(const Unary& node) { return highest(node.operand); }
int below(const Binary& node) { return highest(node.left, node.right); }
int below(const Comparison& node) { return highest(node.first, node.rest); }
int below(const Choice& node) { return highest(node.condition, node.then, node.otherwise); }

}  // namespace

Expression::Expression(int where, Node what)
    : line(where),
      height(1 + std::visit([](const auto& each) { return below(each); }, what)),
      node(std::move(what)) {}

// Here, not in the header: every file that holds one would compile them anew.
Expression::Expression(Expression&& other) noexcept = default;
Expression& Expression::operator=(Expression&& other) noexcept = default;
Expression::~Expression() = default;

}  // namespace wideep::chat
