// SPDX-License-Identifier: Apache-2.0
//
// Both forms say the same three things: whether the prompt is computed for another server, who has
// computed it for this one, and under which name. vLLM's spreads over four fields what
// TensorRT-LLM's has as one text, so it is put together and read as that text. Whatever does not
// change what this server does is accepted, since proxies send back what the other server has
// replied.
#include "api/shared_prompt_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "api/shared_prompt.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxFirstTokens = 64, kMaxConversationIdBytes = 256;
//  Reads the members of one of the objects. Null is "absent"; what is none of the type is a
// complaint, and then absent.
class MemberReader {
 public:
  MemberReader(BodyReader& body, const char* name, const ordered_json& object)
      : body_(body), name_(name), object_(object) {}

  std::string place(const char* member) const { return fmt::format("{}.{}", name_, member); }
  const ordered_json& value(const char* member) const { return member_of(object_, member); }
  void complain(const char* member, const std::string& expected) {
    body_.complain(place(member), fmt::format("expected {}, found {}", expected,
                                              BodyReader::shown(value(member))));
  }

  bool flag(const char* member) {
    const ordered_json& each = value(member);
    if (!each.is_null() && !each.is_boolean()) complain(member, "true or false");
    return each == true;
  }

  std::optional<int64_t> integer(const char* member, int64_t min = INT64_MIN,
                                 int64_t max = INT64_MAX) {
    const ordered_json& each = value(member);
    if (each.is_null()) return std::nullopt;
    const bool is_whole = each.is_number_integer() &&
                          !(each.is_number_unsigned() && each.get<uint64_t>() > INT64_MAX);
    if (is_whole && each.get<int64_t>() >= min && each.get<int64_t>() <= max) {
      return each.get<int64_t>();
    }
    complain(member, fmt::format("an integer from {} to {}", min, max));
    return std::nullopt;
  }

  // nullopt: absent.
  std::optional<std::string> text(const char* member, size_t max_bytes) {
    const ordered_json& each = value(member);
    if (each.is_null()) return std::nullopt;
    if (each.is_string() && each.get_ref<const std::string&>().size() <= max_bytes) {
      return each.get<std::string>();
    }
    complain(member, fmt::format("a text of at most {} bytes", max_bytes));
    return std::nullopt;
  }

  std::vector<int32_t> tokens(const char* member) {
    const ordered_json& list = value(member);
    if (list.is_null()) return {};
    const auto is_id = [](const ordered_json& each) {
      return each.is_number_unsigned() && each.get<uint64_t>() <= INT32_MAX;
    };
    if (list.is_array() && list.size() <= kMaxFirstTokens && std::ranges::all_of(list, is_id)) {
      return list.get<std::vector<int32_t>>();
    }
    complain(member, fmt::format("a list of at most {} token ids", kMaxFirstTokens));
    return {};
  }

 private:
  BodyReader& body_;
  const char* name_;
  const ordered_json& object_;
};

// Text of anybody, with the name that goes into it.
std::optional<store::PagePeer> read_peer(BodyReader& body, const std::string& place,
                                         std::string_view text) {
  auto peer = store::parse_page_peer(text);
  if (peer.ok()) return std::move(peer).value();
  body.complain(place, peer.status().message());
  return std::nullopt;
}

// TRT numbers the styles in its replies, and names them in its configuration.
std::optional<int64_t> read_style(MemberReader& members) {
  constexpr const char* kName = "schedule_style";
  const ordered_json& style = members.value(kName);
  if (style == "context_first") return 0;
  if (style == "generation_first") return 1;
  if (style.is_null() || style == 0 || style == 1) return members.integer(kName);
  members.complain(kName, "0 or \"context_first\", 1 or \"generation_first\"");
  return std::nullopt;
}

// The name is ctx_request_id, which the other server's reply has, or the one that a proxy has drawn
// for both servers. A context-only one has none: its peer computes nothing for it. With
// ctx_request_id it is what another server has replied, and says nothing to this one.
void set_peer(BodyReader& body, MemberReader& members, SharedPrompt& shared) {
  constexpr const char* kState = "encoded_opaque_state";
  const auto id = members.integer("ctx_request_id");
  const auto state = members.text(kState, store::PagePeer::kMaxBytes);
  if (!state || (shared.is_context_only && id)) return;
  shared.peer = read_peer(body, members.place(kState), *state);
  if (!shared.peer) return;
  if (!shared.peer->request.empty()) {
    return body.complain(members.place(kState), "expected no name of a request at its end");
  }
  if (shared.is_context_only) return;
  if (!id && !shared.disagg_request_id) {
    return body.complain(members.place("ctx_request_id"),
                         "expected the id under which the other server computes the prompt, or "
                         "disagg_request_id, beside encoded_opaque_state, found neither");
  }
  shared.peer->request = fmt::format("{}", id ? *id : *shared.disagg_request_id);
}

std::shared_ptr<SharedPrompt> read_trt(BodyReader& body, const ordered_json& params) {
  auto shared = std::make_shared<SharedPrompt>();
  MemberReader members(body, kTrtParams, params);
  const ordered_json& type = members.value("request_type");
  if (type != "context_only" && type != "generation_only" && type != "context_and_generation") {
    members.complain("request_type",
                     "\"context_only\", \"generation_only\" or \"context_and_generation\"");
  }
  if (!body.check_members(kTrtParams, params, kTrtSharedPrompt)) return nullptr;
  shared->is_context_only = type == "context_only";
  shared->peer_param = kTrtParams;
  shared->disagg_request_id = members.integer("disagg_request_id");
  shared->schedule_style = read_style(members);
  shared->conversation_id =
      members.text("conversation_id", kMaxConversationIdBytes).value_or(std::string());
  shared->first_tokens = members.tokens("first_gen_tokens");
  set_peer(body, members, *shared);
  if (shared->is_context_only) {
    shared->first_tokens.clear();
    if (shared->disagg_request_id) shared->name = fmt::format("{}", *shared->disagg_request_id);
  }
  return type == "context_and_generation" ? nullptr : shared;
}

// Who computes the prompt, as that server's reply has said it: all of it, or nothing.
std::optional<store::PagePeer> read_vllm_peer(BodyReader& body, MemberReader& members) {
  constexpr size_t kMaxBytes = store::PagePeer::kMaxBytes;
  const auto engine = members.text("remote_engine_id", kMaxBytes);
  const auto request = members.text("remote_request_id", kMaxBytes);
  const auto host = members.text("remote_host", kMaxBytes);
  const auto port = members.integer("remote_port", 1, UINT16_MAX);
  if (!body.is_valid() || (!engine && !request && !host && !port)) return std::nullopt;
  if (!engine || !request || !host || !port || request->empty()) {
    body.complain(kVllmParams,
                  "expected remote_engine_id, remote_request_id, remote_host and remote_port, as "
                  "the server has replied them that computes the prompt, or none of them");
    return std::nullopt;
  }
  const store::RedisHost at{.name = *host, .port = static_cast<uint16_t>(*port)};
  // "token;class;mac"
  const std::string_view words = *engine;
  const size_t end = words.rfind(';');
  const std::string_view mac = end == words.npos ? words : words.substr(end + 1);
  return read_peer(body, kVllmParams,
                   fmt::format("1;{};{};{};{}", at.text(), words.substr(0, end), *request, mac));
}

std::shared_ptr<SharedPrompt> read_vllm(BodyReader& body, const ordered_json& params) {
  auto shared = std::make_shared<SharedPrompt>();
  shared->form = SharedPrompt::Form::kVllm;
  shared->peer_param = kVllmParams;
  MemberReader members(body, kVllmParams, params);
  if (!body.check_members(kVllmParams, params, kVllmSharedPrompt)) return nullptr;
  shared->is_context_only = members.flag("do_remote_decode");
  const bool is_generation_only = members.flag("do_remote_prefill");
  if (shared->is_context_only && is_generation_only) {
    body.complain(kVllmParams,
                  "do_remote_decode and do_remote_prefill are true: expected one of them");
  }
  if (is_generation_only) shared->peer = read_vllm_peer(body, members);
  return shared->is_context_only || is_generation_only ? shared : nullptr;
}

}  // namespace

void read_shared_prompt(BodyReader& body, GenerationOptions& options) {
  const ordered_json& trt = body.take(kTrtParams);
  const ordered_json& vllm = body.take(kVllmParams);
  for (const auto& [name, params] : {std::pair(kTrtParams, &trt), std::pair(kVllmParams, &vllm)}) {
    if (params->is_null() || params->is_object()) continue;
    return body.complain(name, "expected an object, found " + BodyReader::shown(*params));
  }
  if (!trt.is_null() && !vllm.is_null()) {
    return body.complain(kVllmParams, fmt::format("beside {}: expected one of them", kTrtParams));
  }
  if (!trt.is_null()) options.shared_prompt = read_trt(body, trt);
  if (!vllm.is_null()) options.shared_prompt = read_vllm(body, vllm);
}

std::optional<HttpError> check_context_only(const GenerationOptions& options, size_t num_prompts) {
  if (options.shared_prompt == nullptr || !options.shared_prompt->is_context_only) return {};
  const auto refused = [&](const char* param, const char* what) {
    return HttpError{
        .message = fmt::format("{}: a prompt that is computed for another server ({}) {}", param,
                               options.shared_prompt->peer_param, what),
        .param = param};
  };
  if (options.stream) return refused("stream", "has no stream: expected false");
  if (options.n > 1) return refused("n", "has one answer: expected 1");
  if (num_prompts > 1) return refused("prompt", "comes alone: expected one prompt");
  if (options.prompt_logprobs) {
    return refused("prompt_logprobs", "is not scored: leave it out");
  }
  if (options.scores_prompts()) return refused("echo", "is not scored: leave it or logprobs out");
  return {};
}

}  // namespace wideep::server
