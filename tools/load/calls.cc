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

constexpr int64_t kTimed = 16;      // of so many calls one is timed within the client's gRPC
constexpr std::byte kPoison{0xa5};  // fills the region of an answer to be verified

// gRPC's name of a status code, such as "UNAVAILABLE".
std::string NameOf(grpc::StatusCode code) { return absl::StatusCodeToString(static_cast<absl::StatusCode>(code)); }

// True if the client may have ended the call, so that the server may still be working on it.
bool MayGoOn(grpc::StatusCode code) {
  return code == grpc::StatusCode::DEADLINE_EXCEEDED || code == grpc::StatusCode::CANCELLED ||
         code == grpc::StatusCode::UNAVAILABLE;
}

// Counts a call that ended. This must be the call's last access to `run`: Wait() may return.
void Count(const Ended& ended, StepRun& run) {
  run.collector.End(ended);
  const std::lock_guard lock(run.mutex);
  if (--run.open == 0) run.ended.notify_all();
}

}  // namespace

void StepRun::Wait() {
  std::unique_lock lock(mutex);
  ended.wait(lock, [&] { return open == 0; });
}

struct Calls::Flight final : Exchange {
  Flight(const Call& call, StepRun* r) : Exchange(call), run(r) {}

  StepRun* run;
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

void Calls::Begin(StepRun& run, int64_t number, std::optional<double> intended) {
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
  auto* flight = new Flight(call, &run);
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
  }
  flight->began = Clock::now();
  flight->intended = intended.value_or(Seconds(flight->began - run.begin));
  flight->intended_time = intended ? run.begin + FromSeconds(*intended) : flight->began;
  run.collector.Start(Seconds(flight->began - run.begin), 1e6 * Seconds(flight->began - flight->intended_time));
  connections_->Start(flight);
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
  if (!verify) flight->place.reset();  // before one_ended: the next call may need this slot
  run.in_flight -= 1;
  if (run.one_ended) run.one_ended();
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
