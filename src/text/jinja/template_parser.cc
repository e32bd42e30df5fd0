// SPDX-License-Identifier: Apache-2.0
//
// A recursive descent parser with one function for each level of Jinja's precedence, from the
// lowest: x if c else y; or; and; not; comparisons; + −; ~; * / // %; signs; postfix, then
// filters and tests. Errors are returned at once, so that the first one is reported.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/try.h"
#include "jinja/builtins.h"
#include "jinja/known_names.h"
#include "jinja/template_syntax.h"
#include "jinja/template_tokens.h"

namespace wideep::jinja {
namespace {

// Nested expressions and statements recurse in the parser; the limit bounds its stack.
constexpr int kMaxDepth = 100;
// The height of an expression's tree. Chains such as a + b + … or a | b | … make it high without
// recursion in the parser, but the renderer recurses over it.
constexpr int kMaxHeight = 1000;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Block> run() {
    WIDEEP_TRY_ASSIGN(Block block, parse_block({}));
    return block;
  }

 private:
  // ---- statements ----

  // Parses up to a block tag that begins with one of `ends`, and leaves that tag to the caller.
  Result<Block> parse_block(const std::vector<std::string_view>& ends) {
    const DepthGuard guard(this);
    WIDEEP_TRY(guard.status());
    Block block;
    for (;;) {
      const Token& token = peek();
      if (token.kind == TokenKind::kEnd) {
        if (ends.empty()) return block;
        return complain(fmt::format("expected '{{% {} %}}', found the end", ends.back()));
      }
      if (token.kind == TokenKind::kBlockBegin &&
          std::find(ends.begin(), ends.end(), peek(1).text) != ends.end()) {
        return block;
      }
      WIDEEP_TRY_ASSIGN(Statement statement, parse_statement());
      block.push_back(std::move(statement));
    }
  }

  Result<Statement> parse_statement() {
    const Token token = next();
    if (token.kind == TokenKind::kData) return Statement{token.line, Text{token.text}};
    if (token.kind == TokenKind::kPrintBegin) {
      WIDEEP_TRY_ASSIGN(Expression value, parse_tuple());
      WIDEEP_TRY(expect(TokenKind::kPrintEnd, "}}"));
      return Statement{token.line, Print{std::move(value)}};
    }
    const Token word = next();
    if (word.kind != TokenKind::kName) return unexpected(word, "a statement");
    return parse_tag(word);
  }

  Result<Statement> parse_tag(const Token& word) {
    if (word.text == "if") return parse_if(word.line);
    if (word.text == "for") return parse_for(word.line);
    if (word.text == "set") return parse_set(word.line);
    if (word.text == "macro") return parse_macro(word.line);
    if (word.text == "filter") return parse_filter_block(word.line);
    if (word.text == "generation") return parse_generation(word.line);
    if (word.text == "break" || word.text == "continue") {
      if (loops_ == 0) return complain(fmt::format("'{}' outside of a loop", word.text));
      WIDEEP_TRY(end_tag());
      if (word.text == "break") return Statement{word.line, Break{}};
      return Statement{word.line, Continue{}};
    }
    constexpr std::string_view kKnown[] = {"break", "continue", "filter", "for", "generation",
                                           "if",    "macro",    "raw",    "set"};
    return complain(not_used("statement", word.text, kKnown));
  }

  Result<Statement> parse_if(int line) {
    If all;
    for (;;) {
      WIDEEP_TRY_ASSIGN(Expression condition, parse_tuple());
      WIDEEP_TRY(end_tag());
      WIDEEP_TRY_ASSIGN(Block body, parse_block({"elif", "else", "endif"}));
      all.branches.emplace_back(std::move(condition), std::move(body));
      next();  // "{%" of the tag at which parse_block() stopped
      if (next().text != "elif") break;
    }
    if (tokens_[at_ - 1].text == "else") {
      WIDEEP_TRY(end_tag());
      WIDEEP_TRY_ASSIGN(all.otherwise, parse_block({"endif"}));
      next();
      next();
    }
    WIDEEP_TRY(end_tag());
    return Statement{line, std::move(all)};
  }

  Result<Statement> parse_for(int line) {
    For loop;
    WIDEEP_TRY_ASSIGN(loop.target, parse_target());
    WIDEEP_TRY(expect_name("in"));
    // Not parse_expression(), which would take the "if" of the loop's condition for "x if c".
    WIDEEP_TRY_ASSIGN(loop.iterable, parse_or());
    if (take_name("if")) {
      WIDEEP_TRY_ASSIGN(loop.condition, parse_expression());
    }
    if (is_name("recursive")) return complain("chat templates use no recursive loops");
    WIDEEP_TRY(end_tag());
    ++loops_;
    WIDEEP_TRY_ASSIGN(loop.body, parse_block({"else", "endfor"}));
    --loops_;
    next();
    if (next().text == "else") {
      WIDEEP_TRY(end_tag());
      WIDEEP_TRY_ASSIGN(loop.otherwise, parse_block({"endfor"}));
      next();
      next();
    }
    WIDEEP_TRY(end_tag());
    return Statement{line, std::move(loop)};
  }

  Result<Statement> parse_set(int line) {
    WIDEEP_TRY_ASSIGN(Target target, parse_target());
    std::string attribute;
    if (take_operator(".")) {
      if (target.name.empty()) return complain("'set' with an attribute takes a single target");
      WIDEEP_TRY_ASSIGN(attribute, name());
    }
    if (take_operator("=")) {
      WIDEEP_TRY_ASSIGN(Expression value, parse_tuple());
      WIDEEP_TRY(end_tag());
      return Statement{line, Set{std::move(target), std::move(attribute), std::move(value)}};
    }
    if (target.name.empty() || !attribute.empty()) return unexpected(peek(), "'='");
    WIDEEP_TRY_ASSIGN(Expression value, parse_filters(Expression{line, Variable{kBodyText}}));
    WIDEEP_TRY_ASSIGN(Block body, parse_body("endset"));
    return Statement{line, SetBlock{std::move(target.name), std::move(value), std::move(body)}};
  }

  // Parses parameters after "(", up to and including ")".
  Result<std::vector<Parameter>> parse_parameters() {
    std::vector<Parameter> parameters;
    while (!take_operator(")")) {
      if (!parameters.empty()) WIDEEP_TRY(expect(TokenKind::kOperator, ","));
      Parameter parameter;
      WIDEEP_TRY_ASSIGN(parameter.name, name());
      if (take_operator("=")) {
        WIDEEP_TRY_ASSIGN(parameter.fallback, parse_expression());
      }
      parameters.push_back(std::move(parameter));
    }
    return parameters;
  }

  Result<Statement> parse_macro(int line) {
    Macro macro;
    WIDEEP_TRY_ASSIGN(macro.name, name());
    WIDEEP_TRY(expect(TokenKind::kOperator, "("));
    WIDEEP_TRY_ASSIGN(macro.parameters, parse_parameters());
    // A 'break' in the body of a macro cannot end a loop around its definition.
    const int loops = std::exchange(loops_, 0);
    WIDEEP_TRY_ASSIGN(macro.body, parse_body("endmacro"));
    loops_ = loops;
    return Statement{line, std::move(macro)};
  }

  Result<Statement> parse_filter_block(int line) {
    FilterBlock block;
    WIDEEP_TRY_ASSIGN(block.name, filter_name());
    if (take_operator("(")) {
      WIDEEP_TRY_ASSIGN(block.arguments, parse_arguments());
    }
    WIDEEP_TRY_ASSIGN(block.body, parse_body("endfilter"));
    return Statement{line, std::move(block)};
  }

  Result<Statement> parse_generation(int line) {
    WIDEEP_TRY_ASSIGN(Block body, parse_body("endgeneration"));
    return Statement{line, Group{std::move(body)}};
  }

  // Parses the end of the tag, the body, and the tag that ends the body.
  Result<Block> parse_body(std::string_view end) {
    WIDEEP_TRY(end_tag());
    WIDEEP_TRY_ASSIGN(Block body, parse_block({end}));
    next();
    next();
    if (end == "endmacro" && peek().kind == TokenKind::kName)
      next();  // "{% endmacro name %}" is allowed
    WIDEEP_TRY(end_tag());
    return body;
  }

  // name, or "a, b", or "a, (b, c)".
  Result<Target> parse_target() {
    WIDEEP_TRY_ASSIGN(Target first, parse_target_part());
    if (!is_operator(",")) return first;
    Target all;
    all.parts.push_back(std::move(first));
    // A comma may end the list.
    while (take_operator(",") &&
           ((peek().kind == TokenKind::kName && !is_name("in")) || is_operator("("))) {
      WIDEEP_TRY_ASSIGN(Target part, parse_target_part());
      all.parts.push_back(std::move(part));
    }
    return all;
  }

  Result<Target> parse_target_part() {
    if (!take_operator("(")) {
      WIDEEP_TRY_ASSIGN(std::string target, name());
      return Target{std::move(target), {}};
    }
    const DepthGuard guard(this);
    WIDEEP_TRY(guard.status());
    WIDEEP_TRY_ASSIGN(Target target, parse_target());
    WIDEEP_TRY(expect(TokenKind::kOperator, ")"));
    return target;
  }

  // ---- expressions ----

  // One expression, or several with commas between them, which make a tuple.
  Result<Expression> parse_tuple() {
    const int line = peek().line;
    WIDEEP_TRY_ASSIGN(Expression first, parse_expression());
    if (!is_operator(",")) return first;
    ListLiteral list{{}, ListKind::kTuple};
    list.items.push_back(std::move(first));
    while (take_operator(",") && !ends_tuple()) {
      WIDEEP_TRY_ASSIGN(Expression item, parse_expression());
      list.items.push_back(std::move(item));
    }
    return Expression{line, std::move(list)};
  }

  bool ends_tuple() const {
    return peek().kind == TokenKind::kBlockEnd || peek().kind == TokenKind::kPrintEnd ||
           is_operator(")");
  }

  Result<Expression> parse_expression() {
    const DepthGuard guard(this);
    WIDEEP_TRY(guard.status());
    WIDEEP_TRY_ASSIGN(Expression value, parse_or());
    while (is_name("if")) {
      const int line = next().line;
      Choice choice;
      choice.then = boxed(std::move(value));
      WIDEEP_TRY_ASSIGN(Expression condition, parse_or());
      choice.condition = boxed(std::move(condition));
      if (take_name("else")) {
        WIDEEP_TRY_ASSIGN(Expression otherwise, parse_expression());
        choice.otherwise = boxed(std::move(otherwise));
      }
      WIDEEP_TRY_ASSIGN(value, link(line, std::move(choice)));
    }
    return value;
  }

  using Level = Result<Expression> (Parser::*)();

  // Parses "operand op operand op …" with left-associative operators.
  Result<Expression> parse_left_to_right(std::initializer_list<std::string_view> operations,
                                         Level operand) {
    WIDEEP_TRY_ASSIGN(Expression left, (this->*operand)());
    while (std::find(operations.begin(), operations.end(), peek().text) != operations.end() &&
           (peek().kind == TokenKind::kOperator || peek().kind == TokenKind::kName)) {
      const Token operation = next();
      WIDEEP_TRY_ASSIGN(Expression right, (this->*operand)());
      WIDEEP_TRY_ASSIGN(left, link(operation.line, Binary{operation.text, boxed(std::move(left)),
                                                          boxed(std::move(right))}));
    }
    return left;
  }

  Result<Expression> parse_or() { return parse_left_to_right({"or"}, &Parser::parse_and); }
  Result<Expression> parse_and() { return parse_left_to_right({"and"}, &Parser::parse_not); }

  Result<Expression> parse_not() {
    if (!is_name("not")) return parse_comparison();
    const DepthGuard guard(this);
    WIDEEP_TRY(guard.status());
    const int line = next().line;
    WIDEEP_TRY_ASSIGN(Expression operand, parse_not());
    return Expression{line, Unary{"not", boxed(std::move(operand))}};
  }

  Result<Expression> parse_comparison() {
    WIDEEP_TRY_ASSIGN(Expression first, parse_sum());
    Comparison comparison;
    const int line = peek().line;
    for (std::string operation = take_comparison(); !operation.empty();
         operation = take_comparison()) {
      WIDEEP_TRY_ASSIGN(Expression operand, parse_sum());
      comparison.rest.emplace_back(std::move(operation), boxed(std::move(operand)));
    }
    if (comparison.rest.empty()) return first;
    comparison.first = boxed(std::move(first));
    return Expression{line, std::move(comparison)};
  }

  std::string take_comparison() {
    constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
    if (is_name("not") && peek(1).kind == TokenKind::kName && peek(1).text == "in") {
      next();
      next();
      return "not in";
    }
    const bool sign = peek().kind == TokenKind::kOperator &&
                      std::find(std::begin(kOperators), std::end(kOperators), peek().text) !=
                          std::end(kOperators);
    return sign || is_name("in") ? next().text : "";
  }

  Result<Expression> parse_sum() { return parse_left_to_right({"+", "-"}, &Parser::parse_joined); }
  Result<Expression> parse_joined() { return parse_left_to_right({"~"}, &Parser::parse_product); }
  Result<Expression> parse_product() {
    WIDEEP_TRY_ASSIGN(Expression product,
                      parse_left_to_right({"*", "/", "//", "%"}, &Parser::parse_filtered));
    if (is_operator("**")) return complain("operator '**': is not one that chat templates use");
    return product;
  }

  // Filters apply to the value with its sign, as in Jinja: -1 | abs is 1.
  Result<Expression> parse_filtered() {
    WIDEEP_TRY_ASSIGN(Expression value, parse_signed());
    return parse_filters(std::move(value));
  }

  Result<Expression> parse_signed() {
    if (!is_operator("-") && !is_operator("+")) {
      WIDEEP_TRY_ASSIGN(Expression value, parse_primary());
      return parse_postfix(std::move(value));
    }
    const DepthGuard guard(this);
    WIDEEP_TRY(guard.status());
    const Token sign = next();
    WIDEEP_TRY_ASSIGN(Expression operand, parse_signed());
    return Expression{sign.line, Unary{sign.text, boxed(std::move(operand))}};
  }

  Result<Expression> parse_primary() {
    const Token token = next();
    switch (token.kind) {
      case TokenKind::kName:
        return Expression{token.line, name_or_constant(token.text)};
      case TokenKind::kInteger:
        return integer(token);
      case TokenKind::kFloat:
        return Expression{token.line, Literal{std::strtod(token.text.c_str(), nullptr)}};
      case TokenKind::kString: {
        std::string text = token.text;
        // As in Python, adjacent string literals are one string.
        while (peek().kind == TokenKind::kString) text += next().text;
        return Expression{token.line, Literal{std::move(text)}};
      }
      default:
        if (token.text == "(") return parse_parentheses(token.line);
        if (token.text == "[") return parse_list(token.line);
        if (token.text == "{") return parse_dict(token.line);
        return unexpected(token, "a value");
    }
  }

  Expression::Node name_or_constant(const std::string& name) {
    if (name == "true" || name == "True") return Literal{true};
    if (name == "false" || name == "False") return Literal{false};
    if (name == "none" || name == "None") return Literal{};
    return Variable{name};
  }

  static Result<Expression> integer(const Token& token) {
    const Result<Value> value = Value::whole(token.text);
    if (value.ok()) return Expression{token.line, Literal{*value}};
    return value.status().at(fmt::format("line {}", token.line));
  }

  Result<Expression> parse_parentheses(int line) {
    if (take_operator(")")) return Expression{line, ListLiteral{{}, ListKind::kTuple}};
    WIDEEP_TRY_ASSIGN(Expression value, parse_tuple());
    WIDEEP_TRY(expect(TokenKind::kOperator, ")"));
    return value;
  }

  Result<Expression> parse_list(int line) {
    ListLiteral list;
    while (!take_operator("]")) {
      if (!list.items.empty()) WIDEEP_TRY(expect(TokenKind::kOperator, ","));
      if (take_operator("]")) break;
      WIDEEP_TRY_ASSIGN(Expression item, parse_expression());
      list.items.push_back(std::move(item));
    }
    return Expression{line, std::move(list)};
  }

  Result<Expression> parse_dict(int line) {
    DictLiteral dict;
    while (!take_operator("}")) {
      if (!dict.items.empty()) WIDEEP_TRY(expect(TokenKind::kOperator, ","));
      if (take_operator("}")) break;
      WIDEEP_TRY_ASSIGN(Expression key, parse_expression());
      WIDEEP_TRY(expect(TokenKind::kOperator, ":"));
      WIDEEP_TRY_ASSIGN(Expression value, parse_expression());
      dict.items.emplace_back(boxed(std::move(key)), boxed(std::move(value)));
    }
    return Expression{line, std::move(dict)};
  }

  Result<Expression> parse_postfix(Expression value) {
    for (;;) {
      const int line = peek().line;
      if (take_operator(".")) {
        const Token token = next();
        if (token.kind == TokenKind::kInteger) {  // x.0 is x[0]
          WIDEEP_TRY_ASSIGN(Expression index, integer(token));
          WIDEEP_TRY_ASSIGN(value,
                            link(line, Item{boxed(std::move(value)), boxed(std::move(index))}));
          continue;
        }
        if (token.kind != TokenKind::kName) return unexpected(token, "the name of an attribute");
        WIDEEP_TRY_ASSIGN(value, link(line, Attribute{boxed(std::move(value)), token.text}));
      } else if (take_operator("[")) {
        WIDEEP_TRY_ASSIGN(value, parse_subscript(std::move(value), line));
      } else if (take_operator("(")) {
        WIDEEP_TRY_ASSIGN(value, parse_call(std::move(value), line));
      } else {
        return value;
      }
    }
  }

  Result<Expression> parse_call(Expression callee, int line) {
    Call call{boxed(std::move(callee)), {}};
    WIDEEP_TRY_ASSIGN(call.arguments, parse_arguments());
    return link(line, std::move(call));
  }

  Result<Expression> parse_subscript(Expression object, int line) {
    // The parts between colons: one is an index, two or three are a slice; null where a part is
    // absent.
    std::vector<ExpressionPtr> parts(1);
    while (!take_operator("]")) {
      if (take_operator(":")) {
        parts.emplace_back();
      } else if (parts.back() == nullptr) {
        WIDEEP_TRY_ASSIGN(Expression part, parse_expression());
        parts.back() = boxed(std::move(part));
      } else {
        return unexpected(peek(), "']'");
      }
    }
    if (parts.size() == 1 && parts[0] != nullptr) {
      return link(line, Item{boxed(std::move(object)), std::move(parts[0])});
    }
    if (parts.size() == 1 || parts.size() > 3) return complain("expected an index or a slice");
    parts.resize(3);
    return link(line, Slice{boxed(std::move(object)), std::move(parts[0]), std::move(parts[1]),
                            std::move(parts[2])});
  }

  // Parses arguments after "(", up to and including ")".
  Result<ArgumentList> parse_arguments() {
    ArgumentList all;
    bool first = true;
    while (!take_operator(")")) {
      if (!first) WIDEEP_TRY(expect(TokenKind::kOperator, ","));
      first = false;
      if (take_operator(")")) break;
      if (is_operator("*") || is_operator("**"))
        return complain("'*' before an argument is not supported");
      const bool named = peek().kind == TokenKind::kName && peek(1).kind == TokenKind::kOperator &&
                         peek(1).text == "=";
      std::string key = named ? next().text : "";
      if (named) next();
      WIDEEP_TRY_ASSIGN(Expression value, parse_expression());
      if (named) {
        all.named.emplace_back(std::move(key), boxed(std::move(value)));
      } else if (!all.named.empty()) {
        return complain("a positional argument follows a named argument");
      } else {
        all.positional.push_back(std::move(value));
      }
    }
    return all;
  }

  Result<Expression> parse_filters(Expression value) {
    for (;;) {
      const int line = peek().line;
      if (take_operator("|")) {
        Filter filter{boxed(std::move(value)), {}, {}};
        WIDEEP_TRY_ASSIGN(filter.name, filter_name());
        if (take_operator("(")) {
          WIDEEP_TRY_ASSIGN(filter.arguments, parse_arguments());
        }
        WIDEEP_TRY_ASSIGN(value, link(line, std::move(filter)));
      } else if (take_name("is")) {
        WIDEEP_TRY_ASSIGN(value, parse_test(std::move(value), line));
      } else if (take_operator("(")) {
        WIDEEP_TRY_ASSIGN(value, parse_call(std::move(value), line));
      } else {
        return value;
      }
    }
  }

  // A test may have one argument without parentheses: x is divisibleby 3.
  Result<Expression> parse_test(Expression input, int line) {
    Test test{boxed(std::move(input)), {}, {}, take_name("not")};
    WIDEEP_TRY_ASSIGN(test.name, test_name());
    if (take_operator("(")) {
      WIDEEP_TRY_ASSIGN(test.arguments, parse_arguments());
    } else if (begins_argument()) {
      WIDEEP_TRY_ASSIGN(Expression argument, parse_primary());
      WIDEEP_TRY_ASSIGN(argument, parse_postfix(std::move(argument)));
      test.arguments.positional.push_back(std::move(argument));
    }
    return link(line, std::move(test));
  }

  // Whether the next token can begin an argument; these words continue the expression instead.
  bool begins_argument() const {
    const Token& token = peek();
    if (token.kind == TokenKind::kName) {
      constexpr std::string_view kOthers[] = {"else", "or", "and", "if", "is", "in", "not"};
      return std::find(std::begin(kOthers), std::end(kOthers), token.text) == std::end(kOthers);
    }
    return token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
           token.kind == TokenKind::kFloat || is_operator("[") || is_operator("{");
  }

  // ---- helpers ----

  class DepthGuard {
   public:
    explicit DepthGuard(Parser* parser) : parser_(parser) { ++parser_->depth_; }
    ~DepthGuard() { --parser_->depth_; }
    DepthGuard(const DepthGuard&) = delete;
    DepthGuard& operator=(const DepthGuard&) = delete;
    Status status() const {
      if (parser_->depth_ <= kMaxDepth) return {};
      return parser_->complain(fmt::format("nested deeper than {}", kMaxDepth));
    }

   private:
    Parser* parser_;
  };

  // Makes a node that extends a chain, within kMaxHeight.
  static Result<Expression> link(int line, Expression::Node node) {
    Expression chain(line, std::move(node));
    if (chain.height <= kMaxHeight) return chain;
    return invalid_input(
        fmt::format("line {}: an expression of more than {} chained parts", line, kMaxHeight));
  }

  static ExpressionPtr boxed(Expression expression) {
    return std::make_unique<Expression>(std::move(expression));
  }

  // Past the end this is the last token, kEnd, so that callers need no check.
  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token next() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is_operator(std::string_view text) const {
    return peek().kind == TokenKind::kOperator && peek().text == text;
  }
  bool is_name(std::string_view text) const {
    return peek().kind == TokenKind::kName && peek().text == text;
  }
  bool take_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    next();
    return true;
  }
  bool take_name(std::string_view text) {
    if (!is_name(text)) return false;
    next();
    return true;
  }

  Status expect(TokenKind kind, std::string_view text) {
    if (peek().kind != kind || peek().text != text) {
      return unexpected(peek(), fmt::format("'{}'", text));
    }
    next();
    return {};
  }
  Status expect_name(std::string_view text) {
    if (take_name(text)) return {};
    return unexpected(peek(), fmt::format("'{}'", text));
  }
  Result<std::string> name() {
    const Token token = next();
    if (token.kind != TokenKind::kName) return unexpected(token, "a name");
    return token.text;
  }
  // Unknown names are refused here, before anything is rendered.
  Result<std::string> filter_name() {
    WIDEEP_TRY_ASSIGN(std::string found, name());
    if (!is_filter(found)) return complain(unknown_filter(found).message());
    return found;
  }
  Result<std::string> test_name() {
    WIDEEP_TRY_ASSIGN(std::string found, name());
    if (!is_test(found)) return complain(unknown_test(found).message());
    return found;
  }
  Status end_tag() { return expect(TokenKind::kBlockEnd, "%}"); }

  Status complain(const std::string& what) const {
    return invalid_input(fmt::format("line {}: {}", peek().line, what));
  }
  static Status unexpected(const Token& token, const std::string& expected) {
    const std::string found =
        token.kind == TokenKind::kEnd ? "the end" : fmt::format("'{}'", token.text);
    return invalid_input(
        fmt::format("line {}: expected {}, found {}", token.line, expected, found));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // number of loops around the current statement
};

}  // namespace

Result<Block> parse_template(std::string_view source) {
  WIDEEP_TRY_ASSIGN(std::vector<Token> tokens, tokenize_template(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace wideep::jinja
