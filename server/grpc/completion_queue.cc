#include "server/grpc/completion_queue.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <deque>
#include <new>
#include <optional>
#include <utility>

#include "grpc/grpc_security.h"
#include "posenc/base/status.h"
#include "server/core/log.h"
#include "server/core/refusal.h"
#include "server/core/short_slices.h"
#include "server/grpc/caller.h"
#include "server/grpc/status_map.h"
#include "server/listen/polls.h"
#include "server/listen/read_times.h"

namespace posenc::server {

// Number of RPCs requested in advance, which can arrive at once; more wait within gRPC.
constexpr size_t kExpected = 16;
// gRPC passes as much of a message to the kernel at once as the client's window allows, up to 17 MB, which takes a
// polling thread milliseconds. While messages from this size on come and go, one more thread polls (ADR 35).
constexpr size_t kLarge = 8 << 20;
constexpr std::chrono::seconds kStay(1);  // after the last of them
// Bytes of a message, and time of its event, that count as one more call: about what a call takes that is refused at
// once.
constexpr size_t kBytesOfCall = 32 << 10;
constexpr std::chrono::microseconds kTimeOfCall(40);
constexpr int64_t kMostForTime = 8;  // the thread may have waited for a processor or a lock
// A polling thread takes a later step once it has handled so many further events, if its queue was not empty before.
// The queue rarely has more. Each read that waits already can cause kEventsOfRead more: if these made the next read
// due, a few streams would keep the queue from being empty.
constexpr uint64_t kEventsBefore = 2 * kExpected, kEventsOfRead = 4;

// Steps of RPCs that a polling thread takes once it has polled the connections or handled what was in the queue.
struct LaterSteps {
  struct Step {
    GrpcRpc* rpc;
    void (GrpcRpc::*go_on)();
    uint64_t after;  // the step is due once the thread has handled so many events
  };
  std::deque<Step> begins, reads;  // begins: of calls that are refused or do not begin with a message
  uint64_t events = 0;             // that the thread has handled

  bool empty() const { return begins.empty() && reads.empty(); }
  // Takes the next step that is due, or the next one if all are.
  std::optional<Step> Take(bool all_are_due) {
    for (std::deque<Step>* steps : {&begins, &reads}) {
      if (steps->empty() || (!all_are_due && steps->front().after > events)) continue;
      const Step step = steps->front();
      steps->pop_front();
      return step;
    }
    return std::nullopt;
  }
};
static thread_local LaterSteps* later = nullptr;  // null if the thread is not one of CompletionQueueLoop::Poll()

// gRPC may leave reads of the connection to the thread that calls it. They end with the call.
struct OwnReads {
  OwnReads() { EndRead(); }
  ~OwnReads() { EndRead(); }
};

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
  bool cancelled() const override { return cancelled_; }
  void AddTrailer(const std::string& name, const std::string& value) override {
    context_.AddTrailingMetadata(name, value);
  }
  void TryCancel() override {
    seen_ = true;
    const OwnReads own;
    context_.TryCancel();
  }
  void BeginRequest() override { ++requests_; }
  void EndRequest() override { --requests_; }
  void Read(grpc::ByteBuffer* message) override {
    ++expected_;
    const bool is_first = next_ == nullptr;  // it admits the call, like that of a unary one
    next_ = message;
    is_first ? BeginRead() : Later(&GrpcRpc::BeginRead);
  }
  void Write(const grpc::ByteBuffer& message) override {
    ++expected_;
    BeginRequest();  // until it is written
    polling_->Note(message.Length());
    const OwnReads own;
    stream_.Write(message, &written_);
  }
  void Finish(const grpc::Status& status) override {
    BeginRequest();  // until the RPC is deleted
    Count(status.error_code());
    if (!status.ok()) CountUnread();
    const OwnReads own;
    stream_.Finish(status, &finished_);
  }
  void WriteAndFinish(const grpc::ByteBuffer& message) override {
    BeginRequest();  // until the RPC is deleted
    Count(grpc::StatusCode::OK);
    polling_->Note(message.Length());
    const OwnReads own;
    stream_.WriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK, &finished_);
  }

 private:
  friend class CompletionQueueLoop;

  using Clock = std::chrono::steady_clock;

  explicit GrpcRpc(CompletionQueueLoop* polling) : polling_(polling) {}
  ~GrpcRpc() = default;

  // Counts the RPC's end, once.
  void Count(grpc::StatusCode code) {
    if (metrics_ != nullptr) std::exchange(metrics_, nullptr)->End(code, Clock::now() - arrived_at_);
  }

  void OnArrived(bool ok) {
    if (!ok) return Go();  // the server shuts down
    Expect(polling_);      // wait for the next client
    arrived_at_ = Clock::now();
    FindCaller();
    polling_->AddOpen(this);
    polling_->CountReceived(peer_, 1, 0, arrived_at_);
    const auto method = polling_->methods_.find(context_.method());
    const bool known = method != polling_->methods_.end();
    metrics_ = known ? method->second.metrics : polling_->metrics_of_unknown_;
    metrics_->Start();
    if (known) method_ = &method->second;
    refusal_ = known ? Authorize() : NoSuchMethod(context_.method());
    // If the client has reset the call, OnOver() is in the queue by now, and comes first.
    if (!refusal_.ok() || !method_->reads_first) return Later(&GrpcRpc::Resume);
    polling_->AddUnadmitted(this);
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
    is_proxied_ = polling_->options_.has_trusted_proxy && IsOfTrustedProxy(context_);
    if (is_proxied_) return void(connection_ = header(kProxiedPeer));
    if (peer_.starts_with("ip")) connection_ = peer_;  // clients of a Unix socket have no names
    is_local_ = (peer_.starts_with("unix") || IsLoopback(PeerOf(peer_))) && !ComesByProxy(context_);
  }
  // Returns an error if the caller may not call the method.
  absl::Status Authorize() {
    if (polling_->options_.authorize == nullptr || !method_->right) return absl::OkStatus();
    POSENC_ASSIGN_OR_RETURN(identity_, polling_->options_.authorize(CredentialsOf(*this, peer_, context_),
                                                                    *method_->right, context_.method(), this));
    return absl::OkStatus();
  }
  // Goes on with a call that is refused, or whose method does not begin with a message.
  void Resume() {
    if (cancelled_) return EndDead();
    if (!refusal_.ok()) {
      seen_ = true;
      Finish(ToGrpc(refusal_, false));
    } else if (polling_->AddUnadmitted(this)) {
      Serve(nullptr);
    } else {
      seen_ = true;
    }
    Release();
  }
  void OnFirstRead(bool ok) {
    const auto began = Clock::now();
    receive_limit_.Revoke();
    See(ok);
    if (!polling_->Hear(this)) return Release();
    if (cancelled_) return EndDead();
    const size_t bytes = request_.Length();
    polling_->Note(bytes);
    Serve(&request_);
    receives_ = false;
    polling_->CountReceived(peer_, 0, bytes, began);
    Release();
  }
  // Notes that a read has ended, with a message or without. If the client resets the call now, gRPC may say that there
  // is no message before it says that the call was reset. If a message is too large, gRPC says that there is none, and
  // then resets the call itself.
  void See(bool ok) {
    if (!cancelled_ && (ok || grpc_call_failed_before_recv_message(context_.c_call()) == 0)) seen_ = true;
  }
  // Counts the call as dead or served, once it has ended.
  void CountDead() {
    if (is_proxied_ || connection_.empty()) return;
    if (!cancelled_ || seen_) return polling_->dead_calls_.CountServed(connection_number_, connection_);
    if (!polling_->dead_calls_.Add(connection_number_, connection_, polling_->options_.dead.most)) return;
    if (polling_->options_.dead.cut != nullptr) polling_->options_.dead.cut(connection_);
  }
  // Ends the RPC, which was cancelled before it was served. Nobody waits for its status: a reactor that makes one, or a
  // refusal, would take a third to two thirds of the time that a receiving thread needs for such a call.
  void EndDead() {
    if (Logs(LogLevel::debug)) {
      LogCall(LogLevel::debug, "ended: cancelled before it was served",
              {{"method", context_.method()}, {"peer", connection_}});
    }
    polling_->RemoveUnadmitted(this);
    Release();  // Finish(), which is not called
    Release();
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

  // Ends the RPC to make room for others. `served`: it has a reactor, or is about to have one.
  void EndUnadmitted(bool served) {
    LogCall(LogLevel::debug, "ended: too many calls are not admitted",
            {{"method", context_.method()}, {"peer", peer_}});
    if (served) return TryCancel();  // the reactor finishes it
    Finish(polling_->options_.unadmitted.refuse(this));
  }
  // The status waits in memory for a client that does not read, and a call that was refused has no place among those in
  // flight. Calls of a trusted proxy, which limits its own callers, are not counted.
  void CountUnread() {
    if (is_proxied_) return;
    is_unread_ = true;
    polling_->AddUnread(PeerOf(connection_));
  }

  // Calls the function later (LaterSteps), or at once if this thread takes no later steps.
  void Later(void (GrpcRpc::*go_on)()) {
    try {
      if (later != nullptr) {
        auto& steps = go_on == &GrpcRpc::BeginRead ? later->reads : later->begins;
        const uint64_t for_others = &steps == &later->reads ? kEventsOfRead * steps.size() : 0;
        return void(steps.push_back({this, go_on, later->events + kEventsBefore + for_others}));
      }
    } catch (const std::bad_alloc&) {  // at once
    }
    (this->*go_on)();
  }
  void BeginRead() {
    const OwnReads own;
    stream_.Read(next_, &read_);
  }
  void OnRead(bool ok) {
    const auto began = Clock::now();
    const size_t bytes = ok ? next_->Length() : 0;
    See(ok);
    polling_->Hear(this);
    reactor_->OnReadDone(ok);
    polling_->CountReceived(peer_, 1, bytes, began);
    Release();
  }
  void OnWritten(bool ok) {
    EndRequest();
    reactor_->OnWriteDone(ok);
    Release();
  }
  void OnFinished(bool /*ok*/) {
    polling_->RemoveUnadmitted(this);
    Release();
  }
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
    Count(grpc::StatusCode::CANCELLED);  // unless it was finished
    CountDead();
    if (is_unread_) polling->RemoveUnread(PeerOf(connection_));
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
  // A read ended, or a refusal was sent, before the client reset the call; or the server cancelled it.
  std::atomic<bool> seen_{false};
  std::atomic<int> requests_{0};       // BeginRequest() less EndRequest()
  std::atomic<bool> receives_{false};  // its first message is awaited
  std::optional<std::list<GrpcRpc*>::iterator> open_;
  const Method* method_ = nullptr;
  absl::Status refusal_;  // OK: none
  std::shared_ptr<const Identity> identity_;
  Clock::time_point arrived_at_;
  std::string peer_, connection_;
  uint64_t connection_number_ = 0;
  bool is_proxied_ = false, is_local_ = false;
  MethodMetrics* metrics_ = nullptr;  // null before it has arrived, and once its end is counted
  // Guarded by the loop's unadmitted_mutex_:
  std::optional<std::list<GrpcRpc*>::iterator> unadmitted_;
  UnadmittedOfPeer* unadmitted_of_peer_ = nullptr;  // that unadmitted_ is in; null: in the loop's unadmitted_
  uint64_t unadmitted_number_ = 0;
  bool heard_ = false;
  std::atomic<bool> is_unread_{false};  // ended with an error
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
  {
    const std::lock_guard lock(unread_mutex_);
    stopping_ = true;
  }
  next_cut_.Revoke();
  queue_->Shutdown();
  Note(kLarge);  // wakes the thread that polls beside large messages, which then finds the queue shut down
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
  threads_.emplace_back([this] { PollBesideLarge(options_.threads); });
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

double CompletionQueueLoop::RunSeconds() const {
  double seconds = 0;
  for (const std::thread& thread : threads_) {
    clockid_t clock = 0;
    timespec time = {};
    if (pthread_getcpuclockid(const_cast<std::thread&>(thread).native_handle(), &clock) != 0) continue;
    if (clock_gettime(clock, &time) == 0)
      seconds += static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  return seconds;
}

void CompletionQueueLoop::CountReceived(const std::string& connection, size_t calls, size_t bytes,
                                        Clock::time_point began) const {
  const auto time = std::min<int64_t>((Clock::now() - began) / kTimeOfCall, kMostForTime);
  calls += bytes / kBytesOfCall + static_cast<size_t>(time);
  if (calls > 0 && options_.on_received != nullptr) options_.on_received(connection, calls);
}

bool CompletionQueueLoop::AddUnadmitted(GrpcRpc* rpc) {
  std::unique_lock lock(unadmitted_mutex_);
  rpc->unadmitted_ = unadmitted_.insert(unadmitted_.end(), rpc);
  rpc->unadmitted_number_ = ++unadmitted_number_;
  if (++unadmitted_count_ <= options_.unadmitted.most) return true;
  SortByPeer();
  GrpcRpc* const victim = OneTooMany();
  const bool is_new = victim == rpc;
  const bool served = !is_new && (victim->heard_ || !victim->method_->reads_first);
  Forget(victim);
  ++victim->expected_;  // keeps it; it was not 0, because every RPC leaves these lists before its last event
  lock.unlock();
  victim->EndUnadmitted(served);
  victim->Release();
  return !is_new;
}

void CompletionQueueLoop::SortByPeer() {
  while (!unadmitted_.empty()) {
    GrpcRpc* const rpc = unadmitted_.front();
    UnadmittedOfPeer& of_peer = unadmitted_of_peer_[PeerOf(rpc->connection())];
    std::list<GrpcRpc*>& of_connection = of_peer.of_connections[rpc->connection_number()];
    of_connection.splice(of_connection.end(), unadmitted_, unadmitted_.begin());
    ++of_peer.count;
    rpc->unadmitted_of_peer_ = &of_peer;
  }
  std::erase_if(unadmitted_of_peer_, [](const auto& entry) { return entry.second.count == 0; });
}

GrpcRpc* CompletionQueueLoop::OneTooMany() {
  const auto number_of_oldest = [](const UnadmittedOfPeer& of_peer) {
    uint64_t number = UINT64_MAX;
    for (const auto& [_, rpcs] : of_peer.of_connections) number = std::min(number, rpcs.front()->unadmitted_number_);
    return number;
  };
  const auto most_of_peers =
      std::max_element(unadmitted_of_peer_.begin(), unadmitted_of_peer_.end(), [&](const auto& a, const auto& b) {
        if (a.second.count != b.second.count) return a.second.count < b.second.count;
        return number_of_oldest(a.second) > number_of_oldest(b.second);  // then the one that has waited longest
      });
  const auto& connections = most_of_peers->second.of_connections;
  const auto most = std::max_element(connections.begin(), connections.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return most->second.back();  // the newest: the message of an older one may have come almost whole
}

bool CompletionQueueLoop::Hear(GrpcRpc* rpc) {
  const std::lock_guard lock(unadmitted_mutex_);
  if (!rpc->unadmitted_ || rpc->heard_) return false;
  rpc->heard_ = true;
  if (rpc->method_->admits) Forget(rpc);
  return true;
}

void CompletionQueueLoop::RemoveUnadmitted(GrpcRpc* rpc) {
  const std::lock_guard lock(unadmitted_mutex_);
  if (rpc->unadmitted_) Forget(rpc);
}

void CompletionQueueLoop::Forget(GrpcRpc* rpc) {
  if (UnadmittedOfPeer* const of_peer = rpc->unadmitted_of_peer_) {
    const auto of_connection = of_peer->of_connections.find(rpc->connection_number());
    of_connection->second.erase(*rpc->unadmitted_);
    if (of_connection->second.empty()) of_peer->of_connections.erase(of_connection);
    --of_peer->count;
  } else {
    unadmitted_.erase(*rpc->unadmitted_);
  }
  rpc->unadmitted_.reset();
  --unadmitted_count_;
}

// Calls that ended with an error and whose status waits: each takes some 18 KiB if its connection takes nothing.
constexpr size_t kMostUnread = 4096, kMostUnreadOfPeer = 1024;
constexpr std::chrono::milliseconds kCutInterval(25);

void CompletionQueueLoop::AddUnread(const Peer& peer) {
  const std::lock_guard lock(unread_mutex_);
  ++unread_;
  if (++unread_of_peer_[peer] <= kMostUnreadOfPeer && unread_ <= kMostUnread) return;
  if (options_.cut_stuck == nullptr || std::exchange(cutting_, true)) return;
  next_cut_ = timers_->At(std::chrono::steady_clock::now(), [this] { CutStuck(); });
}

void CompletionQueueLoop::CutStuck() try {
  std::set<Peer> peers;
  {
    const std::lock_guard lock(unread_mutex_);
    // With too many in all, those of each peer that has more than the average.
    const size_t most = unread_ > kMostUnread ? kMostUnread / unread_of_peer_.size() : kMostUnreadOfPeer;
    for (const auto& [peer, count] : unread_of_peer_) {
      if (count > std::min(most, kMostUnreadOfPeer)) peers.insert(peer);
    }
    cutting_ = !peers.empty();
    if (!cutting_) return;
  }
  options_.cut_stuck(peers);
  const std::lock_guard lock(unread_mutex_);
  if (stopping_) return;
  next_cut_ = timers_->At(std::chrono::steady_clock::now() + kCutInterval, [this] { CutStuck(); });
} catch (const std::bad_alloc&) {  // the next call that ends with an error tries again
  const std::lock_guard lock(unread_mutex_);
  cutting_ = false;
  throw;
}

void CompletionQueueLoop::RemoveUnread(const Peer& peer) {
  const std::lock_guard lock(unread_mutex_);
  --unread_;
  if (const auto found = unread_of_peer_.find(peer); --found->second == 0) unread_of_peer_.erase(found);
}

void CompletionQueueLoop::Handle(size_t thread, void* tag, bool ok) {
  options_.busy->Begin(thread);
  GrpcRpc::Event::Handle(tag, ok);
  options_.busy->End(thread);
}

// gRPC looks at the connections only while its queue is empty. What it has received of streams already would keep it
// from doing so: thousands of messages, each of which is in the queue as soon as it is read. So a stream's next message
// is read once the queue was empty twice. After one look at the connections would be too early: gRPC omits it if an
// event has come to the empty queue since the last one.
void CompletionQueueLoop::Poll(size_t thread) {
  AskForShortSlices();
  CountPollsOfThisThread();
  TimeReadsOfThisThread();
  LaterSteps own;
  later = &own;
  int empty = 0;  // since the last event or step
  void* tag = nullptr;
  for (bool ok = false;;) {
    if (own.empty()) {
      if (!queue_->Next(&tag, &ok)) return EndRead();
    } else if (queue_->AsyncNext(&tag, &ok, gpr_inf_past(GPR_CLOCK_REALTIME)) != grpc::CompletionQueue::GOT_EVENT) {
      tag = nullptr;
    }
    EndRead();
    if (tag != nullptr) {
      Handle(thread, tag, ok);
      ++own.events;
      empty = 0;
    } else {
      ++empty;
    }
    while (const std::optional<LaterSteps::Step> step = own.Take(empty == 2)) {
      options_.busy->Begin(thread);
      (step->rpc->*step->go_on)();
      options_.busy->End(thread);
      empty = 0;
    }
  }
}

void CompletionQueueLoop::Note(size_t bytes) {
  if (bytes < kLarge) return;
  large_at_ = std::chrono::steady_clock::now();
  if (!has_large_.exchange(true)) has_large_.notify_one();
}

void CompletionQueueLoop::PollBesideLarge(size_t thread) {
  AskForShortSlices();
  CountPollsOfThisThread();
  TimeReadsOfThisThread();
  for (;;) {
    has_large_.wait(false);
    void* tag = nullptr;
    bool ok = false;
    const auto status = queue_->AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kStay);
    EndRead();
    if (status == grpc::CompletionQueue::SHUTDOWN) return;
    if (status == grpc::CompletionQueue::GOT_EVENT) Handle(thread, tag, ok);
    if (std::chrono::steady_clock::now() - large_at_.load() < kStay) continue;
    has_large_ = false;
    if (std::chrono::steady_clock::now() - large_at_.load() < kStay) has_large_ = true;  // noted meanwhile
  }
}

}  // namespace posenc::server
