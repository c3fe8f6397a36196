#include "server/unary_call.h"

#include <optional>
#include <utility>

#include "posenc/status.h"
#include "wire/answer.h"

namespace posenc::server {
namespace {

// Of a request, and of its answer: what no large call should hold up.
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
    if (method_.immediate) return End(Serve());
    absl::Status status = call_.Admit();
    if (status.ok()) status = Submit(call_.bytes_in() <= kSmallBytes ? Lane::kSmall : Lane::kBulk);
    if (!status.ok()) End(status);
  }

  absl::Status Submit(Lane lane) {
    return WithoutExceptions([this, lane] {
      core_->pool.Submit([this, lane] { Run(lane); }, lane);
      return absl::OkStatus();
    });
  }

  void Run(Lane lane) {
    absl::Status status;
    if (!layout_) {
      status = WithoutExceptions([this] { return Prepare(); });
      if (status.ok() && lane == Lane::kSmall && layout_->size() > kSmallBytes) {
        // A few bytes can ask for many.
        call_.EndWork();
        status = Submit(Lane::kBulk);
        if (status.ok()) return;  // another thread has the call
      }
    } else {
      call_.BeginWork();
    }
    if (status.ok()) status = WithoutExceptions([this] { return Compute(); });
    End(status);
  }

  absl::Status Serve() {
    return WithoutExceptions([this] {
      POSENC_RETURN_IF_ERROR(Prepare());
      return Compute();
    });
  }

  absl::Status Prepare() {
    call_.BeginWork();
    POSENC_RETURN_IF_ERROR(call_.StillWanted());
    request_.reset(method_.request.New());
    POSENC_RETURN_IF_ERROR(call_.Parse(method_.stripper, request_.get()));
    response_.reset(method_.response.New());
    POSENC_ASSIGN_OR_RETURN(job_, method_.prepare(*request_, call_.payloads(), response_.get()));
    POSENC_ASSIGN_OR_RETURN(layout_, wire::Answer::LayOut(response_.get(), job_.outputs));
    return absl::OkStatus();
  }

  absl::Status Compute() {
    std::shared_ptr<Charge> charge;
    if (!method_.immediate) {
      POSENC_ASSIGN_OR_RETURN(charge, call_.ChargeAnswer(layout_->size()));
    }
    return call_.Compute(job_, *layout_, std::move(charge), answer_);
  }

  void End(const absl::Status& status) {
    // A caller that does not read its answer keeps the call, which should hold no more than that.
    job_ = {};
    request_.reset();
    response_.reset();
    Finish(call_.End(status));
    // The call may be gone.
  }

  void OnCancel() override { call_.Cancel(); }
  void OnDone() override { self_.reset(); }

  std::unique_ptr<UnaryCall> self_;
  Core* const core_;
  const UnaryMethod& method_;
  Call call_;
  grpc::ByteBuffer* const answer_;
  std::unique_ptr<google::protobuf::Message> request_, response_;
  wire::Job job_;
  std::optional<wire::Answer> layout_;  // once prepared
};

}  // namespace

grpc::ServerUnaryReactor* StartUnaryCall(Core* core, const UnaryMethod& method, grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return UnaryCall::Start(core, method, context, request, response);
}

}  // namespace posenc::server
