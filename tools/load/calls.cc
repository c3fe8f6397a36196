#include "tools/load/calls.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/in_process/in_process.h"

namespace posenc::load {
namespace {

constexpr int64_t kTimed = 16;                          // of so many calls one is timed within the client's gRPC
constexpr double kGrace = 3;                            // seconds from a call's deadline until it is abandoned
constexpr auto kPause = std::chrono::milliseconds(10);  // of a caller after UNAVAILABLE, which may come at once
constexpr auto kLook = std::chrono::milliseconds(100);  // between two looks for an interrupt
constexpr std::byte kPoison{0xa5};                      // fills the region of an answer to be verified

// gRPC's name of a status code, such as "UNAVAILABLE".
std::string NameOf(grpc::StatusCode code) { return absl::StatusCodeToString(static_cast<absl::StatusCode>(code)); }

// True if the client may have ended the call, so that the server may still be working on it.
bool MayGoOn(grpc::StatusCode code) {
  return code == grpc::StatusCode::DEADLINE_EXCEEDED || code == grpc::StatusCode::CANCELLED ||
         code == grpc::StatusCode::UNAVAILABLE;
}

// Counts a call that ended.
void Count(const Ended& ended, StepRun& run) {
  run.collector.End(ended);
  const std::lock_guard lock(run.mutex);
  if (--run.open == 0 || run.over) run.changed.notify_all();
}

}  // namespace

struct Calls::Flight final : Exchange {
  Flight(const Call& call, std::shared_ptr<StepRun> r) : Exchange(call), run(std::move(r)) {}

  const std::shared_ptr<StepRun> run;
  const Requests* requests = nullptr;
  size_t offset = 0;
  std::optional<Places::Place> place;    // shared memory only
  bool sampled = false, verify = false;  // chosen for verification; can be verified
  double intended = 0;                   // seconds since the step's beginning
  Clock::time_point intended_time, began;
};

absl::StatusOr<std::unique_ptr<Calls>> Calls::Create(const Mix& mix, const RunnerOptions& options) {
  std::unique_ptr<Calls> calls(new Calls(mix, options));
  POSENC_RETURN_IF_ERROR(calls->Prepare(mix));
  const auto ended = [raw = calls.get()](Exchange* exchange) {
    raw->Done(std::unique_ptr<Flight>(static_cast<Flight*>(exchange)));
  };
  POSENC_ASSIGN_OR_RETURN(calls->connections_, Connections::Open(options.servers, options.tls, options.connections,
                                                                 options.threads, options.connect_seconds, ended));
  return calls;
}

absl::Status Calls::Prepare(const Mix& mix) {
  const Share share = options_.share;
  const bool closed = options_.most_concurrent > 0;
  const int64_t all = closed ? options_.most_concurrent : options_.max_in_flight;
  const int64_t own = (all + share.of - 1) / share.of;
  InProcess here(WholeMachine());
  for (size_t i = 0; i < mix.entries.size(); ++i) {
    POSENC_ASSIGN_OR_RETURN(auto work, Work::Create(mix.entries[i], mix.seed + i, here));
    POSENC_ASSIGN_OR_RETURN(Requests requests, MakeRequests(std::move(work), options_.shared_memory_socket,
                                                            {static_cast<size_t>(own), closed}));
    requests_.push_back(std::move(requests));
  }
  if (options_.verify > 0) verifier_ = std::make_unique<Verifier>();
  return absl::OkStatus();
}

void Calls::Begin(const std::shared_ptr<StepRun>& owner, int64_t number, std::optional<double> intended) {
  StepRun& run = *owner;
  const Choice choice = chooser_.At(run.plan.seed, number);
  const Requests& requests = requests_[choice.entry];
  const bool sampled = choice.verify < options_.verify;
  bool verify = sampled;
  std::optional<Places::Place> place;
  if (requests.slots) {
    place = requests.slots->Take(sampled);
    if (!place) return run.collector.Skip(intended.value_or(Seconds(Clock::now() - run.begin)));
    verify = place->verifiable();
    if (verify) {
      const absl::Span<std::byte> answer = requests.slots->Answer(*place);
      std::fill(answer.begin(), answer.end(), kPoison);
    }
  }
  Exchange::Call call{.path = &requests.path};
  call.messages = place ? absl::MakeConstSpan(&requests.slots->Request(choice.offset, *place), 1)
                        : absl::MakeConstSpan(requests.messages[choice.offset]);
  call.stream = requests.work->entry().transport == Transport::kStream;
  call.keep = verify;
  call.timed = number / options_.share.of % kTimed == 0;
  call.deadline = std::chrono::system_clock::now() + FromSeconds(options_.deadline_seconds);
  auto* flight = new Flight(call, owner);
  flight->requests = &requests;
  flight->offset = choice.offset;
  flight->place = std::move(place);
  flight->sampled = sampled;
  flight->verify = verify;
  const int64_t in_flight = ++run.in_flight;
  // Approximate: of two calls that start at the same time, the smaller count may be stored.
  if (in_flight > run.most_in_flight) run.most_in_flight = in_flight;
  {
    const std::lock_guard lock(run.mutex);
    run.open += 1;
    run.last_began = flight->began = Clock::now();
  }
  flight->intended = intended.value_or(Seconds(flight->began - run.begin));
  flight->intended_time = intended ? run.begin + FromSeconds(*intended) : flight->began;
  run.collector.Start(flight->intended, 1e6 * Seconds(flight->began - flight->intended_time));
  connections_->Start(flight);
}

void Calls::BeginNext(const std::shared_ptr<StepRun>& run) {
  const StepPlan& plan = run->plan;
  if (run->stop || run->over || (plan.seconds > 0 && Seconds(Clock::now() - run->begin) >= plan.seconds)) return;
  // If the concurrency is below the number of processes, the other processes make no calls.
  const int64_t number = options_.share.index + std::min(options_.share.of, plan.concurrency) * run->next++;
  if (plan.count == 0 || number < plan.count) Begin(run, number, std::nullopt);
}

int64_t Calls::Wait(const std::shared_ptr<StepRun>& run) {
  const Clock::duration patience = FromSeconds(options_.deadline_seconds + kGrace);
  const Clock::time_point end = run->begin + FromSeconds(run->plan.seconds);  // a closed loop goes on until then
  std::unique_lock lock(run->mutex);
  while (run->open > 0 || !run->paused.empty()) {
    const bool paused = !run->paused.empty();
    const Clock::time_point given_up = std::max(run->last_began + patience, run->stop ? run->begin : end);
    const Clock::time_point until = paused ? run->paused.front() : given_up;
    if (const auto now = Clock::now(); now < until) {
      run->changed.wait_until(lock, std::min(until, now + kLook));
    } else if (paused) {
      run->paused.pop_front();
      lock.unlock();
      BeginNext(run);
      lock.lock();
    } else {
      break;
    }
  }
  run->over = true;
  run->changed.wait(lock, [&] { return run->open <= run->in_flight; });  // for the verification of the others
  return run->in_flight;
}

void Calls::Done(std::unique_ptr<Flight> flight) {
  StepRun& run = *flight->run;
  const Clock::time_point now = Clock::now();
  Ended ended{.intended = flight->intended,
              .at = Seconds(now - run.begin),
              .latency_us = Microseconds(now - flight->intended_time),
              .late_us = Microseconds(flight->began - flight->intended_time),
              .service_us = Microseconds(now - flight->began),
              .server = flight->server_times(),
              .request_bytes = flight->requests->work->request_bytes(),
              .answer_bytes = flight->requests->work->answer_bytes()};
  const grpc::StatusCode code = flight->status().error_code();
  const bool answered = code == grpc::StatusCode::OK;
  if (!answered) {
    ended.error = NameOf(code);
  } else if (!flight->place && flight->received_bytes() < static_cast<size_t>(ended.answer_bytes)) {
    ended.error = "SHORT_ANSWER";
  }
  if (const auto sent = flight->sent()) ended.send_wait_us = Microseconds(*sent - flight->began);
  run.collector.Answer(ended.at, !MayGoOn(code));
  const bool verify = flight->verify && answered;
  if (flight->sampled && !flight->verify && answered) run.collector.NotVerified();
  if (flight->place && MayGoOn(code)) flight->place->Spoil();
  if (!verify) flight->place.reset();  // before BeginNext: the next call may need this slot
  run.in_flight -= 1;
  if (!run.plan.open_loop()) {
    if (code == grpc::StatusCode::UNAVAILABLE) {
      const std::lock_guard lock(run.mutex);
      run.paused.push_back(now + kPause);
      run.changed.notify_all();
    } else {
      BeginNext(flight->run);
    }
  }
  if (!verify) return Count(ended, run);

  const std::shared_ptr<Flight> held = std::move(flight);
  Verifier::Job job{.work = held->requests->work, .offset = held->offset, .pieces = std::move(held->answers())};
  if (held->place) job.shared = held->requests->slots->Answer(*held->place);
  job.done = [held, ended](const std::optional<Mismatch>& mismatch) {
    Ended verified = ended;
    if (mismatch) verified.error = "MISMATCH";
    held->run->collector.Verified(mismatch);
    Count(verified, *held->run);
  };
  if (!verifier_->Offer(std::move(job))) {
    run.collector.NotVerified();
    Count(ended, run);
  }
}

}  // namespace posenc::load
