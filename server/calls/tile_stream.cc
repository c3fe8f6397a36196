#include "server/calls/calls.h"

#include <memory>
#include <utility>

#include "posenc/base/status.h"
#include "posenc/wire/answer.h"
#include "posenc/wire/payloads.h"

namespace posenc::server {
namespace {

// Bytes by which later tiles may exceed the first, which omits row_begin: a varint with its tag.
constexpr size_t kRowBeginBytes = 11;

class TileCall final : public Reactor {
 public:
  TileCall(Core* core, const wire::TileOperation& operation, Rpc* rpc, grpc::ByteBuffer* request)
      : core_(core), operation_(operation), rpc_(rpc), call_(core, operation.rpc, rpc, request, Call::Kind::kStream) {}

  void Start() override {
    absl::Status status = call_.Admit();
    if (status.ok()) status = SubmitTile();
    if (!status.ok()) End(status);
  }

 private:
  absl::Status SubmitTile() {
    return WithoutExceptions([this] {
      call_.Submit([this] { WriteTile(); });
      return absl::OkStatus();
    });
  }

  void WriteTile() {
    call_.BeginWork();
    const absl::Status status = call_.RunStep([this] { return ComputeTile(); });
    call_.EndWork();
    if (!status.ok()) return End(status);
    call_.BeginSend();
    rpc_->Write(tile_);
    // OnWriteDone() may already run on another thread.
  }

  absl::Status ComputeTile() {
    POSENC_RETURN_IF_ERROR(call_.StillWanted());
    const bool first = charge_ == nullptr;
    if (first) {
      const std::unique_ptr<google::protobuf::Message> request(operation_.rpc.request.New());
      POSENC_ASSIGN_OR_RETURN(const std::string stripped, call_.Strip(operation_.rpc.request_stripper));
      POSENC_RETURN_IF_ERROR(call_.Parse(stripped, request.get()));
      POSENC_ASSIGN_OR_RETURN(tiles_, operation_.prepare(*request, call_.payloads(), core_->config.limits));
    }
    const std::unique_ptr<google::protobuf::Message> response(operation_.rpc.response.New());
    const wire::Job job = tiles_.tile(next_row_, response.get());
    POSENC_ASSIGN_OR_RETURN(const wire::Answer layout, wire::Answer::LayOut(response.get(), job.outputs));
    if (first) {
      POSENC_ASSIGN_OR_RETURN(charge_, call_.ChargeAnswer(layout.size() + kRowBeginBytes));
    }
    POSENC_RETURN_IF_ERROR(call_.Compute(job.run, job.outputs, wire::InMessage(), layout, charge_, &tile_));
    if (first) call_.ReleaseRequest();  // not at the end: unmapping can take long
    call_.CountTensors(job.outputs, DeviceOf(*response));
    next_row_ += tiles_.RowsAt(next_row_);
    if (next_row_ >= tiles_.rows) tiles_.tile = nullptr;  // can be large: freed here, on a pool thread
    return absl::OkStatus();
  }

  void OnWriteDone(bool ok) override {
    call_.EndSend();
    tile_.Clear();
    absl::Status status;
    if (!ok) status = absl::CancelledError("the caller is gone");
    if (status.ok() && next_row_ < tiles_.rows) {
      status = SubmitTile();
      if (status.ok()) return;
    }
    End(status);
  }

  void End(const absl::Status& status) {
    call_.Free(std::move(tiles_));  // can be large: not kept while the client is awaited
    rpc_->Finish(call_.End(status));
    // The stream may be destroyed by now.
  }

  Core* const core_;
  const wire::TileOperation& operation_;
  Rpc* const rpc_;
  Call call_;
  wire::TileStream tiles_ = {};
  int64_t next_row_ = 0;
  std::shared_ptr<Charge> charge_;
  grpc::ByteBuffer tile_;
};

}  // namespace

std::unique_ptr<Reactor> MakeTileStream(Core* core, const wire::TileOperation& operation, Rpc* rpc,
                                        grpc::ByteBuffer* request) {
  return std::make_unique<TileCall>(core, operation, rpc, request);
}

}  // namespace posenc::server
