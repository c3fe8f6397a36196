#include "tools/load/fleet.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/load/report_json.h"

namespace posenc::load {
namespace {

// A socket between parent and child for length-prefixed messages.
class Pipe {
 public:
  explicit Pipe(int descriptor) : descriptor_(descriptor) {}
  Pipe(Pipe&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~Pipe() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  bool Send(std::string_view message) const {
    const uint64_t size = message.size();
    return Put(&size, sizeof(size)) && Put(message.data(), message.size());
  }
  // Absent if the other end is closed.
  std::optional<std::string> Receive() const {
    uint64_t size = 0;
    if (!Get(&size, sizeof(size))) return std::nullopt;
    std::string message(size, '\0');
    if (!Get(message.data(), size)) return std::nullopt;
    return message;
  }

 private:
  bool Put(const void* data, size_t size) const {
    for (const auto* at = static_cast<const char*>(data); size > 0;) {
      const ssize_t count = send(descriptor_, at, size, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      at += count;
      size -= static_cast<size_t>(count);
    }
    return true;
  }
  bool Get(void* data, size_t size) const {
    for (auto* at = static_cast<char*>(data); size > 0;) {
      const ssize_t count = recv(descriptor_, at, size, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      at += count;
      size -= static_cast<size_t>(count);
    }
    return true;
  }

  int descriptor_;
};

std::string ToJson(const StepPlan& plan) {
  return nlohmann::json{{"name", plan.name},
                        {"rate", plan.rate},
                        {"end_rate", plan.end_rate},
                        {"concurrency", plan.concurrency},
                        {"seconds", plan.seconds},
                        {"count", plan.count},
                        {"poisson", plan.arrivals == ArrivalKind::kPoisson},
                        {"warm_up", plan.warm_up},
                        {"seed", plan.seed}}
      .dump();
}

StepPlan ParsePlan(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {.name = json["name"],
          .rate = json["rate"],
          .end_rate = json["end_rate"],
          .concurrency = json["concurrency"],
          .seconds = json["seconds"],
          .count = json["count"],
          .arrivals = json["poisson"] ? ArrivalKind::kPoisson : ArrivalKind::kConstant,
          .warm_up = json["warm_up"],
          .seed = json["seed"]};
}

// A child's answer: "+" and its results, or "-", a code and a message.
std::string ToAnswer(const absl::StatusOr<Results>& results) {
  if (results.ok()) return absl::StrCat("+", ToJson(*results));
  return absl::StrCat("-", static_cast<int>(results.status().code()), " ", results.status().message());
}

absl::StatusOr<Results> ParseAnswer(const std::optional<std::string>& answer) {
  if (!answer || answer->empty()) return absl::InternalError("a client process ended unexpectedly");
  if ((*answer)[0] == '+') return FromJson(answer->substr(1));
  const size_t space = answer->find(' ');
  return absl::Status(static_cast<absl::StatusCode>(std::stoi(answer->substr(1, space - 1))),
                      answer->substr(space + 1));
}

class Alone final : public Fleet {
 public:
  Alone(Shared* shared, std::unique_ptr<Runner> runner) : Fleet(shared), runner_(std::move(runner)) {}
  absl::StatusOr<Results> Run(const StepPlan& plan) override {
    return runner_->Run(plan, shared().stop, shared().progress);
  }

 private:
  const std::unique_ptr<Runner> runner_;
};

class Processes final : public Fleet {
 public:
  explicit Processes(Shared* shared) : Fleet(shared) {}
  ~Processes() override {
    pipes_.clear();  // the children exit when their socket closes
    for (const pid_t child : children_) waitpid(child, nullptr, 0);
  }

  absl::Status Start(const Mix& mix, const RunnerOptions& options, size_t processes) {
    for (size_t i = 0; i < processes; ++i) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return absl::ErrnoToStatus(errno, "socketpair");
      const pid_t child = fork();
      if (child < 0) return absl::ErrnoToStatus(errno, "fork");
      if (child == 0) {
        pipes_.clear();
        close(ends[0]);
        RunnerOptions own = options;
        own.share = {static_cast<int64_t>(i), static_cast<int64_t>(processes)};
        Serve(mix, own, Pipe(ends[1]), shared().progress + i);
      }
      close(ends[1]);
      pipes_.emplace_back(ends[0]);
      children_.push_back(child);
    }
    return Gather().status();  // returns when all are connected
  }

  absl::StatusOr<Results> Run(const StepPlan& plan) override {
    for (const Pipe& pipe : pipes_) pipe.Send(ToJson(plan));
    return Gather();
  }

 private:
  absl::StatusOr<Results> Gather() {
    std::vector<absl::StatusOr<Results>> answers;
    for (const Pipe& pipe : pipes_) answers.push_back(ParseAnswer(pipe.Receive()));
    Results all;
    for (size_t i = 0; i < answers.size(); ++i) {
      POSENC_RETURN_IF_ERROR(answers[i].status());
      if (i == 0) {
        all = *std::move(answers[i]);
      } else {
        const double cpu_share = all.client_cpu_share + answers[i]->client_cpu_share;  // on one machine, shares add up
        all.Merge(*answers[i]);
        all.client_cpu_share = cpu_share;
      }
    }
    return all;
  }

  [[noreturn]] void Serve(const Mix& mix, const RunnerOptions& options, const Pipe& pipe, Progress* progress) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);  // the parent sets Shared::stop
    absl::StatusOr<std::unique_ptr<Runner>> runner = Runner::Create(mix, options);
    Results none;
    none.steps.emplace_back();
    pipe.Send(ToAnswer(runner.ok() ? absl::StatusOr<Results>(none) : runner.status()));
    while (const std::optional<std::string> plan = pipe.Receive()) {
      if (runner.ok()) pipe.Send(ToAnswer((*runner)->Run(ParsePlan(*plan), shared().stop, progress)));
    }
    _exit(0);  // without destructors: the parent closes what it opened
  }

  std::vector<Pipe> pipes_;
  std::vector<pid_t> children_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Fleet>> Fleet::Create(const Mix& mix, const RunnerOptions& options, size_t processes) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap");
  auto* shared = new (memory) Shared;
  if (processes > 1) {
    auto fleet = std::make_unique<Processes>(shared);
    POSENC_RETURN_IF_ERROR(fleet->Start(mix, options, processes));
    return fleet;
  }
  POSENC_ASSIGN_OR_RETURN(std::unique_ptr<Runner> runner, Runner::Create(mix, options));
  return std::make_unique<Alone>(shared, std::move(runner));
}

}  // namespace posenc::load
