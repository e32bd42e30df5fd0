// SPDX-License-Identifier: Apache-2.0
#include "store/redis_reply.h"

#include <fmt/format.h>
#include <hiredis/read.h>

#include "base/check.h"
#include "base/printable.h"

namespace wideep::store {
namespace {

// An unused buffer of up to so many bytes stays for the next replies.
constexpr size_t kKeptBytes = size_t{8} << 20;

// Where the reader wants the next value: the last element of the array that is open, or the root,
// which the reader owns. Elements before the last are whole, so nothing points to what moves.
// nullptr, which hiredis takes for a want of memory: there are too many.
RedisReply* add(const redisReadTask* task) {
  if (++*static_cast<uint64_t*>(task->privdata) > RedisReplyReader::kMaxValues) return nullptr;
  if (task->parent == nullptr) return new RedisReply;
  return &static_cast<RedisReply*>(task->parent->obj)->elements.emplace_back();
}

void* add_text(const redisReadTask* task, char* text, size_t length) {
  RedisReply* reply = add(task);
  if (reply == nullptr) return nullptr;
  reply->type = task->type == REDIS_REPLY_ERROR    ? RedisReply::Type::kError
                : task->type == REDIS_REPLY_STATUS ? RedisReply::Type::kStatus
                                                   : RedisReply::Type::kText;
  reply->text.assign(text, length);
  return reply;
}

void* add_integer(const redisReadTask* task, long long value) {
  RedisReply* reply = add(task);
  if (reply == nullptr) return nullptr;
  reply->type = RedisReply::Type::kInteger;
  reply->integer = value;
  return reply;
}

void* add_nil(const redisReadTask* task) { return add(task); }

// hiredis 1 counts elements in another type than 0.14, and has values that this side never asks
// for (RESP3): a server that sends them all the same gives texts and integers.
template <typename Functions>
constexpr Functions reply_functions() {
  Functions functions = {};
  functions.createString = add_text;
  functions.createArray = [](const redisReadTask* task, auto) -> void* {
    RedisReply* reply = add(task);
    if (reply == nullptr) return nullptr;
    reply->type = RedisReply::Type::kArray;
    return reply;
  };
  functions.createInteger = add_integer;
  functions.createNil = add_nil;
  functions.freeObject = [](void* reply) { delete static_cast<RedisReply*>(reply); };
  if constexpr (requires(Functions each) { each.createDouble; }) {
    functions.createDouble = [](const redisReadTask* task, double, char* text, size_t length) {
      return add_text(task, text, length);
    };
    functions.createBool = [](const redisReadTask* task, int value) {
      return add_integer(task, value);
    };
  }
  return functions;
}

// hiredis wants it without const.
constinit redisReplyObjectFunctions kFunctions = reply_functions<redisReplyObjectFunctions>();

}  // namespace

void RedisReplyReader::Free::operator()(redisReader* reader) const { redisReaderFree(reader); }

RedisReplyReader::RedisReplyReader()
    : num_values_(std::make_unique<uint64_t>(0)),
      reader_(redisReaderCreateWithFunctions(&kFunctions)) {
  WIDEEP_CHECK(reader_ != nullptr);
  reader_->privdata = num_values_.get();
  reader_->maxbuf = kKeptBytes;
}

void RedisReplyReader::feed(std::span<const std::byte> bytes) {
  redisReaderFeed(reader_.get(), reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<std::optional<RedisReply>> RedisReplyReader::next() {
  void* reply = nullptr;
  if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
    if (*num_values_ > kMaxValues) {
      return invalid_input(fmt::format("a reply of more than {} values", kMaxValues));
    }
    return invalid_input(fmt::format("no reply of Redis' protocol: {}",
                                     base::printable(static_cast<const char*>(reader_->errstr))));
  }
  if (reply == nullptr) return std::optional<RedisReply>();
  *num_values_ = 0;
  const std::unique_ptr<RedisReply> owned(static_cast<RedisReply*>(reply));
  return std::optional<RedisReply>(std::move(*owned));
}

size_t RedisReplyReader::num_pending_bytes() const { return reader_->len - reader_->pos; }

}  // namespace wideep::store
