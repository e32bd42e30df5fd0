// SPDX-License-Identifier: Apache-2.0
#include "server/router_pd_state.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace wideep::server {
namespace {

using nlohmann::json;

constexpr size_t kShownBytes = 80;  // of what a server says, in a line

Status wrong(std::string_view member, std::string_view expected) {
  return invalid_input(fmt::format("/v1/pd_role: {}: expected {}", member, expected));
}

std::string text_member(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

uint64_t number_member(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

std::optional<double> positive_member(const json& object, const char* name) {
  const auto found = object.find(name);
  const bool is_one = found != object.end() && found->is_number() && found->get<double>() > 0;
  return is_one ? std::optional(found->get<double>()) : std::nullopt;
}

}  // namespace

Result<PdState> read_pd_state(std::string_view reply) {
  const json object = json::parse(reply, nullptr, false);
  if (!object.is_object()) return wrong("the reply", "a JSON object");
  const auto role = engine::role_named(text_member(object, "role"));
  if (!role) return wrong("role", "prefill, decode or both");
  PdState state{.role = *role,
                .instance = text_member(object, "instance"),
                .version = text_member(object, "version"),
                .record_class = text_member(object, "record_class"),
                .opaque_state = text_member(object, "encoded_opaque_state")};
  if (state.version.empty()) return wrong("version", "the server's version");
  const auto load = object.find("load");
  if (load == object.end() || !load->is_object()) return state;
  state.prompt_tokens = number_member(*load, "prompt_tokens");
  state.running = number_member(*load, "running");
  state.prefill_seconds_per_token = positive_member(*load, "prefill_seconds_per_token");
  state.pages_per_second = positive_member(*load, "pages_per_second");
  state.kv_share = positive_member(*load, "kv_share").value_or(0.0);
  return state;
}

std::string PdGroup::refusal(const PdState& state, std::string_view its_url) const {
  const auto differs = [&](std::string_view what, std::string_view own, std::string_view expected) {
    return fmt::format(
        "{} has {} {}, but {} has {}: it gets no requests until both are the same "
        "(start it with the same version, checkpoint and KV format)",
        its_url, what, base::printable(own, kShownBytes), url,
        base::printable(expected, kShownBytes));
  };
  if (state.version != version) return differs("version", state.version, version);
  if (!record_class.empty() && !state.record_class.empty() && state.record_class != record_class) {
    return differs("record class", state.record_class, record_class);
  }
  return "";
}

}  // namespace wideep::server
