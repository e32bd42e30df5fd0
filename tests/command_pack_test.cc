// SPDX-License-Identifier: Apache-2.0
//
// wideep pack and --packed-cache: who has a packed file reads no weights of the checkpoint. To see
// it, the checkpoint is spoiled between the pieces that its fingerprint samples
// (weights/sampled_hash.h): whoever reads its tensors fails.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_server.h"
#include "fault_load.h"
#include "formats/files.h"
#include "tensor_files/safetensors.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// An own copy of the reference model, and a directory for packed files.
class CommandPack : public testing::Test {
 protected:
  CommandPack() { fs::copy(WIDEEP_SOURCE_DIR "/models/reference", model_); }

  // Not a number in each tensor of more than 8 KiB, at a sixth of it.
  void spoil_checkpoint() const {
    const std::string path = model_ + "/model.safetensors";
    std::vector<uint64_t> places;
    {
      const auto file = tensor_files::SafetensorsFile::open(path);
      ASSERT_TRUE(file.ok()) << file.status().message();
      const auto whole = formats::read_file(path);
      ASSERT_TRUE(whole.ok());
      uint64_t header_bytes = 0;
      std::memcpy(&header_bytes, whole->data(), sizeof(header_bytes));
      const json header = json::parse(whole->substr(sizeof(header_bytes), header_bytes));
      for (const auto& [name, entry] : file->tensors()) {
        if (entry.bytes.size() <= 8192 || entry.dtype != Dtype::kBf16) continue;
        const uint64_t begin = header[name]["data_offsets"][0];
        places.push_back(sizeof(header_bytes) + header_bytes + begin + entry.bytes.size() / 12 * 2);
      }
    }
    ASSERT_GT(places.size(), 100u);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    for (const uint64_t place : places) {
      file.seekp(static_cast<std::streamoff>(place)).write("\xc0\x7f", 2);
    }
    ASSERT_TRUE(file.flush().good());
  }

  CommandOptions pack_options(const std::vector<std::string>& more) const {
    CommandOptions options{.arguments = {"pack", "--model", model_, "--output", packed_}};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    return options;
  }
  CommandEnd pack(const std::vector<std::string>& more = {}) const {
    return run_command(pack_options(more));
  }
  CommandEnd generate(const std::vector<std::string>& more) const {
    CommandOptions options{.arguments = {"generate", "--model", model_, "--prompt", "The sea",
                                         "--max-tokens", "8", "--json", "--logits-digest"}};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    return run_command(options);
  }
  // Text and digest of the logits.
  json results(std::vector<std::string> more, bool is_packed = true) const {
    if (is_packed) more.insert(more.end(), {"--packed-cache", packed_});
    const CommandEnd end = generate(more);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    const json all = json::parse(end.out, nullptr, false);
    return all.is_object() ? all.at("results") : json();
  }
  CommandEnd doctor(const std::vector<std::string>& more) const {
    CommandOptions options{.arguments = {"doctor", "--packed-cache", packed_}};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    return run_command(options);
  }

  // The directory of the one packed file.
  fs::path only_file() const {
    std::vector<fs::path> all;
    for (const auto& each : fs::directory_iterator(packed_)) all.push_back(each.path());
    EXPECT_EQ(all.size(), 1u);
    return all.at(0);
  }
  void edit_index(const std::function<void(json&)>& edit) const {
    const std::string path = only_file() / "index.json";
    json index = json::parse(*formats::read_file(path));
    edit(index);
    ASSERT_TRUE(formats::write_file(path, index.dump()).ok());
  }

  const base::ScratchDirectory scratch_;
  const std::string model_ = scratch_.file("model"), packed_ = scratch_.file("packed");
};

TEST_F(CommandPack, RunsTakeTheirWeightsFromIt) {
  const json bf16 = results({}, false), int4 = results({"--dtype", "int4"}, false);
  for (const char* format : {"bf16", "int4"}) {
    const CommandEnd end = pack({"--to", format});
    ASSERT_EQ(end.exit_code, 0) << end.err;
    EXPECT_THAT(end.out, HasSubstr("MiB in "));
    EXPECT_THAT(pack({"--to", format}).out, HasSubstr("is there already"));
  }
  // Drafts take layers that other runs do not have.
  const std::string drafts = scratch_.file("drafts.yaml");
  std::ofstream(drafts) << "speculative_config: {decoding_type: MTP}\n";
  ASSERT_EQ(pack().exit_code, 0);
  spoil_checkpoint();
  expect_error(generate({}), 2, {"model.safetensors", "expected finite weights"});
  EXPECT_EQ(results({}), bf16);
  EXPECT_EQ(results({"--ranks", "2"}), bf16);
  EXPECT_EQ(results({"--dtype", "int4"}), int4);
  EXPECT_EQ(results({"--config", drafts})[0]["text"], bf16[0]["text"]);
}

TEST_F(CommandPack, AFirstStartPacksByItself) {
  const json expected = results({}, false);
  EXPECT_EQ(results({"--ranks", "2"}), expected);
  // Slices of experts are added to the file, beside whole ones.
  const std::string slices = scratch_.file("slices.yaml");
  std::ofstream(slices) << "tensor_parallel_size: 2\nmoe_tensor_parallel_size: 2\n";
  const json sliced = results({"--config", slices}, false);
  EXPECT_EQ(results({"--config", slices}), sliced);
  spoil_checkpoint();
  EXPECT_EQ(results({}), expected);
  EXPECT_EQ(results({"--config", slices}), sliced);
  const CommandEnd end = generate({"--packed-cache", packed_, "--dtype", "int8"});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("expected finite weights"));
}

TEST_F(CommandPack, OneThatWasKilledIsContinued) {
  const json expected = results({}, false);
  bool is_unfinished = false;
  for (int tries = 0; tries < 50 && !is_unfinished; ++tries) {
    fs::remove_all(packed_);
    Command command(pack_options({}));
    const auto has_begun = [&] {
      std::error_code absent;
      for (fs::directory_iterator each(packed_, absent), end; each != end; ++each) {
        if (fs::exists(each->path() / "records", absent)) return true;
      }
      return false;
    };
    wait_until(has_begun, 20s * kSlowdown);
    command.send(SIGKILL);
    command.wait();
    is_unfinished = only_file().extension() == ".unfinished";
  }
  ASSERT_TRUE(is_unfinished);
  EXPECT_THAT(doctor({}).out, HasSubstr("not finished"));
  ASSERT_EQ(pack().exit_code, 0);
  EXPECT_EQ(doctor({"--verify"}).exit_code, 0);
  spoil_checkpoint();
  EXPECT_EQ(results({}), expected);
}

// Ranks that begin later than the others, with their experts in slots or in the host pool.
TEST_F(CommandPack, RanksOfLaterTakeTheirsFromIt) {
  const std::string balancer = scratch_.file("balancer.yaml");
  std::ofstream(balancer) << "num_slots: 40\nlayer_updates_per_iter: 1\n";
  ASSERT_EQ(pack().exit_code, 0);
  const std::vector<std::string> alone = {"--ranks", "2", "--threads-per-rank", "1"};
  for (const bool has_pool : {false, true}) {
    std::vector<std::string> more = alone;
    if (has_pool) more.insert(more.end(), {"--load-balancer", balancer});
    more.insert(more.end(), {"--packed-cache", packed_});
    if (!has_pool) spoil_checkpoint();
    Server server(model_, more);
    ASSERT_GT(server.port(), 0) << server.command().err();
    const auto text = [&] {
      const server::Reply reply = server.complete({{"prompt", "The sea"}});
      EXPECT_EQ(reply.status, 200) << reply.body;
      return reply.status == 200 ? reply.body_json()["choices"][0]["text"].get<std::string>() : "";
    };
    const auto has_ranks = [&](int ranks) {
      return wait_until([&] { return server.metric("wideep_ep_active_ranks") == ranks; },
                        20s * kSlowdown);
    };
    const std::string expected = text();
    ::kill(rank_processes(server.command()).at(1), SIGKILL);
    EXPECT_TRUE(wait_until([&] { return server.metric("wideep_ep_failed_ranks_total") > 0; },
                           20s * kSlowdown));
    EXPECT_TRUE(has_ranks(2)) << server.command().err();
    EXPECT_EQ(text(), expected);
    for (const int ranks : {1, 2}) {
      const server::Reply reply = server::ask(server.port(), "POST", "/scale_elastic_ep",
                                              json({{"new_data_parallel_size", ranks}}).dump());
      EXPECT_EQ(reply.status, 200) << reply.body;
      EXPECT_TRUE(has_ranks(ranks)) << server.command().err();
      EXPECT_EQ(text(), expected);
    }
  }
}

// ---- what is wrong ----

TEST_F(CommandPack, FilesOfOthersAreRefused) {
  ASSERT_EQ(pack().exit_code, 0);
  const auto expect_both_refused = [&](const std::string& found) {
    expect_refused(pack(), {found, "remove the directory"});
    expect_refused(generate({"--packed-cache", packed_}), {found, "remove the directory"});
  };
  const std::string kept = *formats::read_file(only_file() / "index.json");
  edit_index([](json& index) { index["wideep_packed"] = 99; });
  expect_both_refused("version 99, expected 1");
  ASSERT_TRUE(formats::write_file(only_file() / "index.json", kept).ok());
  edit_index([](json& index) { index["class"] = "another"; });
  expect_both_refused("class 'another'");
  ASSERT_TRUE(formats::write_file(only_file() / "index.json", kept).ok());
  fs::resize_file(only_file() / "records", fs::file_size(only_file() / "records") / 2);
  expect_both_refused("cut short");
}

// The service does not depend on it: a line, and weights from the checkpoint.
TEST_F(CommandPack, WhereItCannotBeWrittenTheCheckpointIsTaken) {
  const json expected = results({}, false);
  std::ofstream(packed_) << "a file";
  expect_refused(pack(), {packed_, "cannot be created"});
  CommandEnd end = generate({"--packed-cache", packed_});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("weights are taken from the checkpoint"));
  EXPECT_EQ(json::parse(end.out)["results"], expected);

  fs::remove(packed_);
  ASSERT_EQ(pack().exit_code, 0);
  fs::remove(only_file() / "index.json");
  const fs::path unfinished = only_file().string() + ".unfinished";
  fs::rename(only_file(), unfinished);
  const int fd = ::open((unfinished / "progress").c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  expect_refused(pack(), {"another process is writing it"});
  EXPECT_THAT(doctor({}).out, HasSubstr("being written by another process"));
  end = generate({"--packed-cache", packed_});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("another process is writing it"));
  EXPECT_EQ(json::parse(end.out)["results"], expected);
  ::close(fd);
}

TEST_F(CommandPack, DoctorFindsADamagedBit) {
  ASSERT_EQ(pack().exit_code, 0);
  CommandEnd end = doctor({"--verify", "--json"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  json files = json::parse(end.out)["packed_weights"]["files"];
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0]["state"], "finished");
  EXPECT_THAT(files[0]["class"].get<std::string>(), HasSubstr("as stored"));
  std::fstream(only_file() / "records", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(20'000'000)
      .put('\x55');
  EXPECT_EQ(doctor({}).exit_code, 0);  // nobody has looked
  EXPECT_THAT(doctor({"--model", model_, "--ranks", "2", "--recovery"}).out,
              HasSubstr("the packed file (--packed-cache)"));
  end = doctor({"--verify"});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.error_lines(), ::testing::ElementsAre(HasSubstr("1 of 1 packed files cannot")));
  expect_error(generate({"--packed-cache", packed_}), 1, {"differs from its hash"});
  expect_refused(run_command({.arguments = {"doctor", "--verify"}}), {"--packed-cache"});
}

}  // namespace
}  // namespace wideep::tests
