// SPDX-License-Identifier: Apache-2.0
#include "engine/command.h"

#include <memory>
#include <utility>

#include "schedule/wire.h"

namespace wideep::engine {
namespace {

// The fields that every command has, in the order of their bytes: one list for both ways.
template <typename Wire, typename AnyCommand>
void transfer_fields(Wire& wire, AnyCommand& command) {
  auto& request = command.request;
  wire.fields(command.kind, command.owner, command.epoch, command.ticket, command.num_pages,
              command.role, request.index, request.answered, request.max_tokens, request.sampling,
              request.bias, request.draw, request.ignore_eos, request.speculates,
              request.returns_experts, request.reports_progress, request.salt, request.peer,
              request.turn_begin);
}

// Empty: none.
SharedGrammar read_grammar(WireReader& reader) {
  std::string bytes = reader.get_text();
  return bytes.empty() ? nullptr : std::make_shared<const std::string>(std::move(bytes));
}

}  // namespace

std::string CommandEncoder::encode(const Command& command) {
  if (command.kind == Command::Kind::kMembers) last_ = {};
  WireWriter writer;
  transfer_fields(writer, command);
  const bool looks = command.kind == Command::Kind::kLook;
  if (command.kind != Command::Kind::kSubmit && !looks) return writer.take();
  const Request& request = command.request;
  const bool repeats_prompt = request.prompt.is_copy_of(last_.prompt);
  writer.put(repeats_prompt);
  if (!repeats_prompt) writer.put_all(request.prompt.ids());
  last_.prompt = request.prompt;
  if (looks) return writer.take();
  const bool repeats_grammar = request.grammar == last_.grammar;
  writer.put(repeats_grammar);
  if (!repeats_grammar) writer.put_text(request.grammar ? *request.grammar : std::string());
  const bool repeats_rules = request.rules.is_copy_of(last_.rules);
  writer.put(repeats_rules);
  if (!repeats_rules) put(*request.rules, writer);
  last_.grammar = request.grammar;
  last_.rules = request.rules;
  return writer.take();
}

Command CommandDecoder::decode(std::string_view message) {
  WireReader reader(message);
  Command command;
  transfer_fields(reader, command);
  if (command.kind == Command::Kind::kMembers) last_ = {};
  const bool looks = command.kind == Command::Kind::kLook;
  if (command.kind != Command::Kind::kSubmit && !looks) return command;
  if (!reader.get<bool>()) last_.prompt = reader.get_all<int32_t>();
  command.request.prompt = last_.prompt;
  if (looks) return command;
  if (!reader.get<bool>()) last_.grammar = read_grammar(reader);
  if (!reader.get<bool>()) last_.rules = get_token_rules(reader);
  command.request.grammar = last_.grammar;
  command.request.rules = last_.rules;
  return command;
}

}  // namespace wideep::engine
