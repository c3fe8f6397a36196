#include "server/grpc/completion_queue.h"

#include <algorithm>
#include <deque>
#include <new>
#include <optional>
#include <utility>

#include "grpc/grpc_security.h"
#include "posenc/base/status.h"
#include "server/calls/rpc_span.h"
#include "server/calls/status_map.h"
#include "server/core/log.h"
#include "server/core/refusal.h"
#include "server/grpc/caller.h"

namespace posenc::server {

// Number of RPCs requested in advance, which can arrive at once; more wait within gRPC.
constexpr size_t kExpected = 16;
// Messages of streams come after calls: a polling thread begins to read a stream's next message once nothing else
// waits, or after so many events. Otherwise messages that gRPC has received already, thousands of a stream, would keep
// the thread from looking at the connections. (After one empty look gRPC may have left the connections out.)
constexpr int kEventsBeforeRead = 32;
static thread_local std::deque<GrpcRpc*>* next_reads = nullptr;  // null: this is no polling thread

static absl::Status NoSuchMethod(const std::string& method) {
  return Refusal(absl::StatusCode::kUnimplemented, "UNKNOWN_VALUE", "method", method,
                 "must be a method of one of the server's services, which its reflection lists");
}

// One RPC, from the wait for a client to its end. Deletes itself.
class GrpcRpc final : public Rpc {
 public:
  static void Expect(CompletionQueueLoop* polling) {
    auto* rpc = new GrpcRpc(polling);
    ++polling->rpcs_;
    rpc->context_.AsyncNotifyWhenDone(&rpc->over_);
    polling->service_.RequestCall(&rpc->context_, &rpc->stream_, polling->queue_.get(), polling->queue_.get(),
                                  &rpc->arrived_);
  }

  // Completion queue tag: the member function to call when the operation has completed.
  struct Event {
    GrpcRpc* rpc;
    void (GrpcRpc::*happened)(bool ok);

    static void Handle(void* tag, bool ok) {
      const auto* event = static_cast<Event*>(tag);
      (event->rpc->*event->happened)(ok);
    }
  };

  std::chrono::system_clock::time_point deadline() const override {
    // gRPC's own conversion to nanoseconds overflows after the year 2262.
    constexpr int64_t kMostSeconds = 9'000'000'000;
    const gpr_timespec deadline = gpr_convert_clock_type(context_.raw_deadline(), GPR_CLOCK_REALTIME);
    return deadline.tv_sec > kMostSeconds ? std::chrono::system_clock::time_point::max() : context_.deadline();
  }
  std::string connection() const override { return connection_; }
  uint64_t connection_number() const override { return connection_number_; }
  bool is_local() const override { return is_local_; }
  bool is_unix() const override { return peer_.starts_with("unix"); }
  const Identity* identity() const override { return identity_.get(); }
  std::string header(const std::string& name) const override {
    const auto& headers = context_.client_metadata();
    const auto found = headers.find(name);
    return found == headers.end() ? "" : std::string(found->second.data(), found->second.size());
  }
  absl::Status AdmitMessage() override {
    if (identity_ == nullptr) return absl::OkStatus();
    // Read again and not kept: a certificate of 8 KiB can have 2,000 names.
    return polling_->options_
        .authorize(CredentialsOf(*this, peer_, context_), *method_->right, context_.method(), nullptr)
        .status();
  }
  CallSpan* span() override { return span_.get(); }
  bool cancelled() const override { return cancelled_; }
  void AddTrailer(const std::string& name, const std::string& value) override {
    context_.AddTrailingMetadata(name, value);
  }
  void TryCancel() override { context_.TryCancel(); }
  void BeginRequest() override { ++requests_; }
  void EndRequest() override { --requests_; }
  void Read(grpc::ByteBuffer* message) override {
    ++expected_;
    const bool is_first = next_ == nullptr;
    next_ = message;
    if (is_first || next_reads == nullptr) return BeginRead();
    next_reads->push_back(this);
  }
  void Write(const grpc::ByteBuffer& message) override {
    ++expected_;
    BeginRequest();  // until it is written
    stream_.Write(message, &written_);
  }
  void Finish(const grpc::Status& status) override {
    BeginRequest();  // until the RPC is deleted
    Count(status);
    stream_.Finish(status, &finished_);
  }
  void WriteAndFinish(const grpc::ByteBuffer& message) override {
    BeginRequest();  // until the RPC is deleted
    Count(grpc::Status::OK);
    stream_.WriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK, &finished_);
  }

 private:
  friend class CompletionQueueLoop;

  using Clock = std::chrono::steady_clock;

  explicit GrpcRpc(CompletionQueueLoop* polling) : polling_(polling) {}
  ~GrpcRpc() = default;

  // Counts the RPC's end, once.
  void Count(const grpc::Status& status) {
    if (metrics_ == nullptr) return;
    std::exchange(metrics_, nullptr)->End(status.error_code(), Clock::now() - arrived_at_);
    if (span_ == nullptr) return;
    if (span_->has_phases()) span_->Enter(Phase::kSend);
    status_ = status;
  }

  void OnArrived(bool ok) {
    if (!ok) return Go();  // the server shuts down
    Expect(polling_);      // wait for the next client
    arrived_at_ = Clock::now();
    FindCaller();
    polling_->AddOpen(this);
    const auto method = polling_->methods_.find(context_.method());
    const bool known = method != polling_->methods_.end();
    metrics_ = known ? method->second.metrics : polling_->metrics_of_unknown_;
    metrics_->Start();
    if (known) method_ = &method->second;
    span_ = BeginSpan(polling_->options_.tracer, *this, context_.method(), method_);
    const absl::Status allowed = known ? Authorize() : NoSuchMethod(context_.method());
    const UnadmittedCalls& unadmitted = polling_->options_.unadmitted;
    if (!allowed.ok()) {
      Finish(ToGrpc(allowed, false));
    } else if (!unadmitted.limit->Take(CallerName(*this), 1, &unadmitted_)) {
      Finish(unadmitted.refuse(this));
    } else if (!method_->reads_first) {
      Serve(nullptr);
    } else {
      return ReadFirst();
    }
    Release();
  }
  void ReadFirst() {
    receives_ = true;
    receive_limit_ = polling_->timers_->After(polling_->options_.receive_timeout, [this] { TryCancel(); });
    stream_.Read(&request_, &first_read_);
  }
  // Keeps what the context says of the caller: gRPC forgets it when the call is cancelled, and other threads may not
  // call the context's functions.
  void FindCaller() {
    peer_ = context_.peer();
    // gRPC has one authentication context for each connection, also without authentication.
    grpc_auth_context* const of_connection = grpc_call_auth_context(context_.c_call());
    connection_number_ = reinterpret_cast<uintptr_t>(of_connection);
    grpc_auth_context_release(of_connection);
    if (polling_->options_.has_trusted_proxy && IsOfTrustedProxy(context_)) {
      return void(connection_ = header(kProxiedPeer));
    }
    if (peer_.starts_with("ip")) connection_ = peer_;  // clients of a Unix socket have no names
    is_local_ = (peer_.starts_with("unix") || IsLoopback(PeerOf(peer_))) && !ComesByProxy(context_);
  }
  // Returns an error if the caller may not call the method.
  absl::Status Authorize() {
    if (polling_->options_.authorize == nullptr || !method_->right) return absl::OkStatus();
    POSENC_ASSIGN_OR_RETURN(
        identity_, polling_->options_.authorize(
                       CredentialsOf(*this, peer_, context_), *method_->right, context_.method(),
                       [this](const std::string& name, const std::string& value) { AddTrailer(name, value); }));
    return absl::OkStatus();
  }
  void OnFirstRead(bool /*ok*/) {
    receive_limit_.Revoke();
    Hear();
    cancelled_ ? EndUnserved() : Serve(&request_);
    receives_ = false;
    Release();
  }
  // Notes that the first message has come, which the reactor may admit.
  void Hear() {
    if (method_->admits) unadmitted_.Return();
  }
  // Ends the RPC, which was cancelled before it was served: nobody waits for its status.
  void EndUnserved() {
    if (Logs(LogLevel::debug)) {
      LogCall(LogLevel::debug, "ended: cancelled before it was served",
              {{"method", context_.method()}, {"peer", connection_}});
    }
    Release();  // Finish(), which is not called
  }
  void Serve(grpc::ByteBuffer* request) {
    try {
      reactor_ = method_->make(this, request);
    } catch (const std::bad_alloc&) {
      return Finish({grpc::UNAVAILABLE, "out of memory"});
    }
    reactor_->Start();
    serving_ = true;
    if (cancelled_) TellCancelled();
  }

  void BeginRead() { stream_.Read(next_, &read_); }
  void OnRead(bool ok) {
    Hear();
    reactor_->OnReadDone(ok);
    Release();
  }
  void OnWritten(bool ok) {
    EndRequest();
    reactor_->OnWriteDone(ok);
    Release();
  }
  void OnFinished(bool /*ok*/) { Release(); }
  void OnOver(bool /*ok*/) {
    if (context_.IsCancelled()) {
      cancelled_ = true;
      if (serving_) TellCancelled();
    }
    Release();
  }
  void TellCancelled() {
    if (!told_.exchange(true)) reactor_->OnCancel();
  }
  void Release() {
    if (--expected_ == 0) Go();
  }
  void Go() {
    CompletionQueueLoop* const polling = polling_;
    Count(grpc::Status::CANCELLED);  // unless it was finished
    reactor_.reset();
    if (span_ != nullptr) {
      SetStatus(cancelled_ ? grpc::Status::CANCELLED : status_, span_.get());
      polling->options_.tracer->End(std::move(span_));
    }
    if (open_) polling->RemoveOpen(*open_);
    delete this;
    if (--polling->rpcs_ == 0) polling->rpcs_.notify_all();
  }

  Event arrived_{this, &GrpcRpc::OnArrived}, first_read_{this, &GrpcRpc::OnFirstRead}, read_{this, &GrpcRpc::OnRead},
      written_{this, &GrpcRpc::OnWritten}, finished_{this, &GrpcRpc::OnFinished}, over_{this, &GrpcRpc::OnOver};
  CompletionQueueLoop* const polling_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  std::atomic<int> expected_{
      3};  // events before deletion: Start() has returned, Finish() is done, the RPC is over, and each read and write
  std::atomic<bool> cancelled_{false}, serving_{false}, told_{false};
  std::atomic<int> requests_{0};       // BeginRequest() less EndRequest()
  std::atomic<bool> receives_{false};  // its first message is awaited
  std::optional<std::list<GrpcRpc*>::iterator> open_;
  const Method* method_ = nullptr;
  std::shared_ptr<const Identity> identity_;
  Clock::time_point arrived_at_;
  std::string peer_, connection_;
  uint64_t connection_number_ = 0;
  bool is_local_ = false;
  std::unique_ptr<CallSpan> span_;    // null: not traced
  grpc::Status status_;               // that was sent, for span_
  MethodMetrics* metrics_ = nullptr;  // null before it has arrived, and once its end is counted
  Charge unadmitted_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer* next_ = nullptr;  // that Read() reads into
  Timers::Timer receive_limit_;       // pending only before the reactor is made
  std::unique_ptr<Reactor> reactor_;  // destroyed first
};

CompletionQueueLoop::CompletionQueueLoop(grpc::ServerBuilder* builder) : queue_(builder->AddCompletionQueue()) {
  builder->RegisterAsyncGenericService(&service_);
}

CompletionQueueLoop::~CompletionQueueLoop() {
  // Wait for all RPCs: no operation may start on a completion queue that is shut down, not even Finish().
  for (int64_t rpcs = rpcs_; rpcs > 0; rpcs = rpcs_) rpcs_.wait(rpcs);
  queue_->Shutdown();
  for (std::thread& thread : threads_) thread.join();
  // Building the server failed: nothing is in flight, drain the queue here. gRPC logs that it ends before its server.
  if (!threads_.empty()) return;
  void* tag = nullptr;
  for (bool ok = false; queue_->Next(&tag, &ok);) GrpcRpc::Event::Handle(tag, ok);
}

void CompletionQueueLoop::Start(Methods methods, Options options, Timers* timers, CallMetrics* metrics) {
  methods_ = std::move(methods);
  for (auto& [path, method] : methods_) method.metrics = metrics->Of(path);
  metrics_of_unknown_ = metrics->Of("");
  options_ = std::move(options);
  timers_ = timers;
  for (size_t n = 0; n < kExpected; ++n) GrpcRpc::Expect(this);
  for (size_t n = 0; n < options_.threads; ++n) threads_.emplace_back([this, n] { Poll(n); });
}

void CompletionQueueLoop::AddOpen(GrpcRpc* rpc) {
  const std::lock_guard lock(open_mutex_);
  rpc->open_ = open_.insert(open_.end(), rpc);
}

void CompletionQueueLoop::RemoveOpen(std::list<GrpcRpc*>::iterator rpc) {
  const std::lock_guard lock(open_mutex_);
  open_.erase(rpc);
}

std::set<TcpEnd> CompletionQueueLoop::BusyConnections(bool with_uploads) {
  std::set<TcpEnd> busy;
  const std::lock_guard lock(open_mutex_);
  for (const GrpcRpc* rpc : open_) {
    if (rpc->requests_ > 0 || (with_uploads && rpc->receives_)) busy.insert({PeerOf(rpc->peer_), PortOf(rpc->peer_)});
  }
  return busy;
}

void CompletionQueueLoop::Poll(size_t thread) {
  std::deque<GrpcRpc*> reads;
  next_reads = &reads;
  int events = 0, empty = 0;  // since a read was begun, and since an event
  void* tag = nullptr;
  for (bool ok = false;;) {
    const auto until = reads.empty() ? gpr_inf_future(GPR_CLOCK_REALTIME) : gpr_inf_past(GPR_CLOCK_REALTIME);
    const auto status = queue_->AsyncNext(&tag, &ok, until);
    if (status == grpc::CompletionQueue::SHUTDOWN) return;
    ++empty;
    if (status == grpc::CompletionQueue::GOT_EVENT) {
      options_.busy->Begin(thread);
      GrpcRpc::Event::Handle(tag, ok);
      options_.busy->End(thread);
      ++events;
      empty = 0;
    }
    if (reads.empty() || (empty < 2 && events < kEventsBeforeRead)) continue;
    reads.front()->BeginRead();
    reads.pop_front();
    events = empty = 0;
  }
}

}  // namespace posenc::server
