// SPDX-License-Identifier: Apache-2.0
//
// MPI runs with the settings in which Open MPI is fastest for ranks on one machine: beside its
// defaults we would look better than we are. Each line on the program's input is a block of rounds
// and gets one line back; other lines on that stream are mpirun's. The end of its input ends the
// program, and PR_SET_PDEATHSIG ends mpirun if this process dies.
#include "measure/ep/mpi_baseline.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/try.h"

namespace wideep::measure {
namespace {

constexpr const char* kProgram = "wideep_mpi_baseline";
// Answers start with this; mpirun may print other lines on the same stream.
constexpr std::string_view kAnswer = "microseconds ";

bool is_in_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const std::string file = std::string(rest.substr(0, end)) + "/" + program;
    if (::access(file.c_str(), X_OK) == 0) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

// The settings with which Open MPI is fastest for ranks that share memory, so that the comparison
// is fair. By default large messages are read from the peer's memory with a system call, which is
// slower; without yield_when_idle, waiting ranks would keep the cores that others need.
std::vector<std::string> command_line(const std::string& program,
                                      const MpiBaselineOptions& options) {
  const EpGroup& group = options.group;
  std::vector<std::string> line = {"mpirun", "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) line.emplace_back("--allow-run-as-root");
  for (const auto& [key, value] :
       {std::pair{"btl_vader_single_copy_mechanism", "none"}, std::pair{"mpi_yield_when_idle", "1"},
        std::pair{"pml", "ob1"}, std::pair{"btl", "vader,self"}}) {
    line.insert(line.end(), {"--mca", key, value});
  }
  line.insert(line.end(), {"-np", std::to_string(group.num_ranks), program});
  for (const auto number : {group.num_experts, group.top_k, options.hidden}) {
    line.push_back(std::to_string(number));
  }
  line.push_back(std::string(routing_name(group.routing)));
  line.push_back(std::to_string(group.seed));
  line.push_back(std::string(sum_name(options.sum)));
  line.push_back(fmt::format("{}", fmt::join(options.processors, ",")));
  return line;
}

// In the child after fork: becomes mpirun. PR_SET_PDEATHSIG ends mpirun if this process dies.
[[noreturn]] void become(char* const* line, int input, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) ::signal(signal, SIG_DFL);
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::execvp(line[0], line);
  ::_exit(127);
}

}  // namespace

std::string_view mpi_rows_name(MpiRows rows) {
  if (rows == MpiRows::kPerExpert) return "per-expert";
  return rows == MpiRows::kOncePerRank ? "once-per-rank" : "per-rank";
}

Result<std::string> find_mpi_baseline() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / kProgram).string();
  if (error || ::access(program.c_str(), X_OK) != 0) {
    return invalid_input(
        fmt::format("--baseline mpi: program {} not found; install libopenmpi-dev and openmpi-bin, "
                    "and build wideep again",
                    program));
  }
  if (!is_in_path("mpirun")) {
    return invalid_input("--baseline mpi: mpirun not found in PATH; install openmpi-bin");
  }
  return program;
}

Status MpiBaseline::start(const std::string& program, const MpiBaselineOptions& options) {
  std::vector<std::string> line = command_line(program, options);
  std::vector<char*> words;
  for (std::string& word : line) words.push_back(word.data());
  words.push_back(nullptr);
  std::array<int, 2> in{}, out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) {
    return failed(fmt::format("--baseline mpi: cannot create a pipe: {}", std::strerror(errno)));
  }
  pid_ = ::fork();
  if (pid_ == 0) become(words.data(), in[0], out[1]);
  ::close(in[0]);
  ::close(out[1]);
  to_ = ::fdopen(in[1], "w");
  from_ = ::fdopen(out[0], "r");
  if (pid_ > 0) return {};
  return failed(fmt::format("--baseline mpi: cannot start mpirun: {}", std::strerror(errno)));
}

Result<MpiBaseline::Times> MpiBaseline::measure(int num_tokens, MpiRows rows,
                                                std::chrono::microseconds duration) {
  fmt::print(to_, "{} {} {}\n", num_tokens, static_cast<int>(rows), duration.count());
  std::fflush(to_);
  WIDEEP_TRY_ASSIGN(const std::string answer, read_answer());
  Times times;
  const char* const end = answer.data() + answer.size();
  const auto round = std::from_chars(answer.data(), end, times.round);
  const auto mean = std::from_chars(std::min(round.ptr + 1, end), end, times.mean);
  if (round.ec == std::errc() && mean.ec == std::errc()) return times;
  return failed(fmt::format("--baseline mpi: expected microseconds, found \"{}\"", answer));
}

Result<std::string> MpiBaseline::read_answer() {
  std::array<char, 256> line{};
  while (std::fgets(line.data(), line.size(), from_) != nullptr) {
    const std::string_view text = line.data();
    if (text.starts_with(kAnswer)) return std::string(text.substr(kAnswer.size()));
  }
  return failed("--baseline mpi: mpirun ended; see its messages above");
}

MpiBaseline::~MpiBaseline() {
  if (to_ != nullptr) std::fclose(to_);  // at the end of its input the program ends
  if (from_ != nullptr) std::fclose(from_);
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

}  // namespace wideep::measure
