#include "server/unary_call.h"

#include <utility>

#include "posenc/status.h"
#include "wire/answer.h"

namespace posenc::server {
namespace {

// Of a request that no large call should hold up.
constexpr size_t kSmallBytes = size_t{64} << 10;

class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  static grpc::ServerUnaryReactor* Start(Core* core, const UnaryMethod& method, grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
    auto* call = new UnaryCall(core, method, context, request, response);
    call->self_.reset(call);
    call->Begin();
    return call;
  }

 private:
  friend std::default_delete<UnaryCall>;

  UnaryCall(Core* core, const UnaryMethod& method, grpc::CallbackServerContext* context,
            const grpc::ByteBuffer* request, grpc::ByteBuffer* response)
      : core_(core), method_(method), call_(core, method.name, context, request), answer_(response) {}
  ~UnaryCall() override = default;

  void Begin() {
    if (method_.immediate) return Run(Lane::kBulk);
    absl::Status status = call_.Admit();
    const bool small = method_.as_small_as_its_request && call_.bytes_in() <= kSmallBytes;
    if (status.ok()) status = Submit(small ? Lane::kSmall : Lane::kBulk);
    if (!status.ok()) Finish(call_.End(status));
  }

  absl::Status Submit(Lane lane) {
    return WithoutExceptions([this, lane] {
      core_->pool.Submit([this, lane] { Run(lane); }, lane);
      return absl::OkStatus();
    });
  }

  void Run(Lane lane) {
    bool misplaced = false;
    absl::Status status = WithoutExceptions([&] { return Serve(lane, &misplaced); });
    if (misplaced) {
      status = Submit(Lane::kBulk);
      if (status.ok()) return;
    }
    Finish(call_.End(status));
    // The call may be gone.
  }

  // *misplaced: it belongs into the other lane, and nothing was done.
  absl::Status Serve(Lane lane, bool* misplaced) {
    call_.BeginWork();
    POSENC_RETURN_IF_ERROR(call_.StillWanted());
    const std::unique_ptr<google::protobuf::Message> request(method_.request.New());
    POSENC_RETURN_IF_ERROR(call_.Parse(method_.stripper, request.get()));
    // What lies in shared memory can be large though the request is small.
    *misplaced = lane == Lane::kSmall && call_.shared_bytes() > static_cast<int64_t>(kSmallBytes);
    if (*misplaced) return absl::OkStatus();
    const std::unique_ptr<google::protobuf::Message> response(method_.response.New());
    POSENC_ASSIGN_OR_RETURN(const wire::Job job, method_.prepare(*request, call_.payloads(), response.get()));
    POSENC_ASSIGN_OR_RETURN(const wire::Answer layout, wire::Answer::LayOut(response.get(), job.outputs));

    std::shared_ptr<Charge> charge;
    if (!method_.immediate) {
      POSENC_ASSIGN_OR_RETURN(charge, call_.ChargeAnswer(layout.size()));
    }
    return call_.Compute(job, layout, std::move(charge), answer_);
  }

  void OnCancel() override { call_.Cancel(); }
  void OnDone() override { self_.reset(); }

  std::unique_ptr<UnaryCall> self_;
  Core* const core_;
  const UnaryMethod& method_;
  Call call_;
  grpc::ByteBuffer* const answer_;
};

}  // namespace

grpc::ServerUnaryReactor* StartUnaryCall(Core* core, const UnaryMethod& method, grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return UnaryCall::Start(core, method, context, request, response);
}

}  // namespace posenc::server
