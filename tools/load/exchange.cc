#include "tools/load/exchange.h"

#include <charconv>
#include <string_view>
#include <utility>

namespace posenc::load {
namespace {

constexpr double kMicrosecondsPerMillisecond = 1e3;

// Microseconds from the milliseconds after `name` in "queue;dur=0.012, compute;dur=0.300"; negative if absent.
double DurationOf(std::string_view trailer, std::string_view name) {
  const size_t at = trailer.find(name);
  if (at == std::string_view::npos) return -1;
  const std::string_view text = trailer.substr(at + name.size());
  double value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc()
             ? value * kMicrosecondsPerMillisecond
             : -1;
}

}  // namespace

ServerTimes ParseServerTiming(std::string_view trailer) {
  return {DurationOf(trailer, "queue;dur="), DurationOf(trailer, "compute;dur=")};
}

Exchange::Exchange(const Call& call) : call_(call) { context_.set_deadline(call.deadline); }

void Exchange::Start(grpc::GenericStub& stub, grpc::CompletionQueue* queue) {
  outstanding_ = 1;
  if (!call_.stream && !call_.timed) {
    answers_.resize(1);
    unary_ = stub.PrepareUnaryCall(&context_, *call_.path, call_.messages[0], queue);
    unary_->StartCall();
    unary_->Finish(answers_.data(), &status_, &finished_);
    return;
  }
  stream_ = stub.PrepareCall(&context_, *call_.path, queue);
  stream_->StartCall(&started_);
}

void Exchange::Started(bool ok) {
  if (ok) {
    sent_ = std::chrono::steady_clock::now();
    WriteNext();
    outstanding_ += 1;
    stream_->Read(&piece_, &read_);
  } else {
    outstanding_ += 1;
    stream_->Finish(&status_, &finished_);
  }
}

void Exchange::WriteNext() {
  if (written_ == call_.messages.size()) return;
  const grpc::ByteBuffer& message = call_.messages[written_++];
  outstanding_ += 1;
  if (written_ == call_.messages.size()) {
    stream_->WriteLast(message, {}, &written_step_);
  } else {
    stream_->Write(message, &written_step_);
  }
}

void Exchange::Written(bool ok) {
  if (ok) WriteNext();
}

void Exchange::Read(bool ok) {
  outstanding_ += 1;
  if (ok) {
    received_bytes_ += piece_.Length();
    if (call_.keep) answers_.push_back(std::move(piece_));
    piece_.Clear();
    stream_->Read(&piece_, &read_);
  } else {
    stream_->Finish(&status_, &finished_);
  }
}

void Exchange::Finished(bool) {
  if (unary_ != nullptr) received_bytes_ = answers_[0].Length();
}

ServerTimes Exchange::server_times() const {
  const auto& trailers = context_.GetServerTrailingMetadata();
  const auto found = trailers.find("server-timing");
  if (found == trailers.end()) return {};
  return ParseServerTiming({found->second.data(), found->second.size()});
}

}  // namespace posenc::load
