// SPDX-License-Identifier: Apache-2.0
//
// Walks the syntax tree recursively: execute() runs a block of statements, which append to out_,
// and evaluate() computes an expression. Templates come from model files and their input from
// requests, so every resource is bounded: time by the budget, output by its size, the stack by
// depth_, and values by their nesting. Work is charged to the budget before it is done.
#include "jinja/template_renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/try.h"
#include "jinja/arguments.h"
#include "jinja/arithmetic.h"
#include "jinja/builtins.h"
#include "jinja/known_names.h"
#include "jinja/slices.h"
#include "jinja/template_globals.h"

namespace wideep::jinja {
namespace {

constexpr int64_t kMaxSteps = 3'000'000;
constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr int kMaxCalls = 100;
// The number of nested expressions, through all macro calls. A block of statements takes as much
// stack as kBlockDepth expressions. Threads have a stack of 8 MiB; this takes half of it under
// sanitizers.
constexpr int kMaxNested = 1500;
constexpr int kBlockDepth = 6;

// The variables of a loop or macro, which end with it. Shared, because a macro refers to the scope
// that it is defined in.
struct Scope {
  Names names;
  std::shared_ptr<Scope> outer;
};

// How a statement ended, for the loop around it.
enum class Flow { kNext, kBreak, kContinue };

Status raise(const Arguments& arguments) {
  ArgumentReader reader("raise_exception", arguments);
  const Value message = reader.value("message");
  WIDEEP_TRY(reader.status());
  const std::string text = to_text(message, arguments.budget);
  WIDEEP_TRY(arguments.budget.status());
  return invalid_input(fmt::format("the template raised: {}", text));
}

Result<bool> compares(const std::string& operation, const Value& a, const Value& b,
                      Budget& budget) {
  if (operation == "==") return equal(a, b, budget);
  if (operation == "!=") return !equal(a, b, budget);
  if (operation == "in") return is_in(a, b, budget);
  if (operation == "not in") {
    WIDEEP_TRY_ASSIGN(const bool within, is_in(a, b, budget));
    return !within;
  }
  if (a.is_undefined() || b.is_undefined()) return unsupported(operation, a, b);
  WIDEEP_TRY_ASSIGN(const std::partial_ordering order, compare(a, b, budget));
  if (operation == "<") return order < 0;
  if (operation == "<=") return order <= 0;
  return operation == ">" ? order > 0 : order >= 0;
}

class Renderer {
 public:
  explicit Renderer(Names names) : scope_(std::make_shared<Scope>()) {
    names.emplace("range", Function(range_of));
    names.emplace("dict", Function([](const Arguments& arguments) -> ValueResult {
                    WIDEEP_TRY_ASSIGN(Dict dict, dict_of(arguments));
                    return Value(std::move(dict));
                  }));
    names.emplace("namespace", Function([this](const Arguments& arguments) {
                    return new_namespace(arguments);
                  }));
    for (const char* name : {"cycler", "joiner", "lipsum"}) {  // Jinja's others
      names.emplace(name, Function([name](const Arguments&) -> ValueResult {
                      constexpr std::string_view kKnown[] = {"dict", "namespace", "raise_exception",
                                                             "range", "strftime_now"};
                      return invalid_input(not_used("function", name, kKnown));
                    }));
    }
    names.emplace("raise_exception", Function([](const Arguments& arguments) -> ValueResult {
                    return raise(arguments);
                  }));
    scope_->names = std::move(names);
  }
  // Namespaces may refer to each other in cycles, which shared_ptr would never free, or in long
  // chains, whose recursive destruction would overflow the stack. So all are emptied first.
  ~Renderer() {
    for (const auto& each : namespaces_) each->attributes = Dict();
  }
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  Result<std::string> run(const Block& block) {
    WIDEEP_TRY_ASSIGN([[maybe_unused]] const Flow flow, execute(block));
    return std::move(out_);
  }

 private:
  // Counts a block or expression while it runs.
  class DepthGuard {
   public:
    DepthGuard(int* depth, int levels) : depth_(depth), levels_(levels) { *depth_ += levels_; }
    ~DepthGuard() { *depth_ -= levels_; }
    DepthGuard(const DepthGuard&) = delete;
    DepthGuard& operator=(const DepthGuard&) = delete;

   private:
    int* depth_;
    int levels_;
  };

  ValueResult new_namespace(const Arguments& arguments) {
    WIDEEP_TRY_ASSIGN(Dict attributes, dict_of(arguments));
    namespaces_.push_back(
        std::make_shared<Object>(Object{Object::Kind::kNamespace, std::move(attributes)}));
    return Value(namespaces_.back(), 0);
  }

  // ---- statements ----

  Result<Flow> execute(const Block& block) {
    const DepthGuard guard(&depth_, kBlockDepth);
    for (const Statement& statement : block) {
      WIDEEP_TRY(count_step(statement.line));
      WIDEEP_TRY_ASSIGN(
          const Flow flow,
          std::visit([&](const auto& node) { return run_statement(node, statement.line); },
                     statement.node));
      // Functions return early once the budget is spent: their results must not be used.
      if (budget_.spent()) return at(statement.line, budget_.status().message());
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Status count_step(int line) {
    if (!budget_.spend(1)) return at(line, budget_.status().message());
    if (depth_ > kMaxNested) return at(line, fmt::format("nested deeper than {}", kMaxNested));
    if (out_.size() > kMaxBytes) return at(line, "the template makes too much output");
    return {};
  }

  void print(const std::string& text) {
    if (budget_.spend_bytes(text.size())) out_ += text;
  }

  Result<Flow> run_statement(const Text& node, int) {
    print(node.text);
    return Flow::kNext;
  }

  Result<Flow> run_statement(const Print& node, int) {
    WIDEEP_TRY_ASSIGN(const Value value, evaluate(node.value));
    print(to_text(value, budget_));
    return Flow::kNext;
  }

  Result<Flow> run_statement(const If& node, int) {
    for (const auto& [condition, body] : node.branches) {
      WIDEEP_TRY_ASSIGN(const Value value, evaluate(condition));
      if (value.truth()) return execute(body);
    }
    return execute(node.otherwise);
  }

  Result<Flow> run_statement(const Break&, int) { return Flow::kBreak; }
  Result<Flow> run_statement(const Continue&, int) { return Flow::kContinue; }

  Result<Flow> run_statement(const Group& node, int) {
    ScopeGuard guard(this);
    return execute(node.body);
  }

  Result<Flow> run_statement(const For& node, int line) {
    WIDEEP_TRY_ASSIGN(const Value iterable, evaluate(node.iterable));
    // A list without a condition is iterated in place: a copy would charge a step for each element,
    // which makes nested loops over a long chat too expensive.
    const bool unchanged = iterable.is_list() && !node.condition;
    List made;
    if (!unchanged) {
      WIDEEP_TRY_ASSIGN(made, at_line(line, elements_of(iterable, budget_)));
    }
    if (node.condition) {
      WIDEEP_TRY_ASSIGN(made, filtered_elements(node, made, line));
    }
    const List& all = unchanged ? iterable.list() : made;
    if (all.empty()) return execute(node.otherwise);
    // One object for all iterations, whose attributes change: a template may keep a reference to
    // `loop`.
    const auto state = std::make_shared<Object>(Object{Object::Kind::kLoop, {}});
    state->attributes.set("depth",
                          int64_t{1});  // of calls of recursive loops, which there are none of
    state->attributes.set("depth0", int64_t{0});
    for (size_t i = 0; i < all.size(); ++i) {
      WIDEEP_TRY(count_step(line));
      ScopeGuard guard(this);
      set_loop_variables(all, i, state->attributes);
      // `loop` refers to two elements (previtem, nextitem), so it is nested as deeply as the
      // iterable.
      scope_->names.insert_or_assign("loop", Value(state, iterable.depth()));
      WIDEEP_TRY(assign(node.target, all[i], line));
      WIDEEP_TRY_ASSIGN(const Flow flow, execute(node.body));
      if (flow == Flow::kBreak) break;
    }
    return Flow::kNext;
  }

  Result<List> filtered_elements(const For& node, const List& all, int line) {
    List kept;
    for (const Value& each : all) {
      WIDEEP_TRY(count_step(line));
      ScopeGuard guard(this);
      WIDEEP_TRY(assign(node.target, each, line));
      WIDEEP_TRY_ASSIGN(const Value fits, evaluate(*node.condition));
      if (fits.truth()) kept.push_back(each);
    }
    return kept;
  }

  static void set_loop_variables(const List& all, size_t i, Dict& loop) {
    const auto at = static_cast<int64_t>(i), size = static_cast<int64_t>(all.size());
    loop.set("index", at + 1);
    loop.set("index0", at);
    loop.set("revindex", size - at);
    loop.set("revindex0", size - at - 1);
    loop.set("first", at == 0);
    loop.set("last", at + 1 == size);
    loop.set("length", size);
    loop.set("previtem", i > 0 ? all[i - 1] : Value(Undefined{"there is no previous item"}));
    loop.set("nextitem",
             i + 1 < all.size() ? all[i + 1] : Value(Undefined{"there is no next item"}));
    loop.set("cycle", Function([i](const Arguments& arguments) -> ValueResult {
               const List& values = arguments.positional;
               if (values.empty()) return invalid_input("cycle: no items");
               return values[i % values.size()];
             }));
  }

  Result<Flow> run_statement(const Set& node, int line) {
    WIDEEP_TRY_ASSIGN(Value value, evaluate(node.value));
    if (node.attribute.empty()) {
      WIDEEP_TRY(assign(node.target, value, line));
      return Flow::kNext;
    }
    const std::string& name = node.target.name;
    const Value object = look_up(name);
    if (!object.is_object() || object.object().kind != Object::Kind::kNamespace) {
      return at(line, fmt::format("'{}' is not a namespace()", name));
    }
    object.object().attributes.set(node.attribute, std::move(value));
    return Flow::kNext;
  }

  Result<Flow> run_statement(const SetBlock& node, int) {
    WIDEEP_TRY_ASSIGN(Captured body, capture(node.body));
    if (body.flow != Flow::kNext) return body.flow;
    WIDEEP_TRY_ASSIGN(Value value, with_body_text(std::move(body.text), node.value));
    scope_->names.insert_or_assign(node.target, std::move(value));
    return Flow::kNext;
  }

  ValueResult with_body_text(std::string text, const Expression& expression) {
    ScopeGuard guard(this);
    scope_->names.insert_or_assign(kBodyText, std::move(text));
    return evaluate(expression);
  }

  Result<Flow> run_statement(const FilterBlock& node, int line) {
    WIDEEP_TRY_ASSIGN(Captured body, capture(node.body));
    if (body.flow != Flow::kNext) return body.flow;
    WIDEEP_TRY_ASSIGN(const Arguments arguments, evaluate(node.arguments));
    WIDEEP_TRY_ASSIGN(const Value value,
                      at_line(line, apply_filter(node.name, std::move(body.text), arguments)));
    print(to_text(value, budget_));
    return Flow::kNext;
  }

  Result<Flow> run_statement(const Macro& node, int line) {
    scope_->names.insert_or_assign(node.name, macro_value(node, line));
    return Flow::kNext;
  }

  // A weak pointer, because the scope holds the macro: a shared one would be a cycle.
  Value macro_value(const Macro& node, int line) {
    return Function([this, &node, line, defined_in = std::weak_ptr<Scope>(scope_)](
                        const Arguments& arguments) -> ValueResult {
      return call_macro(node, defined_in, arguments, line);
    });
  }

  // A macro sees its parameters and the variables at its definition, not those of its caller.
  ValueResult call_macro(const Macro& macro, const std::weak_ptr<Scope>& defined_in,
                         const Arguments& arguments, int line) {
    if (calls_ >= kMaxCalls) {
      return at(line, fmt::format("macro calls are nested deeper than {}", calls_));
    }
    std::shared_ptr<Scope> scope = defined_in.lock();
    if (scope == nullptr) {
      return at(line,
                fmt::format("the macro '{}' is called after the loop or macro that defines it "
                            "has ended",
                            macro.name));
    }
    const std::shared_ptr<Scope> caller = std::exchange(scope_, std::move(scope));
    std::string outer = std::exchange(out_, "");
    ++calls_;
    const Result<Flow> flow = run_macro(macro, arguments, line);
    --calls_;
    scope_ = caller;
    std::string text = std::exchange(out_, std::move(outer));
    if (!flow.ok()) return flow.status();
    return text;
  }

  Result<Flow> run_macro(const Macro& macro, const Arguments& arguments, int line) {
    ScopeGuard guard(this);
    WIDEEP_TRY(bind(macro, arguments, line));
    return execute(macro.body);
  }

  Status bind(const Macro& macro, const Arguments& arguments, int line) {
    ArgumentReader reader(macro.name, arguments);
    for (const Parameter& parameter : macro.parameters) {
      const Value* given = reader.take(parameter.name);
      Value value =
          given != nullptr
              ? *given
              : Value(Undefined{fmt::format("parameter '{}' was not provided", parameter.name)});
      // Evaluated in the macro's scope: a default may refer to the parameters before it.
      if (given == nullptr && parameter.fallback) {
        WIDEEP_TRY_ASSIGN(value, evaluate(*parameter.fallback));
      }
      scope_->names.insert_or_assign(parameter.name, std::move(value));
    }
    const Status status = reader.status();
    return status.ok() ? status : at(line, status.message());
  }

  // The output of a body. If flow is not kNext ('break' or 'continue'), the text must be dropped.
  struct Captured {
    Flow flow;
    std::string text;
  };
  Result<Captured> capture(const Block& body) {
    std::string outer = std::exchange(out_, "");
    ScopeGuard guard(this);
    const Result<Flow> flow = execute(body);
    std::string text = std::exchange(out_, std::move(outer));
    if (!flow.ok()) return flow.status();
    return Captured{*flow, std::move(text)};
  }

  Status assign(const Target& target, const Value& value, int line) {
    if (!target.name.empty()) {
      scope_->names.insert_or_assign(target.name, value);
      return {};
    }
    WIDEEP_TRY_ASSIGN(const List all, at_line(line, elements_of(value, budget_)));
    if (all.size() != target.parts.size()) {
      return at(line, fmt::format("expected {} values, found {}", target.parts.size(), all.size()));
    }
    for (size_t i = 0; i < all.size(); ++i) WIDEEP_TRY(assign(target.parts[i], all[i], line));
    return {};
  }

  // ---- expressions ----

  ValueResult evaluate(const Expression& expression) {
    const DepthGuard guard(&depth_, 1);
    WIDEEP_TRY(count_step(expression.line));
    WIDEEP_TRY_ASSIGN(Value value,
                      std::visit([&](const auto& node) { return value_of(node, expression.line); },
                                 expression.node));
    if (budget_.spent()) return at(expression.line, budget_.status().message());
    // Every new value comes from an expression, so that this check bounds the recursion of all code
    // that walks values.
    if (value.depth() > kMaxValueDepth) {
      return at(expression.line, fmt::format("a value is nested deeper than {}", kMaxValueDepth));
    }
    return value;
  }

  // A null expression has the value none.
  ValueResult evaluate(const ExpressionPtr& expression) {
    return expression == nullptr ? Value() : evaluate(*expression);
  }

  Result<Arguments> evaluate(const ArgumentList& list) {
    Arguments arguments(budget_);
    for (const Expression& each : list.positional) {
      WIDEEP_TRY_ASSIGN(Value value, evaluate(each));
      arguments.positional.push_back(std::move(value));
    }
    for (const auto& [name, each] : list.named) {
      WIDEEP_TRY_ASSIGN(Value value, evaluate(each));
      arguments.named.emplace_back(name, std::move(value));
    }
    return arguments;
  }

  ValueResult value_of(const Literal& node, int) { return node.value; }
  ValueResult value_of(const Variable& node, int) { return look_up(node.name); }

  ValueResult value_of(const ListLiteral& node, int) {
    List list;
    for (const Expression& each : node.items) {
      WIDEEP_TRY_ASSIGN(Value value, evaluate(each));
      list.push_back(std::move(value));
    }
    return Value(std::move(list), node.kind);
  }

  ValueResult value_of(const DictLiteral& node, int line) {
    Dict dict;
    for (const auto& [key_of, each] : node.items) {
      WIDEEP_TRY_ASSIGN(const Value key, evaluate(key_of));
      WIDEEP_TRY_ASSIGN(Value value, evaluate(each));
      WIDEEP_TRY_ASSIGN(const std::string text, at_line(line, key_text(key, budget_)));
      dict.set(key, text, std::move(value));
    }
    return dict;
  }

  ValueResult value_of(const Attribute& node, int line) {
    WIDEEP_TRY_ASSIGN(const Value object, evaluate(node.object));
    return at_line(line, attribute_of(object, node.name));
  }

  ValueResult value_of(const Item& node, int line) {
    WIDEEP_TRY_ASSIGN(const Value object, evaluate(node.object));
    WIDEEP_TRY_ASSIGN(const Value index, evaluate(node.index));
    return at_line(line, item_of(object, index, budget_));
  }

  ValueResult value_of(const Slice& node, int line) {
    WIDEEP_TRY_ASSIGN(const Value object, evaluate(node.object));
    WIDEEP_TRY_ASSIGN(const Value start, evaluate(node.start));
    WIDEEP_TRY_ASSIGN(const Value stop, evaluate(node.stop));
    WIDEEP_TRY_ASSIGN(const Value step, evaluate(node.step));
    return at_line(line, slice_of(object, start, stop, step, budget_));
  }

  ValueResult value_of(const Call& node, int line) {
    WIDEEP_TRY_ASSIGN(const Value callee, evaluate(node.callee));
    WIDEEP_TRY_ASSIGN(const Arguments arguments, evaluate(node.arguments));
    return called(callee, arguments, line);
  }

  ValueResult called(const Value& callee, const Arguments& arguments, int line) {
    if (callee.is_function()) return at_line(line, callee.function()(arguments));
    return at(line, callee.is_undefined()
                        ? callee.undefined().what
                        : fmt::format("a value of type {} is not a function", callee.type_name()));
  }

  ValueResult value_of(const Filter& node, int line) {
    WIDEEP_TRY_ASSIGN(const Value input, evaluate(node.input));
    WIDEEP_TRY_ASSIGN(const Arguments arguments, evaluate(node.arguments));
    return at_line(line, apply_filter(node.name, input, arguments));
  }

  ValueResult value_of(const Test& node, int line) {
    WIDEEP_TRY_ASSIGN(const Value input, evaluate(node.input));
    WIDEEP_TRY_ASSIGN(const Arguments arguments, evaluate(node.arguments));
    WIDEEP_TRY_ASSIGN(const Value passes, at_line(line, apply_test(node.name, input, arguments)));
    return passes.truth() != node.negated;
  }

  ValueResult value_of(const Unary& node, int line) {
    WIDEEP_TRY_ASSIGN(const Value operand, evaluate(node.operand));
    if (node.operation == "not") return !operand.truth();
    if (operand.is_float()) return node.operation == "-" ? -operand.number() : operand.number();
    return at_line(line, arithmetic(node.operation, int64_t{0}, operand, budget_));
  }

  // As in Python, "and" and "or" return one of their operands and evaluate the second only if
  // needed.
  ValueResult value_of(const Binary& node, int line) {
    WIDEEP_TRY_ASSIGN(Value left, evaluate(node.left));
    if (node.operation == "or" && left.truth()) return left;
    if (node.operation == "and" && !left.truth()) return left;
    WIDEEP_TRY_ASSIGN(Value right, evaluate(node.right));
    if (node.operation == "or" || node.operation == "and") return right;
    return at_line(line, arithmetic(node.operation, left, right, budget_));
  }

  // In a < b < c, b is evaluated once, and c only if a < b holds.
  ValueResult value_of(const Comparison& node, int line) {
    WIDEEP_TRY_ASSIGN(Value left, evaluate(node.first));
    for (const auto& [operation, operand] : node.rest) {
      WIDEEP_TRY_ASSIGN(Value right, evaluate(operand));
      WIDEEP_TRY_ASSIGN(const bool holds, at_line(line, compares(operation, left, right, budget_)));
      if (!holds) return false;
      left = std::move(right);
    }
    return true;
  }

  ValueResult value_of(const Choice& node, int) {
    WIDEEP_TRY_ASSIGN(const Value condition, evaluate(node.condition));
    if (condition.truth()) return evaluate(node.then);
    if (node.otherwise != nullptr) return evaluate(node.otherwise);
    return Value(Undefined{"an 'if' expression without 'else' has no value"});
  }

  // ---- names and lines ----

  // Opens a scope for a loop's iteration, a macro or a captured body, and closes it.
  class ScopeGuard {
   public:
    explicit ScopeGuard(Renderer* renderer) : renderer_(renderer), outer_(renderer->scope_) {
      renderer_->scope_ = std::make_shared<Scope>(Scope{{}, outer_});
    }
    ~ScopeGuard() { renderer_->scope_ = std::move(outer_); }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Renderer* renderer_;
    std::shared_ptr<Scope> outer_;
  };

  Value look_up(const std::string& name) const {
    for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
      const auto found = scope->names.find(name);
      if (found != scope->names.end()) return found->second;
    }
    return Undefined{fmt::format("'{}' is undefined", name)};
  }

  static Status at(int line, const std::string& what) {
    return invalid_input(fmt::format("line {}: {}", line, what));
  }
  // Adds the line to an error, unless it has one: the line inside a called macro counts.
  template <typename T>
  static Result<T> at_line(int line, Result<T> result) {
    if (result.ok() || result.status().message().starts_with("line ")) return result;
    return at(line, result.status().message());
  }

  Budget budget_{kMaxSteps};
  std::vector<std::shared_ptr<Object>> namespaces_;  // all that the template has made
  std::shared_ptr<Scope> scope_;
  std::string out_;
  int calls_ = 0;
  int depth_ = 0;  // see kMaxNested
};

}  // namespace

Result<std::string> render_template(const Block& block, Names names) {
  return Renderer(std::move(names)).run(block);
}

}  // namespace wideep::jinja
