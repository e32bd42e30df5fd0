// SPDX-License-Identifier: Apache-2.0
//
// What a router keeps of a stream, so that another server can go on with it where the one that
// answers is lost (stream_records.h): the records of the answer, and how many bytes of it the client
// has got.
//
//   client.send(journal.take(bytes))               of each part that the server sends
//   lost: if journal.can_resume(body.size())
//     another server is asked: journal.resumed(body), with kResumeHeader where has_records()
//     journal.begin_again(), then take() as before: what the client has comes out no more
//
// The new stream has to begin with the bytes of the old one; if it does not, nothing more comes out
// (differs()), and the client is to be told that its answer is lost.
//
// Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace wideep::server {

// Of all streams of a router; outlives their journals.
struct StreamJournalMemory {
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  size_t bytes = 0;
};

class StreamJournal {
 public:
  // Of the records of a stream with the body of its request: no server reads longer bodies.
  static constexpr size_t kMaxBytes = size_t{8} << 20;

  explicit StreamJournal(StreamJournalMemory& memory) : memory_(memory) {}
  ~StreamJournal() { memory_.bytes -= records_.size(); }
  StreamJournal(const StreamJournal&) = delete;
  StreamJournal& operator=(const StreamJournal&) = delete;

  // The next bytes of the stream. Returns those for the client.
  std::string take(std::string_view bytes);

  // Whether another server can go on: the records are here, or nothing was sent that follows from
  // them. False also after more of them have come than may be kept.
  bool can_resume(size_t request_bytes) const;
  bool has_records() const { return !records_.empty(); }
  // More is known of the answer than its head, which comes before anything is computed.
  bool has_begun() const { return num_records_ > 1; }
  // The body that asks another server for it; `request`: that of the client.
  std::string resumed(std::string_view request) const;
  // The next bytes are those of another stream.
  void begin_again();

  // The client has bytes that the new stream has not brought yet.
  bool is_behind() const { return passed_ < known_.count; }
  // The new stream has brought others.
  bool differs() const { return differs_; }

 private:
  // Bytes of the answer, by their number and a hash (FNV-1a).
  struct Prefix {
    size_t count = 0;
    uint64_t hash = 0xcbf29ce484222325;
    void add(std::string_view bytes);
  };
  size_t take_marked(std::string_view bytes, std::string* out);
  void read_comment(std::string* out);
  void pass(std::string_view bytes, std::string* out);
  void end_aside(std::string* out);
  void add_record(std::string_view text);
  void give_up();

  StreamJournalMemory& memory_;
  std::string records_;  // as they came, in base64, each with a line feed
  size_t num_records_ = 0;
  bool gave_up_ = false;
  bool differs_ = false;
  Prefix known_;       // what the client has
  Prefix repeated_;    // of the present stream, while it is behind
  size_t passed_ = 0;  // of the present stream
  int newlines_ = 2;   // that the last bytes are, at most 2: an event begins, as at the start
  std::string mark_;   // of a comment: what has come of it
  size_t aside_left_ = 0;
  std::string aside_;  // what has come of it
};

}  // namespace wideep::server
