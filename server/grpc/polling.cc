#include "server/grpc/polling.h"

#include <atomic>
#include <new>
#include <utility>

namespace posenc::server {

// How many RPCs can come at once before one is taken up; more wait within gRPC.
constexpr size_t kExpected = 16;

// From the wait for a client to the end of what it asked.
class GrpcRpc final : public Rpc {
 public:
  static void Expect(Polling* polling) {
    auto* rpc = new GrpcRpc(polling);
    ++polling->rpcs_;
    rpc->context_.AsyncNotifyWhenDone(&rpc->over_);
    polling->service_.RequestCall(&rpc->context_, &rpc->stream_, polling->queue_.get(), polling->queue_.get(),
                                  &rpc->arrived_);
  }

  // What gRPC hands back when something has happened.
  struct Event {
    GrpcRpc* rpc;
    void (GrpcRpc::*happened)(bool ok);
  };

  std::chrono::system_clock::time_point deadline() const override { return context_.deadline(); }
  bool cancelled() const override { return cancelled_; }
  void AddTrailer(const std::string& name, const std::string& value) override {
    context_.AddTrailingMetadata(name, value);
  }
  void TryCancel() override { context_.TryCancel(); }
  void Read(grpc::ByteBuffer* message) override {
    ++expected_;
    stream_.Read(message, &read_);
  }
  void Write(const grpc::ByteBuffer& message) override {
    ++expected_;
    stream_.Write(message, &written_);
  }
  void Finish(const grpc::Status& status) override { stream_.Finish(status, &finished_); }
  void WriteAndFinish(const grpc::ByteBuffer& message) override {
    stream_.WriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK, &finished_);
  }

 private:
  explicit GrpcRpc(Polling* polling) : polling_(polling) {}
  ~GrpcRpc() = default;

  void OnArrived(bool ok) {
    if (!ok) return Go();  // the server ends
    Expect(polling_);      // the next
    const auto method = polling_->methods_.find(context_.method());
    if (method == polling_->methods_.end()) {
      Finish({grpc::UNIMPLEMENTED, "there is no method " + context_.method()});
      return Release();
    }
    make_ = &method->second.make;
    if (!method->second.reads_first) return Serve(nullptr);
    stream_.Read(&request_, &first_read_);
  }
  void OnFirstRead(bool /*ok*/) { Serve(&request_); }
  void Serve(grpc::ByteBuffer* request) {
    try {
      reactor_ = (*make_)(this, request);
    } catch (const std::bad_alloc&) {
      Finish({grpc::RESOURCE_EXHAUSTED, "out of memory"});
      return Release();
    }
    reactor_->Start();
    serving_ = true;
    if (cancelled_) TellCancelled();
    Release();
  }

  void OnRead(bool ok) {
    reactor_->OnReadDone(ok);
    Release();
  }
  void OnWritten(bool ok) {
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
    Polling* const polling = polling_;
    delete this;
    if (--polling->rpcs_ == 0) polling->rpcs_.notify_all();
  }

  Event arrived_{this, &GrpcRpc::OnArrived}, first_read_{this, &GrpcRpc::OnFirstRead}, read_{this, &GrpcRpc::OnRead},
      written_{this, &GrpcRpc::OnWritten}, finished_{this, &GrpcRpc::OnFinished}, over_{this, &GrpcRpc::OnOver};
  Polling* const polling_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  std::atomic<int> expected_{
      3};  // before it can go: the reactor's start, Finish(), the RPC's end, and what is under way
  std::atomic<bool> cancelled_{false}, serving_{false}, told_{false};
  const MakeReactor* make_ = nullptr;
  grpc::ByteBuffer request_;
  std::unique_ptr<Reactor> reactor_;  // ends first
};

Polling::Polling(grpc::ServerBuilder* builder) : queue_(builder->AddCompletionQueue()) {
  builder->RegisterAsyncGenericService(&service_);
}

Polling::~Polling() {
  // Nothing may be begun on a queue that is shut down, not even the end of a call that was cancelled.
  for (int64_t rpcs = rpcs_; rpcs > 0; rpcs = rpcs_) rpcs_.wait(rpcs);
  queue_->Shutdown();
  for (std::thread& thread : threads_) thread.join();
  // No server came of it, and nothing is under way. gRPC logs that the queue ends before its server: that one failed.
  if (threads_.empty()) Poll();
}

void Polling::Start(Methods methods, size_t threads) {
  methods_ = std::move(methods);
  for (size_t n = 0; n < kExpected; ++n) GrpcRpc::Expect(this);
  for (size_t n = 0; n < threads; ++n) threads_.emplace_back([this] { Poll(); });
}

void Polling::Poll() {
  void* tag = nullptr;
  for (bool ok = false; queue_->Next(&tag, &ok);) {
    const auto* event = static_cast<GrpcRpc::Event*>(tag);
    (event->rpc->*event->happened)(ok);
  }
}

}  // namespace posenc::server
